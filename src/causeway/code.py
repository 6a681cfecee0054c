"""Kernels of your own for the chip's compiler: built from source or from a binary, and launched.

    program = causeway.code.Program(source)            # in the language that `language()` names
    scale = program.function("scale")
    scale((7,), (1,), out, x, ctypes.c_int32(2), ctypes.c_uint32(x.numel()))

A launch goes to the device's current stream. Shapes, dtypes and bounds are the kernel's own affair:
it gets the address of a tensor's first element. Where the device passes an address as two
parameters (`split_pointers`), a tensor stands for both; where it takes no structures by value
(`single_values`), give each number by itself. It needs a vendor with `code.v1`.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import torch

from causeway import _C
from causeway.device.lazy import _lazy_init
from causeway.device.selection import Device, _get_device_index

__all__ = ["Function", "Limits", "Program", "flushes", "limits"]

_LANGUAGES = {1: "C", 2: "OpenCL C", 3: "CUDA C++", 4: "Ascend SIMT C++"}
_SPLIT_POINTERS, _SINGLE_VALUES, _FLUSHES = 2, 4, 32
_BINARIES = {1: "own", 2: "SPIR-V"}


@dataclass(frozen=True)
class Limits:
    """What the compiler of a device takes, and most of what a launch may have; 0: not told."""

    language: str
    split_pointers: bool
    single_values: bool
    flushes: bool  # arithmetic may take subnormal numbers of float32 for 0
    binaries: tuple[str, ...]  # "own": what `Program.binary` gives; "SPIR-V"
    groups: tuple[int, int, int]
    items: tuple[int, int, int]
    items_in_all: int
    argument_bytes: int
    local_memory: int
    driver: str


def limits(device: Device = None) -> Limits:
    _lazy_init()
    info = _C.code_info(_get_device_index(device, optional=True))
    return Limits(
        language=_LANGUAGES.get(info["language"], str(info["language"])),
        split_pointers=bool(info["flags"] & _SPLIT_POINTERS),
        single_values=bool(info["flags"] & _SINGLE_VALUES),
        flushes=bool(info["flags"] & _FLUSHES),
        binaries=tuple(name for bit, name in _BINARIES.items() if info["binaries"] & bit),
        groups=info["grid_limits"],
        items=info["group_limits"],
        items_in_all=info["group_limit"],
        argument_bytes=info["argument_limit"],
        local_memory=info["local_memory"],
        driver=info["driver"],
    )


def flushes(device: Device = None) -> bool:
    """Whether the chip says that its arithmetic may take subnormal numbers of float32 for 0: the
    comparisons with the CPU allow for it there, and nowhere else."""
    _lazy_init()
    info = _C.compiler_info(_get_device_index(device, optional=True))
    return info is not None and bool(info["flags"] & _FLUSHES)


class Function:
    """A kernel; call it with the grid of groups, the items of a group, and its arguments."""

    def __init__(self, function: _C.CodeFunction) -> None:
        self._function = function

    def __call__(self, grid: tuple[int, ...], group: tuple[int, ...], *args: Any) -> None:
        """Tensors pass their address; other arguments are numbers of ctypes, or bytes."""
        self._function.launch(list(grid), list(group), [_argument(a) for a in args])


def _argument(value: Any) -> torch.Tensor | bytes:
    if isinstance(value, (torch.Tensor, bytes)):
        return value
    if isinstance(value, (ctypes._SimpleCData, ctypes.Structure, ctypes.Array)):
        return bytes(value)
    raise TypeError(
        f"an argument of a kernel is a tensor, a number of ctypes or bytes; {value!r} is a "
        f"{type(value).__name__}, whose size is not known"
    )


class Program:
    """A program of one device: of `source`, or of a `binary` that `limits().binaries` has.

    Raises VendorError with the compiler's words.
    """

    def __init__(
        self,
        source: str | None = None,
        *,
        binary: bytes | None = None,
        options: str = "",
        device: Device = None,
    ) -> None:
        if (source is None) == (binary is None):
            raise ValueError("a program is made of either source or a binary")
        _lazy_init()
        index = _get_device_index(device, optional=True)
        text = source if binary is None else binary
        assert text is not None
        self._program = _C.CodeProgram(index, text, binary is not None, options)

    def function(self, name: str) -> Function:
        return Function(self._program.function(name))

    def binary(self) -> bytes:
        """The program in the chip's own format, for this chip and driver."""
        return self._program.binary()
