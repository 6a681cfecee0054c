"""The vendor of Huawei's NPUs, built once, and the stand-in for CANN's libraries where it is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import warm

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def ascend_library(build_vendor: Callable[[str], Path]) -> Path:
    """libcw_ascend.so of this tree."""
    if not shutil.which("c++"):
        pytest.skip("there is no C++ compiler to build the vendor with")
    return build_vendor("ascend")


@pytest.fixture(scope="session")
def stand_in() -> Path:
    """The folder with the stand-in's libascendcl.so and libopapi.so."""
    folder = ROOT / "build/ascend-stand-in/lib"
    if not (folder / "libopapi.so").exists():
        pytest.skip("the stand-in for CANN's libraries is not here: make ascend-stand-in")
    return folder


@pytest.fixture(scope="session")
def headers() -> Path:
    """What `make ascend-headers` brings: torch_npu's wheel, unpacked and not installed."""
    folder = ROOT / "build/ascend-headers/torch_npu"
    if not folder.exists():
        pytest.skip("the headers of torch_npu's wheel are not here: make ascend-headers")
    return folder


@pytest.fixture
def on_ascend(ascend_library: Path, stand_in: Path) -> Run:
    """Runs a program, or a command of Causeway's, on the stand-in."""

    def run(name: str, *args: str, **given: str) -> subprocess.CompletedProcess[str]:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("CAUSEWAY_")}
        environment |= {
            "CAUSEWAY_VENDOR": str(ascend_library),
            "CAUSEWAY_ASCEND_LIBRARIES": str(stand_in),
        }
        done = warm.run([name, *args], env=environment | given)
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    return run
