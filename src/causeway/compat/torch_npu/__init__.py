"""torch_npu's names, for code that was written for Huawei's chips: see docs/compat.md."""

from __future__ import annotations

import sys

import torch

import causeway
from causeway.compat import device_module
from causeway.compat.missing import getter
from causeway.compat.names import instead
from causeway.compat.torch_npu import npu_format
from causeway.compat.torch_npu.operators import *  # noqa: F403

npu = device_module("torch_npu", "npu")
sys.modules["torch_npu.npu._format"] = npu_format

from causeway.compat.torch_npu import contrib, distributed, optim, profiler, utils  # noqa: E402

__version__ = f"{torch.__version__.partition('+')[0]}+causeway.{causeway.__version__}"
__all__ = ["contrib", "distributed", "npu", "optim", "profiler", "utils"]

_FUSED = "it is one of Ascend's fused operators: write it with torch's operators, which torch.compile fuses"  # noqa: E501
_missing = getter("torch_npu")


def __getattr__(name: str) -> object:
    if name.startswith("npu_") and name not in instead("torch_npu"):
        raise AttributeError(
            f"torch_npu.{name}: {_FUSED} (docs/compat.md has those that are there)"
        )
    return _missing(name)
