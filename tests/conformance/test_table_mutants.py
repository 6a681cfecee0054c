"""Mistakes that a colleague in a hurry makes in a table, each in the right chip's, are found."""

from __future__ import annotations

import contextlib
import ctypes as C
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from causeway import vendor
from causeway.conformance import abi, entries, layouts
from causeway.conformance.table import HOST, CoresTable, LayoutTable, Library, Op, TableError

Call = Callable[..., Any]
SETTINGS = {"execution": "async", "memory_model": "discrete", "latency_us": "300"}


def made(settings: dict[str, str] = SETTINGS) -> abi.Chip:
    return abi.Chip(Library(vendor.sim_library(), settings.get), [])


class Mutant:
    """The table's `call` and `status` of a chip, with one mistake: `changed` may answer in their
    place, with a status, or None for what the right chip does."""

    def __init__(self, chip: abi.Chip) -> None:
        self.chip = chip
        self.right: Call = chip.library.call
        self._status: Call = chip.library.status
        chip.library.call = self.call  # type: ignore[method-assign]
        chip.library.status = self.status  # type: ignore[method-assign]

    def changed(self, entry: str, *args: Any) -> int | None:
        return None

    def call(self, entry: str, *args: Any) -> None:
        answer = self.changed(entry, *args)
        if answer is None:
            self.right(entry, *args)
        elif answer:
            raise TableError(answer, "a mutant")

    def status(self, entry: str, *args: Any) -> str:
        answer = self.changed(entry, *args)
        return str(self._status(entry, *args)) if answer is None else "OK"


class QueryIsOK(Mutant):
    entries: tuple[str, ...] = ("event_query",)

    def changed(self, entry: str, *args: Any) -> int | None:
        return 0 if entry in self.entries else None


class StreamQueryIsOK(QueryIsOK):
    entries = ("stream_query",)


class BothQueriesAreOK(QueryIsOK):
    entries = ("event_query", "stream_query")


class StagingIsUsedAgain(Mutant):
    """One staging buffer, filled for the next copy before the last one has run."""

    staging = C.create_string_buffer(1 << 20)

    def changed(self, entry: str, *args: Any) -> int | None:
        if entry == "mem_copy" and args[3] == HOST and args[4] <= len(self.staging):
            C.memmove(self.staging, args[2], args[4])
            self.right(entry, args[0], args[1], self.staging, HOST, *args[4:])
            return 0
        return None


class HostIsReadLate(Mutant):
    """A thread reads host memory when it gets to it: nothing waits for it."""

    def changed(self, entry: str, *args: Any) -> int | None:
        if entry != "mem_copy" or args[3] != HOST or args[4] < 2:
            return None

        def later() -> None:
            time.sleep(1.5)  # longer than a busy machine takes to write that memory again
            with contextlib.suppress(TableError):  # the memory is gone
                self.right(entry, *args)

        threading.Thread(target=later).start()
        return 0


class HostIsWrittenLate(HostIsReadLate):
    def changed(self, entry: str, *args: Any) -> int | None:
        if entry == "mem_copy" and args[1] == HOST:
            threading.Timer(0.02, self.right, (entry, *args)).start()
            return 0
        return None


class DestroyLosesWork(Mutant):
    """What a stream was given is kept back until something waits for it."""

    def __init__(self, chip: abi.Chip) -> None:
        self.held: dict[Any, list[tuple[Any, ...]]] = {}
        super().__init__(chip)

    def changed(self, entry: str, *args: Any) -> int | None:
        stream = {"mem_copy": 5, "mem_set": 4}.get(entry)
        if stream is not None and args[stream] and HOST not in (args[1], args[3]):
            self.held.setdefault(args[stream], []).append((entry, *args))
            return 0
        if entry == "stream_destroy":
            self.held.pop(args[1], None)
        elif entry not in ("stream_create", "mem_alloc"):
            for stream in list(self.held):
                for work in self.held.pop(stream):
                    self.right(*work)
        return None


class WaitsOfOneQueue(Mutant):
    """Streams lie on two queues by turns; a wait for the other queue's event is forgotten."""

    def __init__(self, chip: abi.Chip) -> None:
        self.queue: dict[Any, int] = {None: 0}
        self.at: dict[Any, int] = {}
        super().__init__(chip)

    def of(self, stream: Any) -> int:
        return self.queue.setdefault(stream, len(self.queue) // 2 % 2)

    def changed(self, entry: str, *args: Any) -> int | None:
        if entry == "event_record":
            self.at[args[1]] = self.of(args[2])
        if entry == "stream_wait" and self.at.get(args[2]) != self.of(args[1]):
            return 0
        return None


class ElapsedIs(Mutant):
    factor, plus = 1.0, 0.0

    def changed(self, entry: str, *args: Any) -> int | None:
        if entry != "event_elapsed":
            return None
        self.right(entry, *args)
        place = args[3]._obj
        place.value = place.value * self.factor + self.plus
        return 0


class ElapsedIsInSeconds(ElapsedIs):
    factor = 1e-3


class ElapsedIsInMicroseconds(ElapsedIs):
    factor = 1e3


class SetFillsWholeWords(Mutant):
    def changed(self, entry: str, *args: Any) -> int | None:
        if entry == "mem_set":
            self.right(entry, args[0], args[1], args[2], args[3] // 4 * 4, args[4])
            return 0
        return None


class SetBeginsAtAWord(Mutant):
    def changed(self, entry: str, *args: Any) -> int | None:
        if entry == "mem_set":
            self.right(entry, args[0], args[1] // 4 * 4, *args[2:])
            return 0
        return None


class CopiesWithinABufferAreWords(Mutant):
    def changed(self, entry: str, *args: Any) -> int | None:
        if entry == "mem_copy" and args[1] == args[3] == 0:
            self.right(entry, args[0], 0, args[2], 0, -(-args[4] // 4) * 4, args[5])
            return 0
        return None


class AddressesHave32Bits(Mutant):
    """An offset within an allocation is kept in 32 bits."""

    base = 0

    def changed(self, entry: str, *args: Any) -> int | None:
        if entry == "mem_alloc":
            self.right(entry, *args)
            self.base = args[2]._obj.value
            return 0
        if entry == "mem_copy":
            cut = [
                self.base + (a - self.base) % (1 << 32) if at == 0 and a >= self.base else a
                for a, at in ((args[0], args[1]), (args[2], args[3]))
            ]
            self.right(entry, cut[0], args[1], cut[1], args[3], *args[4:])
            return 0
        return None


class TheDefaultStreamIsNotWaitedFor(Mutant):
    entry, at = "stream_sync", 1

    def changed(self, entry: str, *args: Any) -> int | None:
        return 0 if entry == self.entry and args[self.at] is None else None


class SyncIsNothing(Mutant):
    def changed(self, entry: str, *args: Any) -> int | None:
        return 0 if entry == "sync" else None


class EventSyncIsNothing(Mutant):
    def changed(self, entry: str, *args: Any) -> int | None:
        return 0 if entry == "event_sync" else None


class EventsOfTheDefaultStreamAreReady(Mutant):
    """A record on the default stream is forgotten."""

    def changed(self, entry: str, *args: Any) -> int | None:
        return 0 if entry == "event_record" and args[2] is None else None


class EventsAreUsedAgain(Mutant):
    """event_create gives a destroyed event as it was."""

    def __init__(self, chip: abi.Chip) -> None:
        self.old: list[int] = []
        super().__init__(chip)

    def changed(self, entry: str, *args: Any) -> int | None:
        if entry == "event_destroy":
            self.old.append(args[1])
            return 0
        if entry == "event_create" and self.old:
            args[2]._obj.value = self.old.pop()
            return 0
        return None


MUTANTS: dict[type[Mutant], Callable[[abi.Chip], None]] = {
    StagingIsUsedAgain: abi.host_memory_is_read_in_time,
    QueryIsOK: abi.ready_means_done,
    StreamQueryIsOK: abi.ready_means_done,
    BothQueriesAreOK: abi.ready_means_done,
    DestroyLosesWork: abi.a_destroyed_stream_ends_its_work,
    WaitsOfOneQueue: abi.waits_hold_between_all_streams,
    ElapsedIsInSeconds: abi.elapsed_time_is_in_milliseconds,
    ElapsedIsInMicroseconds: abi.elapsed_time_is_in_milliseconds,
    HostIsReadLate: abi.host_memory_is_read_in_time,
    HostIsWrittenLate: abi.host_memory_is_written_in_time,
    SetFillsWholeWords: abi.set_fills_its_bytes,
    SetBeginsAtAWord: abi.set_fills_its_bytes,
    CopiesWithinABufferAreWords: abi.copies_of_every_size_within_a_buffer,
    AddressesHave32Bits: abi.addresses_reach_beyond_4_gib,
    TheDefaultStreamIsNotWaitedFor: abi.every_wait_waits_for_the_default_stream,
    EventSyncIsNothing: abi.every_wait_waits_for_the_default_stream,
    SyncIsNothing: abi.every_wait_waits_for_the_default_stream,
    EventsOfTheDefaultStreamAreReady: abi.every_wait_waits_for_the_default_stream,
    EventsAreUsedAgain: abi.a_new_event_is_new,
}


@pytest.mark.parametrize("check", dict.fromkeys(MUTANTS.values()), ids=lambda f: f.__name__)
def test_the_right_chip_passes(check: Callable[[abi.Chip], None]) -> None:
    check(made())


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.__name__)
def test_a_mistake_in_a_hurry_is_found(mutant: type[Mutant]) -> None:
    chip = made()
    mutant(chip)
    with pytest.raises((abi.Differs, TableError)):
        MUTANTS[mutant](chip)


CODE = SETTINGS | {"code": "1", "ops": "none"}  # groups of launches are what cores are shared for


def ignores_a_limit(table: CoresTable) -> dict[str, Call]:
    return {"set_device_cores": lambda device, cores: 0}


def keeps_a_limit(table: CoresTable) -> dict[str, Call]:
    right = table.set_device_cores
    return {"set_device_cores": lambda device, cores: right(device, cores) if cores else 0}


def a_streams_limit_is_the_process_s(table: CoresTable) -> dict[str, Call]:
    right = table.set_device_cores
    return {"set_stream_cores": lambda device, stream, cores: right(device, cores)}


def ignores_a_streams_limit(table: CoresTable) -> dict[str, Call]:
    return {"set_stream_cores": lambda device, stream, cores: 0}


def answers_no_stream(table: CoresTable) -> dict[str, Call]:
    return {"stream_cores": lambda device, stream, now: 2}


def test_a_right_share_of_the_cores_passes() -> None:
    entries.a_share_of_the_cores_holds(made(CODE))


@pytest.mark.parametrize(
    "mistake",
    [
        ignores_a_limit,
        keeps_a_limit,
        a_streams_limit_is_the_process_s,
        ignores_a_streams_limit,
        answers_no_stream,
    ],
    ids=lambda f: f.__name__,
)
def test_a_wrong_share_of_the_cores_is_found(mistake: Callable[[CoresTable], Any]) -> None:
    chip = made(CODE)
    table = chip.library.cores()
    most = C.c_uint32()
    table.device_cores(0, C.byref(C.c_uint32()), C.byref(most))
    if most.value < 2:
        pytest.skip("there is one core, which nothing is shared of")
    given = {name: getattr(table, name) for name, *_ in CoresTable._fields_} | mistake(table)
    chip.library.cores = lambda: SimpleNamespace(**given)  # type: ignore[method-assign, return-value, assignment]
    with pytest.raises((abi.Differs, TableError)):
        entries.a_share_of_the_cores_holds(chip)


LAYOUTS = SETTINGS | {"ops": "all", "latency_us": "20"}


def says_too_few_bytes(table: LayoutTable) -> dict[str, Call]:
    def packed_bytes(device: int, layout: int, tensor: Any, size: Any, uses: Any) -> int:
        status = table.packed_bytes(device, layout, tensor, size, uses)
        size._obj.value = max(size._obj.value // 2, 1)
        return int(status)

    return {"packed_bytes": packed_bytes}


def as_dense(tensor: Any) -> Any:
    dl = getattr(tensor, "_obj", None) or tensor.contents
    step = 1
    for i in reversed(range(dl.ndim)):
        dl.strides[i], step = step, step * dl.shape[i]
    return tensor


def forgets_strides(table: LayoutTable) -> dict[str, Call]:
    return {"pack": lambda d, at, tensor, *rest: table.pack(d, at, as_dense(tensor), *rest)}


def converts_on_the_default_stream(table: LayoutTable) -> dict[str, Call]:
    return {"pack": lambda d, at, t, form, stream: table.pack(d, at, t, form, None)}


def converts_nothing(table: LayoutTable) -> dict[str, Call]:
    return {"pack": lambda *_: 0, "unpack": None}  # type: ignore[dict-item]


def has_no_way_back_for_the_last_row(table: LayoutTable) -> dict[str, Call]:
    def unpack(device: int, layout: int, form: int, tensor: Any, stream: Any) -> int:
        tensor._obj.shape[0] -= 1
        return int(table.unpack(device, layout, form, tensor, stream))

    return {"unpack": unpack}


def takes_every_layout(table: LayoutTable) -> dict[str, Call]:
    return {
        "packed_bytes": lambda d, layout, *rest: table.packed_bytes(d, 0, *rest),
    }


def made_with(mistake: Callable[[LayoutTable], Any] | None) -> abi.Chip:
    chip = made(LAYOUTS)
    if mistake is not None:
        table = chip.library.layouts()
        given = {name: getattr(table, name) for name, *_ in LayoutTable._fields_} | mistake(table)
        chip.library.layouts = lambda: SimpleNamespace(**given)  # type: ignore[method-assign, return-value, assignment]
    return chip


def test_right_layouts_pass() -> None:
    for check in layouts.CHECKS:
        check(made_with(None))


@pytest.mark.parametrize(
    ("mistake", "check"),
    [
        (says_too_few_bytes, layouts.a_layout_holds_the_whole_tensor),
        (forgets_strides, layouts.a_layout_holds_the_whole_tensor),
        (has_no_way_back_for_the_last_row, layouts.a_layout_holds_the_whole_tensor),
        (takes_every_layout, layouts.a_layout_holds_the_whole_tensor),
        (converts_on_the_default_stream, layouts.a_layout_is_made_on_its_stream),
        (forgets_strides, layouts.kernels_compute_the_same_from_a_layout),
        (converts_nothing, layouts.kernels_compute_the_same_from_a_layout),
    ],
    ids=lambda f: f.__name__,
)
def test_a_wrong_layout_is_found(
    mistake: Callable[[LayoutTable], Any], check: Callable[[abi.Chip], None]
) -> None:
    with pytest.raises((abi.Differs, TableError)):
        check(made_with(mistake))


class Keeps(Library):
    """Its kernels go on with the first form that they were given of each kind of tensor."""

    kept: dict[tuple[int, ...], int]

    def _give_packed(self, tensor: Any, layout: int, stream: int | None, out: Any) -> int:
        status = super()._give_packed(tensor, layout, stream, out)
        dl = tensor.contents
        if status == 0:
            key = (dl.code, dl.bits, *(dl.shape[i] for i in range(dl.ndim)), dl.data)
            out[0] = self.__dict__.setdefault("kept", {}).setdefault(key, out[0])
        return status


def test_a_kernel_that_keeps_a_form_is_found() -> None:
    chip = abi.Chip(Keeps(vendor.sim_library(), LAYOUTS.get), [])
    with pytest.raises((abi.Differs, TableError), match="in other memory"):
        layouts.kernels_compute_the_same_from_a_layout(chip)


def test_kernels_that_never_ask_are_found() -> None:
    chip = made(LAYOUTS)
    find = chip.library.find

    def without(name: str) -> Op:
        if name in ("aten::mm.out", "aten::addmm.out"):
            raise TableError(1, "")
        return find(name)

    chip.library.find = without  # type: ignore[method-assign]
    with pytest.raises(abi.Differs, match="that asks for a form"):
        layouts.kernels_compute_the_same_from_a_layout(chip)


def test_old_words_are_not_shown_where_nothing_failed() -> None:
    chip = made()
    chip.refused("sync", 77)
    with pytest.raises(TableError) as error:
        chip.library.find("aten::no_such_operator")
    assert str(error.value) == "UNSUPPORTED"
