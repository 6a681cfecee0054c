"""diffusers: since 0.41 it asks torch.accelerator; before, devices are tables and branches.

The tables of `diffusers.utils.torch_utils` get a line for the device, its branches for Ascend's NPU
are taken (see relabel.py), and the one for Intel's XPU that group offloading makes its stream by.
Its layers ask for the NPU too, for Ascend's own kernels: they are left alone.
"""

from __future__ import annotations

import os
import types
from typing import Any

import torch

from causeway import integrations
from causeway.integrations import relabel

# A table, and the function of torch.<name> in it. What is no function is a number there.
TABLES = {
    "BACKEND_EMPTY_CACHE": "empty_cache",
    "BACKEND_DEVICE_COUNT": "device_count",
    "BACKEND_MANUAL_SEED": "manual_seed",
    "BACKEND_RESET_PEAK_MEMORY_STATS": "reset_peak_memory_stats",
    "BACKEND_RESET_MAX_MEMORY_ALLOCATED": "reset_max_memory_allocated",
    "BACKEND_MAX_MEMORY_ALLOCATED": "max_memory_allocated",
    "BACKEND_SYNCHRONIZE": "synchronize",
}
PREDICATES = {"is_torch_npu_available": "npu"}


def _loaded(module: types.ModuleType) -> None:
    name = module.__name__.removeprefix("diffusers.")
    if name == "training_utils":
        relabel.take_branches(module, PREDICATES)
    elif name == "utils.torch_utils":
        if hasattr(module, "TorchDeviceBackend"):
            integrations.note("diffusers", "it asks torch.accelerator")
            return
        if "get_device" not in relabel.take_branches(module, PREDICATES):
            raise LookupError("get_device has no branch for npu")
        _extend(module)
    elif name == "utils.testing_utils":
        if module.torch_device == "cpu" and "DIFFUSERS_TEST_DEVICE" not in os.environ:
            module.torch_device = integrations.state.device  # type: ignore[attr-defined]
    elif name == "hooks.group_offloading" and not hasattr(module, "TorchDeviceBackend"):
        done = relabel.rename_device(module, "xpu")
        if "apply_group_offloading" not in done:
            raise LookupError("apply_group_offloading has no branch for xpu")


def _extend(module: types.ModuleType) -> None:
    device = integrations.state.device
    functions = torch.get_device_module(device)
    tables: dict[str, Any] = vars(module)
    for table, function in TABLES.items():
        if table in tables:
            tables[table][device] = getattr(functions, function)
    tables["BACKEND_SUPPORTS_TRAINING"][device] = True
    integrations.note("diffusers", "its tables of functions have the device's")


INTEGRATION = integrations.Integration(
    ("0.38.0", "0.42.1"),
    "it asks torch.accelerator; before 0.41 its tables and branches are given the device",
    _loaded,
)
