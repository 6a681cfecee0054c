"""torch_mlu's names, for code that was written for Cambricon's chips: see docs/compat.md."""

from __future__ import annotations

import sys

import torch

import causeway
from causeway.compat.missing import getter

mlu = torch.get_device_module(str(torch._C._get_privateuse1_backend_name()))
sys.modules[f"{__name__}.mlu"] = sys.modules["torch_mlu.mlu"] = mlu

from causeway.compat.torch_mlu import core, utils  # noqa: E402

__version__ = f"{torch.__version__.partition('+')[0]}+causeway.{causeway.__version__}"
__all__ = ["core", "mlu", "utils"]

__getattr__ = getter("torch_mlu")
