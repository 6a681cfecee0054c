"""comm.h in ctypes, and one rank of a communicator through it: no torch, no core in between.

The ranks are processes of one machine. They find each other, and say to each other what they saw,
by files in a folder: that needs nothing which is under test.
"""

from __future__ import annotations

import ctypes as C
import os
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from causeway.conformance.chip import Chip, Skipped, expect, same
from causeway.conformance.table import (
    DTYPES,
    Library,
    TableError,
    i32,
    i64,
    ptr,
    status_name,
    u32,
    u64,
)

OPERATIONS = ("SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "AVERAGE")
CHECKED = 1
GUARD = 64  # bytes on both sides of what a collective writes
TIMEOUT_MS = 20_000  # of a communicator whose ranks are all well
BYTE = DTYPES["uint8"][2]

Set = C.CFUNCTYPE(i32, ptr, C.c_char_p, ptr, u64)
Get = C.CFUNCTYPE(i32, ptr, C.c_char_p, ptr, C.POINTER(u64))


class Store(C.Structure):
    _fields_ = [("context", ptr), ("set", Set), ("get", Get)]


class Info(C.Structure):
    _fields_ = [
        ("struct_size", u32), ("flags", u32), ("device", i32), ("rank", i32), ("size", i32),
        ("reserved", i32), ("timeout_ms", i64), ("name", C.c_char_p), ("store", C.POINTER(Store)),
    ]  # fmt: skip


def _entry(*types: Any) -> Any:
    return C.CFUNCTYPE(i32, ptr, *types)


_reduction = (u64, i32, u32)  # count, dtype, operation
_counts = C.POINTER(u64)


class CommTable(C.Structure):
    _fields_ = [
        ("struct_size", u32), ("operations", u32), ("dtypes", u64),
        ("create", C.CFUNCTYPE(i32, C.POINTER(Info), C.POINTER(ptr))),
        ("destroy", _entry()), ("abort", _entry()), ("error", _entry()),
        ("all_reduce", _entry(ptr, ptr, *_reduction, ptr)),
        ("broadcast", _entry(ptr, u64, i32, i32, ptr)),
        ("reduce", _entry(ptr, ptr, *_reduction, i32, ptr)),
        ("all_gather", _entry(ptr, ptr, u64, i32, ptr)),
        ("reduce_scatter", _entry(ptr, ptr, *_reduction, ptr)),
        ("all_to_all", _entry(ptr, _counts, _counts, ptr, _counts, _counts, i32, ptr)),
        ("barrier", _entry(ptr)),
        ("send", _entry(ptr, u64, i32, i32, ptr)), ("recv", _entry(ptr, u64, i32, i32, ptr)),
        ("group_start", _entry()), ("group_end", _entry()),
    ]  # fmt: skip


def comm_table(library: Library) -> CommTable:
    """The vendor's comm.v1, what its struct_size does not reach being NULL. Raises Skipped."""
    if not library.offers("extension"):
        raise Skipped("not offered: extension, and so no comm.v1")
    try:
        found = library.get("extension", ptr, b"comm.v1")
    except TableError as error:
        raise Skipped(f"not offered: comm.v1 ({error})") from None
    if not found:
        raise Skipped("not offered: comm.v1")
    table = CommTable()
    size = C.cast(found, C.POINTER(u32)).contents.value
    C.memmove(C.byref(table), found, min(size, C.sizeof(CommTable)))
    return table


class Folder:
    """What one rank puts there all can get: a file for each key, whole or not there."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.path.mkdir(parents=True, exist_ok=True)

    def put(self, key: str, value: bytes) -> None:
        part = self.path / f"{key.encode().hex()}.{os.getpid()}"
        part.write_bytes(value)
        part.rename(self.path / key.encode().hex())

    def take(self, key: str, seconds: float = 60) -> bytes:
        file, until = self.path / key.encode().hex(), time.monotonic() + seconds
        while not file.exists():
            if time.monotonic() > until:
                raise TimeoutError(f"no other rank set {key!r} within {seconds:.0f} s")
            time.sleep(0.001)
        return file.read_bytes()


@dataclass(frozen=True)
class Task:
    """What a process is: `rank` of `size`, meeting the others in `folder`."""

    rank: int
    size: int
    folder: str


class Comm:
    """A communicator. `call` puts an entry on the stream and raises TableError if it is refused."""

    def __init__(self, rank: Rank, handle: int, at: int, size: int, device: int) -> None:
        self.rank, self.handle, self.at, self.size, self.device = rank, handle, at, size, device

    def answer(self, entry: str, *args: Any) -> str:
        return status_name(getattr(self.rank.table, entry)(self.handle, *args))

    def call(self, entry: str, *args: Any) -> None:
        status = getattr(self.rank.table, entry)(self.handle, *args)
        if status != 0:
            raise TableError(status, f"{entry}: {self.rank.chip.library.words()}")

    def wait(self, stream: int | None = None) -> None:
        """Until the stream is done; raises what went wrong on it."""
        self.rank.chip.wait_on(self.device, stream)
        self.call("error")

    def fails(self, entry: str, *args: Any) -> str:
        """Put on the stream what cannot end well; the words of the error it must end with."""
        statuses = [self.answer(entry, *args, None)]
        statuses.append(self.rank.chip.status_of_sync(self.device))
        said = self.answer("error")
        words = self.rank.chip.library.words()
        expect(said != "OK", f"error() after {entry} says what went wrong",
               f"OK; {entry} answered {statuses[0]}, sync {statuses[1]}")  # fmt: skip
        expect(words.strip() != "", "words of the error", f"{said}, no words")
        return words


class RankChip(Chip):
    """The chip of one rank; its work is on `device`."""

    device = 0

    def wait_on(self, device: int, stream: int | None) -> None:
        if self.library.offers("stream_sync"):
            self.library.call("stream_sync", device, stream)
        else:
            self.library.sync(device)

    def status_of_sync(self, device: int) -> str:
        entry = (
            ("stream_sync", device, None)
            if self.library.offers("stream_sync")
            else ("sync", device)
        )
        return self.library.status(*entry)


class Rank:
    """One process of several, and what the checks share."""

    def __init__(self, library: Library, task: Task) -> None:
        self.chip = RankChip(library, [])
        self.table = comm_table(library)
        self.rank, self.size = task.rank, task.size
        self.device = self.rank % self.chip.count
        if library.offers("bind"):
            library.call("bind", self.device)
        self.root = Path(task.folder)
        self.folder = Folder(self.root)
        self._made = 0

    def offers(self, *entries: str) -> None:
        """Skip the check where comm.v1 leaves one of these out."""
        missing = [entry for entry in entries if not getattr(self.table, entry)]
        if missing:
            raise Skipped(f"not offered: {', '.join(missing)} of comm.v1")

    def begins(self, check: str) -> None:
        """A folder of its own for what the ranks say to each other in this check."""
        self.folder, self._made = Folder(self.root / check), 0

    @contextmanager
    def comm(
        self, ranks: list[int] | None = None, timeout_ms: int = TIMEOUT_MS, flags: int = 0
    ) -> Iterator[Comm]:
        """A communicator of `ranks` (default: all), which all of them make at the same time."""
        members = list(range(self.size)) if ranks is None else ranks
        self._made += 1
        store = self._store(Folder(self.folder.path / f"comm{self._made}"), timeout_ms / 1000 + 30)
        info = Info(
            C.sizeof(Info), flags, self.device, members.index(self.rank), len(members), 0,
            timeout_ms, f"conformance {self._made}".encode(), C.pointer(store),
        )  # fmt: skip
        handle = ptr()
        status = self.table.create(C.byref(info), C.byref(handle))
        # All say how it went before anybody relies on it, as Causeway does.
        self.tell(
            f"made{self._made}",
            status_name(status).encode() + b": " + self.chip.library.words().encode(),
        )
        for r in members:
            said = self.hear(f"made{self._made}", r).decode()
            if said.startswith("UNSUPPORTED"):
                raise Skipped(f"create on rank {r}: {said}")
            expect(said.startswith("OK"), f"OK of create on rank {r}", said)
        comm = Comm(self, handle.value or 0, members.index(self.rank), len(members), self.device)
        try:
            yield comm
        except BaseException:
            self.table.abort(comm.handle)  # the others need not wait for what does not come
            raise
        finally:
            self.table.destroy(comm.handle)

    def _store(self, folder: Folder, seconds: float) -> Store:
        def put(_: Any, key: bytes, data: int, bytes: int) -> int:
            folder.put(key.decode(), C.string_at(data, bytes))
            return 0

        def take(_: Any, key: bytes, data: int, bytes: Any) -> int:
            try:
                value = folder.take(key.decode(), seconds)
            except TimeoutError:
                return 5  # FAILED
            if len(value) > bytes[0]:
                return 3  # INVALID
            C.memmove(data, value, len(value))
            bytes[0] = len(value)
            return 0

        return Store(None, Set(put), Get(take))

    # --- what the ranks say to each other, beside what is tested

    def tell(self, key: str, value: bytes = b"1") -> None:
        self.folder.put(f"{key}/{self.rank}", value)

    def hear(self, key: str, rank: int, seconds: float = 60) -> bytes:
        return self.folder.take(f"{key}/{rank}", seconds)

    def meet(self, key: str) -> None:
        """Until every rank is here."""
        self.tell(key)
        for r in range(self.size):
            self.hear(key, r)

    # --- memory

    @contextmanager
    def memory(self, *contents: bytes) -> Iterator[list[Buffer]]:
        """Device memory that holds `contents`, each with a guard on both sides."""
        sizes = [len(c) + 2 * GUARD for c in contents]
        with self.chip.memory(*sizes, device=self.device) as got:
            buffers = [Buffer(self, a, c) for a, c in zip(got, contents, strict=True)]
            yield buffers
            for k, b in enumerate(buffers):
                b.unharmed(f"memory around tensor {k}")

    @contextmanager
    def memory_that_may_fail(self) -> Iterator[Buffer]:
        """64 bytes for a collective that ends with an error: what comes of giving them back is not
        asked, as the error may be reported once more.
        """
        address = self.chip.library.alloc(64 + 2 * GUARD, self.device)
        try:
            yield Buffer(self, address, b"\0" * 64)
        finally:
            self.chip.library.status("sync", self.device)
            self.chip.library.status("mem_free", self.device, address)


class Buffer:
    """Memory of the device with guards around it; `at` is what a collective gets."""

    def __init__(self, rank: Rank, address: int, content: bytes) -> None:
        self.rank, self.base, self.at, self.bytes = rank, address, address + GUARD, len(content)
        guard = b"\xc5" * GUARD
        rank.chip.library.write(address, guard + content + guard, rank.device)

    def read(self, stream: int | None = None) -> bytes:
        return (
            self.rank.chip.library.read(self.at, self.bytes, self.rank.device, stream)
            if self.bytes
            else b""
        )

    def unharmed(self, what: str) -> None:
        for begin in (self.base, self.at + self.bytes):
            found = self.rank.chip.library.read(begin, GUARD, self.rank.device)
            same(found, b"\xc5" * GUARD, what)


# --- numbers --------------------------------------------------------------------------------------

_LETTERS = {
    "bool": "?", "uint8": "B", "int8": "b", "uint16": "H", "int16": "h", "uint32": "I",
    "int32": "i", "uint64": "Q", "int64": "q", "float16": "e", "float32": "f", "float64": "d",
}  # fmt: skip
FLOATS = ("float16", "bfloat16", "float32", "float64")
NUMBERS = tuple(name for name in DTYPES if name in _LETTERS or name == "bfloat16")


def pack(dtype: str, values: list[Any]) -> bytes:
    """Values as a chip has them. bfloat16: those that it holds exactly, or rounded towards zero."""
    if dtype == "bfloat16":
        return b"".join(struct.pack("=f", v)[2:] for v in values)
    return struct.pack(f"={len(values)}{_LETTERS[dtype]}", *values)


def unpack(dtype: str, data: bytes) -> list[Any]:
    if dtype == "bfloat16":
        return [struct.unpack("=f", b"\0\0" + data[i : i + 2])[0] for i in range(0, len(data), 2)]
    return list(struct.unpack(f"={len(data) * 8 // DTYPES[dtype][1]}{_LETTERS[dtype]}", data))


def brought(rank: int, dtype: str, n: int, factor: int = 1) -> list[Any]:
    """What a rank gives: small whole numbers that repeat after three, so that every operation is
    exact in every dtype, for up to three ranks.
    """
    if dtype == "bool":
        period: list[Any] = [(i + rank) % 3 == 0 for i in range(3)]
    else:
        period = [(i + rank % 2 + 1) * factor for i in range(3)]
    if dtype in FLOATS:
        period = [float(v) for v in period]
    return (period * (n // 3 + 1))[:n]


_FOLDS: dict[str, Callable[[Any, Any], Any]] = {
    "SUM": lambda a, b: a + b, "AVERAGE": lambda a, b: a + b, "PRODUCT": lambda a, b: a * b,
    "MIN": min, "MAX": max, "BAND": lambda a, b: a & b, "BOR": lambda a, b: a | b,
    "BXOR": lambda a, b: a ^ b,
}  # fmt: skip


def reduced(operation: str, dtype: str, n: int, ranks: int) -> tuple[list[bytes], bytes]:
    """What each rank gives to a reduction, and what it must come to."""
    # A sum that divides by the number of ranks without a rest.
    factor = ranks if operation == "AVERAGE" else 1
    total = brought(0, dtype, 3, factor)
    for r in range(1, ranks):
        other = brought(r, dtype, 3, factor)
        total = [_FOLDS[operation](a, b) for a, b in zip(total, other, strict=True)]
    if operation == "AVERAGE":
        total = [v / ranks for v in total]
    given = [repeat(pack(dtype, brought(r, dtype, 3, factor)), n) for r in range(ranks)]
    return given, repeat(pack(dtype, total), n)


def repeat(three: bytes, n: int) -> bytes:
    """`n` elements of the three that are given."""
    return (three * (n // 3 + 1))[: n * (len(three) // 3)]


def has_meaning(operation: str, dtype: str) -> bool:
    """Whether a reduction is asked for: no bits of floats, no average of whole numbers."""
    if operation in ("BAND", "BOR", "BXOR"):
        return dtype not in FLOATS
    if operation == "AVERAGE":
        return dtype in FLOATS
    return dtype != "bool"
