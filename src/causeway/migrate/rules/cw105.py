"""CW105: Devices: count, current, set, synchronize."""

from __future__ import annotations

from causeway.migrate.module import Module
from causeway.migrate.rule import Rule
from causeway.migrate.rules import table

RULE = Rule(
    code="CW105",
    name="device-functions",
    title="Devices: count, current, set, synchronize",
    why="torch.cuda's functions serve CUDA alone; torch.accelerator has them for every device.",
    by_hand="Ask torch.accelerator, or torch.get_device_module() for what only some devices have.",
    before="import torch\n\ntorch.cuda.set_device(1)\nn = torch.cuda.device_count()\n",
    after="import torch\n\ntorch.accelerator.set_device_index(1)\n"
    "n = torch.accelerator.device_count()\n",
)


def run(module: Module) -> None:
    table.run(module, RULE)
