"""What the checks of a table share: the chip that is asked, and what an answer must be."""

from __future__ import annotations

import ctypes as C
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from causeway.conformance.table import HOST, STATUS, Library, TableError, i32

Table = TypeVar("Table")
KIB, MIB = 1 << 10, 1 << 20
CANARY = 0xC5
STREAMS = tuple(f"stream_{verb}" for verb in ("create", "destroy", "query", "sync", "wait"))
EVENTS = tuple(
    f"event_{verb}" for verb in ("create", "destroy", "record", "query", "sync", "elapsed")
)


@dataclass(frozen=True)
class Check:
    """What was asked, what was expected, what came; state is passed, failed or skipped."""

    level: int
    name: str
    asked: str
    state: str
    expected: str = ""
    came: str = ""


class Differs(Exception):
    def __init__(self, expected: str, came: str) -> None:
        super().__init__(f"expected {expected}, came {came}")
        self.expected, self.came = expected, came


class Skipped(Exception):
    """The vendor does not offer what the check needs."""


def expect(good: bool, expected: str, came: object) -> None:
    if not good:
        raise Differs(expected, str(came))


class Chip:
    """A library and what the checks share: its devices, and memory that is given back."""

    def __init__(
        self, library: Library, operators: list[str], taken: Mapping[str, str] | None = None
    ) -> None:
        self.library = library
        self.operators = operators
        self.taken = taken or {}  # names that torch has, see device_name
        self.count: int = library.get("device_count", i32)
        if self.count == 0:
            raise Skipped("the vendor has no device here")
        self.info = library.info(0)
        self.alignment = self.info.alignment or 64

    def needs(self, *entries: str) -> None:
        """Skip the check where the vendor leaves one of these out."""
        missing = [entry for entry in entries if not self.library.offers(entry)]
        if missing:
            raise Skipped(f"not offered: {', '.join(missing)}")

    def extension(self, name: str, table: Callable[[], Table]) -> Table:
        """The table of an extension. Skip the check where the vendor has none."""
        self.needs("extension")
        try:
            return table()
        except TableError as error:
            raise Skipped(f"not offered: {name} ({error})") from None

    @contextmanager
    def memory(self, *sizes: int, device: int = 0) -> Iterator[list[int]]:
        got: list[int] = []
        try:
            for size in sizes:
                got.append(self.library.alloc(size, device))
            yield got
        finally:
            self.library.sync(device)
            for address in got:
                self.library.free(address, device)

    @contextmanager
    def streams(self, n: int) -> Iterator[list[int]]:
        got = [self.library.stream() for _ in range(n)]
        try:
            yield got
        finally:
            for stream in got:
                self.library.call("stream_sync", 0, stream)
                self.library.call("stream_destroy", 0, stream)

    @contextmanager
    def events(self, n: int) -> Iterator[list[int]]:
        got = [self.library.event() for _ in range(n)]
        try:
            yield got
        finally:
            for event in got:
                self.library.call("event_destroy", 0, event)

    def fill(self, address: int, value: int, bytes: int, stream: int | None = None) -> None:
        """mem_set, or a copy where the vendor has none. Does not wait for mem_set."""
        if self.library.offers("mem_set"):
            self.library.call("mem_set", 0, address, value, bytes, stream)
        else:
            data = C.create_string_buffer(b"%c" % value * bytes, bytes)
            self.library.call("mem_copy", address, 0, data, HOST, bytes, stream)
            self.wait(stream)

    def wait(self, stream: int | None = None) -> None:
        if self.library.offers("stream_sync"):
            self.library.call("stream_sync", 0, stream)
        else:
            self.library.sync()

    def busy(self, a: int, b: int, bytes: int, stream: int | None, value: int) -> None:
        """Work that takes the chip a while; at its end both `a` and `b` hold `value`."""
        for step in range(8):
            self.fill(a, (value + 7 - step) % 256, bytes, stream)
            self.library.call("mem_copy", b, 0, a, 0, bytes, stream)

    def refused(self, entry: str, *args: object) -> TableError:
        """The failure that the call must be, with words."""
        try:
            self.library.call(entry, *args)
        except TableError as error:
            expect(error.status in STATUS, "a status of abi.h", error.status)
            worded = error.status == "UNSUPPORTED" or error.words.strip() != ""
            expect(worded, "last_error gives words", f"{error.status}, no words")
            return error
        raise Differs(f"{entry} fails", "OK")


def same(found: bytes, expected: bytes, what: str) -> None:
    """The first byte that differs, if any."""
    if found == expected:
        return
    at = next(i for i, (a, b) in enumerate(zip(found, expected, strict=True)) if a != b)
    wrong = sum(a != b for a, b in zip(found, expected, strict=True))
    raise Differs(
        f"{what}: byte {at} is 0x{expected[at]:02x}",
        f"0x{found[at]:02x}; {wrong} of {len(found)} bytes differ",
    )


def pattern(n: int, seed: int = 0) -> bytes:
    """Bytes that repeat with no power of two, so that a shifted copy shows."""
    period = bytes((i * 31 + i // 17 + seed) % 256 for i in range(997))
    return (period * (n // 997 + 1))[:n]


def in_threads(n: int, work: Callable[[int], None]) -> None:
    """Run work(0) ... work(n - 1) at once; the first failure is the check's."""
    failures: list[Exception] = []

    def guarded(k: int) -> None:
        try:
            work(k)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(k,)) for k in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
