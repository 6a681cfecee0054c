"""CW112: CUDA graphs."""

from __future__ import annotations

from causeway.migrate.module import Module
from causeway.migrate.rule import Rule
from causeway.migrate.rules import table

RULE = Rule(
    code="CW112",
    name="graphs",
    title="CUDA graphs",
    why="A graph of kernels is captured by CUDA's runtime, and not every device can.",
    by_hand="Ask torch.accelerator, or torch.get_device_module() for what only some devices have.",
    before="import torch\n\ngraph = torch.cuda.CUDAGraph()\n",
    after="import torch\n\ngraph = torch.cuda.CUDAGraph()\n",
)


def run(module: Module) -> None:
    table.run(module, RULE)
