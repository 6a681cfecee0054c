"""CW152: torch.load without map_location."""

from __future__ import annotations

import ast

from causeway.migrate.module import Module
from causeway.migrate.rule import Rule

RULE = Rule(
    code="CW152",
    name="load",
    title="torch.load without map_location",
    why="A checkpoint that was saved on CUDA asks for CUDA when it is loaded.",
    by_hand="`torch.load(path, map_location=device)`. A checkpoint that this program saved on the "
    "device itself needs nothing.",
    before='import torch\n\nstate = torch.load("model.pt")\n',
    after='import torch\n\nstate = torch.load("model.pt")\n',
    safe=False,
    severity="info",
)


def run(module: Module) -> None:
    for use in module.uses("torch.load"):
        call = use.call
        if call is None or use.api != "torch.load" or module.vendor:
            continue
        if len(call.args) > 1 or any(isinstance(a, ast.Starred) for a in call.args):
            continue
        if any(k.arg in ("map_location", None) for k in call.keywords):
            continue
        if not module.settings.unsafe:
            module.report(RULE, call, "manual", "a checkpoint from CUDA will not load elsewhere",
                          tip=RULE.by_hand + " `--unsafe` writes it.", api=use.api)  # fmt: skip
            continue
        edit = module.insert_last(call, f"map_location={module.device(call)}")
        module.change(RULE, call, [edit], "tensors are loaded onto the device", api=use.api)
