"""Replacing attributes of modules and classes, all or none, and putting every one back.

A replacement goes to its owner, and to every module that holds the same object under whatever name:
`from torch.cuda import is_available as ready` made one. What else holds it (a default argument, a
closure, a list) is for `holders`.
"""

from __future__ import annotations

import ctypes
import gc
import sys
import types
from typing import Any

from causeway.redirect import holders

_ABSENT = object()


class Patches:
    """Replacements in force. `undo` takes all back, in the reverse order, also after a failure."""

    def __init__(self) -> None:
        self._changes: list[tuple[Any, str, Any, Any]] = []
        self._pairs: dict[int, tuple[Any, Any]] = {}  # by id of the original: (original, new)
        self._reached: list[holders.Exchange] = []
        self._shared: set[int] = set()  # ids of new objects that have a place of their own in torch

    def replace(self, owner: Any, name: str, new: Any) -> None:
        """Make `new` the attribute `name` of `owner`, which may inherit the present one."""
        former = vars(owner).get(name, _ABSENT)
        _set(owner, name, new)
        self._changes.append((owner, name, former, new))

    def everywhere(self, original: Any, new: Any) -> None:
        """Note that whoever holds `original` shall hold `new`; `rebind` does it."""
        self._pairs[id(original)] = (original, new)

    def pairs(self) -> list[tuple[Any, Any]]:
        """(original, new) of each noted object."""
        return list(self._pairs.values())

    def rebind(self) -> None:
        """Replace each noted object in all modules that are loaded."""
        placed = {(id(owner), name) for owner, name, _, _ in self._changes}
        held = {
            id(value)
            for module in _modules()
            for name, value in list(vars(module).items())
            if (id(module), name) not in placed
        }
        self._shared = {id(new) for _, new in self._pairs.values()} & held
        self._changes += _exchange(self._pairs)

    def undo(self) -> None:
        """Put everything back, in modules that were loaded meanwhile too."""
        # Who bound a shared one while this was on may have meant it: torch.FloatTensor is what
        # torch.cuda.FloatTensor becomes with target "cpu".
        back = {
            id(new): (new, original)
            for original, new in self._pairs.values()
            if id(new) not in self._shared
        }
        while self._reached:
            self._reached.pop().undo()
        while self._changes:
            owner, name, former, new = self._changes.pop()
            if vars(owner).get(name, _ABSENT) is not new:
                continue  # somebody replaced it after us: that stays
            if former is _ABSENT:
                delattr(owner, name)
            else:
                _set(owner, name, former)
        _exchange(back)
        holders.exchange(back)  # functions that were defined meanwhile
        self._pairs.clear()

    def reach(self) -> list[str]:
        """Replace each noted object in defaults, closures, partials, attributes and containers too;
        say where that cannot be done.
        """
        done, left = holders.exchange(self._pairs)
        self._reached += done
        return left


def _set(owner: Any, name: str, value: Any) -> None:
    """setattr, also for a class of C's, which Python refuses to change."""
    try:
        setattr(owner, name, value)
    except TypeError:
        if not isinstance(owner, type):
            raise
        (attributes,) = gc.get_referents(vars(owner))  # the dict behind the proxy
        attributes[name] = value
        ctypes.pythonapi.PyType_Modified(ctypes.py_object(owner))


def _modules() -> list[types.ModuleType]:
    """Modules to look into. Not torch._C, where torch takes its own from, and no module that would
    be loaded by a look at it.
    """
    own = ("torch._C", "causeway.redirect", "causeway.device")
    return [
        module
        for module in list(sys.modules.values())
        if isinstance(module, types.ModuleType)
        and (type(module) is types.ModuleType or "__getattribute__" not in vars(type(module)))
        and not str(vars(module).get("__name__")).startswith(own)
    ]


def _exchange(pairs: dict[int, tuple[Any, Any]]) -> list[tuple[Any, str, Any, Any]]:
    """Put the second of a pair where the first is; give the changes as Patches keeps them."""
    changes = []
    for module in _modules():
        names = vars(module)
        for name, value in list(names.items()):
            pair = pairs.get(id(value))
            if pair is not None and pair[0] is value:
                names[name] = pair[1]
                changes.append((module, name, *pair))
    return changes
