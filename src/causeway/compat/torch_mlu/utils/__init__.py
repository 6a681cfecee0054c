"""torch_mlu.utils: the switch that redirects CUDA's calls."""

from causeway.compat.missing import getter

__getattr__ = getter("torch_mlu.utils")
