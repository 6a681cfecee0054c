"""Stands on the path of Python where CUDA is redirected, for programs that import pynvml before
torch: torch is imported, Causeway attaches the device, and the module becomes Causeway's.

It makes room first. So a pynvml that is installed is what the import gives, and torch, which tries
to import one while it is imported itself, finds none.
"""

import importlib
import os
import sys

_here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_path = list(sys.path)
sys.path[:] = [folder for folder in _path if os.path.abspath(folder or ".") != _here]
del sys.modules[__name__]
try:
    from importlib.machinery import PathFinder

    if PathFinder.find_spec(__name__) is None:
        import torch  # noqa: F401
    importlib.import_module(__name__)
finally:
    sys.path[:] = _path
