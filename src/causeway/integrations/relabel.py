"""A library's own branch for another PrivateUse1 device, taken with this device's name in it.

Some libraries have no list to register in; they ask `is_npu_available()` and call `torch.npu`, for
Ascend's chips. That device is of PrivateUse1, as ours is, and its module is made like torch.cuda,
as ours is: so the branch is right for ours but for the name. Here the functions that have such a
branch get a copy of their compiled code in which the name is ours, and the question goes to
our device. The rest of the library is as it was: its own `is_npu_available()` says False as before,
and what it does at import for Ascend's package, which is not here, is not done.

Only the names and constants of code objects change, no instruction: a traceback shows the library's
own lines, and no source is read.
"""

from __future__ import annotations

import functools
import re
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

from causeway import integrations
from causeway.libraries import LIBRARIES

_QUESTION = "__causeway_is_available__"
_VISIBLE = {"ASCEND_RT_VISIBLE_DEVICES", "MUSA_VISIBLE_DEVICES"}
_OWN = {"npu": "cann"}  # torch.version.cann: a branch with it is right for that system alone
_LISTED_BESIDE = {"cuda", "xpu", "mps", "cpu"}  # a tuple with one of these is a list of devices


def take_branches(module: types.ModuleType, predicates: Mapping[str, str]) -> list[str]:
    """Relabel the functions of `module` for the device; give their qualified names.

    `predicates` has the library's questions and the device of each, {"is_npu_available": "npu"};
    where a function asks several, the first counts. Nothing is done for a module that knows none.
    """
    if not predicates.keys() & vars(module).keys():
        return []
    done = []
    for function in _functions(module):
        code = _code(function.__code__, predicates, integrations.state.device)
        if code is not function.__code__:
            function.__code__ = code
            function.__globals__[_QUESTION] = _available
            done.append(function.__qualname__)
    for value in vars(module).values():
        # An answer that was remembered before, without the device.
        clear = getattr(value, "cache_clear", None)
        if clear is not None and getattr(value, "__qualname__", None) in done:
            clear()
    if done:
        _note(module, done)
    return done


def extend_lists(
    module: types.ModuleType, names: Iterable[str], beside: Iterable[str]
) -> list[str]:
    """Add the device to the constant tuples of `module`'s functions that have one of `names` and
    one of `beside`: lists of devices. Give the qualified names of the functions.
    """
    known = (set(names), set(beside))
    done = []
    for function in _functions(module):
        code = _extended(function.__code__, *known)
        if code is not function.__code__:
            function.__code__ = code
            done.append(function.__qualname__)
    if done:
        _note(module, done)
    return done


def rename_device(module: types.ModuleType, other: str) -> list[str]:
    """Put the device's name in the place of `other` in `module`, which asks no question: it
    compares `device.type == "npu"` and calls `torch.npu`. Give the functions' qualified names.
    """
    done = []
    for function in _functions(module):
        code = function.__code__
        if other not in (*code.co_names, *code.co_consts):
            continue
        device = integrations.state.device
        function.__code__ = code.replace(
            co_names=tuple(device if name == other else name for name in code.co_names),
            co_consts=tuple(device if value == other else value for value in code.co_consts),
        )
        done.append(function.__qualname__)
    if done:
        _note(module, done)
    return done


def renamed(function: types.FunctionType, old: str, new: str) -> types.FunctionType:
    """A copy of `function` that uses the name `new` where it has `old`: torch.cuda, torch.sim."""
    code = function.__code__
    if old not in code.co_names:
        raise LookupError(f"{function.__qualname__} has no {old}")
    code = code.replace(co_names=tuple(new if name == old else name for name in code.co_names))
    return _copy(function, code)


def with_device(
    function: types.FunctionType, names: Iterable[str], beside: Iterable[str]
) -> types.FunctionType:
    """A copy of `function` whose lists of devices have this one: see `extend_lists`."""
    code = _extended(function.__code__, set(names), set(beside))
    if code is function.__code__:
        raise LookupError(f"{function.__qualname__} has no list of devices")
    return _copy(function, code)


def _copy(function: types.FunctionType, code: types.CodeType) -> types.FunctionType:
    copy = types.FunctionType(
        code, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


def _note(module: types.ModuleType, functions: list[str]) -> None:
    root = module.__name__.partition(".")[0]
    library = LIBRARIES.get(module.__name__) or LIBRARIES[root]
    integrations.note(library, f"{module.__name__}: {', '.join(functions)}")


def _available(*_: Any, **__: Any) -> bool:
    """The answer in the place of a library's question for another device."""
    return bool(torch.get_device_module(integrations.state.device).is_available())


def _functions(module: types.ModuleType) -> Iterator[types.FunctionType]:
    """Each function and method that is written in `module`, under its decorators."""
    seen: set[int] = set()

    def below(owner: Any) -> Iterator[types.FunctionType]:
        for value in list(vars(owner).values()):
            if isinstance(value, type):
                if value.__module__ == module.__name__ and id(value) not in seen:
                    seen.add(id(value))
                    yield from below(value)
                continue
            for outermost in _held(value):
                held = outermost
                while held is not None and id(held) not in seen:
                    seen.add(id(held))
                    plain = isinstance(held, types.FunctionType)
                    if plain and held.__globals__ is vars(module):
                        yield held
                    held = getattr(held, "__wrapped__", None)

    return below(module)


def _held(value: Any) -> tuple[Any, ...]:
    if isinstance(value, property):
        return (value.fget, value.fset)
    if isinstance(value, functools.cached_property):
        return (value.func,)
    if isinstance(value, staticmethod | classmethod):
        return (value.__func__,)
    return (value,) if callable(value) else ()


def _code(code: types.CodeType, predicates: Mapping[str, str], device: str) -> types.CodeType:
    """`code` with the device's name, or itself where there is nothing to change."""
    asked = _asked(code, predicates)
    other = predicates[asked] if asked else None
    names = code.co_names
    if asked:
        names = tuple(_QUESTION if n == asked else device if n == other else n for n in names)
    others = set(predicates.values())
    consts = tuple(_const(value, other, others, predicates, device) for value in code.co_consts)
    same = all(a is b for a, b in zip(consts, code.co_consts, strict=True))
    if names == code.co_names and same:
        return code
    return code.replace(co_names=names, co_consts=consts)


def _asked(code: types.CodeType, predicates: Mapping[str, str]) -> str | None:
    """The first predicate that `code` calls as a global. What it imports itself is a local."""
    local = {*code.co_varnames, *code.co_cellvars, *code.co_freevars}
    for predicate, other in predicates.items():
        own = _OWN.get(other)
        needs_own = own in code.co_names and own not in code.co_consts  # without hasattr()
        if predicate in code.co_names and predicate not in local and not needs_own:
            return predicate
    return None


def _const(
    value: Any,
    other: str | None,
    others: set[str],
    predicates: Mapping[str, str],
    device: str,
) -> Any:
    if isinstance(value, types.CodeType):
        return _code(value, predicates, device)
    if isinstance(value, str) and other is not None:
        return _word(value, other, device)
    return _listed(value, others, _LISTED_BESIDE)


def _extended(code: types.CodeType, names: set[str], beside: set[str]) -> types.CodeType:
    consts = tuple(
        _extended(value, names, beside)
        if isinstance(value, types.CodeType)
        else _listed(value, names, beside)
        for value in code.co_consts
    )
    same = all(a is b for a, b in zip(consts, code.co_consts, strict=True))
    return code if same else code.replace(co_consts=consts)


def _listed(value: Any, names: set[str], beside: set[str]) -> Any:
    """A tuple of strings with the device added, where it is a list of devices; else `value`."""
    device = integrations.state.device
    if isinstance(value, tuple | frozenset) and device not in value:
        words = {item for item in value if isinstance(item, str)}
        if names & words and beside & words and len(words) > 1:
            return type(value)([*value, device])
    return value


def _word(text: str, other: str, device: str) -> str:
    """`text` with the name of the other device as a word of it replaced: "npu", "npu:", "NPU",
    "torch_npu_manual_seed". Sentences stay, and the name of a package, and members of enumerations.
    """
    if text in _VISIBLE:
        return "CAUSEWAY_VISIBLE_DEVICES"
    if " " in text or "\n" in text or text == f"torch_{other}" or text.startswith("MULTI_"):
        return text
    for old, new in ((other, device), (other.upper(), device.upper())):
        text = re.sub(rf"(?<![A-Za-z0-9]){old}(?![A-Za-z0-9])", new, text)
    return text
