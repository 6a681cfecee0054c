"""Being told when a module of certain packages has been imported.

A finder at the head of `sys.meta_path` lets the others find, and marks the spec of what they found.
The mark is in the spec and not in a loader around the module's own, for two reasons: loaders stay
as they were, for those who ask a module for its source; and a module that is being imported just
now, because it imports torch itself, has its loader behind it, but its spec ahead: Python sets
`__spec__._initializing` to False when the module is complete.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterable, Sequence
from importlib.machinery import ModuleSpec

_told: Callable[[str], None]


class _Watched(ModuleSpec):
    """A spec that tells when its module is complete, or has failed."""

    @property
    def _initializing(self) -> bool:
        return bool(self.__dict__.get("_initializing", False))

    @_initializing.setter
    def _initializing(self, value: bool) -> None:
        before = self._initializing
        self.__dict__["_initializing"] = value
        if before and not value:
            _told(self.name)


class _Finder:
    """Marks the specs of some packages, and of single modules; finds nothing itself."""

    def __init__(self, roots: Iterable[str]) -> None:
        self.roots = frozenset(roots)

    def watches(self, name: str) -> bool:
        return name in self.roots or name.partition(".")[0] in self.roots

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: types.ModuleType | None = None,
    ) -> ModuleSpec | None:
        if not self.watches(fullname):
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            if finder is not self and find is not None:
                spec: ModuleSpec | None = find(fullname, path, target)
                if spec is not None:
                    return _mark(spec)
        return None


def watch(roots: Iterable[str], told: Callable[[str], None]) -> None:
    """Call `told(name)` for each module of the packages `roots` when it is complete: at once for
    those that are. A root with a dot is that module alone.
    """
    global _told
    _told = told
    finder = _Finder(roots)
    sys.meta_path.insert(0, finder)
    if not finder.roots & sys.modules.keys():
        return
    for name, module in list(sys.modules.items()):
        if finder.watches(name):
            spec = getattr(module, "__spec__", None)
            if isinstance(spec, ModuleSpec) and getattr(spec, "_initializing", False):
                _mark(spec)
            else:
                told(name)


def _mark(spec: ModuleSpec) -> ModuleSpec:
    # A subclass of somebody's own keeps its class; there is none in the packages that are watched.
    if type(spec) is ModuleSpec:
        spec.__class__ = _Watched
    return spec
