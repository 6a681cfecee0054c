"""What holds a function of torch's besides the name in a module, and can be given another one.

`def make(size, like=torch.zeros)` took the function before CUDA was redirected. Default arguments,
closures, partials, attributes of classes and objects, and lists and dicts of a module are changed,
and changed back. What is left (tuples, sets, containers in containers) is told in words. torch's
own are never changed: they are made for the originals.
"""

from __future__ import annotations

import functools
import gc
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: a class whose objects may have attributes of their own
Pairs = dict[int, tuple[Any, Any]]  # by id of what is held: (held, what shall be held)


@dataclass
class Exchange:
    """One holder that was changed. `undo` puts the same object back, unless somebody changed it
    since.
    """

    now: Callable[[], Any]  # what it holds at this time
    put: Callable[[Any], None]
    former: Any
    new: Any

    def undo(self) -> None:
        if self.now() is self.new:
            self.put(self.former)


def exchange(pairs: Pairs) -> tuple[list[Exchange], list[str]]:
    """Give each holder the second of a pair for the first.

    Returns what was changed, and in words what could not be.
    """
    done: list[Exchange] = []
    left: list[str] = []
    known = _containers()
    unknown: list[dict[Any, Any]] = []
    # One pass over the heap tells which objects refer to any of them.
    for holder in gc.get_referrers(*[held for held, _ in pairs.values()]) if pairs else ():
        kind = type(holder)
        if kind in (dict, list) and id(holder) in known:
            done += _items(holder, pairs)
        elif kind in (tuple, set, frozenset) and id(holder) in known:
            left += [f"{_name(v)}, in {known[id(holder)]}" for v in holder if id(v) in pairs]
        elif kind is dict:
            unknown.append(holder)
        elif kind.__flags__ & _HEAP_TYPE and not _ours(kind.__module__):
            done += _instance(holder, pairs)
    for holder in gc.get_referrers(*unknown) if unknown else ():
        kind = type(holder)
        if kind.__flags__ & _HEAP_TYPE and not _ours(kind.__module__):
            done += _instance(holder, pairs)
    for holder in gc.get_objects():
        kind = type(holder)
        if kind is types.FunctionType:
            if not _ours(holder.__module__):
                done += _function(holder, pairs)
        elif kind is functools.partial:
            if any(id(v) in pairs for v in _parts(holder)):
                done += _partial(holder, pairs)
        elif issubclass(kind, type) and not _ours(holder.__module__):
            done += _attributes(holder, pairs)
    return done, sorted(set(left))


def _containers() -> dict[int, str]:
    """Lists, dicts, tuples and sets that are names of programs' modules or of their classes."""
    found: dict[int, str] = {}
    for module in list(sys.modules.values()):
        if not isinstance(module, types.ModuleType) or _ours(vars(module).get("__name__")):
            continue
        for name, value in list(vars(module).items()):
            if name.startswith("__"):
                continue
            if isinstance(value, list | dict | tuple | set | frozenset):
                found[id(value)] = f"{module.__name__}.{name}"
            elif isinstance(value, type) and value.__module__ == module.__name__:
                for inner, content in list(vars(value).items()):
                    if type(content) in (list, dict, tuple, set, frozenset):
                        found[id(content)] = f"{module.__name__}.{name}.{inner}"
    return found


def _function(function: types.FunctionType, pairs: Pairs) -> Iterator[Exchange]:
    defaults, named = function.__defaults__, function.__kwdefaults__
    if defaults and any(id(v) in pairs for v in defaults):
        new = tuple(pairs[id(v)][1] if id(v) in pairs else v for v in defaults)
        yield from _put(function, "__defaults__", defaults, new)
    if named and any(id(v) in pairs for v in named.values()):
        yield from _items(named, pairs)
    for cell in function.__closure__ or ():
        try:
            held = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
        if id(held) in pairs:
            yield from _put(cell, "cell_contents", *pairs[id(held)])


def _parts(partial: functools.partial[Any]) -> tuple[Any, ...]:
    return (partial.func, *partial.args, *partial.keywords.values())


def _partial(partial: functools.partial[Any], pairs: Pairs) -> Iterator[Exchange]:
    former = (partial.func, partial.args, partial.keywords, vars(partial))
    new = (
        pairs[id(partial.func)][1] if id(partial.func) in pairs else partial.func,
        tuple(pairs[id(v)][1] if id(v) in pairs else v for v in partial.args),
        {k: pairs[id(v)][1] if id(v) in pairs else v for k, v in partial.keywords.items()},
        vars(partial),
    )
    set_state = partial.__setstate__  # type: ignore[attr-defined]

    def put(state: Any) -> None:
        set_state((*state[:3], vars(partial)))

    put(new)
    args = partial.args  # a tuple of its own: who changed the partial since has replaced it
    yield Exchange(lambda: new if partial.args is args else None, put, former, new)


def _items(holder: Any, pairs: Pairs) -> Iterator[Exchange]:
    """The values of a dict, or the elements of a list."""
    for key, value in list(holder.items() if isinstance(holder, dict) else enumerate(holder)):
        if id(value) not in pairs:
            continue
        former, new = pairs[id(value)]
        holder[key] = new

        def now(key: Any = key) -> Any:
            try:
                return holder[key]
            except (KeyError, IndexError):
                return None

        def put(item: Any, key: Any = key) -> None:
            holder[key] = item

        yield Exchange(now, put, former, new)


def _attributes(kind: type, pairs: Pairs) -> Iterator[Exchange]:
    for name, value in list(vars(kind).items()):
        wrapped = getattr(value, "__func__", value)
        if id(wrapped) not in pairs:
            continue
        new = pairs[id(wrapped)][1]
        # A builtin is no method where it stands in a class; a function would become one.
        if not isinstance(wrapped, types.FunctionType) and not hasattr(wrapped, "__get__"):
            new = staticmethod(new)
        elif isinstance(value, staticmethod | classmethod):
            new = type(value)(new)
        try:
            yield from _put(kind, name, value, new)
        except (TypeError, AttributeError):
            continue  # a class of C's


def _instance(holder: Any, pairs: Pairs) -> Iterator[Exchange]:
    if isinstance(holder, type | types.ModuleType):
        return
    attributes = getattr(holder, "__dict__", None)
    if type(attributes) is dict:
        yield from _items(attributes, pairs)


def _put(owner: Any, name: str, former: Any, new: Any) -> Iterator[Exchange]:
    setattr(owner, name, new)

    def now() -> Any:
        if isinstance(owner, type):
            return vars(owner).get(name)
        return getattr(owner, name, None)

    yield Exchange(now, functools.partial(setattr, owner, name), former, new)


def _ours(module: Any) -> bool:
    return (
        not isinstance(module, str)
        or not module
        or module == "torch"
        or module.startswith(("torch.", "causeway.", "importlib"))
    )


def _name(value: Any) -> str:
    module = getattr(value, "__module__", "") or "torch"
    return f"{module}.{getattr(value, '__name__', value)}"
