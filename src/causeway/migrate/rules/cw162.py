"""CW162: custom operators, `torch.ops.mine.scale(x)`."""

from __future__ import annotations

from causeway.migrate.module import Module
from causeway.migrate.rule import Rule

RULE = Rule(
    code="CW162",
    name="custom-operator",
    title="A custom operator",
    why="It has kernels for the devices that its library registered them for, often CUDA and no "
    "other. A call with tensors of another device raises NotImplementedError.",
    by_hand="See what it has kernels for: torch._C._dispatch_dump('mine::scale'). Without one for "
    "the device, write it with torch's operators and register that: torch.library.impl("
    '"mine::scale", "CompositeImplicitAutograd").',
    before="import torch\n\ny = torch.ops.mine.scale(x, 2.0)\n",
    after="import torch\n\ny = torch.ops.mine.scale(x, 2.0)\n",
)
# torch's own; torchvision's have kernels or decompositions that a device is served by.
_OWN = {
    "_c10d_functional", "_dtensor", "aten", "c10d", "c10d_functional", "debugprims", "fsdp",
    "higher_order", "inductor", "mkl", "mkldnn", "onednn", "prim", "prims", "profiler", "quantized",
    "quantized_decomposed", "rngprims", "sparse", "streams", "symm_mem", "torchvision",
}  # fmt: skip


def run(module: Module) -> None:
    for use in module.uses("torch.ops"):
        parts = use.api.split(".")
        if parts[2:] == ["load_library"]:
            module.report(
                RULE, use.node, "manual", "a library of custom operators is loaded",
                tip="It must be built, and have kernels, for the device.", api=use.api,
                category="operator",
            )  # fmt: skip
        elif len(parts) >= 4 and parts[2] not in _OWN:
            name = ".".join(parts[2:4])
            module.report(RULE, use.node, "manual", f"{name} is a custom operator",
                          api=".".join(parts[:4]), category="operator")  # fmt: skip
