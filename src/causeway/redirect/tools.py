"""NVIDIA's tools, as a program asks them for numbers: `nvidia-smi` in a process of its own, and
`import pynvml`. Where one is installed it stays; else they are answered for the device. NVIDIA's
module without NVIDIA's library can only fail, so it is answered for too.

The command stands last on PATH. The folder on PYTHONPATH, first there, is for programs, and for
their children, that import pynvml before torch: the stub in it makes room.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.metadata
import os
import sys
from collections.abc import MutableMapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from causeway.importing import Aliases

if TYPE_CHECKING:
    from causeway.redirect.devices import Devices

NAMES = ("nvidia-smi", "pynvml")
_HERE = Path(__file__).parent
_FOLDERS = {"PATH": str(_HERE / "bin"), "PYTHONPATH": str(_HERE / "first")}
_PYTHON = "_CAUSEWAY_PYTHON"  # which runs our nvidia-smi


class _Aliases(Aliases):
    def elsewhere(self, name: str) -> Any:
        found = super().elsewhere(name)
        return None if _can_only_fail(found) else found


_aliases = _Aliases(
    {"pynvml": "causeway.redirect.pynvml"}, "Causeway's pynvml, which asks the device"
)


@functools.cache
def _has_nvml() -> bool:
    """Whether NVIDIA's library of numbers, which its driver brings, is on this machine."""
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return False
    return True


def _can_only_fail(spec: Any) -> bool:
    """Whether a module is NVIDIA's own, and its library is not there. It has two names: today's and
    that of releases up to 11.
    """
    if getattr(spec, "origin", None) is None or _has_nvml():
        return False
    for name in ("nvidia-ml-py", "pynvml"):
        try:
            installed = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        if any(str(installed.locate_file(file)) == spec.origin for file in installed.files or ()):
            return True
    return False


def add(environment: MutableMapping[str, str]) -> None:
    """Let the processes that get `environment` find the tools."""
    for variable, folder in _FOLDERS.items():
        default = os.defpath if variable == "PATH" else ""
        folders = [f for f in environment.get(variable, default).split(os.pathsep) if f]
        if folder not in folders:
            order = [*folders, folder] if variable == "PATH" else [folder, *folders]
            environment[variable] = os.pathsep.join(order)
    environment[_PYTHON] = sys.executable


def take_back(environment: MutableMapping[str, str]) -> None:
    """Undo `add`, and leave what else was done to the variables since."""
    for variable, folder in _FOLDERS.items():
        folders = [f for f in environment.get(variable, "").split(os.pathsep) if f != folder]
        if any(folders):
            environment[variable] = os.pathsep.join(folders)
        else:
            environment.pop(variable, None)
    environment.pop(_PYTHON, None)


def follow(devices: Devices, stack: ExitStack) -> None:
    """Answer for the device of `devices`; `stack` takes it back."""
    if _PYTHON not in os.environ:  # else `causeway run`, or the process before this one, has
        add(os.environ)
        stack.callback(take_back, os.environ)
    there = sys.modules.get("pynvml")  # torch imports the one that is installed
    if there is not None and _can_only_fail(there.__spec__):
        stack.callback(sys.modules.__setitem__, "pynvml", sys.modules.pop("pynvml"))
    if "pynvml" not in sys.modules and _aliases.elsewhere("pynvml") is None:
        _aliases.install()
        stack.callback(_aliases.uninstall)
