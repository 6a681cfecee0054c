"""Programs that run on the OpenCL vendor; skipped where there is no OpenCL."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def on_opencl(
    opencl_library: Path, run_python: Callable[..., subprocess.CompletedProcess[str]]
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a program on OpenCL: PoCL where it is one of several."""

    def run(program: str, **keys: object) -> subprocess.CompletedProcess[str]:
        return run_python(program, **{"CAUSEWAY_VENDOR": str(opencl_library)} | keys)

    return run
