"""What the tests made from torch's own databases share. The databases come with the wheel."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.append(str(Path(__file__).parent))

NAME = torch._C._get_privateuse1_backend_name()


@pytest.fixture(scope="session")
def name() -> str:
    """torch's name of the device, "sim"."""
    return NAME


@pytest.fixture
def device() -> torch.device:
    return torch.device(NAME, 0)


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)
