"""What all tests share: the device, a browser, and a new Python for what a process does once."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def device() -> torch.device:
    """The accelerator under test; its index is that of the current device."""
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    assert accelerator is not None, "no device: see `causeway doctor`"
    return accelerator


@pytest.fixture(scope="session")
def run_python() -> Run:
    """Run a program in a new Python with `variables` set (None: not set); give what it printed.

    The CAUSEWAY_* variables of this process are not handed on. Fails the test on another exit
    status than `status` (None: any).
    """

    def run(
        program: str, *, status: int | None = 0, args: tuple[str, ...] = (), **variables: str | None
    ) -> subprocess.CompletedProcess[str]:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("CAUSEWAY_")}
        for name, value in variables.items():
            environment.pop(name, None)
            if value is not None:
                environment[name] = value
        done = subprocess.run(
            [sys.executable, "-c", program, *args],
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        if status is not None:
            assert done.returncode == status, done.stdout + done.stderr
        return done

    return run


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
