"""Casts for functions of the user's own: `half_function` and its like, as decorators or registered
by name. They hold where O1 (or O4) is in force.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from causeway.apex.amp._amp_state import _amp_state
from causeway.apex.amp.models import cast

Function = Callable[..., Any]


def _low() -> torch.dtype:
    properties = _amp_state.opt_properties
    return (properties.patch_torch_functions_type if properties else None) or torch.float16


def _casting(fn: Function, dtype: Callable[[], torch.dtype]) -> Function:
    from causeway.apex.amp.handle import disable_casts

    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if not _amp_state.casting:
            return fn(*args, **kwargs)
        wanted = dtype()
        args, kwargs = cast(args, wanted), cast(kwargs, wanted)
        with disable_casts():
            return fn(*args, **kwargs)

    return wrapper


def half_function(fn: Function) -> Function:
    """`fn` with its tensors in O1's low precision, inside of it too."""
    return _casting(fn, _low)


def bfloat16_function(fn: Function) -> Function:
    """`fn` with its tensors in bfloat16, inside of it too."""
    return _casting(fn, lambda: torch.bfloat16)


def float_function(fn: Function) -> Function:
    """`fn` with its tensors in float32, inside of it too."""
    return _casting(fn, lambda: torch.float32)


def promote_function(fn: Function) -> Function:
    """`fn` with its tensors in the widest of their dtypes."""

    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if not _amp_state.casting:
            return fn(*args, **kwargs)
        found: list[torch.dtype] = []
        _dtypes((args, kwargs), found)
        widest = functools.reduce(torch.promote_types, found) if found else None
        return fn(*cast(args, widest), **cast(kwargs, widest))

    return wrapper


def _dtypes(value: Any, found: list[torch.dtype]) -> None:
    if isinstance(value, Tensor):
        if value.is_floating_point():
            found.append(value.dtype)
    elif isinstance(value, dict):
        _dtypes(list(value.values()), found)
    elif isinstance(value, list | tuple):
        for item in value:
            _dtypes(item, found)


# --- by name --------------------------------------------------------------------------------------

_registered: list[tuple[Any, str, Callable[[Function], Function]]] = []
_replaced: list[tuple[Any, str, Any]] = []


def _register(module: Any, name: str, decorator: Callable[[Function], Function]) -> None:
    if not hasattr(module, name):
        where = getattr(module, "__name__", module)
        raise ValueError(f"No function named {name} in module {where}.")
    _registered.append((module, name, decorator))
    if _replaced or _amp_state.casting:
        _replace(module, name, decorator)


def register_half_function(module: Any, name: str) -> None:
    """Have `module.name` be a half_function where O1 is in force: from amp.initialize on."""
    _register(module, name, half_function)


def register_bfloat16_function(module: Any, name: str) -> None:
    """Have `module.name` be a bfloat16_function where O1 is in force."""
    _register(module, name, bfloat16_function)


def register_float_function(module: Any, name: str) -> None:
    """Have `module.name` be a float_function where O1 is in force."""
    _register(module, name, float_function)


def register_promote_function(module: Any, name: str) -> None:
    """Have `module.name` be a promote_function where O1 is in force."""
    _register(module, name, promote_function)


def _replace(module: Any, name: str, decorator: Callable[[Function], Function]) -> None:
    original = getattr(module, name)
    _replaced.append((module, name, original))
    setattr(module, name, decorator(original))


def activate() -> None:
    """Put the casts around the functions that were registered."""
    deactivate()
    for module, name, decorator in _registered:
        _replace(module, name, decorator)


def deactivate() -> None:
    """Take them off again; the registrations stay."""
    for module, name, original in reversed(_replaced):
        setattr(module, name, original)
    _replaced.clear()
