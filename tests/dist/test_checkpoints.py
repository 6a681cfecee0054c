"""A checkpoint of four ranks is read by two, and by one process that has no device."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import dist_checks
import pytest

pytestmark = [pytest.mark.once, pytest.mark.timeout(600)]

PROGRAM = Path(__file__).with_name("checkpoints.py")


def under_torchrun(mode: str, folder: Path, ranks: int) -> None:
    _, done = dist_checks.launch(PROGRAM.name, mode, str(folder), ranks=ranks)
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.count(f"{mode} is well") == ranks


@pytest.mark.long
def test_saved_on_four_loaded_on_two_and_on_the_cpu_without_a_device(tmp_path: Path) -> None:
    under_torchrun("save", tmp_path, 4)
    under_torchrun("load", tmp_path, 2)
    # As on a machine that knows nothing of Causeway.
    done = subprocess.run(
        [sys.executable, str(PROGRAM), "cpu", str(tmp_path)],
        env={**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
