"""Names of other systems that raise, each with what to write instead."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from causeway.compat.names import instead

_said: set[str] = set()


def getter(package: str) -> Callable[[str], Any]:
    """A module's `__getattr__`: raises AttributeError with what to write instead, by names.toml."""

    def get(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        what = instead(package).get(name)
        if what is None:
            what = "it is not among the names that Causeway stands in for (docs/compat.md)"
        raise AttributeError(f"{package}.{name}: {what}")

    return get


def no_effect(what: str, why: str) -> None:
    """Warn, once for each, that something was asked for which has no effect."""
    if what not in _said:
        _said.add(what)
        warnings.warn(f"causeway: {what} has no effect: {why}", stacklevel=3)
