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
