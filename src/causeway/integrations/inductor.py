"""torch.compile: the device, registered with torch._dynamo and Inductor when they are imported."""

from __future__ import annotations

import sys
import types

from causeway import integrations
from causeway.untraced import untraced_module

DEVICES = "torch._dynamo.device_interface"
BACKENDS = "torch._inductor.compile_fx"


def _loaded(module: types.ModuleType) -> None:
    name = integrations.state.device
    if module.__name__ == DEVICES:
        import torch
        from torch._functorch._aot_autograd import utils

        from causeway.compile import interface, shapes

        shapes.register()
        # A random operator that the backward computes again is given the forward's generator.
        if register := getattr(utils, "register_graphsafe_rng_device_type", None):
            register(name)
        made = interface.make(module.DeviceInterface)
        module.register_interface_for_device(name, made)
        for index in range(torch.accelerator.device_count()):
            module.register_interface_for_device(f"{name}:{index}", made)
        # torch calls them at run time, where it restores random numbers after a graph break.
        for loaded in [m for n, m in sys.modules.items() if n.startswith("causeway.device.")]:
            untraced_module(loaded)
        integrations.note("inductor", "torch._dynamo knows the device")
    elif module.__name__ == BACKENDS:
        from causeway.compile import entry

        why = entry.cannot_fuse()
        if not why:
            from causeway.compile import backend, decompositions

            backend.register()
            decompositions.replace()
        vars(module)["compile_fx"] = entry.around(vars(module)["compile_fx"])
        how = f"runs graphs by the ladder: {why}" if why else "writes kernels for the device"
        integrations.note("inductor", f"torch.compile {how}")


INTEGRATION = integrations.Integration(
    tested=("2.13", "2.13"),
    how="torch.compile fuses on the device",
    loaded=_loaded,
    distribution="torch",
)
