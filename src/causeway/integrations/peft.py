"""peft: adapters are moved to `infer_device()` when they are loaded, which has a branch for NPU."""

from __future__ import annotations

import types

from causeway.integrations import Integration
from causeway.integrations.accelerate import PREDICATES
from causeway.integrations.relabel import take_branches


def _loaded(module: types.ModuleType) -> None:
    done = take_branches(module, PREDICATES)
    if module.__name__ == "peft.utils.other" and "infer_device" not in done:
        raise LookupError("infer_device has no branch for npu")


INTEGRATION = Integration(
    ("0.21.2", "0.21.2"), "its branch for NPU is taken with this device's name", _loaded
)
