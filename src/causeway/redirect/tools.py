"""NVIDIA's tools, as a program asks them for numbers: `nvidia-smi` in a process of its own, and
`import pynvml`. Where one is installed it stays; else they are answered for the device.

The command stands last on PATH, and the module last among the finders. The folder on PYTHONPATH is
for programs, and for their children, that import pynvml before torch: the stub in it makes room.
"""

from __future__ import annotations

import os
import sys
from collections.abc import MutableMapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from causeway.importing import Aliases

if TYPE_CHECKING:
    from causeway.redirect.devices import Devices

NAMES = ("nvidia-smi", "pynvml")
_HERE = Path(__file__).parent
_FOLDERS = {"PATH": str(_HERE / "bin"), "PYTHONPATH": str(_HERE / "first")}
_PYTHON = "_CAUSEWAY_PYTHON"  # which runs our nvidia-smi

_aliases = Aliases(
    {"pynvml": "causeway.redirect.pynvml"}, "Causeway's pynvml, which asks the device"
)


def add(environment: MutableMapping[str, str]) -> None:
    """Let the processes that get `environment` find the tools."""
    for variable, folder in _FOLDERS.items():
        default = os.defpath if variable == "PATH" else ""
        folders = [f for f in environment.get(variable, default).split(os.pathsep) if f]
        if folder not in folders:
            environment[variable] = os.pathsep.join([*folders, folder])
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
    if "pynvml" not in sys.modules and _aliases.elsewhere("pynvml") is None:
        _aliases.install()
        stack.callback(_aliases.uninstall)
