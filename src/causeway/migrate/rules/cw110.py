"""CW110: Names and properties of a device."""

from __future__ import annotations

from causeway.migrate.module import Module
from causeway.migrate.rule import Rule
from causeway.migrate.rules import table

RULE = Rule(
    code="CW110",
    name="properties",
    title="Names and properties of a device",
    why="They are NVIDIA's; torch.get_device_module() is the module of the device in use.",
    by_hand="Ask torch.accelerator, or torch.get_device_module() for what only some devices have.",
    before="import torch\n\nname = torch.cuda.get_device_name(0)\n",
    after="import torch\n\nname = torch.get_device_module().get_device_name(0)\n",
)


def run(module: Module) -> None:
    table.run(module, RULE)
