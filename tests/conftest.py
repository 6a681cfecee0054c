"""What all tests share: the device, and a new Python for what can be done once in a process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A new Python costs seconds, so `make fast` leaves these out."""
    for item in items:
        starts = {"run_python", "run"} & {*getattr(item, "fixturenames", ())}
        if starts or item.path.stem == "test_multiprocessing":
            item.add_marker("process")
