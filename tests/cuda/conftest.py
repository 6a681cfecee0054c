"""The vendor of NVIDIA's GPUs, built once, and its device on paper: what needs no GPU."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def nvidia_library(build_vendor: Callable[[str], Path]) -> Path:
    """libcw_nvidia.so of this tree."""
    if not shutil.which("c++"):
        pytest.skip("there is no C++ compiler to build the vendor with")
    return build_vendor("cuda")


@pytest.fixture(scope="session")
def nvrtc() -> Path:
    """CUDA's run-time compiler: the setting's, `make nvrtc`'s, or the wheel of the environment."""
    places = [Path(p) for p in (os.environ.get("CAUSEWAY_NVIDIA_NVRTC"),) if p]
    folders = [ROOT / "build/nvrtc/nvidia/cuda_nvrtc/lib"]
    if importlib.util.find_spec("nvidia"):
        spec = importlib.util.find_spec("nvidia.cuda_nvrtc")
        found = spec.submodule_search_locations if spec else None
        folders += [Path(p) / "lib" for p in found or ()]
    for folder in folders:
        places += sorted(folder.glob("libnvrtc.so*"))
    for place in places:
        if place.exists():
            return place
    pytest.skip("there is no NVRTC to compile with: make nvrtc")


@pytest.fixture
def on_paper(nvidia_library: Path, nvrtc: Path, tmp_path: Path) -> dict[str, str]:
    """Settings of a device that compiles for sm_90 and runs nothing."""
    return {
        "CAUSEWAY_VENDOR": str(nvidia_library),
        "CAUSEWAY_NVIDIA_PAPER": "sm_90",
        "CAUSEWAY_NVIDIA_NVRTC": str(nvrtc),
        "CAUSEWAY_NVIDIA_CACHE": str(tmp_path / "programs"),
    }
