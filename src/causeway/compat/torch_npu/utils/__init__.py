"""torch_npu.utils, as far as torch has it."""

from __future__ import annotations

from causeway.compat.missing import getter
from causeway.compat.torch_npu.utils import storage

__all__ = ["storage"]

__getattr__ = getter("torch_npu.utils")
