"""timm: models follow their tensors; its loader prefetches on a stream of the device.

PrefetchLoader has a branch for CUDA and one for Ascend's NPU; the latter gets the device's name.
Without it batches come too, but their copies overlap nothing.
"""

from __future__ import annotations

import types

from causeway.integrations import Integration, relabel


def _loaded(module: types.ModuleType) -> None:
    if module.__name__ in ("timm.data.loader", "timm.data.naflex_loader"):
        done = relabel.rename_device(module, "npu")
        if not any(name.endswith("Loader.__iter__") for name in done):
            raise LookupError("PrefetchLoader has no branch for npu")


INTEGRATION = Integration(
    ("1.0.31", "1.0.31"), "its loader's branch for NPU is taken with this device's name", _loaded
)
