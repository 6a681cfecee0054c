"""Float8 by integers: rounding to e4m3 without a tensor of that dtype."""

from __future__ import annotations

import pytest
import torch

from causeway.integrations.torchao import round_to_e4m3

pytestmark = pytest.mark.once


def numbers() -> torch.Tensor:
    """All bit patterns of float32 in steps, all numbers of e4m3, and what lies between two."""
    steps = torch.arange(-(2**31), 2**31, 65_537).to(torch.int32).view(torch.float32)
    eight = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float()
    eight = eight[eight.isfinite()].sort().values
    ties = (eight[1:] + eight[:-1]) / 2
    beside = [ties.nextafter(torch.tensor(b)) for b in (-500.0, 500.0)]
    return torch.cat([steps.clamp(-448, 448), eight, ties, *beside])


def test_rounding_to_e4m3_is_that_of_the_cast(device: torch.device) -> None:
    x = numbers()
    expected = x.to(torch.float8_e4m3fn).float()
    for found in (round_to_e4m3(x), round_to_e4m3(x.to(device)).cpu()):
        torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
        known = ~expected.isnan()
        assert torch.equal(found[known].signbit(), expected[known].signbit())


def test_ties_that_go_up_would_be_seen() -> None:
    x = numbers()
    up = ((x.view(torch.int32) + (1 << 19)) & -(1 << 20)).view(torch.float32)
    large = x.abs() >= 2**-6
    expected = x.to(torch.float8_e4m3fn).float()
    assert int((up != expected)[large].sum()) > 50
