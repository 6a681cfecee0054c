"""What each name of torch.cuda becomes: the device module's, or a stand-in.

The names that work are those of `device/names.py`; `torch.cuda.Stream` is the device's class, and a
function is the device's function with a count. Where the target is the CPU, `host.py` has them all.
"""

from __future__ import annotations

import functools
import inspect
import sys
import types
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from causeway.device.names import WORKS
from causeway.redirect import stand_ins
from causeway.redirect.devices import Devices
from causeway.redirect.places import note
from causeway.redirect.replacements import like
from causeway.redirect.targets import STAND_INS

# These are torch's own on every device, or go through what is redirected already.
_LEFT = frozenset(
    {"amp", "comm", "graphs", "memory", "random", "streams", "AcceleratorError", "OutOfMemoryError"}
)
_PRIVATE = (
    "_get_device_index",
    "_get_generator",
    "_is_in_bad_fork",
    "_lazy_call",
    "_lazy_init",
    "_exchange_device",
    "_maybe_exchange_device",
    "_snapshot",
    "_dump_snapshot",
)


def replacements(devices: Devices) -> Iterator[tuple[Any, str, Any, str]]:
    """(owner, name, new, what serves it) of every name below torch.cuda that is replaced."""
    module = _module(devices)
    for name in sorted({*WORKS, *_PRIVATE} - _LEFT):
        if name == "default_generators":
            yield torch.cuda, name, Generators(module), "the device's generators"
            continue
        if name in STAND_INS or not hasattr(torch.cuda, name) or not hasattr(module, name):
            continue
        served = f"torch.{devices.target}.{name}" if devices.target != "cpu" else "the host"
        new = _counted(name, getattr(module, name))
        yield torch.cuda, name, _unseen(new) if name == "is_available" else new, served
    if devices.target != "cpu":
        from causeway.device import comm

        for name in comm.__all__:
            yield torch.nn.parallel.comm, name, getattr(comm, name), "copies"
    for name, says in STAND_INS.items():
        owner: Any = torch.cuda
        *path, last = name.split(".")
        for part in path:
            owner = getattr(owner, part)
        new = stand_ins.make(name, devices, module)
        yield owner, last, _counted(name, new), says


class Generators(Sequence[torch.Generator]):
    """torch.cuda.default_generators: read when one is asked for, since that counts the devices."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def __len__(self) -> int:
        return len(self._module.default_generators)

    def __getitem__(self, index: Any) -> Any:
        return self._module.default_generators[index]


def _module(devices: Devices) -> Any:
    if devices.target == "cpu":
        from causeway.redirect import host

        return host
    return getattr(torch, devices.target)


def _unseen(is_available: Any) -> Any:
    """`torch.cuda.is_available`, which Inductor is told no: it would ask torch's part for CUDA,
    which is not built.
    """

    def call() -> bool:
        if sys._getframe(1).f_globals.get("__name__", "").startswith("torch._inductor."):
            return False
        return bool(is_available())

    return like(is_available, call)


def _counted(name: str, new: Any) -> Any:
    """`new` as the name `name` of torch.cuda, counting its calls; a class is taken as it is."""
    if not isinstance(new, types.FunctionType) or name.rsplit(".", 1)[-1].startswith("_"):
        return new
    api = f"torch.cuda.{name}"

    def call(*args: Any, **kwargs: Any) -> Any:
        note(api)
        return new(*args, **kwargs)

    original: Any = torch.cuda
    for part in name.split("."):
        original = getattr(original, part, None)
    if inspect.isfunction(original) or inspect.isbuiltin(original):
        return like(original, call)
    return functools.wraps(new)(call)
