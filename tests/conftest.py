"""What all tests share: the device, vendors' libraries, a browser, new Pythons."""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.append(str(Path(__file__).parent))

import warm

Run = Callable[..., subprocess.CompletedProcess[str]]
ROOT = Path(__file__).parents[1]
OPENCL = "apt-get install ocl-icd-libopencl1 pocl-opencl-icd opencl-c-headers"


@pytest.fixture(scope="session")
def device() -> torch.device:
    """The accelerator under test; its index is that of the current device."""
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    assert accelerator is not None, "no device: see `causeway doctor`"
    return accelerator


@pytest.fixture(scope="session")
def run_python() -> Run:
    """Run a program in its own Python with `variables` set (None: not set); give what it printed.

    The CAUSEWAY_* variables of this process are not handed on. Fails the test on another exit
    status than `status` (None: any), and after `timeout` seconds. `new`: one that was not started
    ahead (see warm.py), for what is about the start. `compiles`: it uses torch's compiler,
    which its text need not say.
    """

    def run(
        program: str,
        *,
        status: int | None = 0,
        args: tuple[str, ...] = (),
        timeout: float = 120,
        new: bool = False,
        compiles: bool | None = None,
        **variables: str | None,
    ) -> subprocess.CompletedProcess[str]:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("CAUSEWAY_")}
        for name, value in variables.items():
            environment.pop(name, None)
            if value is not None:
                environment[name] = value
        done = warm.run(
            ["-c", program, *args], env=environment, timeout=timeout, new=new, compiles=compiles
        )
        if status is not None:
            assert done.returncode == status, done.stdout + done.stderr
        return done

    return run


@pytest.fixture(scope="session")
def build_folder(request: pytest.FixtureRequest) -> Callable[[Path, str], Path]:
    """build_folder(source, name): where CMake's project in `source` was built, once."""

    def build(source: Path, name: str) -> Path:
        folder = request.config.cache.mkdir(name)
        with (folder / "lock").open("w") as lock:  # two processes of pytest build in one folder
            fcntl.flock(lock, fcntl.LOCK_EX)
            for command in (
                ["cmake", "-S", str(source), "-B", str(folder)],
                ["cmake", "--build", str(folder)],
            ):
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                assert done.returncode == 0, done.stdout + done.stderr
        return folder

    return build


@pytest.fixture(scope="session")
def build_vendor(build_folder: Callable[[Path, str], Path]) -> Callable[[str], Path]:
    """build_vendor("opencl"): the library of vendors/opencl, built from this tree, once."""

    def build(name: str) -> Path:
        (library,) = build_folder(ROOT / "vendors" / name, f"cw_{name}").glob("libcw_*.so")
        return library

    return build


@pytest.fixture(scope="session")
def opencl_library(build_vendor: Callable[[str], Path]) -> Path:
    """The OpenCL vendor's library; skipped where there are no headers, no loader or no driver."""
    headers = [p for p in (Path("/usr/include"), Path("/usr/local/include")) if (p / "CL").is_dir()]
    if not headers or not shutil.which("c++"):
        pytest.skip(f"there are no OpenCL headers to build the vendor with: {OPENCL}")
    if not _platforms():
        pytest.skip(f"there is no OpenCL driver: {OPENCL}")
    return build_vendor("opencl")


def _platforms() -> int:
    try:
        loader = ctypes.CDLL("libOpenCL.so.1")
    except OSError:
        return 0
    count = ctypes.c_uint(0)
    loader.clGetPlatformIDs(0, None, ctypes.byref(count))
    return count.value


@pytest.fixture
def own_main(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests that run a program in this process: what processes started later see as their
    parent's main module, its arguments and its path are put back.
    """
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.setattr(sys, "path", list(sys.path))


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """selenium's driver of a headless Chromium."""
    selenium = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    driver = shutil.which("chromedriver")
    if not chromium or not driver:
        pytest.skip("there is no Chromium with its chromedriver to look at the pages with")
    options = selenium.ChromeOptions()
    options.binary_location = chromium
    for argument in (
        "headless=new", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run",
        "disable-background-networking", "disable-component-update", "disable-sync",
        "disable-dev-shm-usage", "window-size=1280,1600",
        f"user-data-dir={tmp_path_factory.mktemp('chromium')}",
    ):  # fmt: skip
        options.add_argument(f"--{argument}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    window = selenium.Chrome(options, selenium.ChromeService(executable_path=driver))
    try:
        yield window
    finally:
        window.quit()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A new Python costs seconds, so `make fast` leaves these out."""
    for item in items:
        starts = {"run_python", "run"} & {*getattr(item, "fixturenames", ())}
        if starts or item.path.stem == "test_multiprocessing":
            item.add_marker("process")
