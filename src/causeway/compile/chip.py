"""The device's compiler, as the generator of kernels needs to know it."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from causeway import _C

_FLOAT64 = 1 << 12  # CW_FLOAT64 of abi.h


@dataclass(frozen=True)
class Code:
    """What `code.v1` says of a device."""

    language: str  # "c", "opencl", "cuda"
    in_turn: bool  # a core runs the items of a group one after the other
    compute_units: int
    has_float64: bool
    driver: str


@functools.cache
def code(device: int) -> Code:
    """The compiler of a device. Raises LookupError where it has none."""
    info = _C.code_info(device)
    if info is None:
        raise LookupError(f"device {device} has no compiler (code.v1)")
    return Code(
        info["language"],
        info["in_turn"],
        info["compute_units"],
        bool(info["arithmetic"] & _FLOAT64),
        info["driver"],
    )


@functools.cache
def has_compiler() -> bool:
    """Whether the vendor offers a compiler; asks no device but the first."""
    return bool(_C.device_count()) and _C.code_info(0) is not None
