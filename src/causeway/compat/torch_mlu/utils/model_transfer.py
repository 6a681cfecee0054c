"""The earlier name of gpu_migration: importing it redirects CUDA's calls."""

from causeway.redirect import enable, enabled

if not enabled():
    enable()
