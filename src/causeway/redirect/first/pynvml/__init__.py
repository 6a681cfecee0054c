"""Stands on the path of Python where CUDA is redirected, for programs that import pynvml before
torch: torch is imported, Causeway attaches the device, and the import gives Causeway's module, or
one that is installed.

It makes room first, so that torch, which tries to import a pynvml itself, does not find this one.
"""

import importlib
import os
import sys

_here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_path = list(sys.path)
sys.path[:] = [folder for folder in _path if os.path.abspath(folder or ".") != _here]
del sys.modules[__name__]
try:
    import torch  # noqa: F401

    importlib.import_module(__name__)
finally:
    sys.path[:] = _path
