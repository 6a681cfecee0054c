"""The fixed-point formats against Python's integers and fractions; calibration's ranges."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from causeway.errors import CausewayError, ConfigError
from causeway.quant import formats
from causeway.quant.calibrate import METHODS, Range

pytestmark = pytest.mark.once

numbers = st.floats(
    width=32, allow_nan=False, allow_infinity=False, min_value=-(2.0**100), max_value=2.0**100
)
roundings = st.sampled_from(["half_away", "half_even", "half_up"])


def exact(x: float, f: formats.FixedPoint, rounding: str) -> int:
    v = Fraction(x) * Fraction(f.scale) / Fraction(2) ** f.position + f.offset
    floor = math.floor(v)
    rest = v - floor
    if rest == Fraction(1, 2):
        up = {"half_up": True, "half_even": floor % 2 == 1, "half_away": v > 0}[rounding]
    else:
        up = rest > Fraction(1, 2)
    low, high = f.bounds
    return min(max(floor + up, low), high)


@settings(max_examples=400, deadline=None)
@given(st.lists(numbers, min_size=1, max_size=8), st.sampled_from([8, 16, 31]), roundings)
def test_positions_and_scales(xs: list[float], bits: int, rounding: str) -> None:
    absmax = max(abs(x) for x in xs)
    x = torch.tensor(xs, dtype=torch.float32)
    made = [formats.by_position(absmax, bits), formats.by_position_scale(absmax, bits)]
    if bits != 31:
        made.append(formats.by_position_scale_offset(min(xs), max(xs), bits))
    for f in made:
        f = formats.FixedPoint(f.bits, f.position, float(torch.tensor(f.scale)), f.offset)
        got = f.quantize(x, rounding).tolist()  # type: ignore[arg-type]
        assert got == [exact(float(v), f, rounding) for v in x]


@settings(max_examples=200, deadline=None)
@given(st.integers(-(2**12), 2**12), st.sampled_from([8, 16]), roundings)
def test_ties(halves: int, bits: int, rounding: str) -> None:
    for offset in (0, 1, -3):
        f = formats.FixedPoint(bits, 0, 1.0, offset)
        got = f.quantize(torch.tensor([halves / 2]), rounding)  # type: ignore[arg-type]
        assert got.item() == exact(halves / 2, f, rounding)


def test_known_formats() -> None:
    assert formats.by_position(1.0, 8).position == -6
    assert formats.by_position(0.0, 8) == formats.FixedPoint(8, 0)
    assert formats.by_position(2.0**-120, 31).position == -127
    f = formats.by_position_scale(1.0, 8)
    assert f.quantize(torch.tensor([1.0, -1.0, 0.5])).tolist() == [127, -127, 64]
    f = formats.by_position_scale_offset(0.0, 1.0, 8)
    assert f.quantize(torch.tensor([0.0, 1.0])).tolist() == [-128, 127]
    assert f.dequantize(torch.tensor([-128, 127], dtype=torch.int8)).tolist() == [0.0, 1.0]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(-(2**30), 2**30 - 1), min_size=1, max_size=8))
def test_planes(values: list[int]) -> None:
    q = torch.tensor(values, dtype=torch.int32)
    low, high = formats.planes_of(q)
    assert low.dtype == high.dtype == torch.int16
    assert [h * 2**15 + v for h, v in zip(high.tolist(), low.tolist(), strict=True)] == values
    assert formats.of_planes(low, high).tolist() == values


def test_what_has_no_format_is_an_error() -> None:
    with pytest.raises(ConfigError, match="8, 16 or 31 bits"):
        formats.FixedPoint(9, 0)
    with pytest.raises(ConfigError, match="infinity or NaN"):
        formats.FixedPoint(8, 0).quantize(torch.tensor([math.nan]))
    with pytest.raises(ConfigError, match="no offset"):
        formats.by_position_scale_offset(0, 1, 31)
    with pytest.raises(ConfigError, match="rounding is one of"):
        formats.FixedPoint(8, 0).quantize(torch.zeros(1), "up")  # type: ignore[arg-type]


@pytest.mark.parametrize("method", METHODS)
def test_a_range_lies_within_what_was_seen(method: str) -> None:
    torch.manual_seed(0)
    seen = Range(method)
    batches = [torch.randn(5000) * s for s in (0.5, 1.0, 4.0)]
    for batch in batches:
        seen.see(batch)
    low, high = seen.limits()
    whole = torch.cat(batches)
    assert float(whole.min()) <= low < -0.5
    assert 0.5 < high <= float(whole.max())


def test_methods_differ_where_few_numbers_lie_far_out() -> None:
    torch.manual_seed(0)
    x = torch.cat([torch.randn(100_000), torch.tensor([100.0])])
    high = {}
    for method in METHODS:
        seen = Range(method)
        seen.see(x)
        high[method] = seen.limits()[1]
    assert high["minmax"] == high["moving_average"] == 100
    assert 3 < high["percentile"] < 6
    assert high["entropy"] < 20
    # Of a hundred thousand numbers within 4, one at 100 is worth a coarser step only in part.
    error = {
        size: float(((x / (size / 127)).round().clamp(-127, 127) * (size / 127) - x).square().sum())
        for size in (high["mse"], 100.0, 6.0)
    }
    assert error[high["mse"]] <= min(error.values()) * 1.02


def test_averages() -> None:
    plain, moving = Range("minmax", average=True), Range("moving_average")
    for v in (1.0, 2.0, 6.0):
        plain.see(torch.tensor([v, -v]))
        moving.see(torch.tensor([v, -v]))
    assert plain.limits() == (-3.0, 3.0)
    assert moving.limits()[1] == pytest.approx(1.0 + 0.1 + 0.1 * (6 - 1.1))


def test_calibration_refuses_infinity() -> None:
    with pytest.raises(CausewayError, match="infinity or NaN"):
        Range("minmax").see(torch.tensor([math.inf]))
