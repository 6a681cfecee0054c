"""The fixed-point formats of chips: a position, with it a scale, and with both an offset.

A number x is stored as an integer q of n bits that stands for

    q * 2**position                          position
    q * 2**position / scale                  position and scale
    (q - offset) * 2**position / scale       position, scale and offset; 8 and 16 bits

with x * scale / 2**position rounded to q. Formulas as in Cambricon's mlu-ops (core/tool.cpp): of
31 bits the position alone is kept, in two planes of int16. All is exact: the products have at most
48 bits, float64 holds 53, and ties are decided before the offset is added.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch

from causeway.errors import ConfigError

Rounding = Literal["half_away", "half_even", "half_up"]
_ROUNDINGS = ("half_away", "half_even", "half_up")
_DTYPES = {8: torch.int8, 16: torch.int16, 31: torch.int32}


@dataclass(frozen=True)
class FixedPoint:
    """How integers of `bits` (8, 16 or 31) stand for numbers."""

    bits: int
    position: int
    scale: float = 1.0
    offset: int = 0

    def __post_init__(self) -> None:
        if self.bits not in _DTYPES:
            raise ConfigError(f"fixed point has 8, 16 or 31 bits, not {self.bits}")

    @property
    def bounds(self) -> tuple[int, int]:
        """The least and the largest integer."""
        return -(2 ** (self.bits - 1)), 2 ** (self.bits - 1) - 1

    def quantize(self, x: torch.Tensor, rounding: Rounding = "half_away") -> torch.Tensor:
        """The integers of `x`: int8, int16 or int32, in its shape. What does not fit is clamped.

        Raises:
            ConfigError: an unknown rounding, or numbers that are not finite.
        """
        if rounding not in _ROUNDINGS:
            raise ConfigError(f"rounding is one of {', '.join(_ROUNDINGS)}, not {rounding!r}")
        if not bool(torch.isfinite(x).all()):
            raise ConfigError("x has infinity or NaN: fixed point has no integers for these")
        v = torch.ldexp(x.double() * self.scale, torch.tensor(-self.position))
        below = v.floor()
        rest = v - below
        q = below + self.offset  # whole: below 2**53 nothing is lost, and beyond it is clamped
        if rounding == "half_up":
            up = rest >= 0.5
        elif rounding == "half_even":
            up = (rest > 0.5) | ((rest == 0.5) & (q.remainder(2) == 1))
        else:
            up = (rest > 0.5) | ((rest == 0.5) & (q >= 0))
        low, high = self.bounds
        return (q + up).clamp(low, high).to(_DTYPES[self.bits])

    def dequantize(self, q: torch.Tensor) -> torch.Tensor:
        """The numbers that the integers `q` stand for, as float32."""
        v = torch.ldexp(q.double() - self.offset, torch.tensor(self.position))
        return (v / self.scale).float()


def by_position(absmax: float, bits: int) -> FixedPoint:
    """The format of numbers up to `absmax` in size, by a position alone."""
    return FixedPoint(bits, _position(absmax, bits))


def by_position_scale(absmax: float, bits: int) -> FixedPoint:
    """The same with a scale, so that `absmax` is the largest integer. Of 31 bits it is 1."""
    position = _position(absmax, bits)
    if absmax == 0 or bits == 31:
        return FixedPoint(bits, position)
    return FixedPoint(bits, position, (2 ** (bits - 1) - 1) * 2.0**position / absmax)


def by_position_scale_offset(least: float, most: float, bits: int) -> FixedPoint:
    """The format of numbers from `least` to `most`, of 8 or 16 bits; 0 is always among them."""
    if bits == 31:
        raise ConfigError("31 bits have no offset: use by_position")
    _finite(least)
    _finite(most)
    least, most = min(least, 0.0), max(most, 0.0)
    if least == most:
        return FixedPoint(bits, 0)
    steps = 2**bits - 1
    position = math.frexp(most - least)[1] - 1 - (bits - 1)
    scale = 2.0**position * steps / (most - least)
    offset = -(2 ** (bits - 1)) - least * steps / (most - least)
    # Half away from zero, as C's round.
    return FixedPoint(
        bits, position, scale, int(math.copysign(math.floor(abs(offset) + 0.5), offset))
    )


def planes_of(q: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Integers of 31 bits as two planes of int16, low and high: q = high * 2**15 + low."""
    high = q >> 15
    return (q - (high << 15)).to(torch.int16), high.to(torch.int16)


def of_planes(low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
    """Integers of 31 bits, int32, from two planes of int16."""
    return (high.int() << 15) + low.int()


def _position(absmax: float, bits: int) -> int:
    _finite(absmax)
    if absmax < 0:
        raise ConfigError(f"the largest size of numbers is {absmax}: it cannot be negative")
    if absmax == 0:
        return 0
    # frexp is exact where a logarithm is not: floor(log2(absmax)) is its exponent less one.
    position = math.frexp(absmax)[1] - 1 - (bits - 2)
    return max(position, -127) if bits == 31 else position


def _finite(x: float) -> None:
    if not math.isfinite(x):
        raise ConfigError(f"a range of numbers ends at {x}: fixed point has no format for that")
