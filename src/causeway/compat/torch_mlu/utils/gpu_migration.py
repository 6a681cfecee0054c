"""The switch of torch_mlu: importing it redirects CUDA's calls, as `import causeway.transfer`."""

from causeway.redirect import enable, enabled

if not enabled():
    enable()
