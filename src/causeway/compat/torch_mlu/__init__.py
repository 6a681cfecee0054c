"""torch_mlu's names, for code that was written for Cambricon's chips: see docs/compat.md."""

from __future__ import annotations

import torch

import causeway
from causeway.compat import device_module
from causeway.compat.missing import getter

mlu = device_module("torch_mlu", "mlu")

from causeway.compat.torch_mlu import core, utils  # noqa: E402

__version__ = f"{torch.__version__.partition('+')[0]}+causeway.{causeway.__version__}"
__all__ = ["core", "mlu", "utils"]

__getattr__ = getter("torch_mlu")
