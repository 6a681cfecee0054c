"""What run.py adds to a suite's pytest: the default device, the same tests in every process, and a
limit for a test that hangs.
"""

from __future__ import annotations

import faulthandler
import os
import random
from collections.abc import Iterator

import pytest


def pytest_configure(config: pytest.Config) -> None:
    if os.environ["SUITE_WAY"] == "default":
        import torch

        torch.set_default_device(torch.accelerator.current_accelerator())


def pytest_collection() -> None:
    random.seed(0)  # of which a suite makes its tests


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    faulthandler.dump_traceback_later(float(os.environ["SUITE_LIMIT"]), exit=True)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()
