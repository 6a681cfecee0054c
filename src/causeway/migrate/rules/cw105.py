"""CW105: Devices: count, current, set, synchronize."""

from __future__ import annotations

import ast

from causeway.migrate.module import Module, Use
from causeway.migrate.names import ancestors
from causeway.migrate.rule import Rule
from causeway.migrate.rules import elsewhere, labels, table
from causeway.migrate.rules.kernels import builds_for_cuda
from causeway.migrate.rules.roles import Role, role
from causeway.migrate.source import Edit

RULE = Rule(
    code="CW105",
    name="device-functions",
    title="Devices: count, current, set, synchronize",
    why="torch.cuda's functions serve CUDA alone; torch.accelerator has them for every device.",
    by_hand="Ask torch.accelerator, or torch.get_device_module() for what only some devices have.",
    before="import torch\n\ntorch.cuda.set_device(1)\nn = torch.cuda.device_count()\n",
    after="import torch\n\nif torch.accelerator.is_available():\n"
    "    torch.accelerator.set_device_index(1)\nn = torch.accelerator.device_count()\n",
)


def run(module: Module) -> None:
    for use in () if module.vendor else module.uses("torch.cuda.current_device"):
        _as_device(module, use)
    for use in () if module.vendor else module.uses("torch.cuda.device_count"):
        branch = next((u for c, u in ancestors(use.node) if getattr(u, "test", None) is c), None)
        if isinstance(branch, ast.If) and any(map(builds_for_cuda, branch.body)):
            module.report(
                RULE, use.node, "portable", "it decides on code that is for CUDA alone",
                tip="It is 0 on other devices, so that code is left out there.", api=use.api,
            )  # fmt: skip
        elif use.call and elsewhere.named_switch_of_others(module, use.call):
            module.report(
                RULE, use.node, "portable", "it is a switch of a library for CUDA alone",
                tip="Leave it, or give the library another device.", api=use.api,
            )  # fmt: skip
        elif use.call and labels.is_count_of_cuda(module, use.call):
            module.report(
                RULE, use.node, "portable", "a text beside it says that it is about CUDA",
                tip="Leave it, or show the number of the devices in use too.", api=use.api,
            )  # fmt: skip
    table.run(module, RULE)


def _as_device(module: Module, use: Use) -> None:
    """`x.to(torch.cuda.current_device())` to `x.to(accelerator)`: the device without an index is
    the current one, and the CPU where there is none.
    """
    call = use.call
    if call is None or call.args or call.keywords:
        return
    up = call.up  # type: ignore[attr-defined]
    if isinstance(up, ast.Call) and isinstance(up.func, ast.Attribute) and up.func.attr == "cuda":
        module.done.add(id(use.node))  # CW102 sees to it
        return
    if isinstance(up, ast.Call) and module.resolve(up.func) == "torch.cuda.device":
        module.change(
            RULE, use.node, module.rename(use, "torch.accelerator.current_device_index"),
            "the index of the current device", api=use.api,
        )  # fmt: skip
        module.done.add(id(use.node))  # CW107 asks whether there is one
        return
    if role(module, call, "device") is not Role.DEVICE:
        return
    edit = Edit(module.source.start(call), module.source.end(call), module.device(call))
    if module.change(RULE, call, [edit], "the device without an index is the current one",
                     api=use.api):  # fmt: skip
        module.gone.add(id(module.root(use.node)))
    module.done.add(id(use.node))
