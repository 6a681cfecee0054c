"""The stand-in libraries by ctypes, as a program in C calls them."""

from __future__ import annotations

import ctypes
import math
import os
import struct
from ctypes import (
    byref,
    c_char_p,
    c_float,
    c_int64,
    c_size_t,
    c_uint32,
    c_uint64,
    c_void_p,
    create_string_buffer,
)
from pathlib import Path

LIB = Path(__file__).parents[2] / "build/ascend-stand-in/lib"
TO_DEVICE, TO_HOST, ON_DEVICE = 1, 2, 3
INVALID_PARAMETER, INVALID_DEVICE, NO_CONTEXT, INVALID_HANDLE = 107000, 107001, 107002, 107017
TIME_LINE = 8


class Failure(RuntimeError):
    """A function that refused."""

    def __init__(self, name: str, code: int, message: str):
        super().__init__(f"{name} gave {code}: {message}")
        self.code = code
        self.message = message


class Library:
    """A library whose functions raise where they refuse."""

    def __init__(self, name: str):
        self.library = ctypes.CDLL(os.fspath(LIB / name), mode=ctypes.RTLD_GLOBAL)

    def __getattr__(self, name: str):
        function = getattr(self.library, name)

        def call(*args) -> None:
            if code := function(*args):
                recent = ctypes.CDLL(os.fspath(LIB / "libascendcl.so")).aclGetRecentErrMsg
                recent.restype = c_char_p
                raise Failure(name, code, recent().decode())

        return call


def start() -> Library:
    acl = Library("libascendcl.so")
    acl.library.aclInit(None)  # 100002 where it was called before: harmless.
    return acl


def refused(code: int, function, *args) -> str:
    """The message of a call that has to be refused with this code."""
    try:
        function(*args)
    except Failure as caught:
        failure = caught
    else:
        raise AssertionError("it was not refused")
    assert failure.code == code, failure
    assert failure.message, failure
    return failure.message


def malloc(acl: Library, size: int) -> c_void_p:
    address = c_void_p()
    acl.aclrtMalloc(byref(address), c_size_t(size), 0)
    return address


def at(address: c_void_p, offset: int) -> c_void_p:
    return c_void_p(address.value + offset)


def write(acl: Library, address: c_void_p, data: bytes) -> None:
    acl.aclrtMemcpy(address, c_size_t(len(data)), data, c_size_t(len(data)), TO_DEVICE)


def read(acl: Library, address: c_void_p, size: int) -> bytes:
    buffer = create_string_buffer(size)
    acl.aclrtMemcpy(buffer, c_size_t(size), address, c_size_t(size), TO_HOST)
    return buffer.raw


def stream(acl: Library) -> c_void_p:
    made = c_void_p()
    acl.aclrtCreateStream(byref(made))
    return made


def event(acl: Library, flags: int = TIME_LINE) -> c_void_p:
    made = c_void_p()
    acl.aclrtCreateEventExWithFlag(byref(made), c_uint32(flags))
    return made


ND, FRACTAL_NZ = 2, 29
FLOAT, HALF, INT32, INT16, INT64, BOOL, COMPLEX64, BFLOAT16 = 0, 1, 3, 6, 9, 12, 16, 27
CODES = {FLOAT: "f", HALF: "e", INT32: "i", INT16: "h", INT64: "q", BOOL: "?"}


class Operators:
    """libopapi: tensors of lists of numbers, and calls in two phases on the default stream."""

    def __init__(self, acl: Library):
        self.acl = acl
        self.api = Library("libopapi.so")
        for name in ("aclCreateTensor", "aclCreateScalar", "aclCreateIntArray"):
            getattr(self.api.library, name).restype = c_void_p

    def tensor(
        self,
        values: list,
        shape: list[int],
        *,
        dtype: int = FLOAT,
        stride: list[int] | None = None,
        offset: int = 0,
        storage: list[int] | None = None,
        format: int = ND,
    ):
        """A tensor on the device with these values in its storage: (handle, address, bytes)."""
        data = (
            struct.pack(f"{len(values)}{CODES[dtype]}", *values)
            if dtype in CODES
            else b"".join(values)
        )
        address = malloc(self.acl, max(len(data), 1))
        if data:
            write(self.acl, address, data)
        handle = self.describe(
            address, shape, dtype, stride, offset, storage or [len(values)], format
        )
        return Tensor(handle, address, len(data), dtype)

    def describe(
        self,
        address: c_void_p,
        shape: list[int],
        dtype: int,
        stride: list[int] | None,
        offset: int,
        storage: list[int],
        format: int = ND,
    ) -> c_void_p:
        if stride is None:
            stride = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
        sizes = (c_int64 * len(shape))(*shape)
        steps = (c_int64 * len(shape))(*stride)
        kept = (c_int64 * len(storage))(*storage)
        create = self.api.library.aclCreateTensor
        made = create(
            sizes,
            c_uint64(len(shape)),
            dtype,
            steps,
            c_int64(offset),
            format,
            kept,
            c_uint64(len(storage)),
            address,
        )
        return c_void_p(made)

    def scalar(self, value: float) -> c_void_p:
        return c_void_p(self.api.library.aclCreateScalar(byref(c_float(value)), FLOAT))

    def ints(self, *values: int) -> c_void_p:
        return c_void_p(
            self.api.library.aclCreateIntArray(
                (c_int64 * len(values))(*values), c_uint64(len(values))
            )
        )

    def prepare(self, name: str, *args) -> tuple[c_void_p, int]:
        size, executor = c_uint64(), c_void_p()
        getattr(self.api, f"aclnn{name}GetWorkspaceSize")(*args, byref(size), byref(executor))
        return executor, size.value

    def launch(self, name: str, executor: c_void_p, stream: c_void_p | None = None) -> None:
        getattr(self.api, f"aclnn{name}")(None, c_uint64(0), executor, stream)

    def run(self, name: str, *args) -> None:
        executor, _ = self.prepare(name, *args)
        self.launch(name, executor)
        self.acl.aclrtSynchronizeDevice()

    def values(self, tensor: Tensor) -> list:
        data = read(self.acl, tensor.address, tensor.size)
        return list(
            struct.unpack(
                f"{tensor.size // struct.calcsize(CODES[tensor.dtype])}{CODES[tensor.dtype]}", data
            )
        )


class Tensor:
    def __init__(self, handle: c_void_p, address: c_void_p, size: int, dtype: int):
        self.handle, self.address, self.size, self.dtype = handle, address, size, dtype
        self._as_parameter_ = handle


def operators(device: int = 0) -> Operators:
    acl = start()
    acl.aclrtSetDevice(device)
    return Operators(acl)
