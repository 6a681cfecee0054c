"""Builds the libraries in vendors/, each of which keeps or breaks one rule of the contract."""

from __future__ import annotations

import subprocess
from pathlib import Path

HERE = Path(__file__).parent
INCLUDE = HERE.parents[1] / "include"
FIRST = HERE / "first"  # abi.h as it was at first, which nobody changes
NAMES = sorted(path.stem for path in (HERE / "vendors").glob("*.c"))


def compile_c(source: Path, to: Path, *flags: str, include: Path = INCLUDE) -> Path:
    """Build a shared library of one C file against the contract's headers."""
    command = [
        "gcc",
        "-std=c11",
        "-D_DEFAULT_SOURCE",
        "-shared",
        "-fPIC",
        "-Wall",
        "-Wextra",
        "-Werror",
    ]
    # An odd vendor may name an entry twice: the last wins, and that is how it says what it breaks.
    command += ["-Wno-override-init", f"-I{include}", *flags, str(source), "-o", str(to)]
    subprocess.run(command, check=True)
    return to


def build(name: str, folder: Path) -> Path:
    """The library of vendors/<name>.c, built into `folder` once."""
    to = folder / f"libcw_{name}.so"
    return to if to.exists() else compile_c(HERE / "vendors" / f"{name}.c", to)
