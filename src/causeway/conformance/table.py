"""abi.h in ctypes, and a vendor's library through it: no torch, no core in between.

A `Library` loads a fresh copy of the file, so that a process may hold several, each with its own
settings and devices. This module imports nothing of Causeway: it also runs where torch is not.
"""

from __future__ import annotations

import ctypes as C
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

STATUS = ["OK", "UNSUPPORTED", "OUT_OF_MEMORY", "INVALID", "DEVICE_LOST", "FAILED", "NOT_READY"]
HOST = -1

Table = TypeVar("Table", bound=C.Structure)
i32, u32, i64, u64, ptr = C.c_int32, C.c_uint32, C.c_int64, C.c_uint64, C.c_void_p


class DLTensor(C.Structure):
    _fields_ = [
        ("data", ptr), ("device_type", i32), ("device_id", i32), ("ndim", i32),
        ("code", C.c_uint8), ("bits", C.c_uint8), ("lanes", C.c_uint16),
        ("shape", C.POINTER(i64)), ("strides", C.POINTER(i64)), ("byte_offset", u64),
    ]  # fmt: skip


class Philox(C.Structure):
    _fields_ = [("seed", u64), ("offset", u64)]


class Arg(C.Structure):
    pass


class Value(C.Union):
    _fields_ = [
        ("i", i64), ("d", C.c_double), ("string", C.c_char_p), ("tensor", C.POINTER(DLTensor)),
        ("ints", C.POINTER(i64)), ("tensors", C.POINTER(C.POINTER(DLTensor))),
        ("args", C.POINTER(Arg)),
        ("philox", C.POINTER(Philox)), ("bits", u64),
    ]  # fmt: skip


Arg._fields_ = [("tag", u32), ("n", u32), ("v", Value)]
Kernel = C.CFUNCTYPE(i32, C.POINTER(Arg), i32, ptr)


class Op(C.Structure):
    _fields_ = [("struct_size", u32), ("needs", u32), ("dtypes", u64), ("kernel", Kernel)]


class DeviceInfo(C.Structure):
    _fields_ = [
        ("struct_size", u32), ("flags", u32), ("name", C.c_char * 64), ("memory", u64),
        ("dtypes", u64),
        ("alignment", u32), ("compute_units", u32), ("capability_major", i32),
        ("capability_minor", i32),
        ("uuid", C.c_uint8 * 16), ("priority_lowest", i32), ("priority_highest", i32),
        ("padding", u32), ("reserved", u32),
    ]  # fmt: skip


class Fault(C.Structure):
    _fields_ = [
        ("struct_size", u32), ("reserved", u32), ("kernel", C.c_char * 64), ("address", u64),
    ]  # fmt: skip


Scratch = C.CFUNCTYPE(i32, i32, ptr, u64, C.POINTER(ptr))
Resize = C.CFUNCTYPE(i32, C.POINTER(DLTensor), i32, C.POINTER(i64))
Setting = C.CFUNCTYPE(ptr, C.c_char_p)
Log = C.CFUNCTYPE(None, i32, C.c_char_p)
Callback = C.CFUNCTYPE(None, ptr)
Packed = C.CFUNCTYPE(i32, C.POINTER(DLTensor), u32, ptr, C.POINTER(ptr))


class Host(C.Structure):
    _fields_ = [
        ("struct_size", u32), ("abi_version", u32), ("scratch", Scratch), ("resize", Resize),
        ("setting", Setting), ("log", Log), ("packed", Packed),
    ]  # fmt: skip


def _entry(*types: Any) -> Any:
    return C.CFUNCTYPE(i32, *types)


out = C.POINTER


class Backend(C.Structure):
    _fields_ = [
        ("struct_size", u32), ("abi_version", u32), ("name", C.c_char_p), ("version", C.c_char_p),
        ("last_error", C.CFUNCTYPE(C.c_char_p)),
        ("device_count", _entry(out(i32))),
        ("device_info", _entry(i32, out(DeviceInfo))),
        ("sync", _entry(i32)),
        ("mem_alloc", _entry(i32, u64, out(ptr))),
        ("mem_free", _entry(i32, ptr)),
        ("mem_copy", _entry(ptr, i32, ptr, i32, u64, ptr)),
        ("bind", _entry(i32)),
        ("mem_set", _entry(i32, ptr, i32, u64, ptr)),
        ("mem_info", _entry(i32, out(u64), out(u64))),
        ("host_alloc", _entry(u64, out(ptr))),
        ("host_free", _entry(ptr)),
        ("op_find", _entry(C.c_char_p, out(Op))),
        ("stream_create", _entry(i32, i32, out(ptr))),
        ("stream_destroy", _entry(i32, ptr)),
        ("stream_query", _entry(i32, ptr)),
        ("stream_sync", _entry(i32, ptr)),
        ("stream_wait", _entry(i32, ptr, ptr)),
        ("event_create", _entry(i32, i32, out(ptr))),
        ("event_destroy", _entry(i32, ptr)),
        ("event_record", _entry(i32, ptr, ptr)),
        ("event_query", _entry(i32, ptr)),
        ("event_sync", _entry(i32, ptr)),
        ("event_elapsed", _entry(i32, ptr, ptr, out(C.c_double))),
        ("extension", _entry(C.c_char_p, out(ptr))),
        ("close", _entry()),
        ("peer_access", _entry(i32, i32, out(i32))),
        ("device_attribute", _entry(i32, C.c_char_p, out(Arg))),
        ("host_register", _entry(i32, ptr, u64)),
        ("host_unregister", _entry(i32, ptr)),
        ("fault", _entry(i32, out(Fault))),
        ("stream_callback", _entry(i32, ptr, Callback, ptr)),
        ("host_alloc_for", _entry(i32, u64, out(ptr))),
        ("host_free_for", _entry(i32, ptr)),
        ("mem_alloc_on", _entry(i32, ptr, u64, out(ptr))),
        ("mem_free_on", _entry(i32, ptr, ptr)),
        ("mem_reserve", _entry(i32, u64, out(u64), out(ptr))),
        ("mem_map", _entry(i32, ptr, u64)),
        ("mem_unmap", _entry(i32, ptr, u64)),
        ("mem_release", _entry(i32, ptr, u64)),
        ("op_find_for", _entry(C.c_char_p, C.c_char_p, i32, out(Op))),
    ]  # fmt: skip


class Ipc(C.Structure):
    _fields_ = [
        ("struct_size", u32), ("reserved", u32),
        ("mem_export", _entry(i32, ptr, out(C.c_uint8))),
        ("mem_import", _entry(i32, out(C.c_uint8), out(ptr))),
        ("mem_close", _entry(i32, ptr)),
    ]  # fmt: skip


class CodeInfo(C.Structure):
    _fields_ = [
        ("struct_size", u32), ("language", u32), ("flags", u32), ("compute_units", u32),
        ("group_limit", u32), ("simd_width", u32), ("local_memory", u64), ("arithmetic", u64),
        ("driver", C.c_char * 64), ("grid_limits", u32 * 3), ("group_limits", u32 * 3),
        ("argument_limit", u32), ("binaries", u32), ("loop_limit", u32), ("reserved", u32),
    ]  # fmt: skip


class CodeArg(C.Structure):
    """`bytes` of a value at `at`; with 0, the device address `at`."""

    _fields_ = [("bytes", u32), ("reserved", u32), ("at", ptr)]


class CodeTable(C.Structure):
    _fields_ = [
        ("struct_size", u32), ("reserved", u32),
        ("info", _entry(i32, out(CodeInfo))),
        ("build", _entry(i32, C.c_char_p, C.c_char_p, out(ptr))),
        ("release", _entry(ptr)),
        ("function", _entry(ptr, C.c_char_p, out(ptr))),
        ("launch", _entry(ptr, out(u32), out(u32), out(CodeArg), u32, ptr)),
        ("build_binary", _entry(i32, ptr, u64, C.c_char_p, out(ptr))),
        ("binary", _entry(ptr, ptr, out(u64))),
    ]  # fmt: skip


class CoresTable(C.Structure):
    """cores.v1, of causeway/cores.h."""

    _fields_ = [
        ("struct_size", u32), ("reserved", u32),
        ("device_cores", C.CFUNCTYPE(i32, i32, C.POINTER(u32), C.POINTER(u32))),
        ("set_device_cores", C.CFUNCTYPE(i32, i32, u32)),
        ("stream_cores", C.CFUNCTYPE(i32, i32, ptr, C.POINTER(u32))),
        ("set_stream_cores", C.CFUNCTYPE(i32, i32, ptr, u32)),
    ]  # fmt: skip


class LayoutTable(C.Structure):
    """layout.v1, of causeway/layout.h."""

    _fields_ = [
        ("struct_size", u32), ("layouts", u32),
        ("name", C.CFUNCTYPE(C.c_char_p, u32)),
        ("packed_bytes", _entry(i32, u32, out(DLTensor), out(u64), out(u32))),
        ("pack", _entry(i32, u32, out(DLTensor), ptr, ptr)),
        ("unpack", _entry(i32, u32, ptr, out(DLTensor), ptr)),
    ]  # fmt: skip


class GraphTable(C.Structure):
    _fields_ = [
        ("struct_size", u32), ("reserved", u32),
        ("begin", _entry(i32, ptr)),
        ("end", _entry(i32, ptr, out(ptr))),
        ("launch", _entry(ptr, ptr)),
        ("destroy", _entry(ptr)),
    ]  # fmt: skip


class Activity(C.Structure):
    _fields_ = [("correlation", u64), ("begin_ns", i64), ("end_ns", i64), ("name", C.c_char_p)]


class ProfileTable(C.Structure):
    _fields_ = [
        ("struct_size", u32), ("reserved", u32),
        ("clock", _entry(i32, out(i64))),
        ("start", _entry()),
        ("stop", _entry()),
        ("correlate", _entry(u64)),
        ("read", _entry(out(Activity), u32, out(u32))),
    ]  # fmt: skip


# name: DLPack's code and bits, and the bit in cw_dtypes
DTYPES = {
    "bool": (6, 8, 0), "uint8": (1, 8, 1), "int8": (0, 8, 2), "uint16": (1, 16, 3),
    "int16": (0, 16, 4),
    "uint32": (1, 32, 5), "int32": (0, 32, 6), "uint64": (1, 64, 7), "int64": (0, 64, 8),
    "float16": (2, 16, 9), "bfloat16": (4, 16, 10), "float32": (2, 32, 11), "float64": (2, 64, 12),
    "complex64": (5, 64, 14), "complex128": (5, 128, 15),
}  # fmt: skip
CPU, EXT = 1, 12  # DLPack's device types


class Dtype(str):
    """A dtype as an argument of an operator."""


class DeviceTensor:
    """A tensor in device memory, as an operator gets it. `strides` are in elements."""

    def __init__(
        self, data: int, dtype: str, shape: Sequence[int], strides: Sequence[int], device: int = 0
    ) -> None:
        self.data, self.dtype, self.device = data, dtype, device
        self.shape, self.strides = tuple(shape), tuple(strides)
        code, bits, _ = DTYPES[dtype]
        self.item_bytes = bits // 8
        n = len(self.shape)
        self._shape, self._strides = (
            (i64 * max(n, 1))(*self.shape),
            (i64 * max(n, 1))(*self.strides),
        )
        kind = CPU if device == HOST else EXT
        self.dl = DLTensor(
            data, kind, max(device, 0), n, code, bits, 1, self._shape, self._strides, 0
        )

    @property
    def shape_now(self) -> tuple[int, ...]:
        """The shape, also after the kernel asked for another one."""
        return tuple(self._shape[i] for i in range(self.dl.ndim))


def status_name(status: int) -> str:
    return STATUS[status] if 0 <= status < len(STATUS) else f"status {status}"


class TableError(RuntimeError):
    """An entry answered something else than OK; `status` is its name."""

    def __init__(self, status: int, words: str) -> None:
        if status == STATUS.index("UNSUPPORTED"):
            words = ""  # no failure: the words are those of an older one
        super().__init__(f"{status_name(status)}: {words}" if words else status_name(status))
        self.status = status_name(status)
        self.words = words


class Library:
    """One instance of a vendor's library; `call` and `get` raise TableError for any status but OK.

    `setting(key)` gives the value of a setting, or None.
    """

    def __init__(
        self, path: str | os.PathLike[str], setting: Callable[[str], str | None] | None = None
    ) -> None:
        copy = tempfile.mkdtemp(prefix="cw-table-")
        try:
            # The loader knows a file by its inode: a copy is a library of its own.
            self.library = C.CDLL(shutil.copy(Path(path), copy))
        finally:
            shutil.rmtree(copy)
        self._setting = setting or (lambda key: None)
        self._texts: dict[bytes, C.c_char_p] = {}
        self.logged: list[tuple[int, str]] = []
        self.resized: list[tuple[int, ...]] = []
        # What answers a kernel that asks for a tensor's form (layout.v1); None: there is none.
        self.packed: Callable[[Any, int, int | None, Any], int] | None = None
        self._scratch: dict[tuple[int, int, int], tuple[int, int]] = {}
        self._requests = 0  # of the kernel that runs
        self.host = Host(
            C.sizeof(Host), 1, Scratch(self._give_scratch), Resize(self._resize),
            Setting(self._give_setting),
            Log(lambda level, message: self.logged.append((level, message.decode()))),
            Packed(self._give_packed),
        )  # fmt: skip
        self.library.cw_open_v1.restype = C.POINTER(Backend)
        opened = self.library.cw_open_v1(C.byref(self.host))
        if not opened:
            raise TableError(STATUS.index("FAILED"), f"cw_open_v1 of {path} returned NULL")
        # As the core does: what the vendor's table does not reach is NULL, not offered.
        self.table = Backend()
        C.memmove(C.byref(self.table), opened, min(opened.contents.struct_size, C.sizeof(Backend)))

    def offers(self, *entries: str) -> bool:
        return all(bool(getattr(self.table, entry)) for entry in entries)

    def words(self) -> str:
        """What the vendor says about this thread's last failure."""
        text: bytes | None = self.table.last_error() if self.offers("last_error") else None
        return (text or b"").decode(errors="replace")

    def call(self, entry: str, *args: object) -> None:
        status = getattr(self.table, entry)(*args)
        if status != 0:
            raise TableError(status, self.words())

    def status(self, entry: str, *args: object) -> str:
        """The status alone, for answers that are no error, such as NOT_READY."""
        return status_name(getattr(self.table, entry)(*args))

    def get(self, entry: str, kind: type, *args: object) -> Any:
        """Call an entry whose last parameter is an out-parameter of `kind`; return its value."""
        value = kind()
        self.call(entry, *args, C.byref(value))
        return value.value

    # Shorthands for what nearly every test does.
    def alloc(self, bytes: int, device: int = 0) -> int:
        address: int = self.get("mem_alloc", ptr, device, bytes)
        return address

    def free(self, address: int, device: int = 0) -> None:
        self.call("mem_free", device, address)

    def write(self, address: int, data: bytes, device: int = 0, stream: int | None = None) -> None:
        """Copy bytes to the device and wait for it."""
        self.call("mem_copy", address, device, data, HOST, len(data), stream)
        self.sync(device)

    def read(self, address: int, bytes: int, device: int = 0, stream: int | None = None) -> bytes:
        data = C.create_string_buffer(bytes)
        self.call("mem_copy", data, HOST, address, device, bytes, stream)
        if self.table.stream_sync:
            self.call("stream_sync", device, stream)
        else:
            self.sync(device)
        return data.raw

    def sync(self, device: int = 0) -> None:
        self.call("sync", device)

    def stream(self, device: int = 0, priority: int = 0) -> int:
        stream: int = self.get("stream_create", ptr, device, priority)
        return stream

    def event(self, device: int = 0, timing: bool = True) -> int:
        event: int = self.get("event_create", ptr, device, int(timing))
        return event

    def info(self, device: int = 0) -> DeviceInfo:
        info = DeviceInfo(C.sizeof(DeviceInfo))
        self.call("device_info", device, C.byref(info))
        return info

    def ipc(self) -> Ipc:
        table: Ipc = C.cast(self.get("extension", ptr, b"ipc.v1"), C.POINTER(Ipc)).contents
        return table

    def _extension(self, name: str, kind: type[Table]) -> Table:
        found = C.cast(self.get("extension", ptr, name.encode()), C.POINTER(kind))
        table = kind()  # what the vendor's does not reach is NULL
        size = min(found.contents.struct_size, C.sizeof(kind))
        C.memmove(C.byref(table), found, size)
        return table

    def code(self) -> CodeTable:
        """The table of code.v1. TableError where there is none."""
        return self._extension("code.v1", CodeTable)

    def cores(self) -> CoresTable:
        """The table of cores.v1. TableError where there is none."""
        return self._extension("cores.v1", CoresTable)

    def layouts(self) -> LayoutTable:
        """The table of layout.v1. TableError where there is none."""
        return self._extension("layout.v1", LayoutTable)

    def graphs(self) -> GraphTable:
        """The table of graph.v1. TableError where there is none."""
        return self._extension("graph.v1", GraphTable)

    def profile(self) -> ProfileTable:
        found = C.cast(self.get("extension", ptr, b"profile.v1"), C.POINTER(ProfileTable))
        return found.contents

    # Operators.
    def find(self, name: str) -> Op:
        """The kernel of an operator; TableError UNSUPPORTED when it is not offered."""
        op = Op(C.sizeof(Op))
        self.call("op_find", name.encode(), C.byref(op))
        return op

    def run(self, name: str, *args: object, stream: int | None = None, device: int = 0) -> None:
        """Put an operator on the stream. Arguments in the contract's order: outputs first."""
        if self.offers("bind"):
            self.call("bind", device)
        self._requests = 0
        status = self.find(name).kernel(arguments(args), len(args), stream)
        if status != 0:
            raise TableError(status, self.words())

    def _give_setting(self, key: bytes) -> int | None:
        value = self._setting(key.decode())
        if value is None:
            return None
        self._texts[key] = C.c_char_p(value.encode())  # lives until the next call with this key
        return C.cast(self._texts[key], ptr).value

    def _give_scratch(self, device: int, stream: int | None, bytes: int, result: Any) -> int:
        # A buffer for each request of a kernel; the next kernel gets the same ones, since work on a
        # stream is ordered.
        key = (device, stream or 0, self._requests)
        self._requests += 1
        address, size = self._scratch.get(key, (0, 0))
        if size < bytes:
            self.sync(device)
            if address:
                self.free(address, device)
            address, size = self.alloc(bytes, device), bytes
            self._scratch[key] = address, size
        result[0] = address
        return 0

    def _give_packed(self, tensor: Any, layout: int, stream: int | None, out: Any) -> int:
        if self.packed is None:
            return STATUS.index("UNSUPPORTED")
        return self.packed(tensor, layout, stream, out)

    def _resize(self, tensor: Any, ndim: int, shape: Any) -> int:
        self.resized.append(tuple(shape[i] for i in range(ndim)))
        step = 1
        for i in reversed(range(ndim)):
            tensor.contents.shape[i] = shape[i]
            tensor.contents.strides[i] = step
            step *= shape[i]
        return 0


def arguments(values: Sequence[object]) -> Any:
    """An array of cw_arg. The array keeps alive what it points to."""
    array: Any = (Arg * max(len(values), 1))()
    array.alive = []
    for arg, value in zip(array, values, strict=False):  # an array of none has one
        _set(arg, value, array.alive)
    return array


def _set(arg: Arg, value: object, alive: list[object]) -> None:
    alive.append(value)
    if value is None:
        arg.tag = 0
    elif isinstance(value, bool):
        arg.tag, arg.v.i = 3, int(value)
    elif isinstance(value, int):
        arg.tag, arg.v.i = 1, value
    elif isinstance(value, float):
        arg.tag, arg.v.d = 2, value
    elif isinstance(value, Dtype):
        arg.tag, arg.v.i = 5, DTYPES[value][2]
    elif isinstance(value, str):
        arg.tag, arg.n, arg.v.string = 6, len(value), value.encode()
    elif isinstance(value, DeviceTensor):
        arg.tag, arg.v.tensor = 7, C.pointer(value.dl)
    elif isinstance(value, Philox):
        arg.tag, arg.v.philox = 8, C.pointer(value)
    elif isinstance(value, (list, tuple)) and any(isinstance(v, DeviceTensor) for v in value):
        pointers = (C.POINTER(DLTensor) * len(value))(*(C.pointer(v.dl) for v in value))
        alive.append(pointers)
        arg.tag, arg.n, arg.v.tensors = 12, len(value), pointers
    elif isinstance(value, (list, tuple)):
        numbers = (i64 * max(len(value), 1))(*(int(v) for v in value))
        alive.append(numbers)
        arg.tag = 11 if value and all(isinstance(v, bool) for v in value) else 9
        arg.n, arg.v.ints = len(value), numbers
    else:
        raise TypeError(f"no argument of an operator is a {type(value).__name__}")
