"""The switch of torch_npu: importing it redirects CUDA's calls, as `import causeway.transfer`."""

from causeway.redirect import enable, enabled

if not enabled():
    enable()
