"""The checks of the table's further entries, which a vendor offers one by one or not at all."""

from __future__ import annotations

import ctypes as C
import struct
import threading
import time
from collections.abc import Callable

from causeway.conformance.chip import (
    CANARY,
    KIB,
    MIB,
    Chip,
    Skipped,
    expect,
    pattern,
    same,
)
from causeway.conformance.programs import Code
from causeway.conformance.table import HOST, STATUS, Callback, Op, TableError, ptr, u64

ON_A_STREAM = ("mem_alloc_on", "mem_free_on")
VIRTUAL = ("mem_reserve", "mem_map", "mem_unmap", "mem_release")
GROUPS = (
    ("host_register", "host_unregister"),
    ("host_alloc_for", "host_free_for"),
    ON_A_STREAM,
    VIRTUAL,
)


# --- cores ---------------------------------------------------------------------------------------


def a_share_of_the_cores_holds(chip: Chip) -> None:
    """Do limits of cores.v1 hold until they are taken back, and does work come out right?"""
    table = chip.extension("cores.v1", chip.library.cores)
    expect(bool(table.device_cores and table.set_device_cores), "both entries of devices", "one")
    both = bool(table.stream_cores)
    expect(both == bool(table.set_stream_cores), "both entries of streams, or none", "one")

    def ask(entry: str, *args: object) -> None:
        status = getattr(table, entry)(*args)
        expect(status == 0, f"OK of {entry}", f"{STATUS[status]}: {chip.library.words()}")

    def now(stream: int | None = None) -> tuple[int, int]:
        cores, most = C.c_uint32(), C.c_uint32()
        ask("device_cores", 0, C.byref(cores), C.byref(most))
        if stream is not None:
            ask("stream_cores", 0, stream, C.byref(cores))
        return cores.value, most.value

    def works() -> None:
        with chip.memory(4 * KIB) as (address,):
            bytes_ = pattern(4 * KIB)
            chip.library.write(address, bytes_)
            same(chip.library.read(address, 4 * KIB), bytes_, "a copy within the limit")

    _, most = now()
    expect(most >= 1, "cores to share", most)
    expect(now()[0] == most, "all cores where no limit was set", now())
    try:
        for cores in sorted({1, (most + 1) // 2, most}):
            ask("set_device_cores", 0, cores)
            expect(cores <= now()[0] <= most, f"from {cores} to {most} cores", now())
            works()
            if cores == 1 < most:  # steps may be large, but a limit that changes nothing is none
                expect(now()[0] < most, "fewer than all cores at the least limit", now())
        ask("set_device_cores", 0, 1)
        ask("set_device_cores", 0, 0)
        expect(now()[0] == most, "all cores when the limit is gone", now())
        if both:
            stream = chip.library.stream(0, 0)
            try:
                ask("set_stream_cores", 0, stream, 1)
                mine = now(stream)[0]
                expect(1 <= mine < most or mine == most == 1, "a share of a stream", mine)
                expect(now()[0] == most, "the process's own share left alone", now())
                ask("set_stream_cores", 0, stream, 0)
                expect(now(stream)[0] == most, "all cores of the stream again", now(stream))
            finally:
                chip.library.call("stream_destroy", 0, stream)
        status = table.set_device_cores(0, most + 1)
        expect(STATUS[status] == "INVALID", "INVALID for more cores than there are", STATUS[status])
    finally:
        table.set_device_cores(0, 0)


# --- memory ---------------------------------------------------------------------------------------


def host_memory_of_a_device_is_copied(chip: Chip) -> None:
    """Does host memory of host_alloc_for hold bytes, and do copies of every device reach it?"""
    chip.needs("host_alloc_for", "host_free_for")
    size = 64 * KIB
    for device in range(min(chip.count, 4)):
        host: int = chip.library.get("host_alloc_for", ptr, device, size)
        for other in range(min(chip.count, 4)):
            what = f"memory for device {device}, copies of {other}"
            with chip.memory(size, device=other) as (address,):
                C.memmove(host, pattern(size, other), size)
                chip.library.call("mem_copy", address, other, host, HOST, size, None)
                chip.library.sync(other)
                same(chip.library.read(address, size, other), pattern(size, other), what)
                C.memset(host, 0, size)
                chip.library.call("mem_copy", host, HOST, address, other, size, None)
                chip.library.sync(other)
                same(C.string_at(host, size), pattern(size, other), f"{what}, back")
        chip.library.call("host_free_for", device, host)
    chip.refused("host_alloc_for", chip.count, size, C.byref(ptr()))


def mapped_memory_is_one(chip: Chip) -> None:
    """Are pages that mem_map put side by side one memory, and does each go when it is told to?"""
    chip.needs(*VIRTUAL)
    library, part = chip.library, 2 * MIB
    page, start = u64(), ptr()
    library.call("mem_reserve", 0, 8 * part, C.byref(page), C.byref(start))
    base, step = start.value or 0, page.value
    expect(step > 0 and part % step == 0, "a page that divides 2 MiB", step)
    aligned = base % max(step, chip.alignment) == 0 and base > 0
    expect(aligned, f"addresses that begin with a page and at {chip.alignment}", hex(base))
    for at in (0, 2, 1):  # in any order
        library.call("mem_map", 0, base + at * part, part)
    size = 3 * part
    with chip.memory(size) as (other,):
        library.write(base, pattern(size))
        same(library.read(base, size), pattern(size), "three parts at once")
        library.call("mem_copy", other, 0, base + part - 5, 0, part + 10, None)
        chip.wait()
        wanted = pattern(size)[part - 5 : 2 * part + 5]
        same(library.read(other, part + 10), wanted, "copied out of three parts")
        library.write(other, bytes([CANARY]) * part)
        library.call("mem_copy", base + 2 * part - 7, 0, other, 0, 1001, None)
        chip.fill(base + part - 3, 9, 6)
        chip.wait()
        now = bytearray(pattern(size))
        now[2 * part - 7 : 2 * part + 994] = bytes([CANARY]) * 1001
        now[part - 3 : part + 3] = bytes([9]) * 6
        same(library.read(base, size), bytes(now), "written over their borders")
        library.call("mem_unmap", 0, base + part, part)
        same(library.read(base, part), bytes(now[:part]), "the part before one that went")
        rest = bytes(now[2 * part :])
        same(library.read(base + 2 * part, part), rest, "the part behind one that went")
        library.call("mem_map", 0, base + part, part)
        library.write(base + part, pattern(part, 3))
        same(library.read(base + part, part), pattern(part, 3), "a part that came again")
        same(library.read(base + 2 * part, part), rest, "the part behind it")
        library.sync()
    library.call("mem_unmap", 0, base, size)  # of three calls, in one
    library.call("mem_release", 0, base, 8 * part)


def mapped_memory_comes_back(chip: Chip) -> None:
    """Is memory counted when it is mapped and not when it is reserved, and had again and again?"""
    chip.needs(*VIRTUAL)
    part = 2 * MIB

    def free_bytes() -> int:
        if not chip.library.offers("mem_info"):
            return 0
        free, total = u64(), u64()
        chip.library.call("mem_info", 0, C.byref(free), C.byref(total))
        return free.value

    before = free_bytes()
    size = max(min(chip.info.memory // 4, 64 * MIB) // part * part, part)
    for _ in range(8):
        page, start = u64(), ptr()
        chip.library.call("mem_reserve", 0, 4 * size, C.byref(page), C.byref(start))
        base = start.value or 0
        chip.library.call("mem_map", 0, base, size)
        chip.library.sync()
        chip.library.call("mem_unmap", 0, base, size)
        chip.library.call("mem_release", 0, base, 4 * size)
    if chip.library.offers("mem_info"):
        lost = before - free_bytes()
        expect(lost < size, "the memory of eight rounds again", f"{lost} bytes less")
    huge = (chip.info.memory * 64 + (1 << 46)) // part * part
    error = None
    try:
        start = ptr()
        chip.library.call("mem_reserve", 0, huge, C.byref(u64()), C.byref(start))
    except TableError as failed:
        error = failed
    if error is None:
        chip.library.call("mem_release", 0, start, huge)
    else:
        expect(error.status == "OUT_OF_MEMORY", f"OUT_OF_MEMORY for {huge} bytes", error)


# --- operators ------------------------------------------------------------------------------------

_SCHEMA = (
    "aten::add.out(Tensor self, Tensor other, *, Scalar alpha=1, Tensor(a!) out) -> Tensor(a!)"
)
_UNKNOWN = "mylib::no_such_operator(Tensor self) -> Tensor"


def operators_are_found_for_a_device(chip: Chip) -> None:
    """Does op_find_for answer alike twice, keep to struct_size, and refuse devices that are not?"""
    chip.needs("op_find_for")

    def ask(name: str, schema: str, device: int) -> tuple[str, int, int, int | None]:
        raw = (C.c_uint8 * (C.sizeof(Op) + 32))(*[CANARY] * (C.sizeof(Op) + 32))
        C.memset(raw, 0, C.sizeof(Op))
        op = Op.from_buffer(raw)
        op.struct_size = C.sizeof(Op)
        status = chip.library.status(
            "op_find_for", name.encode(), schema.encode(), device, C.byref(op)
        )
        same(bytes(raw)[C.sizeof(Op) :], bytes([CANARY]) * 32, f"{name}: behind cw_op")
        expect(status in ("OK", "UNSUPPORTED"), f"{name}: OK or UNSUPPORTED", status)
        kernel = C.cast(op.kernel, ptr).value
        expect(status != "OK" or bool(kernel), f"{name}: a kernel", "NULL")
        return status, op.needs, op.dtypes, kernel

    for device in range(chip.count):
        first = ask("aten::add.out", _SCHEMA, device)
        again = ask("aten::add.out", _SCHEMA, device)
        expect(first == again, f"device {device}: {first}", again)
        status = ask(_UNKNOWN.split("(")[0], _UNKNOWN, device)[0]
        expect(status == "UNSUPPORTED", f"UNSUPPORTED for {_UNKNOWN!r}", status)
    op = Op(C.sizeof(Op))
    chip.refused("op_find_for", b"aten::add.out", _SCHEMA.encode(), chip.count, C.byref(op))


# --- streams --------------------------------------------------------------------------------------


def callbacks_come_after_the_work(chip: Chip) -> None:
    """Is each callback called once, when what its stream was given before is done?"""
    chip.needs("stream_callback", "stream_sync")
    size, count = 16 * MIB, 6
    with chip.streams(1) as (new,), chip.memory(size, size) as (a, b):
        for stream in (new, None):
            result = C.create_string_buffer(1)
            seen: list[tuple[int, bytes]] = []
            told = threading.Event()

            def note(
                context: int | None,
                result: C.Array[C.c_char] = result,
                seen: list[tuple[int, bytes]] = seen,
                told: threading.Event = told,
            ) -> None:
                seen.append((context or 0, result.raw))
                if len(seen) == count:
                    told.set()

            function = Callback(note)
            for k in range(count):
                chip.busy(a, b, size, stream, k + 1)
                chip.library.call("mem_copy", result, HOST, b, 0, 1, stream)
                chip.library.call("stream_callback", 0, stream, function, k + 1)
            chip.library.call("stream_sync", 0, stream)
            expect(told.wait(30), f"{count} callbacks within half a minute", len(seen))
            time.sleep(0.01)  # for one that comes twice
            contexts = [context for context, _ in seen]
            expect(sorted(contexts) == [*range(1, count + 1)], "each callback once", contexts)
            for context, found in seen:
                came = f"{found[0]}, which work before it wrote"
                expect(found[0] >= context, f"callback {context} sees at least {context}", came)
    chip.refused("stream_callback", chip.count, None, Callback(lambda context: None), None)


def memory_follows_its_stream(chip: Chip) -> None:
    """Does memory of mem_free_on stay as it is until its stream has passed?"""
    chip.needs(*ON_A_STREAM, "stream_sync")
    library, size = chip.library, 4 * MIB
    with chip.streams(2) as (one, two), chip.memory(size, 16 * MIB, 16 * MIB) as (kept, a, b):
        for round in range(4):
            address = library.get("mem_alloc_on", ptr, 0, one, size)
            expect(address % chip.alignment == 0, f"a multiple of {chip.alignment}", hex(address))
            chip.fill(address, round + 1, size, one)
            library.call("stream_sync", 0, one)  # else it may yet hide what a free has spoilt
            chip.busy(a, b, 16 * MIB, one, 1)
            library.call("mem_copy", kept, 0, address, 0, size, one)
            library.call("mem_free_on", 0, one, address)
            taken = []  # by another stream, by the same, by all: none may write what is read yet
            for stream in (two, one):
                taken.append((stream, library.get("mem_alloc_on", ptr, 0, stream, size)))
            taken.append((two, library.alloc(size)))
            for stream, place in taken:
                chip.fill(place, 0xEE, size, stream)
            library.call("stream_sync", 0, one)
            library.call("stream_sync", 0, two)
            what = f"round {round}: what was read before its memory was given back"
            same(library.read(kept, size), bytes([round + 1]) * size, what)
            for stream, place in taken[:2]:
                library.call("mem_free_on", 0, stream, place)
            library.free(taken[2][1])
        address = library.get("mem_alloc_on", ptr, 0, one, size)
        library.call("stream_sync", 0, one)
        library.free(address)  # mem_free takes it too
        nothing = library.get("mem_alloc_on", ptr, 0, one, 0)
        library.call("mem_free_on", 0, one, nothing)
        status = library.status(
            "mem_alloc_on", 0, one, chip.info.memory * 2 + (1 << 40), C.byref(ptr())
        )
        expect(status == "OUT_OF_MEMORY", "OUT_OF_MEMORY for more than there is", status)


def a_binary_is_the_program(chip: Chip) -> None:
    """Does build_binary make of a program's binary what build made of its source?"""
    code = Code(chip)
    if not code.table.binary or not code.table.build_binary:
        raise Skipped("not offered: binary and build_binary of code.v1")
    expect(
        code.info.binaries & 1 == 1, "CW_BINARY_OWN among code_info's binaries", code.info.binaries
    )
    code.build()
    size = u64(1 << 40)
    code.good("binary", code.program, None, C.byref(size))
    expect(0 < size.value < 1 << 40, "its size", size.value)
    room = C.create_string_buffer(bytes([CANARY]) * (size.value + 16), size.value + 16)
    short = u64(size.value - 1)
    code.good("binary", code.program, room, C.byref(short))
    expect(short.value == size.value, f"{size.value} bytes, as before", short.value)
    same(room.raw, bytes([CANARY]) * len(room), "where there is too little room")
    code.good("binary", code.program, room, C.byref(size))
    same(room.raw[size.value :], bytes([CANARY]) * 16, "behind the binary")
    binary = room.raw[: size.value]
    code.good("release", code.program)
    given = C.create_string_buffer(binary, len(binary))
    code.good("build_binary", 0, given, len(binary), None, C.byref(code.program))
    C.memset(given, 0, len(binary))  # it need not be kept
    code.good("function", code.program, b"scale", C.byref(code.function))
    n = 100
    with chip.memory(4 * n, 4 * n) as (a, b):
        chip.library.write(a, struct.pack(f"={n}i", *range(n)))
        status = code.launch(b, a, n, groups=3)
        expect(status == "OK", "OK of launch", f"{status}: {chip.library.words()}")
        chip.library.sync()
        wanted = struct.pack(f"={n}i", *[3 * i for i in range(n)])
        same(chip.library.read(b, 4 * n), wanted, "what its kernel made")
    code.good("release", code.program)
    for wrong in (b"", b"no binary of any chip" * 9, binary[: len(binary) // 2]):
        status = code.answer("build_binary", 0, wrong, len(wrong), None, C.byref(code.program))
        expect(status == "INVALID", f"INVALID for {len(wrong)} bytes that are none", status)


def limits_of_launches_are_held(chip: Chip) -> None:
    """Does the largest grid that code_info allows run, and is one beyond it refused?"""
    code = Code(chip)
    most = code.info.grid_limits[0]
    if not most:
        raise Skipped("not told: grid_limits of code.v1")
    at_once = 1 << 20  # a grid of more takes a while
    code.build()
    n = 1000
    with chip.memory(4 * n, 4 * n) as (a, b):
        chip.library.write(a, struct.pack(f"={n}i", *range(n)))
        status = code.launch(b, a, n, groups=min(most, at_once))
        expect(status == "OK", f"OK of {min(most, at_once)} groups", status)
        chip.library.sync()
        wanted = struct.pack(f"={n}i", *[3 * i for i in range(n)])
        same(chip.library.read(b, 4 * n), wanted, f"what {min(most, at_once)} groups made")
        if most < (1 << 32) - 1:
            status = code.launch(b, a, n, groups=most + 1)
            expect(status == "INVALID", f"INVALID for {most + 1} groups", status)
    for k in range(3):
        limit, all_of_it = code.info.group_limits[k], code.info.group_limit
        expect(limit <= all_of_it, f"group_limits[{k}] of at most {all_of_it}", limit)
    code.good("release", code.program)


def what_is_noted_runs_when_it_is_launched(chip: Chip) -> None:
    """Does graph.v1 note work, run it at each launch and not before, and let the stream go on?"""
    library = chip.library
    chip.needs("extension", "stream_create")
    table = chip.extension("graph.v1", library.graphs)
    n, stream = 4096, library.stream()

    def good(what: str, status: int) -> None:
        expect(status == 0, f"OK of {what}", f"{status}: {library.words()}")

    def holds(place: int, byte: int, when: str) -> None:
        library.call("stream_sync", 0, stream)
        same(library.read(place, n), bytes([byte]) * n, when)

    with chip.memory(n, n, n) as (a, b, c):
        for place, byte in ((a, 1), (b, 2), (c, 3)):
            library.write(place, bytes([byte]) * n)
        library.sync()
        status = table.begin(0, stream)
        if status == 1:  # UNSUPPORTED
            raise Skipped(f"graph.begin is declined: {library.words()}")
        good("begin", status)
        library.call("mem_copy", b, 0, a, 0, n, stream)
        library.call("mem_copy", c, 0, b, 0, n, stream)
        graph = ptr()
        good("end", table.end(0, stream, C.byref(graph)))
        holds(b, 2, "before the first launch")
        for byte in (1, 7, 9):
            library.write(a, bytes([byte]) * n)
            library.sync()
            good("launch", table.launch(graph, stream))
            good("launch", table.launch(graph, stream))
            holds(c, byte, f"after two launches on {byte}")
        library.call("mem_copy", a, 0, c, 0, n, stream)  # after the capture it runs at once again
        holds(a, 9, "of the stream after its capture")
        other = library.stream()
        library.write(a, bytes([5]) * n)
        library.sync()
        good("launch on another stream", table.launch(graph, other))
        library.call("stream_sync", 0, other)
        same(library.read(c, n), bytes([5]) * n, "of a launch on another stream")
        good("destroy", table.destroy(graph))


MEMORY: tuple[Callable[[Chip], None], ...] = (
    host_memory_of_a_device_is_copied,
    mapped_memory_is_one,
    mapped_memory_comes_back,
)
OPERATORS: tuple[Callable[[Chip], None], ...] = (operators_are_found_for_a_device,)
STREAMS: tuple[Callable[[Chip], None], ...] = (
    callbacks_come_after_the_work,
    memory_follows_its_stream,
    a_binary_is_the_program,
    limits_of_launches_are_held,
    what_is_noted_runs_when_it_is_launched,
)
