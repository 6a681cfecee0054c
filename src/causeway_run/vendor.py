"""Which vendor's library runs a file: the rule of `causeway.vendor`, which is not imported."""

from __future__ import annotations

import os
import sys
from importlib.metadata import EntryPoint, distributions
from pathlib import Path

from causeway_run.library import RunError, folders

GROUP = "causeway.vendors"
VARIABLE = "CAUSEWAY_VENDOR"


def choose(vendor: str | os.PathLike[str] | None = None) -> str:
    """The path of a vendor's library.

    `vendor` is a path, the file name of a library that the system's loader finds, or the name of an
    installed vendor; None stands for the environment's CAUSEWAY_VENDOR, else for the only vendor
    that is installed besides the simulated chip, else for the simulated chip.
    Raises RunError where there is no such vendor, or where several are installed.
    """
    asked = os.fspath(vendor) if vendor is not None else os.environ.get(VARIABLE, "").strip()
    if "/" in asked or isinstance(vendor, os.PathLike):
        return str(Path(asked).expanduser().resolve())  # one spelling: a process opens one library
    if asked.endswith((".so", ".dylib")):
        return asked
    if asked == "sim":
        return _sim()
    points = _installed()
    if asked and asked not in points:
        names = ", ".join(["sim", *points])
        raise RunError(
            f"there is no vendor {asked!r}: installed are {names}; the path of a library is taken "
            "too, such as ./libcw_opencl.so"
        )
    if len(points) > 1 and not asked:
        raise RunError(
            f"several vendors are installed, {', '.join(points)}: say which one, by the argument "
            f"`vendor` or by {VARIABLE}"
        )
    for name, point in points.items():
        if asked in ("", name):
            return _path_of(point)
    return _sim()


def refuse_if_torch_has_it(library: str) -> None:
    """Raise RunError where the device of torch in this process has opened the same library: its
    functions for the vendor would be replaced by the runtime's.
    """
    core = sys.modules.get("causeway._C")
    opened = core.vendor_state().get("path") if core else None
    if opened and _file(opened, library) == _file(library, library):
        raise RunError(
            f"torch's device uses {library} in this process, and a vendor's library serves one of "
            "the two: run the file in a process that imports neither torch nor causeway"
        )


def _file(path: str, asked: str) -> str:
    """A path without links, or its last part where only a file name was asked for."""
    return os.path.realpath(path) if "/" in asked else os.path.basename(path)


def _sim() -> str:
    paths = [folder / "libcw_sim.so" for folder in folders()]
    return str(next((path for path in paths if path.is_file()), paths[-1]))


def _installed() -> dict[str, EntryPoint]:
    """Vendors besides the simulated chip, by name; the first on sys.path counts."""
    found: dict[str, EntryPoint] = {}
    for package in distributions():
        if f"[{GROUP}]" in (package.read_text("entry_points.txt") or ""):
            for point in package.entry_points.select(group=GROUP):
                found.setdefault(point.name, point)
    return {name: found[name] for name in sorted(found) if name != "sim"}


def _path_of(point: EntryPoint) -> str:
    try:
        library: str = os.path.realpath(point.load()())
        return library
    except Exception as error:  # a vendor's own code; the reason is passed on
        raise RunError(
            f"vendor {point.name!r} ({point.value}) does not say where its library is: "
            f"{type(error).__name__}: {error}"
        ) from error
