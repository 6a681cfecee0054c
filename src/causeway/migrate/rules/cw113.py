"""CW113: Other parts of torch.cuda."""

from __future__ import annotations

from causeway.migrate.module import Module
from causeway.migrate.rule import Rule
from causeway.migrate.rules import table

RULE = Rule(
    code="CW113",
    name="runtime",
    title="Other parts of torch.cuda",
    why="They call CUDA's own runtime or libraries.",
    by_hand="Ask torch.accelerator, or torch.get_device_module() for what only some devices have.",
    before="import torch\n\nhandle = torch.cuda.current_blas_handle()\n",
    after="import torch\n\nhandle = torch.cuda.current_blas_handle()\n",
)


def run(module: Module) -> None:
    table.run(module, RULE)
