"""CW110: Names and properties of a device."""

from __future__ import annotations

import ast

from causeway.migrate.module import Module
from causeway.migrate.rule import Rule
from causeway.migrate.rules import table

RULE = Rule(
    code="CW110",
    name="properties",
    title="Names and properties of a device",
    why="They are NVIDIA's; torch.get_device_module() is the module of the device in use.",
    by_hand="Ask torch.accelerator, or torch.get_device_module() for what only some devices have.",
    before="import torch\n\nn = torch.cuda.utilization()\n",
    after='import torch\n\nn = getattr(torch.get_device_module(), "utilization", lambda *_: 0)()\n',
)


# What NVIDIA's properties have and others need not.
_OWN = {"major", "minor", "multi_processor_count", "gcnArchName", "warp_size", "is_multi_gpu_board"}


def run(module: Module) -> None:
    for use in module.uses("torch.cuda.get_device_properties"):
        if not module.vendor and use.call and _reads_own(module, use.call):
            module.report(
                RULE, use.node, "manual", "it asks for properties that are NVIDIA's own",
                tip="Ask for what is needed instead: "
                "torch.accelerator.get_device_capability()['supported_dtypes'] has the dtypes.",
                api=use.api, breaking=True,
            )  # fmt: skip
    table.run(module, RULE)


def _reads_own(module: Module, call: ast.Call) -> bool:
    """Whether the program reads, of what the call gives, what only NVIDIA's properties have."""
    up = call.up  # type: ignore[attr-defined]
    if isinstance(up, ast.Attribute):
        return up.attr in _OWN
    if not isinstance(up, ast.Assign):
        return False
    names = {module.text(target) for target in up.targets}
    return any(
        node.attr in _OWN and module.text(node.value) in names
        for node in module.names.all(ast.Attribute)
    )
