"""The checks of entries that stand alone pass the simulated chip, and find planted faults."""

from __future__ import annotations

import ctypes as C
from collections.abc import Callable
from typing import Any

import pytest

from causeway import vendor
from causeway.conformance import abi, entries
from causeway.conformance.chip import HOST, MIB, Chip, Skipped
from causeway.conformance.table import Library, TableError

FAILED = 5


def chip(**settings: str) -> Chip:
    return Chip(Library(vendor.sim_library(), settings.get), [])


ALONE = {
    "peer_access": abi.peers_are_told,
    "device_attribute": abi.attributes_have_their_types,
    "host_register": abi.host_memory_is_registered,
    "fault": abi.a_fault_is_of_the_last_failure,
    "host_alloc_for": entries.host_memory_of_a_device_is_copied,
    "mem_reserve": entries.mapped_memory_is_one,
    "op_find_for": entries.operators_are_found_for_a_device,
    "stream_callback": entries.callbacks_come_after_the_work,
    "mem_alloc_on": entries.memory_follows_its_stream,
    "close": abi.close_comes_last,
}


@pytest.mark.parametrize("entry", ALONE)
@pytest.mark.parametrize("execution", ["inline", "async"])
def test_the_simulated_chip_passes(entry: str, execution: str) -> None:
    ALONE[entry](chip(execution=execution))


@pytest.mark.parametrize("entry", ALONE)
def test_a_vendor_without_it_is_not_asked(entry: str) -> None:
    with pytest.raises(Skipped, match=entry):
        ALONE[entry](chip(without=entry))


def inner(found: Chip, entry: str) -> Any:
    """The entry as it is now: what ctypes gives of a table's field changes with the field."""
    field = getattr(found.library.table, entry)
    return type(field)(C.cast(field, C.c_void_p).value)


def maybe(found: Chip) -> Callable[..., int]:
    def peer_access(device: int, peer: int, out: Any) -> int:
        C.cast(out, C.POINTER(C.c_int32))[0] = 7
        return 0

    return peer_access


def one_way(found: Chip) -> Callable[..., int]:
    """Says that memory of device 1 is reached, and copies none of it."""
    copy = inner(found, "mem_copy")

    def mem_copy(dst: int, to: int, src: int, from_: int, bytes: int, stream: Any) -> int:
        return 0 if (to, from_) == (0, 1) else copy(dst, to, src, from_, bytes, stream)

    found.library.table.mem_copy = type(copy)(mem_copy)
    return inner(found, "peer_access")


def every_key(found: Chip) -> Callable[..., int]:
    def device_attribute(device: int, key: bytes, out: Any) -> int:
        out[0].tag, out[0].v.i = 1, 3
        return 0

    return device_attribute


def over_the_top(found: Chip) -> Callable[..., int]:
    ask = inner(found, "device_attribute")

    def device_attribute(device: int, key: bytes, out: Any) -> int:
        status = ask(device, key, out)
        if key == b"utilization":
            out[0].v.i = 101
        return status

    return device_attribute


def forgets(found: Chip) -> Callable[..., int]:
    return lambda device, at: 0


def loses_the_end(found: Chip) -> Callable[..., int]:
    """Copies of registered memory stop a byte early."""
    copy = inner(found, "mem_copy")

    def mem_copy(dst: int, to: int, src: int, from_: int, bytes: int, stream: Any) -> int:
        short = bytes - (from_ == HOST and bytes > MIB)
        return copy(dst, to, src, from_, short, stream)

    found.library.table.mem_copy = type(copy)(mem_copy)
    return inner(found, "host_register")


def writes_it_all(found: Chip) -> Callable[..., int]:
    def fault(device: int, out: Any) -> int:
        C.memset(C.addressof(out[0]) + 8, 1, 72)
        return 0

    return fault


@pytest.mark.parametrize(
    ("entry", "plant", "words"),
    [
        ("peer_access", maybe, "0 or 1"),
        ("peer_access", one_way, "what came from 1 to 0"),
        ("device_attribute", every_key, "pci_bus_id: tag 6"),
        ("device_attribute", over_the_top, "from 0 to 100"),
        ("host_unregister", forgets, "host_unregister fails"),
        ("host_register", loses_the_end, "what came back"),
        ("fault", writes_it_all, "behind byte 72"),
        ("close", lambda found: lambda: FAILED, "FAILED"),
    ],
)
def test_a_planted_fault_is_found(entry: str, plant: Any, words: str) -> None:
    found = chip()
    kind = type(getattr(found.library.table, entry))
    setattr(found.library.table, entry, kind(plant(found)))
    check = ALONE.get(entry, abi.host_memory_is_registered)
    answer = abi.answered(abi.Check(0, entry, "", "planned"), lambda: check(found))
    assert answer.state == "failed"
    assert words in f"{answer.expected} {answer.came}"


# --- entries that work goes through ---------------------------------------------------------------


def too_early(found: Chip) -> Callable[..., int]:
    """Calls back at once."""

    def stream_callback(device: int, stream: Any, function: Any, context: Any) -> int:
        function(context)
        return 0

    return stream_callback


def twice(found: Chip) -> Callable[..., int]:
    ask = inner(found, "stream_callback")

    def stream_callback(device: int, stream: Any, function: Any, context: Any) -> int:
        return ask(device, stream, function, context) or ask(device, stream, function, context)

    return stream_callback


def never(found: Chip) -> Callable[..., int]:
    return lambda device, stream, function, context: 0


def at_once(found: Chip) -> Callable[..., int]:
    """Gives memory back before its stream has passed."""
    free = inner(found, "mem_free")
    return lambda device, stream, at: free(device, at)


def for_another(found: Chip) -> Callable[..., int]:
    """Hands what a stream has not passed yet to whoever asks next."""
    ask, kept = inner(found, "mem_free_on"), []
    alloc = inner(found, "mem_alloc_on")

    def mem_free_on(device: int, stream: Any, at: int) -> int:
        if at:
            kept.append(at)
            return 0
        return ask(device, stream, at)

    def mem_alloc_on(device: int, stream: Any, bytes: int, out: Any) -> int:
        if kept and bytes == 4 * MIB:
            out[0] = kept.pop()
            return 0
        return alloc(device, stream, bytes, out)

    found.library.table.mem_alloc_on = type(alloc)(mem_alloc_on)
    return mem_free_on


def takes_the_rest(found: Chip) -> Callable[..., int]:
    """Unmapping a part unmaps what comes behind it as well."""
    ask = inner(found, "mem_unmap")

    def mem_unmap(device: int, at: int, bytes: int) -> int:
        ask(device, at + bytes, bytes)
        return ask(device, at, bytes)

    return mem_unmap


def keeps_it(found: Chip) -> Callable[..., int]:
    return lambda device, at, bytes: 0


def no_page(found: Chip) -> Callable[..., int]:
    ask = inner(found, "mem_reserve")

    def mem_reserve(device: int, bytes: int, page: Any, out: Any) -> int:
        status = ask(device, bytes, page, out)
        page[0] = 3000
        return status

    return mem_reserve


def of_one_device(found: Chip) -> Callable[..., int]:
    """Takes any number for a device."""
    ask = inner(found, "op_find_for")
    return lambda name, schema, device, out: ask(name, schema, 0, out)


def beyond_the_op(found: Chip) -> Callable[..., int]:
    ask = inner(found, "op_find_for")

    def op_find_for(name: bytes, schema: bytes, device: int, out: Any) -> int:
        C.memset(C.addressof(out[0]) + C.sizeof(out[0]), 0, 8)
        return ask(name, schema, device, out)

    return op_find_for


def loses_the_last(found: Chip) -> Callable[..., int]:
    """Copies from the host stop a byte early."""
    copy, ask = inner(found, "mem_copy"), inner(found, "host_alloc_for")

    def mem_copy(dst: int, to: int, src: int, from_: int, bytes: int, stream: Any) -> int:
        return copy(dst, to, src, from_, bytes - (from_ == HOST and bytes > 1), stream)

    found.library.table.mem_copy = type(copy)(mem_copy)
    return ask


BUSY = {"execution": "async", "memory_model": "discrete", "latency_us": "2000", "ops": "all"}


@pytest.mark.parametrize(
    ("check", "entry", "plant", "words"),
    [
        (entries.callbacks_come_after_the_work, "stream_callback", too_early, "sees at least"),
        (entries.callbacks_come_after_the_work, "stream_callback", twice, "each callback once"),
        (entries.memory_follows_its_stream, "mem_free_on", at_once, "was read before"),
        (entries.memory_follows_its_stream, "mem_free_on", for_another, "was read before"),
        (entries.mapped_memory_is_one, "mem_unmap", takes_the_rest, "INVALID"),
        (entries.mapped_memory_is_one, "mem_unmap", keeps_it, "mem_map"),
        (entries.mapped_memory_is_one, "mem_reserve", no_page, "divides 2 MiB"),
        (entries.mapped_memory_comes_back, "mem_unmap", keeps_it, "mem_release"),
        (entries.operators_are_found_for_a_device, "op_find_for", of_one_device, "fails"),
        (entries.operators_are_found_for_a_device, "op_find_for", beyond_the_op, "behind cw_op"),
        (entries.host_memory_of_a_device_is_copied, "host_alloc_for", loses_the_last, "byte 65535"),
    ],
)
def test_a_planted_fault_in_their_work_is_found(
    check: Any, entry: str, plant: Any, words: str
) -> None:
    found = Chip(Library(vendor.sim_library(), BUSY.get), [])
    kind = type(getattr(found.library.table, entry))
    setattr(found.library.table, entry, kind(plant(found)))
    answer = abi.answered(abi.Check(0, entry, "", "planned"), lambda: check(found))
    assert answer.state == "failed", answer
    assert words in f"{answer.expected} {answer.came}"


# --- code.v1 --------------------------------------------------------------------------------------


class Table:
    """The vendor's code.v1 with some of its entries another's."""

    def __init__(self, table: Any, **others: Any) -> None:
        self.table = table
        self.__dict__.update(others)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.table, name)


def with_code(**settings: str) -> Chip:
    return chip(code="1", **settings)


def planted(found: Chip, **others: Any) -> Chip:
    table = Table(found.library.code(), **others)
    found.library.code = lambda: table  # type: ignore[method-assign]
    return found


@pytest.mark.parametrize(
    "check", [entries.a_binary_is_the_program, entries.limits_of_launches_are_held]
)
def test_binaries_and_limits_of_the_simulated_chip_pass(check: Any) -> None:
    check(with_code(grid_limit="50", argument_limit="64"))


def test_what_code_does_not_offer_is_not_asked() -> None:
    for without in ("binary", "build_binary"):
        with pytest.raises(Skipped, match="binary"):
            entries.a_binary_is_the_program(with_code(without=without))
    with pytest.raises(Skipped, match="grid_limits"):
        entries.limits_of_launches_are_held(with_code())


def test_planted_faults_of_binaries_and_limits_are_found() -> None:
    right = with_code(grid_limit="50").library.code()

    def half(program: Any, room: Any, size: Any) -> int:
        """Writes though there is too little room."""
        given = C.cast(size, C.POINTER(C.c_uint64))[0]
        status = right.binary(program, None, size)
        if room:
            C.memset(room, 0, min(given, 64))
        return int(status)

    def takes_all(device: int, binary: Any, size: int, options: Any, out: Any) -> int:
        return 0 if size < 300 else int(right.build_binary(device, binary, size, options, out))

    cases = (
        (entries.a_binary_is_the_program, {"binary": half}, "too little room"),
        (entries.a_binary_is_the_program, {"build_binary": takes_all}, "INVALID for 0 bytes"),
    )
    for check, others, words in cases:
        found = planted(with_code(grid_limit="50"), **others)
        with pytest.raises(abi.Differs, match=words):
            check(found)

    found = planted(with_code())  # refuses nothing, and says that it would

    def info(device: int, out: Any) -> int:
        status = int(found.library.code().table.info(device, out))
        C.cast(out, C.POINTER(type(out._obj)))[0].grid_limits[0] = 50
        return status

    found.library.code().info = info
    with pytest.raises(abi.Differs, match="INVALID for 51 groups"):
        entries.limits_of_launches_are_held(found)


# --- graph.v1 -------------------------------------------------------------------------------------


@pytest.mark.parametrize("execution", ["inline", "async"])
def test_graphs_of_the_simulated_chip_pass(execution: str) -> None:
    entries.what_is_noted_runs_when_it_is_launched(chip(execution=execution, graphs="1"))


def test_a_vendor_without_graphs_is_not_asked() -> None:
    with pytest.raises(Skipped, match=r"graph\.v1"):
        entries.what_is_noted_runs_when_it_is_launched(chip())


def runs_at_once(table: Any) -> None:
    """Notes nothing: what it is given runs, and a launch does nothing."""
    table.begin = type(table.begin)(lambda device, stream: 0)
    table.end = type(table.end)(lambda device, stream, out: 0)
    table.launch = type(table.launch)(lambda graph, stream: 0)
    table.destroy = type(table.destroy)(lambda graph: 0)


def launches_once(table: Any) -> None:
    """The second launch of a graph is lost."""
    launch, seen = type(table.launch)(C.cast(table.launch, C.c_void_p).value), set[int]()

    def once(graph: int, stream: int) -> int:
        again = graph in seen
        seen.add(graph)
        return 0 if again else launch(graph, stream)

    table.launch = type(table.launch)(once)


@pytest.mark.parametrize(
    ("plant", "words"),
    [
        (runs_at_once, "before the first launch"),
        (launches_once, "after two launches on 7"),
    ],
)
def test_a_graph_that_is_not_one_is_found(plant: Callable[[Any], None], words: str) -> None:
    found = chip(graphs="1")
    table = found.library.graphs()
    plant(table)
    found.library.graphs = lambda: table  # type: ignore[method-assign]
    answer = abi.answered(
        abi.Check(0, "graph", "", "planned"),
        lambda: entries.what_is_noted_runs_when_it_is_launched(found),
    )
    assert answer.state == "failed"
    assert words in f"{answer.expected} {answer.came}"


def test_a_kernel_gets_a_buffer_for_each_request() -> None:
    """And the next kernel the same ones: work on a stream is ordered."""
    library = chip().library

    def ask(bytes_: int) -> int:
        place = C.c_void_p()
        assert library.host.scratch(0, None, bytes_, C.byref(place)) == 0
        assert place.value is not None
        return place.value

    def begin() -> None:
        with pytest.raises(TableError):
            library.run("no::operator")

    first, second = ask(1000), ask(100)
    assert abs(first - second) >= 1000
    begin()
    assert (ask(1000), ask(100)) == (first, second)
    begin()
    larger = ask(5000)
    assert abs(larger - ask(100)) >= 5000
