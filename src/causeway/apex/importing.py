"""`import apex` gives causeway.apex: a finder for the names `apex`, `apex.…` and `amp_C`.

It asks all other finders before it answers, so that it shadows no apex that is installed. Modules
are the same objects under both names.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from causeway.errors import CausewayError

_OURS = "causeway.apex"
_OTHERS = {"amp_C": "causeway.apex.multi_tensor_apply.amp_C"}


class _Loader(importlib.abc.Loader):
    """Gives the module of causeway.apex for a name of apex's."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._spec: Any = None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = importlib.import_module(self.name)
        # The import system would write the other name into it.
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec
        module.__loader__ = getattr(self._spec, "loader", None)


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        root, _, rest = fullname.partition(".")
        if root == "apex" and rest:
            # Not for the submodules of another apex.
            parent = sys.modules.get("apex")
            if parent is not None and parent.__name__ != _OURS:
                return None
            name = f"{_OURS}.{rest}"
        elif root == "apex" or fullname in _OTHERS:
            if _elsewhere(fullname):
                return None
            name = _OTHERS.get(fullname, _OURS)
        else:
            return None
        found = importlib.util.find_spec(name)
        if found is None:
            raise ModuleNotFoundError(
                f"No module named {fullname!r}: it is no part of Causeway's apex, which has "
                "torch's means only (see docs/amp.md)",
                name=fullname,
            )
        spec = importlib.machinery.ModuleSpec(
            fullname, _Loader(name), origin=found.origin,
            is_package=found.submodule_search_locations is not None,
        )  # fmt: skip
        if found.submodule_search_locations is not None:
            spec.submodule_search_locations = found.submodule_search_locations
        return spec


_finder = _Finder()


def _elsewhere(name: str) -> Any:
    """What the other finders know of a top-level module, or None."""
    for finder in sys.meta_path:
        if finder is not _finder and hasattr(finder, "find_spec"):
            spec = finder.find_spec(name, None)
            if spec is not None:
                return spec
    return None


def install() -> None:
    """Make `import apex` give this package, in this process. Does nothing where it does already.

    Raises CausewayError where another apex is installed or imported: it is never shadowed.
    """
    if _finder in sys.meta_path:
        return
    there = sys.modules.get("apex")
    if there is not None:
        where = getattr(there, "__file__", None)
        raise CausewayError(
            f"another apex is imported ({where}): call causeway.apex.install() before, in an "
            "environment without it, or write `from causeway import apex`"
        )
    other = _elsewhere("apex")
    if other is not None:
        raise CausewayError(
            f"another apex is installed ({other.origin or other.submodule_search_locations}): it "
            "is not shadowed. Uninstall it, or write `from causeway import apex`"
        )
    # First: the finder of files would make modules anew of the submodules that it sees.
    sys.meta_path.insert(0, _finder)


def install_where_absent() -> bool:
    """As install(), but where there is another apex leave it in its place; give whether ours is
    what `import apex` gives.
    """
    if "apex" not in sys.modules and _elsewhere("apex") is None:
        install()
    return installed()


def uninstall() -> None:
    """Take install() back. What was imported under these names is forgotten; programs that hold it
    still do.
    """
    if _finder not in sys.meta_path:
        return
    sys.meta_path.remove(_finder)
    for name in [n for n in sys.modules if n in _OTHERS or n.partition(".")[0] == "apex"]:
        module = sys.modules[name]
        if module.__name__.startswith(_OURS):
            del sys.modules[name]


def installed() -> bool:
    """Whether `import apex` gives this package."""
    return _finder in sys.meta_path
