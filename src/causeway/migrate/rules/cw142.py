"""CW142: environment variables of CUDA and NCCL."""

from __future__ import annotations

import ast

from causeway.migrate import knowledge
from causeway.migrate.module import Module
from causeway.migrate.rule import Rule
from causeway.migrate.source import Edit

RULE = Rule(
    code="CW142",
    name="environment",
    title="Environment variables of CUDA and NCCL",
    why="Other devices do not read them. CUDA's driver reads CUDA_VISIBLE_DEVICES once, when a "
    "device is first asked for. In a tree that sets it when modules are imported already, the line "
    "that names the device has no `check_available=True`: it starts no driver, and places that "
    "asked whether there is a device still ask. A line of before, with it, stays and is reported.",
    by_hand="Also set the variable of the vendor (CAUSEWAY_VISIBLE_DEVICES, "
    "ASCEND_RT_VISIBLE_DEVICES, MLU_VISIBLE_DEVICES), or choose devices in the launch script.",
    before='import os\n\nos.environ["CUDA_VISIBLE_DEVICES"] = "0"\n',
    after='import os\n\nos.environ["CUDA_VISIBLE_DEVICES"] = "0"\n',
)
_HARMLESS = {
    "CUDA_LAUNCH_BLOCKING": "It has no effect elsewhere; torch.accelerator.synchronize() after a "
    "call tells where it fails.",
    "CUDA_DEVICE_ORDER": "It has no effect elsewhere.",
    "CUBLAS_WORKSPACE_CONFIG": "It has no effect elsewhere; "
    "torch.use_deterministic_algorithms(True) is for every device.",
    "PYTORCH_CUDA_ALLOC_CONF": "It has no effect elsewhere; torch reads PYTORCH_ALLOC_CONF for "
    "every device from 2.9 on.",
    "PYTORCH_NVML_BASED_CUDA_CHECK": "It has no effect elsewhere.",
    "CUDA_HOME": "It is where CUDA's toolkit lies; it has no effect elsewhere.",
}


def run(module: Module) -> None:
    _keywords(module)
    line = module.helper_line
    if line is not None and module.chosen_late and not module.by_build and not module.vendor:
        module.report(
            RULE, line, "manual", "the device is asked for before the program chooses its devices",
            tip="Take `check_available=True` out, and ask torch.accelerator.is_available() where "
            "there may be no device; or set the variable before the imports.",
        )  # fmt: skip
    for node in sorted(module.names.all(ast.Constant), key=module.source.start):
        value = node.value
        if not isinstance(value, str) or not value.isupper() or isinstance(
            node.up, ast.JoinedStr | ast.Expr  # type: ignore[attr-defined]
        ):  # fmt: skip
            continue
        if value == "CUDA_VISIBLE_DEVICES":
            _visible(module, node)
        elif value in _HARMLESS or (value.startswith("NCCL_") and value.isidentifier()):
            tip = _HARMLESS.get(value, "NCCL alone reads it; other libraries have their own.")
            module.report(RULE, node, "portable", f"{value} has no effect on other devices",
                          tip=tip)  # fmt: skip


def _keywords(module: Module) -> None:
    """`os.environ.update(CUDA_VISIBLE_DEVICES="0")`, `dict(os.environ, CUDA_VISIBLE_DEVICES=…)`."""
    wanted = knowledge.target(module.vendor).visible if module.vendor else ""
    for keyword in module.names.all(ast.keyword):
        if keyword.arg != "CUDA_VISIBLE_DEVICES":
            continue
        if wanted:
            at = module.source.start(keyword)
            module.change(RULE, keyword, [Edit(at, at + len(keyword.arg), wanted)],
                          f"{module.vendor}'s variable")  # fmt: skip
        else:
            module.report(RULE, keyword, "manual", f"{keyword.arg} has no effect on other devices",
                          severity="info")  # fmt: skip


def _visible(module: Module, node: ast.Constant) -> None:
    name = knowledge.target(module.vendor).visible if module.vendor else ""
    parts = module.source.string_parts(node)
    if name and parts:
        text = f"{parts[0]}{parts[1]}{name}{parts[1]}"
        module.change(RULE, node, [Edit(module.source.start(node), module.source.end(node), text)],
                      f"{module.vendor}'s variable")  # fmt: skip
    else:
        module.report(RULE, node, "manual", "CUDA_VISIBLE_DEVICES has no effect on other devices",
                      severity="info")  # fmt: skip
