"""Paths of running modules: which nn.Module an operator belongs to, in forward and in backward.

Global forward hooks, torch's public ones, are there while a tool is open. A path starts with the
class of the outermost module that was called: "Net.layers.0.norm".

Backward: torch numbers autograd nodes by the thread that makes them, in the order of the forward.
At each entry and exit of a module the number that comes next is noted with the module's path, so
the last note before a node's number has its module.
"""

from __future__ import annotations

import bisect
import threading
from typing import Any
from weakref import WeakKeyDictionary

import torch

from causeway import _C

KEPT = 100_000  # notes of a thread; a backward that comes later than so many modules has no path

_lock = threading.Lock()
_users = 0
_handles: list[Any] = []
_local = threading.local()
_paths: WeakKeyDictionary[torch.nn.Module, str] = WeakKeyDictionary()
_notes: dict[int, tuple[list[int], list[str]]] = {}


def threads() -> list[int]:
    """The threads, by torch's numbers, whose forwards are noted."""
    return list(_notes)


def current() -> str:
    """Path of the innermost module whose forward runs on this thread, or ""."""
    running = _running()
    return running[-1] if running else ""


def of_node(thread: int, sequence: int) -> str:
    """Path of the module that made an autograd node, or ""."""
    noted = _notes.get(thread)
    if noted is None or sequence >= 1 << 63:  # of gradients' accumulation, which no forward makes
        return ""
    numbers, paths = noted
    at = bisect.bisect_right(numbers, sequence) - 1
    return paths[at] if at >= 0 else ""


def path_of(module: torch.nn.Module) -> str:
    """Path of a module that has run, or ""."""
    return _paths.get(module, "")


def owner_of(parameter: torch.Tensor) -> tuple[str, str]:
    """(path of its module, name there) of a parameter of a module that has run, or ("", "")."""
    for module, path in list(_paths.items()):
        for name, own in module._parameters.items():
            if own is parameter:
                return path, name
    return "", ""


def open() -> None:
    """Follow modules from now on; each open needs a close."""
    global _users
    from torch.nn.modules.module import (
        register_module_forward_hook,
        register_module_forward_pre_hook,
    )

    _users += 1
    if _users == 1:
        _notes.clear()
        _handles.append(register_module_forward_pre_hook(_enter))
        _handles.append(register_module_forward_hook(_leave, always_call=True))


def close() -> None:
    global _users
    _users -= 1
    if _users == 0:
        while _handles:
            _handles.pop().remove()
        _local.__dict__.clear()


def _running() -> list[str]:
    found: list[str] | None = getattr(_local, "running", None)
    if found is None:
        found = _local.running = []
    return found


def _enter(module: torch.nn.Module, args: Any) -> None:
    if torch.compiler.is_compiling():  # a compiled graph is one piece: its caller's path holds
        return
    running = _running()
    path = _paths.get(module)
    if path is None:
        path = type(module).__name__
        if running:  # made or found on the way: not one of the outermost module's own
            path = f"{running[-1]}.{path}"
        with _lock:
            for name, child in module.named_modules():
                _paths[child] = f"{path}.{name}" if name else path
    running.append(path)
    _note(path)


def _leave(module: torch.nn.Module, args: Any, output: Any) -> None:
    if torch.compiler.is_compiling():
        return
    running = _running()
    if running:  # not where the tool was opened inside of this module
        running.pop()
    _note(running[-1] if running else "")


def _note(path: str) -> None:
    thread, sequence = _C.autograd_position()
    noted = _notes.get(thread)
    if noted is None:
        noted = _notes[thread] = ([], [])
    numbers, paths = noted
    if numbers and numbers[-1] == sequence:
        paths[-1] = path
        return
    numbers.append(sequence)
    paths.append(path)
    if len(numbers) > KEPT:
        del numbers[: KEPT // 2], paths[: KEPT // 2]
