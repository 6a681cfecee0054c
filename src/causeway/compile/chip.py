"""The device's compiler, as the generator of kernels needs to know it."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch

from causeway import _C


def device_name() -> str:
    """What torch calls the device."""
    return str(torch._C._get_privateuse1_backend_name())


_FLOAT64 = 1 << 12  # CW_FLOAT64 of abi.h


@dataclass(frozen=True)
class Code:
    """What `code.v1` says of a device."""

    language: str  # "c", "opencl", "cuda", "ascend_simt"
    in_turn: bool  # a core runs the items of a group one after the other
    compute_units: int
    has_float64: bool
    driver: str
    group: int  # items of a group that fold a reduction together: a power of two; 0: none do


@functools.cache
def code(device: int) -> Code:
    """The compiler of a device. Raises LookupError where it has none."""
    info = _C.compiler_info(device)
    if info is None:
        raise LookupError(f"device {device} has no compiler (code.v1)")
    return Code(
        info["language"],
        info["in_turn"],
        info["compute_units"],
        bool(info["arithmetic"] & _FLOAT64),
        info["driver"],
        0 if info["in_turn"] else _group(info["group_limit"], info["local_memory"]),
    )


def is_in_turn(device: torch.device) -> bool:
    """Whether it is a CPU, to a kernel; where there is no compiler, too."""
    return not has_compiler() or code(device.index or 0).in_turn


def _group(limit: int, local_memory: int) -> int:
    size = 256
    while size > limit:
        size //= 2
    return size if size >= 32 and local_memory >= 32 * 1024 else 0


@functools.cache
def has_compiler() -> bool:
    """Whether the vendor offers a compiler; asks no device but the first."""
    return bool(_C.device_count()) and _C.compiler_info(0) is not None
