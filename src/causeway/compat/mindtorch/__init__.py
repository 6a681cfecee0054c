"""MindTorch's names: mindtorch.torch is torch, mindtorch.torchvision is torchvision. See
docs/compat.md.
"""

from __future__ import annotations

import torch

import causeway
from causeway.compat.mindtorch import tools
from causeway.compat.missing import getter

__version__ = f"{torch.__version__.partition('+')[0]}+causeway.{causeway.__version__}"
__all__ = ["tools", "torch"]
__getattr__ = getter("mindtorch")
