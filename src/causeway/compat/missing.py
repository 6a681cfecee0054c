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


class Options:
    """Switches of a system without effect, by name with the value each has here; a mistyped name
    raises.
    """

    def __init__(self, owner: str, values: dict[str, Any], why: str) -> None:
        self.__dict__.update({"_owner": owner, "_values": values, "_why": why})

    def __getattr__(self, name: str) -> Any:
        if name not in self._values:
            raise AttributeError(f"{self._owner}.{name}: known are {', '.join(self._values)}")
        return self._values[name]

    def __setattr__(self, name: str, value: Any) -> None:
        if value != getattr(self, name):
            no_effect(f"{self._owner}.{name} = {value!r}", self._why)
