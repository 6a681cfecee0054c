"""The vendor of DIOPI's libraries, and such a library in plain C++, each built once."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import warm

HERE = Path(__file__).parent
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def diopi_vendor(build_vendor: Callable[[str], Path]) -> Path:
    """libcw_diopi.so of this tree."""
    if not shutil.which("c++"):
        pytest.skip("there is no C++ compiler to build the vendor with")
    return build_vendor("diopi")


@pytest.fixture(scope="session")
def plain(build_folder: Callable[[Path, str], Path], diopi_vendor: Path) -> Path:
    """The folder with libdiopi_impl.so, libwrong.so and libdevice.so of library/."""
    return build_folder(HERE / "library", "diopi_library") / "lib"


@pytest.fixture
def on_diopi(diopi_vendor: Path, plain: Path) -> Run:
    """Runs a program, or a command of Causeway's, on the library in plain C++."""

    def run(
        name: str, *args: str, status: int | None = 0, **given: str
    ) -> subprocess.CompletedProcess[str]:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("CAUSEWAY_")}
        environment |= {
            "CAUSEWAY_VENDOR": str(diopi_vendor),
            "CAUSEWAY_DIOPI_LIBRARY": str(plain / "libdiopi_impl.so"),
        }
        done = warm.run([name, *args], env=environment | given)
        assert status in (None, done.returncode), done.stdout + done.stderr
        return done

    return run
