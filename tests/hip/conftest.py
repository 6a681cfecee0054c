"""The vendor of AMD's GPUs, built once, and its device on paper: what needs no GPU."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HIP = ROOT / "build/hip"
LIBRARIES = HIP / "usr/lib/x86_64-linux-gnu"


def _build(build_vendor: Callable[[str], Path], name: str) -> Path:
    if not shutil.which("c++"):
        pytest.skip("there is no C++ compiler to build the vendor with")
    return build_vendor(name)


@pytest.fixture(scope="session")
def amd_library(build_vendor: Callable[[str], Path]) -> Path:
    """libcw_amd.so of this tree."""
    return _build(build_vendor, "hip")


@pytest.fixture(scope="session")
def metax_library(build_vendor: Callable[[str], Path]) -> Path:
    """libcw_metax.so of this tree."""
    return _build(build_vendor, "maca")


@pytest.fixture(scope="session")
def debian() -> Path:
    """The folder of Debian's libraries of HIP."""
    if not (LIBRARIES / "libamdhip64.so.5").exists():
        pytest.skip("HIP is not here: make hip")
    return LIBRARIES


@pytest.fixture
def on_paper(amd_library: Path, debian: Path, tmp_path: Path) -> Callable[[str], dict[str, str]]:
    """on_paper("gfx90a"): settings of a device that compiles for it and runs nothing."""

    def settings(architecture: str) -> dict[str, str]:
        return {
            "CAUSEWAY_VENDOR": str(amd_library),
            "CAUSEWAY_AMD_PAPER": architecture,
            "CAUSEWAY_AMD_CACHE": str(tmp_path / "programs"),
            "LD_LIBRARY_PATH": str(debian),  # of what the compiler needs beside it
        }

    return settings
