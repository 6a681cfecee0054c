"""The OpenCL vendor, built once, and programs that run on it. Skipped where there is no OpenCL."""

from __future__ import annotations

import ctypes
import ctypes.util
import fcntl
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HOW = "apt-get install ocl-icd-libopencl1 pocl-opencl-icd opencl-c-headers"


def _platforms() -> int:
    try:
        loader = ctypes.CDLL("libOpenCL.so.1")
    except OSError:
        return 0
    count = ctypes.c_uint(0)
    loader.clGetPlatformIDs(0, None, ctypes.byref(count))
    return count.value


@pytest.fixture(scope="session")
def opencl_library(request: pytest.FixtureRequest) -> Path:
    """libcw_opencl.so of this tree."""
    headers = [p for p in (Path("/usr/include"), Path("/usr/local/include")) if (p / "CL").is_dir()]
    if not headers or not shutil.which("c++"):
        pytest.skip(f"there are no OpenCL headers to build the vendor with: {HOW}")
    if not _platforms():
        pytest.skip(f"there is no OpenCL driver: {HOW}")
    build = request.config.cache.mkdir("cw_opencl")
    with (build / "lock").open("w") as lock:  # two processes of pytest build in one folder
        fcntl.flock(lock, fcntl.LOCK_EX)
        for command in (
            ["cmake", "-S", str(ROOT / "vendors/opencl"), "-B", str(build)],
            ["cmake", "--build", str(build)],
        ):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout + done.stderr
    return build / "libcw_opencl.so"


@pytest.fixture
def on_opencl(
    opencl_library: Path, run_python: Callable[..., subprocess.CompletedProcess[str]]
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a program on OpenCL: PoCL where it is one of several."""

    def run(program: str, **keys: object) -> subprocess.CompletedProcess[str]:
        return run_python(program, **{"CAUSEWAY_VENDOR": str(opencl_library)} | keys)

    return run
