"""safetensors: its reader has a list of devices by name, but takes an index of the accelerator.

`safe_open(device="sim:1")` becomes `safe_open(device=1)`, also for `load_file`, `load_model` and
whoever imports it from safetensors. Saving needs nothing.
"""

from __future__ import annotations

import functools
import types
from typing import Any

import torch

from causeway import integrations


def _loaded(module: types.ModuleType) -> None:
    if module.__name__ != "safetensors":
        return
    plain = module.safe_open

    @functools.wraps(plain, updated=())
    def safe_open(filename: Any, framework: str, device: Any = "cpu", **options: Any) -> Any:
        if framework in ("pt", "torch", "pytorch"):
            device = _index(device)
        return plain(filename, framework=framework, device=device, **options)

    module.safe_open = safe_open  # type: ignore[attr-defined]
    integrations.note("safetensors", "safe_open knows the device's name")


def _index(device: Any) -> Any:
    """The index of one of ours, the current one for a bare name; anything else as it was."""
    name = integrations.state.device
    if not isinstance(device, str | torch.device) or str(device).partition(":")[0] != name:
        return device
    index = torch.device(device).index
    return torch.get_device_module(name).current_device() if index is None else index


INTEGRATION = integrations.Integration(
    ("0.8.0", "0.8.0"), "its reader is given the device's index for its name", _loaded
)
