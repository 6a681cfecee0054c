"""Move CUDA code to any device: `causeway migrate PATH…` makes it device-agnostic PyTorch.

Nothing here imports or runs what it converts. `engine.py` finds the files and hands each to the
converter of its kind; `finding.py` is what all of them and all reports share.
"""
