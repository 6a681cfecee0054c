"""The switch of MindTorch: programs say torch, and CUDA's calls go to the device."""

from causeway.redirect import enable, enabled

if not enabled():
    enable()
