"""CW109: Memory: statistics and caches."""

from __future__ import annotations

from causeway.migrate.module import Module
from causeway.migrate.rule import Rule
from causeway.migrate.rules import table

RULE = Rule(
    code="CW109",
    name="memory",
    title="Memory: statistics and caches",
    why="Memory is counted by each device's allocator; torch.accelerator asks the one in use.",
    by_hand="Ask torch.accelerator, or torch.get_device_module() for what only some devices have.",
    before="import torch\n\ntorch.cuda.empty_cache()\n"
    "peak = torch.cuda.max_memory_allocated(device=0)\n",
    after="import torch\n\nif torch.accelerator.is_available():\n"
    "    torch.accelerator.empty_cache()\n"
    "peak = torch.accelerator.max_memory_allocated(0) "
    "if torch.accelerator.is_available() else 0\n",
)


def run(module: Module) -> None:
    table.run(module, RULE)
