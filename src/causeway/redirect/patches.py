"""Replacing attributes of modules and classes, all or none, and putting every one back.

A replacement goes to its owner, and to every module that holds the same object under whatever name:
`from torch.cuda import is_available as ready` made one. What else holds it (a default argument, a
closure, a list) cannot be reached by name; `holders` lists it.
"""

from __future__ import annotations

import functools
import gc
import sys
import types
from collections.abc import Iterable
from typing import Any

_ABSENT = object()


class Patches:
    """Replacements in force. `undo` takes all back, in the reverse order, also after a failure."""

    def __init__(self) -> None:
        self._changes: list[tuple[Any, str, Any, Any]] = []
        self._pairs: dict[int, tuple[Any, Any]] = {}  # by id of the original: (original, new)
        self._shared: set[int] = set()  # ids of new objects that have a place of their own in torch

    def replace(self, owner: Any, name: str, new: Any) -> None:
        """Make `new` the attribute `name` of `owner`, which may inherit the present one."""
        former = vars(owner).get(name, _ABSENT)
        setattr(owner, name, new)
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
        while self._changes:
            owner, name, former, new = self._changes.pop()
            if vars(owner).get(name, _ABSENT) is not new:
                continue  # somebody replaced it after us: that stays
            if former is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, former)
        _exchange(back)
        self._pairs.clear()

    def holders(self) -> list[str]:
        """Who holds an original in a way that `rebind` cannot reach, in words."""
        return sorted(set(_holders({key: pair[0] for key, pair in self._pairs.items()})))


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


def _holders(originals: dict[int, Any]) -> Iterable[str]:
    """Default arguments, closures, partials and class attributes of code that is not torch's."""
    for holder in gc.get_objects():
        kind = type(holder)
        if kind is types.FunctionType:
            if _ours(holder.__module__):
                continue
            values = [*(holder.__defaults__ or ()), *(holder.__kwdefaults__ or {}).values()]
            where = f"{holder.__module__}.{holder.__qualname__}"
            file = f"{holder.__code__.co_filename}:{holder.__code__.co_firstlineno}"
            yield from (
                f"{_name(v)}, a default of {where} ({file})" for v in values if id(v) in originals
            )
            yield from (
                f"{_name(v)}, in the closure of {where} ({file})"
                for v in map(_content, holder.__closure__ or ())
                if id(v) in originals
            )
        elif kind is functools.partial:
            if id(holder.func) in originals:
                yield f"{_name(holder.func)}, in a functools.partial"
        elif kind is type and not _ours(holder.__module__):
            yield from (
                f"{_name(value)}, the attribute {holder.__module__}.{holder.__qualname__}.{name}"
                for name, value in list(vars(holder).items())
                if id(getattr(value, "__func__", value)) in originals
            )


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return None


def _ours(module: Any) -> bool:
    return (
        not isinstance(module, str)
        or not module
        or module == "torch"
        or module.startswith(("torch.", "causeway."))
    )


def _name(value: Any) -> str:
    module = getattr(value, "__module__", "") or "torch"
    return f"{module}.{getattr(value, '__name__', value)}"
