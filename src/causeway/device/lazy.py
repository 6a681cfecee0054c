"""What happens before a device is first used: which are visible, what was queued, what forbids it.

torch calls `_lazy_init` itself when a tensor is asked for on the device, so it is the one place
that runs before the first device is opened. Seeds that were set earlier wait here, as torch.cuda's
do: to set one must open no device, and must work where there is none.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import threading
import traceback
import types
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch._utils import _LazySeedTracker

from causeway import _C, config
from causeway.errors import ConfigError, VendorError
from causeway.state import state

_tls = threading.local()
_lock = threading.RLock()
_initialized = False
_queued: list[tuple[Callable[[], None], list[str]]] = []
_counted = False  # whether the generators can be had
_seeds = _LazySeedTracker()  # type: ignore[no-untyped-call]
_count: int | None = None
_unavailable: str | None = None
# Given the number of devices, those that another setting than ours leaves visible; None: all.
visible_from: Callable[[int], list[int] | None] | None = None
visible: list[int] | None = None  # the machine's number of each device, where some are hidden


class DeferredCallError(Exception):
    """A call that waited for the device, such as a seed, failed when the device was opened."""


_Function = TypeVar("_Function", bound=Callable[..., Any])


def compiled_as_constant(function: _Function) -> _Function:
    """Have torch.compile call `function` once, while it traces, as it does torch.cuda's.

    What torch.compiler.assume_constant_result does, whose import takes seconds.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


def device_name() -> str:
    """torch's name of the device, "sim"."""
    return str(torch._C._get_privateuse1_backend_name())


def count_devices() -> int:
    """Number of visible devices.

    Raises the kept reason where there is no driver, ConfigError for a bad token.

    The setting visible_devices is read here, at the first count, as CUDA reads its own: a script
    may still set it after `import torch`.
    """
    global _count, _unavailable
    if _count is not None:
        return _count
    with _lock:
        if state.error is not None:
            raise VendorError(str(state.error))
        if _unavailable is not None:
            raise VendorError(_unavailable)
        try:
            _see_devices()
            _count = _C.device_count()
        except VendorError as error:
            # Asked once: a driver that is not there now costs seconds at each call, and does not
            # come later.
            _unavailable = str(error)
            raise
    return _count


def _first_use() -> None:
    """What the core calls before it counts or opens the first device, with or without Python."""
    global _counted
    _see_devices()
    _counted = True
    _run([call for call in _seeds.get_calls() if call])


_C.set_first_use(_first_use)


def _see_devices() -> None:
    global visible
    setting = config.SETTINGS["visible_devices"]
    text = os.environ.get(setting.variable)
    if text is not None and config.source("visible_devices") != "api":
        try:
            chosen = setting.kind.read(text)
        except ValueError as error:
            raise ConfigError(f"{setting.variable} is {text!r}: {error}") from None
    else:
        chosen = config.get("visible_devices")
    if chosen is None and visible_from is not None:
        chosen = visible_from(_C.vendor_device_count())
    if chosen is None or _C.is_initialized():
        return
    there = _C.vendor_device_count()
    for index in chosen:
        if index >= there:
            have = f"devices 0 to {there - 1}" if there else "no device"
            raise ConfigError(
                f"{setting.variable} is {text!r}: there is no device {index} "
                f"(this machine has {have})"
            )
    visible = list(chosen)
    _C.set_visible_devices(visible)


def device_count() -> int:
    """Return the number of visible devices; 0 where there is no driver. Opens none."""
    try:
        return count_devices()
    except VendorError:
        return 0


def is_available() -> bool:
    """Return whether there is at least one device. Opens none."""
    return device_count() > 0


def is_initialized() -> bool:
    """Return whether this process has opened the device."""
    return _initialized and not _is_in_bad_fork()


def init() -> None:
    """Open the current device now instead of at its first use."""
    _lazy_init()


@compiled_as_constant
def _is_in_bad_fork() -> bool:
    return _C.in_bad_fork()


@compiled_as_constant
def _lazy_init() -> None:
    global _initialized
    if is_initialized() or hasattr(_tls, "is_initializing"):
        return
    with _lock:
        if is_initialized():
            return
        if _C.in_bad_fork():
            name = device_name().upper()
            raise RuntimeError(
                f"Cannot re-initialize {name} in forked subprocess. To use {name} with "
                "multiprocessing, you must use the 'spawn' start method"
            )
        if count_devices() == 0:
            raise VendorError(
                f"no {device_name()} device is visible (see CAUSEWAY_VISIBLE_DEVICES)"
            )
        _C.init()
        _run_queued()
        _initialized = True


def _run_queued() -> None:
    _tls.is_initializing = True  # queued calls come back to _lazy_init
    try:
        _run(_queued)
        _queued.clear()
    finally:
        del _tls.is_initializing


def _run(calls: list[tuple[Callable[[], None], list[str]]]) -> None:
    for function, stack in calls:
        try:
            function()
        except Exception as error:
            raise DeferredCallError(
                f"{device_name()} call failed lazily at initialization with error: {error}\n\n"
                f"it was originally made at:\n\n{''.join(stack)}"
            ) from error


def _lazy_call(function: Callable[[], None], **kwargs: Any) -> None:
    """Call `function` now, or as soon as a device is opened.

    With seed= or seed_all= only the last one is kept, and it is called as soon as the devices are
    counted: a generator is there without its device. Where C++ has opened the device with no Python
    in between (a stream, a storage, a process group) the call is made now, and is_initialized()
    stays False, as torch.cuda's does: DeviceMesh chooses a rank's device only until it is True.
    """
    seeds_all, seeds = kwargs.get("seed_all", False), kwargs.get("seed", False)
    with _lock:
        ready = is_initialized() or hasattr(_tls, "is_initializing")
        if ready or (_counted and (seeds or seeds_all)):
            function()
            return
        stack = traceback.format_stack()
        if _C.is_initialized() and not _C.in_bad_fork():
            _queued.append((function, stack))
            _run_queued()
            return
        if seeds_all:
            _seeds.queue_seed_all(function, stack)  # type: ignore[no-untyped-call]
        elif seeds:
            _seeds.queue_seed(function, stack)  # type: ignore[no-untyped-call]
        else:
            _queued.append((function, stack))


def _later(name: str) -> types.ModuleType:
    """A module that is loaded when something of it is first used."""
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.loader is not None
    spec.loader = importlib.util.LazyLoader(spec.loader)
    made = importlib.util.module_from_spec(spec)
    sys.modules[name] = made
    spec.loader.exec_module(made)
    return made
