"""The stand-in libraries by ctypes, as a program in C calls them."""

from __future__ import annotations

import ctypes
import os
from ctypes import (
    byref,
    c_char_p,
    c_float,
    c_int,
    c_int32,
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
    acl.aclInit(None)
    return acl


def refused(code: int, function, *args) -> str:
    """The message of a call that has to be refused with this code."""
    try:
        function(*args)
    except Failure as failure:
        assert failure.code == code, failure
        assert failure.message, failure
        return failure.message
    raise AssertionError("it was not refused")


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
