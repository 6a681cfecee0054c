"""torch_npu.contrib.function: the names are those of torch_npu.contrib."""

from causeway.compat.torch_npu.contrib import *  # noqa: F403
from causeway.compat.torch_npu.contrib import __getattr__ as __getattr__
