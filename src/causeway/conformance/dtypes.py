"""The dtypes that are examined, in the order of the report's columns, and numbers of each."""

from __future__ import annotations

import torch
from torch import Tensor

COMPUTED = (
    *("float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8"),
    *("bool", "complex64", "complex128"),
)
# Those that torch's CPU moves, casts, fills and compares, and hardly computes with.
STORED = (
    *("uint16", "uint32", "uint64", "complex32", "float8_e4m3fn", "float8_e5m2"),
    *("float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"),
)
ORDER = (*COMPUTED, *STORED)


def is_stored(dtype: torch.dtype) -> bool:
    return str(dtype).removeprefix("torch.") in STORED


def numbers(*shape: int, dtype: torch.dtype, seed: int = 0) -> Tensor:
    """Seeded numbers that a dtype holds exactly or nearly: normal, small integers, or bools."""
    generator = torch.Generator().manual_seed(seed + 31 * len(shape))
    if dtype.is_complex:
        return torch.randn(shape, generator=generator, dtype=torch.complex64).to(dtype)
    if dtype.is_floating_point:
        drawn = torch.randn(shape, generator=generator)
        return (drawn.abs() if dtype == torch.float8_e8m0fnu else drawn).to(dtype)  # has no sign
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator).bool()
    return torch.randint(-9 if dtype.is_signed else 0, 10, shape, generator=generator).to(dtype)


def patterns(dtype: torch.dtype) -> Tensor:
    """All bit patterns of a dtype of 8 bits; of 16 bits every 17th."""
    if dtype.itemsize == 1:
        return torch.arange(256, dtype=torch.uint8).view(dtype)
    return torch.arange(0, 1 << 16, 17, dtype=torch.int32).to(torch.int16).view(dtype)


def around(dtype: torch.dtype) -> Tensor:
    """Numbers in float32 that show how a cast to a narrower float rounds: each number of `dtype`,
    the ties between neighbours and what lies beside them, the largest and beyond, NaN, -0.
    """
    values = patterns(dtype).double()
    values = torch.unique(values[values.isfinite()])
    ties = ((values[1:] + values[:-1]) / 2).float()
    top, step = values[-1].item(), (values[-1] - values[-2]).item()
    beyond = [top + step * part for part in (0.49, 0.5, 0.51, 1, 2)]
    edge = torch.tensor([*beyond, 2 * top, 3e38, float("inf"), float("nan"), 0.0, 1e-30, 1e-45],
                        dtype=torch.float64).float()  # fmt: skip
    up, down = torch.tensor(float("inf")), torch.tensor(float("-inf"))
    found = torch.cat([values.float(), ties, ties.nextafter(up), ties.nextafter(down), edge, -edge])
    return found.abs() if dtype == torch.float8_e8m0fnu else found
