"""CW160: CUDA extensions."""

from __future__ import annotations

from causeway.migrate.module import Module
from causeway.migrate.rule import Rule
from causeway.migrate.rules import notes

_EXAMPLE = (
    "from torch.utils.cpp_extension import CUDAExtension\n\n"
    'ext = CUDAExtension("ops", ["ops.cu"])\n'
)
RULE = Rule(
    code="CW160",
    name="extension",
    title="CUDA extensions",
    why="They are compiled by NVIDIA's compiler.",
    by_hand="Keep a version with torch's operators, and build the extension only where "
    "torch.version.cuda is set.",
    before=_EXAMPLE,
    after=_EXAMPLE,
)


def run(module: Module) -> None:
    notes.run(module, RULE)
