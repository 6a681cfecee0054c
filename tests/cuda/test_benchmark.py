"""benchmarks/gpu.py: what it says where there is no GPU, and how it compares two sides."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import warm

PROGRAM = Path(__file__).parents[2] / "benchmarks/gpu.py"

pytestmark = [pytest.mark.process, pytest.mark.once]


def run(*args: str, **given: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("CAUSEWAY_")} | given
    return warm.run([PROGRAM, *args], env=environment)


def test_without_a_gpu_it_says_so_and_writes_nothing(tmp_path: Path, nvidia_library: Path) -> None:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        pass
    else:
        pytest.skip("there is a driver")
    out = tmp_path / "cuda.json"
    for paper in ({}, {"CAUSEWAY_NVIDIA_PAPER": "sm_90"}):
        done = run("--out", str(out), CAUSEWAY_VENDOR=str(nvidia_library), **paper)
        assert done.returncode == 3, done.stderr
        assert done.stdout.startswith("No GPU was there to run this: ")
        assert ("on paper" if paper else "libcuda.so.1 cannot be opened") in done.stdout
        assert not out.exists()


def test_two_sides_are_timed_in_turn_and_compared(tmp_path: Path) -> None:
    out = tmp_path / "figures.json"
    done = run(
        "tiny", "--skip-conformance", "--rounds", "3", "--out", str(out),
        "--devices", "sim", "cpu", "--torch-cuda", sys.executable, CAUSEWAY_VENDOR="sim",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(out.read_text())
    assert report["torch_cuda"]["device"] == "the CPU"
    # One interpreter serves both, and Causeway is not loaded on the other side.
    assert report["ours"]["privateuse1"] == "sim"
    assert report["torch_cuda"]["privateuse1"] == "privateuseone"
    assert [f["name"] for f in report["figures"]] == ["tiny: add", "tiny: mm", "tiny: softmax"]
    assert all(f["ours_ms"] > 0 and f["speed"] > 0 for f in report["figures"])


def test_libraries_are_those_of_the_cuda_that_torch_is_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Python with the wheels of CUDA 12 and 13; ours has one library more, in a real package."""
    ours, theirs = tmp_path / "ours/nvidia", tmp_path / "theirs/nvidia"
    for file in (
        "cublas/lib/libcublas.so.12",
        "cu13/lib/libcublas.so.13",
        "cudnn/lib/libcudnn.so.9",
    ):
        (theirs / file).parent.mkdir(parents=True)
        (theirs / file).touch()
    (theirs.parent / "torch.py").write_text("class version: cuda = '13.0'")
    for file in ("cublas/lib/libcublas.so.12", "cuda_nvrtc/lib/libnvrtc.so.12"):
        (ours / file).parent.mkdir(parents=True)
        (ours / file).touch()
    (ours / "__init__.py").touch()
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={theirs.parent} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    monkeypatch.setenv("PYTHONPATH", str(ours.parent))
    for name in ("CUBLAS", "CUDNN", "NVRTC"):
        monkeypatch.delenv(f"CAUSEWAY_NVIDIA_{name}", raising=False)
    monkeypatch.syspath_prepend(str(PROGRAM.parent))
    import gpu

    assert gpu.libraries_of(str(python)) == {
        "CAUSEWAY_NVIDIA_CUBLAS": str(theirs / "cu13/lib/libcublas.so.13"),
        "CAUSEWAY_NVIDIA_CUDNN": str(theirs / "cudnn/lib/libcudnn.so.9"),
        "CAUSEWAY_NVIDIA_NVRTC": str(ours / "cuda_nvrtc/lib/libnvrtc.so.12"),
    }
