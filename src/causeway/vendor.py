"""Which vendor's library to open, and what it is told.

A vendor is found by CAUSEWAY_VENDOR, a name, the path of a library or of a conformance report; else
it is the one installed besides the simulated chip; else, where there is none, it is the simulated
chip. Where several are installed none is taken: a program would run on another chip than was meant.
A vendor's package offers itself by an entry point of group `causeway.vendors`: a callable that
returns the path of its library. One of group `causeway.settings` with the same name is its table of
settings. Nothing here opens a device.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, distributions
from pathlib import Path
from typing import Any

from causeway import config
from causeway.errors import VendorError

GROUP = "causeway.vendors"
SETTINGS = "causeway.settings"
# What a vendor's programming is called, which is taken for the vendor. Devices cannot be called so:
# torch has `cuda` and `hip` already.
CALLED = {"cuda": "nvidia", "hip": "amd", "rocm": "amd", "dtk": "amd", "maca": "metax"}
PAPER = ".json"  # a chip on paper: a conformance report in place of a library


@dataclass(frozen=True)
class Vendor:
    """A vendor that was chosen: its name, its library, and why it is this one."""

    name: str
    library: str
    reason: str
    settings: EntryPoint | None = None  # its table of settings, see config.declare

    def declare(self) -> None:
        """Make its settings known. Raises VendorError where its table cannot be read."""
        if self.settings is None:
            return
        try:
            table: Mapping[str, tuple[Any, Any, str]] = self.settings.load()
            config.declare(self.name, table)
        except Exception as error:  # a vendor's own code; the reason is passed on
            raise VendorError(
                f"vendor {self.name!r} ({self.settings.value}) declares settings that cannot be "
                f"read: {type(error).__name__}: {error}"
            ) from error


def sim_library() -> str:
    """The simulated chip's library, in this package."""
    return str(Path(__file__).parent / "lib" / "libcw_sim.so")


def include_dir() -> str:
    """The folder with causeway/abi.h, for a vendor's compiler."""
    return str(Path(__file__).parent / "include")


def installed() -> dict[str, EntryPoint]:
    """Vendors by name, the simulated chip among them; the first on sys.path where two have one
    name.
    """
    # importlib.metadata.entry_points reads and parses every package's metadata, a third of what
    # Causeway adds to `import torch`: parsed is only what names the group.
    found: dict[str, EntryPoint] = {}
    for package in distributions():
        if f"[{GROUP}]" in (package.read_text("entry_points.txt") or ""):
            for point in package.entry_points.select(group=GROUP):
                found.setdefault(point.name, point)
    return found


def choose() -> Vendor:
    """The vendor to open. Raises VendorError where the one asked for is not there."""
    asked = config.get("vendor").strip()
    if asked and ("/" in asked or asked.endswith((".so", ".dylib", PAPER))):
        path = Path(asked).expanduser()
        if not path.is_file():
            raise VendorError(f"CAUSEWAY_VENDOR is {asked!r}: there is no such file")
        return Vendor(name_of_library(path), str(path.resolve()), "CAUSEWAY_VENDOR")

    points = installed()
    if asked not in points and CALLED.get(asked) in points:
        asked = CALLED[asked]
    if asked:
        if asked not in points:
            near = difflib.get_close_matches(asked, points, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            names = ", ".join(sorted(points)) or "none"
            raise VendorError(
                f"CAUSEWAY_VENDOR is {asked!r}: no vendor of that name is installed{hint} "
                f"(installed: {names}; the path of a library will do too)"
            )
        return _open(points[asked], "CAUSEWAY_VENDOR")

    others = real(points)
    if len(others) > 1:
        choices = " or ".join(f"CAUSEWAY_VENDOR={name}" for name in others)
        raise VendorError(
            f"{len(others)} vendors are installed, {', '.join(others)}, and none is taken: set "
            f"{choices}; CAUSEWAY_VENDOR=sim is the simulated chip"
        )
    if others:
        return _open(points[others[0]], "the only vendor installed besides sim")
    return Vendor("sim", sim_library(), "no other vendor is installed")


def real(points: Iterable[str]) -> list[str]:
    """The names in `points` that are not the simulated chip's."""
    return sorted(set(points) - {"sim"})


def _open(point: EntryPoint, reason: str) -> Vendor:
    try:
        library = point.load()()
    except Exception as error:  # a vendor's own code; the reason is passed on
        raise VendorError(
            f"vendor {point.name!r} ({point.value}) does not say where its library is: "
            f"{type(error).__name__}: {error}"
        ) from error
    package = point.dist.entry_points if point.dist else ()
    tables = [p for p in package if (p.group, p.name) == (SETTINGS, point.name)]
    return Vendor(point.name, os.fspath(library), reason, next(iter(tables), None))


def name_of_library(path: Path) -> str:
    """`libcw_mychip.so` is mychip's: what its settings are called until its table says its name."""
    name = re.sub(r"^(lib)?(cw_|causeway_)?", "", path.name.split(".")[0].lower())
    return re.sub(r"[^a-z0-9_]", "_", name) or "vendor"


class Settings:
    """What the vendor's library asks for: `memory` of vendor sim is CAUSEWAY_SIM_MEMORY; None where
    it is not set.

    The core asks no Python for them, since it may hold locks when a vendor asks: it reads the
    environment itself, but for what `pushed` says.
    """

    def __init__(self, vendor: str) -> None:
        self.vendor = vendor

    def __call__(self, key: str) -> str | None:
        name = f"{self.vendor}_{key}"
        if name in config.SETTINGS:
            return config.text(name)
        return os.environ.get(config.PREFIX + name.upper())

    def listed(self) -> list[str]:
        """Names of the settings of `causeway.config` that are this vendor's."""
        return [name for name, s in config.SETTINGS.items() if s.vendor == self.vendor]

    def pushed(self) -> dict[str, str | None]:
        """What was set from Python, by the vendor's key; None: the environment's value is bad, so
        the vendor is told none.
        """
        keys = {name: name.removeprefix(f"{self.vendor}_") for name in self.listed()}
        wrong = {keys[name]: None for name in keys if config.problem(name) is not None}
        return wrong | {keys[n]: config.text(n) for n in keys if config.source(n) == "api"}

    def push(self) -> None:
        """Hand them to the core, now and after each change from Python."""
        from causeway import _C

        def push() -> None:
            _C.set_settings(self.vendor, self.pushed())

        config.listen(self.listed(), push)
        push()
