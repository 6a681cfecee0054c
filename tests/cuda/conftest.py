"""The vendor of NVIDIA's GPUs, built once, and its device on paper: what needs no GPU."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
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
def nvrtc(compilers: list[Path]) -> Path:
    """CUDA's run-time compiler: the setting's, or the first of `compilers`."""
    if (asked := os.environ.get("CAUSEWAY_NVIDIA_NVRTC")) and Path(asked).exists():
        return Path(asked)
    for found in compilers:
        return found
    pytest.skip("there is no NVRTC to compile with: make nvrtc")


@pytest.fixture(scope="session")
def compilers() -> list[Path]:
    """CUDA 12's NVRTC and 13's where they are: `make nvrtc`'s, then the environment's wheels."""
    spec = importlib.util.find_spec("nvidia")
    folders = [
        ROOT / "build/nvrtc/nvidia",
        *map(Path, (spec and spec.submodule_search_locations) or ()),
    ]
    wheels = ("cuda_nvrtc", "cu13")  # CUDA 12's wheels have a folder each, 13's have one for all
    return [
        p for f in folders for w in wheels for p in sorted((f / w / "lib").glob("libnvrtc.so*"))
    ]


@pytest.fixture(scope="session")
def stand_ins(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Settings that put the stand-ins of stand_in/ where cuBLAS and cuDNN would be."""
    if not shutil.which("cc"):
        pytest.skip("there is no C compiler to build the stand-ins with")
    folder, made = tmp_path_factory.mktemp("stand_ins"), {}
    for name, setting in (("blas", "CUBLAS"), ("dnn", "CUDNN")):
        source, library = Path(__file__).parent / f"stand_in/{name}.c", folder / f"lib{name}.so"
        flags = ["-std=gnu11", "-O1", "-Wall", "-Werror", "-shared", "-fPIC"]
        subprocess.run(["cc", *flags, source, "-o", library, "-lm"], check=True)
        made[f"CAUSEWAY_NVIDIA_{setting}"] = str(library)
    return made


@pytest.fixture(scope="session")
def wheels() -> Path:
    """What `make nvidia` brings: CUDA's headers and libraries, as PyPI has them."""
    folder = ROOT / "build/nvidia/nvidia"
    if not all((folder / f / "include/cublas_v2.h").exists() for f in ("cublas", "cu13")):
        pytest.skip("NVIDIA's headers and libraries are not here: make nvidia")
    return folder


@pytest.fixture
def on_paper(nvidia_library: Path, nvrtc: Path, tmp_path: Path) -> dict[str, str]:
    """Settings of a device that compiles for sm_90 and runs nothing."""
    return {
        "CAUSEWAY_VENDOR": str(nvidia_library),
        "CAUSEWAY_NVIDIA_PAPER": "sm_90",
        "CAUSEWAY_NVIDIA_NVRTC": str(nvrtc),
        "CAUSEWAY_NVIDIA_CACHE": str(tmp_path / "programs"),
    }
