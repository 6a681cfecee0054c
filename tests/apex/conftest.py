"""apex's tests run on the device and on the CPU: it knows no device by name."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from causeway.apex import amp


@pytest.fixture(params=["device", "cpu"])
def where(request: pytest.FixtureRequest, device: torch.device) -> torch.device:
    """The device under test, and the CPU."""
    return device if request.param == "device" else torch.device("cpu")


@pytest.fixture(autouse=True)
def _amp_is_off_after() -> Iterator[None]:
    yield
    amp.deactivate()
