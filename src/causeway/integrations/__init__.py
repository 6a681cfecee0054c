"""The libraries that people train with, shown the device: one file a library, loaded with it.

Some libraries find a device by `torch.accelerator`, or let one register; others have a list of the
vendors that they know. What is missing is supplied when such a library is imported, not before:
`import torch` only puts a finder in `sys.meta_path`, which knows the names of `LIBRARIES`.
Nothing of a library's files is changed, and `CAUSEWAY_INTEGRATIONS` switches off all or one.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import sys
import types
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field

from causeway import config
from causeway.libraries import LIBRARIES


@dataclass(frozen=True)
class Integration:
    """What Causeway does for one library. `loaded` is called for each of its modules, once, when
    that has been imported.
    """

    tested: tuple[str, str]  # the oldest and the newest version that the tests were run with
    how: str  # in words, for `causeway doctor` and docs/libraries.md
    loaded: Callable[[types.ModuleType], None]
    distribution: str = ""  # its name as a package; empty: that of the module


@dataclass
class State:
    """What was done in this process."""

    device: str = ""
    done: dict[str, list[str]] = field(default_factory=dict)  # library: what was changed in it
    failed: dict[str, str] = field(default_factory=dict)  # library: why it does not see the device


state = State()


def start(device: str) -> None:
    """Watch for the libraries from now on. Those that are imported already, or half, are seen to.

    A library may import torch in the middle of its own import, and then torch's autoload is here.
    """
    if state.device:
        return
    from causeway.integrations import hook

    state.device = device
    hook.watch(LIBRARIES, _loaded)


def wanted() -> set[str]:
    """The libraries that the setting asks for, now."""
    names = config.get("integrations")
    every = set(LIBRARIES.values())
    chosen = every if "all" in names or all(n.startswith("-") for n in names) else set()
    chosen = chosen | {name for name in names if name in every}
    left_out = {name.removeprefix("-") for name in names if name.startswith("-")}
    return set() if "none" in names else chosen - left_out


@functools.cache
def integration(library: str) -> Integration:
    """The `INTEGRATION` of a library's file here."""
    found = importlib.import_module(f"causeway.integrations.{library}").INTEGRATION
    assert isinstance(found, Integration)
    return found


def note(library: str, what: str) -> None:
    """Keep for `causeway doctor` what was changed in a library."""
    done = state.done.setdefault(library, [])
    if what not in done:
        done.append(what)


def blocked(library: str, why: str, remedy: str) -> None:
    """Say once that a library will not use the device, and what to do about it."""
    if library in state.failed:
        return
    state.failed[library] = why
    warnings.warn(f"causeway: {library} will not use the device {state.device!r}: {why}. {remedy}",
                  stacklevel=3)  # fmt: skip


def version(library: str) -> str | None:
    """The version of a library that is installed, or None."""
    try:
        return importlib.metadata.version(integration(library).distribution or library)
    except importlib.metadata.PackageNotFoundError:
        return None


def rows() -> list[tuple[str, str, str, str]]:
    """(library, version installed, tested from-to, how) of each library that is installed."""
    chosen, found = wanted(), []
    for library in dict.fromkeys(LIBRARIES.values()):
        installed = version(library)
        if installed is None:
            continue
        known = integration(library)
        how = known.how if library in chosen else "off by CAUSEWAY_INTEGRATIONS"
        found.append((library, installed, " to ".join(dict.fromkeys(known.tested)), how))
    return found


def _loaded(name: str) -> None:
    module = sys.modules.get(name)
    if module is None:
        return
    library = LIBRARIES.get(name) or LIBRARIES[name.partition(".")[0]]
    if library not in wanted():
        return
    try:
        integration(library).loaded(module)
    except Exception as error:  # a library must stay importable, whatever its version has moved
        blocked(
            library,
            f"{name} is not as expected ({type(error).__name__}: {error})",
            _tested_remedy(library),
        )


def _tested_remedy(library: str) -> str:
    silence = f"CAUSEWAY_INTEGRATIONS=-{library} silences this"
    try:
        oldest, newest = integration(library).tested
    except ImportError:
        return silence
    return f"Versions {oldest} to {newest} are tested, {version(library)} is installed; {silence}"
