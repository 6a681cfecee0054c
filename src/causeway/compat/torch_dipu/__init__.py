"""torch_dipu's names: importing it redirects CUDA's calls, as it does there unless DIPU_MOCK_CUDA
is 0 or false. See docs/compat.md.
"""

from __future__ import annotations

import os

import torch
from torch import profiler as profiler

import causeway
from causeway.compat import device_module
from causeway.compat.missing import getter
from causeway.redirect import enable, enabled

dipu = device_module("torch_dipu", "dipu")

__version__ = f"{torch.__version__.partition('+')[0]}+causeway.{causeway.__version__}"
mockcuda = os.environ.get("DIPU_MOCK_CUDA", "true").strip().lower() not in ("0", "false", "off")

if mockcuda and not enabled():
    enable()

__getattr__ = getter("torch_dipu")
