"""mindtorch.tools: `from mindtorch.tools import mstorch_enable` redirects CUDA's calls."""

from causeway.compat.missing import getter

__getattr__ = getter("mindtorch.tools")
