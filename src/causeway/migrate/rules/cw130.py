"""CW130: Flags of torch.backends and torch.version."""

from __future__ import annotations

from causeway.migrate.module import Module
from causeway.migrate.rule import Rule
from causeway.migrate.rules import notes

_EXAMPLE = "import torch\n\ntorch.backends.cudnn.benchmark = True\n"
RULE = Rule(
    code="CW130",
    name="backend-flags",
    title="Flags of torch.backends and torch.version",
    why="They are switches and facts of CUDA's libraries. Most do no harm elsewhere.",
    by_hand="Leave them; say what you want of every device with "
    "torch.use_deterministic_algorithms() and torch.set_float32_matmul_precision().",
    before=_EXAMPLE,
    after=_EXAMPLE,
)


def run(module: Module) -> None:
    notes.run(module, RULE)
