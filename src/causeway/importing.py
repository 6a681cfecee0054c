"""Modules of Causeway under the name of a package that is not installed: `apex`, `torch_npu`.

All other finders are asked before a top-level name is answered, so nothing that is installed is
shadowed. Modules are the same objects under both names.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from causeway.errors import CausewayError

# A file beside a package that Causeway wrote itself (`causeway compat install`).
MARK = "made_by_causeway"


class _Loader(importlib.abc.Loader):
    """Gives a module of Causeway for a name of another package's."""

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


def _written(spec: Any) -> bool:
    """Whether a package is one that `causeway compat install` wrote."""
    origin = getattr(spec, "origin", None) or ""
    return os.path.exists(os.path.join(os.path.dirname(origin), MARK)) if origin else False


class Aliases(importlib.abc.MetaPathFinder):
    """A finder of `packages`, each with the module that it gives, and of the modules below them. A
    name below may have a module of its own: {"mindtorch": ..., "mindtorch.torch": "torch"}.

    `whose` says in an error what a name is no part of.
    """

    def __init__(self, packages: Mapping[str, str], whose: str) -> None:
        self.packages = dict(packages)
        self._whose = whose

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        root = fullname.partition(".")[0]
        if root not in self.packages:
            return None
        if root == fullname:
            if self.elsewhere(fullname):
                return None
        else:
            # Not for the submodules of another package of that name.
            parent = sys.modules.get(root)
            ours = self.packages[root]
            if parent is not None and parent.__name__ != ours and not _written(parent.__spec__):
                return None
        name = self._ours(fullname)
        try:
            found = importlib.util.find_spec(name)
        except ModuleNotFoundError:
            found = None
        if found is None:
            raise ModuleNotFoundError(
                f"No module named {fullname!r}: it is no part of {self._whose}", name=fullname
            )
        spec = importlib.machinery.ModuleSpec(
            fullname, _Loader(name), origin=found.origin,
            is_package=found.submodule_search_locations is not None,
        )  # fmt: skip
        if found.submodule_search_locations is not None:
            spec.submodule_search_locations = found.submodule_search_locations
        return spec

    def _ours(self, fullname: str) -> str:
        """The module that is given, by the longest name of `packages` that begins the name."""
        known = fullname
        while known not in self.packages:
            known = known.rpartition(".")[0]
        return self.packages[known] + fullname[len(known) :]

    def elsewhere(self, name: str) -> Any:
        """What the other finders know of a top-level module, or None."""
        for finder in sys.meta_path:
            if finder is not self and hasattr(finder, "find_spec"):
                spec = finder.find_spec(name, None)
                if spec is not None and not _written(spec):
                    return spec
        return None

    def refuse_others(self, name: str, instead: str) -> None:
        """Raise CausewayError where another package `name` is installed or imported. `instead` says
        what to do, after the message.
        """
        there = sys.modules.get(name)
        if (
            there is not None
            and there.__name__ != self.packages[name]
            and not _written(there.__spec__)
        ):
            raise CausewayError(
                f"another {name} is imported ({getattr(there, '__file__', None)}): {instead}"
            )
        other = self.elsewhere(name) if there is None else None
        if other is not None:
            where = other.origin or other.submodule_search_locations
            raise CausewayError(
                f"another {name} is installed ({where}): it is not shadowed. {instead}"
            )

    @property
    def installed(self) -> bool:
        """Whether the names are answered in this process."""
        return self in sys.meta_path

    def install(self) -> None:
        """Answer from now on. First: the finder of files would make modules anew of those that it
        sees.
        """
        if not self.installed:
            sys.meta_path.insert(0, self)

    def uninstall(self) -> None:
        """Answer no more, and forget what was imported; programs that hold it still do."""
        if not self.installed:
            return
        sys.meta_path.remove(self)
        for name in [n for n in sys.modules if n.partition(".")[0] in self.packages]:
            root = self.packages[name.partition(".")[0]]
            if f"{sys.modules[name].__name__}.".startswith(f"{root}."):
                del sys.modules[name]
