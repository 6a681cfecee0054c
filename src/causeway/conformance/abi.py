"""The contract without torch: each check asks the table something and says what came.

A check is a function that takes a `Chip`; it calls `expect`, which raises `Differs`, or raises
`Skipped`. What it asks is its docstring's first line. Run as a process of its own, `main` writes a
line of JSON before and after each check, so that the parent knows which one a crash belongs to.
"""

from __future__ import annotations

import ctypes as C
import itertools
import struct
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial

from causeway import device_name
from causeway.conformance import entries, layouts
from causeway.conformance.chip import (
    CANARY,
    EVENTS,
    KIB,
    MIB,
    STREAMS,
    Check,
    Chip,
    Differs,
    Skipped,
    expect,
    in_threads,
    pattern,
    same,
)
from causeway.conformance.programs import Code
from causeway.conformance.table import (
    HOST,
    STATUS,
    Activity,
    Arg,
    DeviceInfo,
    Fault,
    Library,
    Op,
    TableError,
    i32,
    i64,
    ptr,
    u32,
    u64,
)

# --- level 0: memory ------------------------------------------------------------------------------


def table_has_what_is_needed(chip: Chip) -> None:
    """Are the six entries of level 0 there, and each group whole or absent?"""
    chip_entries = ("device_count", "device_info", "sync", "mem_alloc", "mem_free", "mem_copy")
    missing = [entry for entry in chip_entries if not chip.library.offers(entry)]
    expect(not missing, "all six entries", f"missing: {', '.join(missing)}")
    for group in (STREAMS, EVENTS, ("host_alloc", "host_free"), *entries.GROUPS):
        offered = [entry for entry in group if chip.library.offers(entry)]
        expect(len(offered) in (0, len(group)), f"all of {', '.join(group)}, or none", offered)
    name = (chip.library.table.name or b"").decode(errors="replace")
    why = device_name.refusal(name, chip.taken)
    expect(why is None, "a name that torch has not", f"{name!r}: {why}")


def device_info_is_sane(chip: Chip) -> None:
    """Does device_info give a name, memory, dtypes, an alignment and a padding that can be?"""
    for device in range(chip.count):
        info = chip.library.info(device)
        expect(bool(info.name), f"a name of device {device}", repr(info.name))
        expect(info.memory > 0, "memory", info.memory)
        expect(info.dtypes != 0, "some dtypes", info.dtypes)
        power = info.alignment & (info.alignment - 1) == 0
        expect(power, "an alignment that is a power of two, or 0", info.alignment)
        expect(info.padding <= 4096, "a padding of 4096 bytes at most", info.padding)
        came = (info.priority_lowest, info.priority_highest)
        expect(came[1] <= came[0], "the highest priority is no larger than the lowest", came)


def device_info_writes_no_further(chip: Chip) -> None:
    """Does device_info keep to the struct_size that it is given?"""
    raw = (C.c_uint8 * C.sizeof(DeviceInfo))(*[CANARY] * C.sizeof(DeviceInfo))
    info = DeviceInfo.from_buffer(raw)
    short = DeviceInfo.alignment.offset
    info.struct_size = short
    chip.library.call("device_info", 0, C.byref(info))
    same(bytes(raw)[short:], bytes([CANARY]) * (len(raw) - short), f"behind byte {short}")


def addresses_are_aligned(chip: Chip) -> None:
    """Is what mem_alloc gives aligned as device_info says, whatever the size?"""
    sizes = (1, 3, 63, 64, 65, 1000, KIB, MIB + 1, 3 * MIB)
    with chip.memory(*sizes) as got:
        for size, address in zip(sizes, got, strict=True):
            came = f"{address:#x} for {size} bytes"
            expect(address % chip.alignment == 0, f"a multiple of {chip.alignment}", came)


def allocations_are_apart(chip: Chip) -> None:
    """Do live allocations hold their own bytes?"""
    sizes = [1, 7, 64, 65, 1000, 4096, 4097]
    with chip.memory(*sizes) as got:
        spans = sorted(zip(got, sizes, strict=True))
        for (a, size), (b, _) in itertools.pairwise(spans):
            expect(a + size <= b, f"{size} bytes at {a:#x} end before the next", f"{b:#x}")
        for k, (address, size) in enumerate(zip(got, sizes, strict=True)):
            chip.library.write(address, pattern(size, k))
        for k, (address, size) in enumerate(zip(got, sizes, strict=True)):
            same(chip.library.read(address, size), pattern(size, k), f"allocation {k}")


def bytes_come_back(chip: Chip) -> None:
    """Does what is copied there and back stay the same, at odd offsets and sizes?"""
    with chip.memory(MIB) as (address,):
        for offset, n in ((0, 1), (0, 64), (1, 1), (3, 17), (63, 129), (100, 65537), (0, MIB)):
            chip.library.write(address, bytes([CANARY]) * MIB)
            chip.library.write(address + offset, pattern(n))
            whole = chip.library.read(address, MIB)
            same(whole[offset : offset + n], pattern(n), f"{n} bytes at offset {offset}")
            rest = whole[:offset] + whole[offset + n :]
            same(rest, bytes([CANARY]) * (MIB - n), f"beside {n} bytes at offset {offset}")


def copies_within_a_device(chip: Chip) -> None:
    """Does a copy within a device move its bytes and no others?"""
    with chip.memory(64 * KIB, 64 * KIB) as (a, b):
        chip.library.write(a, pattern(64 * KIB))
        chip.library.write(b, bytes([CANARY]) * (64 * KIB))
        chip.library.call("mem_copy", b + 5, 0, a + 3, 0, 40001, None)
        chip.wait()
        found = chip.library.read(b, 64 * KIB)
        same(found[5:40006], pattern(64 * KIB)[3:40004], "what was copied")
        same(found[:5] + found[40006:], bytes([CANARY]) * (64 * KIB - 40001), "beside it")


def copies_between_devices(chip: Chip) -> None:
    """Does a copy between two devices arrive?"""
    if chip.count < 2:
        raise Skipped("there is one device")
    with chip.memory(KIB, device=0) as (here,), chip.memory(KIB, device=1) as (there,):
        chip.library.write(here, pattern(KIB), 0)
        chip.library.call("mem_copy", there, 1, here, 0, KIB, None)
        chip.library.sync(1)
        same(chip.library.read(there, KIB, 1), pattern(KIB), "what arrived")


def nothing_is_copied(chip: Chip) -> None:
    """Are zero bytes allocated, copied, set and freed without a fuss?"""
    nothing = chip.library.get("mem_alloc", ptr, 0, 0)
    chip.library.call("mem_free", 0, nothing)
    with chip.memory(64) as (address,):
        chip.library.write(address, pattern(64))
        chip.library.call("mem_copy", address, 0, b"x", HOST, 0, None)
        if chip.library.offers("mem_set"):
            chip.library.call("mem_set", 0, address, 1, 0, None)
        chip.wait()
        same(chip.library.read(address, 64), pattern(64), "memory after it")


def set_fills_its_bytes(chip: Chip) -> None:
    """Does mem_set fill what it was given, and nothing beside it?"""
    chip.needs("mem_set")
    with chip.memory(4096) as (address,):
        for value in (0, 1, 0x5A, 255):
            for offset, n in ((0, 4096), (1, 1), (3, 1021), (64, 128), (5, 2), (4, 3), (7, 4086)):
                chip.library.write(address, bytes([CANARY]) * 4096)
                chip.library.call("mem_set", 0, address + offset, value, n, None)
                chip.wait()
                wanted = bytearray([CANARY]) * 4096
                wanted[offset : offset + n] = bytes([value]) * n
                same(chip.library.read(address, 4096), bytes(wanted), f"{n} bytes at {offset}")


def out_of_memory_is_an_answer(chip: Chip) -> None:
    """Is more memory than there is answered OUT_OF_MEMORY, with a message, and survived?"""
    error = chip.refused("mem_alloc", 0, chip.info.memory * 2 + (1 << 40), C.byref(ptr()))
    expect(error.status == "OUT_OF_MEMORY", "OUT_OF_MEMORY", error)
    with chip.memory(KIB) as (address,):
        chip.library.write(address, pattern(KIB))
        same(chip.library.read(address, KIB), pattern(KIB), "memory after it")


def memory_comes_back(chip: Chip) -> None:
    """Can much memory be had and given back again and again?"""
    size = min(chip.info.memory // 4, 64 * MIB)
    for _ in range(8):
        with chip.memory(size):
            pass


def mem_info_counts(chip: Chip) -> None:
    """Is free memory no more than all, and no more after an allocation than before?"""
    chip.needs("mem_info")

    def free_bytes() -> int:
        free, total = u64(), u64()
        chip.library.call("mem_info", 0, C.byref(free), C.byref(total))
        expect(total.value > 0, "some memory", total.value)
        expect(free.value <= total.value, "free <= total", f"{free.value} of {total.value}")
        return free.value

    before = free_bytes()
    with chip.memory(16 * MIB):
        during = free_bytes()
        expect(during <= before, f"at most {before} bytes free", during)


def host_memory_is_copied(chip: Chip) -> None:
    """Does host memory of host_alloc hold bytes, and do copies reach it?"""
    chip.needs("host_alloc", "host_free")
    host: int = chip.library.get("host_alloc", ptr, 64 * KIB)
    try:
        C.memmove(host, pattern(64 * KIB), 64 * KIB)
        with chip.memory(64 * KIB) as (address,):
            chip.library.call("mem_copy", address, 0, host, HOST, 64 * KIB, None)
            chip.wait()
            same(chip.library.read(address, 64 * KIB), pattern(64 * KIB), "what arrived")
            C.memset(host, 0, 64 * KIB)
            chip.library.call("mem_copy", host, HOST, address, 0, 64 * KIB, None)
            chip.wait()
            same(C.string_at(host, 64 * KIB), pattern(64 * KIB), "what came back")
    finally:
        chip.library.call("host_free", host)


def peers_are_told(chip: Chip) -> None:
    """Does peer_access say 0 or 1 of each pair, and do those copies arrive that it says 1 of?"""
    chip.needs("peer_access")
    if chip.count < 2:
        raise Skipped("there is one device")
    for a, b in itertools.permutations(range(min(chip.count, 4)), 2):
        answers = [chip.library.get("peer_access", i32, a, b) for _ in range(2)]
        expect(answers in ([0, 0], [1, 1]), "0 or 1, twice alike", answers)
        if not answers[0]:
            continue
        with chip.memory(KIB, device=a) as (to,), chip.memory(KIB, device=b) as (source,):
            chip.library.write(source, pattern(KIB, a), b)
            chip.library.call("mem_copy", to, a, source, b, KIB, None)
            chip.library.sync(a)
            same(chip.library.read(to, KIB, a), pattern(KIB, a), f"what came from {b} to {a}")
    chip.refused("peer_access", 0, chip.count, C.byref(i32()))


# Keys of abi.h and the tag of their values.
_ATTRIBUTES = {
    "pci_bus_id": 6, "driver_version": 6, "architecture": 6, "clock_rate_khz": 1,
    "clock_rate_now_khz": 1, "memory_clock_rate_khz": 1, "memory_bus_width": 1,
    "l2_cache_bytes": 1, "local_memory_bytes": 1, "group_limit": 1, "simd_width": 1,
    "threads_per_unit": 1, "on_paper": 1, "power_mw": 1, "utilization": 1, "memory_utilization": 1,
}  # fmt: skip


def attributes_have_their_types(chip: Chip) -> None:
    """Is each attribute of abi.h of its type and sane, and one that is not known UNSUPPORTED?"""
    chip.needs("device_attribute")

    def ask(key: str, device: int = 0) -> tuple[str, Arg]:
        value = Arg(tag=99)
        found = chip.library.status("device_attribute", device, key.encode(), C.byref(value))
        return found, value

    for device in range(chip.count):
        for key, tag in _ATTRIBUTES.items():
            status, value = ask(key, device)
            expect(status in ("OK", "UNSUPPORTED"), f"{key}: OK or UNSUPPORTED", status)
            if status != "OK":
                continue
            expect(value.tag == tag, f"{key}: tag {tag}", value.tag)
            if tag == 6:
                text = value.v.string or b""
                expect(len(text) == value.n > 0, f"{key}: words of {value.n} bytes", text)
            else:
                most = 100 if "utilization" in key else 2**62
                expect(0 <= value.v.i <= most, f"{key}: from 0 to {most}", value.v.i)
    for key in ("", "no such key", "x" * 4096):
        expect(ask(key)[0] == "UNSUPPORTED", f"UNSUPPORTED for {key[:20]!r}", ask(key)[0])
    chip.refused("device_attribute", chip.count, b"driver_version", C.byref(Arg()))


def host_memory_is_registered(chip: Chip) -> None:
    """Do copies reach host memory between host_register and host_unregister, and after it?"""
    chip.needs("host_register", "host_unregister")
    size, at = 3 * MIB + 123, 17  # of no page
    whole = C.create_string_buffer(size + at)
    host = C.addressof(whole) + at
    status = chip.library.status("host_register", 0, host, size)
    expect(status in ("OK", "UNSUPPORTED"), "OK, or UNSUPPORTED of this memory", status)
    if status != "OK":
        raise Skipped("memory of no page cannot be registered")
    with chip.memory(size) as (address,):
        for seed in (1, 2):  # the second time it is ordinary memory again
            C.memmove(host, pattern(size, seed), size)
            chip.library.call("mem_copy", address, 0, host, HOST, size, None)
            chip.wait()
            C.memset(host, 0, size)
            chip.library.call("mem_copy", host, HOST, address, 0, size, None)
            chip.wait()
            same(C.string_at(host, size), pattern(size, seed), f"what came back, time {seed}")
            if seed == 1:
                chip.library.call("host_unregister", 0, host)
    chip.refused("host_unregister", 0, host)


def a_fault_is_of_the_last_failure(chip: Chip) -> None:
    """Does fault answer after a failure, and keep to the struct_size that it is given?"""
    chip.needs("fault")
    chip.refused("mem_alloc", chip.count, 64, C.byref(ptr()))  # a call, and no work that ran later
    raw = (C.c_uint8 * C.sizeof(Fault))(*[CANARY] * C.sizeof(Fault))
    fault = Fault.from_buffer(raw)
    fault.struct_size = Fault.address.offset
    status = chip.library.status("fault", 0, C.byref(fault))
    expect(status in ("OK", "UNSUPPORTED"), "OK or UNSUPPORTED", status)
    rest = len(raw) - Fault.address.offset
    same(bytes(raw)[-rest:], bytes([CANARY]) * rest, f"behind byte {Fault.address.offset}")


def a_wrong_device_has_words(chip: Chip) -> None:
    """Is a device that is not there refused, with a message?"""
    for device in (chip.count, -7, 2**31 - 1):
        chip.refused("mem_alloc", device, 64, C.byref(ptr()))
        chip.refused("device_info", device, C.byref(DeviceInfo(C.sizeof(DeviceInfo))))
        chip.refused("sync", device)


def words_belong_to_a_thread(chip: Chip) -> None:
    """Does last_error keep each thread's own message?"""
    chip.needs("last_error")
    chip.refused("mem_alloc", chip.count + 11, 64, C.byref(ptr()))
    before = chip.library.words()

    def fail_elsewhere(_: int) -> None:
        chip.refused("sync", chip.count + 22)

    in_threads(1, fail_elsewhere)
    expect(chip.library.words() == before, repr(before), repr(chip.library.words()))


def threads_use_memory(chip: Chip) -> None:
    """Do eight threads that allocate, copy and free keep their bytes apart?"""

    def work(k: int) -> None:
        if chip.library.offers("bind"):
            chip.library.call("bind", 0)
        for round in range(20):
            size = 100 + 997 * k + 13 * round
            address = chip.library.alloc(size)
            chip.library.write(address, pattern(size, k + round))
            same(chip.library.read(address, size), pattern(size, k + round), f"thread {k}")
            chip.library.free(address)

    in_threads(8, work)


def copies_of_every_size_within_a_buffer(chip: Chip) -> None:
    """Does a copy from one part of an allocation to another move its bytes, odd ones too?"""
    size = 256 * KIB
    with chip.memory(size) as (a,):
        for n in (1, 2, 3, 5, 7, 15, 33, 255, 1021, 4097, 65537):
            for to, source in ((1, 131072), (131073, 2), (131075, 3), (64, 131071)):
                wanted = bytearray(pattern(size))
                chip.library.write(a, bytes(wanted))
                chip.library.call("mem_copy", a + to, 0, a + source, 0, n, None)
                wanted[to : to + n] = wanted[source : source + n]
                chip.wait()
                what = f"{n} bytes from offset {source} to {to}"
                same(chip.library.read(a, size), bytes(wanted), what)


def addresses_reach_beyond_4_gib(chip: Chip) -> None:
    """Do copies and mem_set find their place behind the first 4 GiB of an allocation?"""
    far = (1 << 32) + 12345  # as 32 bits: 12345
    try:
        address = chip.library.alloc(far + MIB)
    except TableError as error:
        raise Skipped(f"no allocation of more than 4 GiB ({error.status})") from None
    try:
        n = 4099
        chip.library.write(address + 12345, pattern(n, 1))
        chip.library.write(address + far, pattern(n, 2))
        same(chip.library.read(address + 12345, n), pattern(n, 1), "at byte 12345")
        same(chip.library.read(address + far, n), pattern(n, 2), f"at byte {far}")
        chip.library.call("mem_copy", address + 20001, 0, address + far, 0, n, None)
        chip.fill(address + far, 7, n)
        chip.wait()
        same(chip.library.read(address + 20001, n), pattern(n, 2), f"copied from byte {far}")
        same(chip.library.read(address + far, n), b"\x07" * n, f"filled at byte {far}")
        same(chip.library.read(address + 12345, n), pattern(n, 1), "at byte 12345 after it")
    finally:
        chip.library.sync()
        chip.library.free(address)


def host_memory_is_read_in_time(chip: Chip) -> None:
    """Has each of many copies from host memory read its own, once the stream passed it?"""
    count, sizes = 24, (1, 1000, 65537)
    for size in sizes:
        hosts = [C.create_string_buffer(pattern(size, k), size) for k in range(count)]
        with chip.memory(*[size] * count, 16 * MIB, 16 * MIB) as (*places, a, b):
            chip.busy(a, b, 16 * MIB, None, 1)  # what the copies have to wait for
            for place, host in zip(places, hosts, strict=True):
                chip.library.call("mem_copy", place, 0, host, HOST, size, None)
            chip.wait()
            for host in hosts:  # it is the caller's again
                C.memset(host, 0xEE, size)
            time.sleep(0.01)  # for a copy that is late
            for k, place in enumerate(places):
                what = f"copy {k} of {size} bytes from the host"
                same(chip.library.read(place, size), pattern(size, k), what)


def host_memory_is_written_in_time(chip: Chip) -> None:
    """Has each of many copies to host memory written its own, once the stream passed it?"""
    count, size = 24, 65537
    hosts = [C.create_string_buffer(size) for _ in range(count)]
    with chip.memory(size, 16 * MIB, 16 * MIB) as (place, a, b):
        chip.busy(a, b, 16 * MIB, None, 1)
        for k, host in enumerate(hosts):
            chip.fill(place, k + 1, size)
            chip.library.call("mem_copy", host, HOST, place, 0, size, None)
        chip.wait()
        for k, host in enumerate(hosts):
            same(host.raw, bytes([k + 1]) * size, f"copy {k} to the host")


# --- level 1: operators ---------------------------------------------------------------------------


def unknown_operators_are_unsupported(chip: Chip) -> None:
    """Is a name that torch does not have answered UNSUPPORTED?"""
    chip.needs("op_find")
    for name in ("aten::no_such_operator.out", "", "aten::", "add", "x" * 4096, "mylib::op"):
        status = chip.library.status("op_find", name.encode(), C.byref(Op(C.sizeof(Op))))
        expect(status == "UNSUPPORTED", f"UNSUPPORTED for {name[:40]!r}", status)


def operators_are_answered_twice_alike(chip: Chip) -> None:
    """Does op_find give each operator of torch the same answer twice, OK or UNSUPPORTED?"""
    chip.needs("op_find")
    for name in chip.operators:
        answers = []
        for _ in range(2):
            op = Op(C.sizeof(Op))
            status = chip.library.status("op_find", name.encode(), C.byref(op))
            answers.append((status, op.needs, op.dtypes, C.cast(op.kernel, ptr).value))
        expect(answers[0] == answers[1], f"{name}: {answers[0]}", answers[1])
        status, needs, dtypes, kernel = answers[0]
        expect(status in ("OK", "UNSUPPORTED"), f"{name}: OK or UNSUPPORTED", status)
        if status == "OK":
            expect(bool(kernel), f"{name}: a kernel", "NULL")
            expect(needs < 32, f"{name}: needs that abi.h has", f"{needs:#x}")
            none = dtypes != 0 and dtypes & chip.info.dtypes == 0
            expect(not none, f"{name}: a dtype that the device has", f"{dtypes:#x}")


def op_find_writes_no_further(chip: Chip) -> None:
    """Does op_find keep to the struct_size that it is given?"""
    chip.needs("op_find")
    for name in chip.operators:
        raw = (C.c_uint8 * (C.sizeof(Op) + 32))(*[CANARY] * (C.sizeof(Op) + 32))
        op = Op.from_buffer(raw)
        op.struct_size = C.sizeof(Op)
        if chip.library.status("op_find", name.encode(), C.byref(op)) == "OK":
            same(bytes(raw)[C.sizeof(Op) :], bytes([CANARY]) * 32, f"{name}: behind cw_op")


def threads_find_operators(chip: Chip) -> None:
    """Do threads that ask op_find at once get the answers that one gets?"""
    chip.needs("op_find")

    def ask() -> list[str]:
        return [
            chip.library.status("op_find", name.encode(), C.byref(Op(C.sizeof(Op))))
            for name in chip.operators[:500]
        ]

    alone = ask()
    in_threads(4, lambda k: expect(ask() == alone, "the answers of one thread", "others"))


# --- level 2: streams and events ------------------------------------------------------------------


def work_on_a_stream_keeps_its_order(chip: Chip) -> None:
    """Does each copy between two of many writes see the one before it, on any stream?"""
    chip.needs(*STREAMS)
    size, count = 64 * KIB, 40
    large = 16 * MIB
    with (
        chip.streams(1) as (new,),
        chip.memory(size, count * size, large, large) as (a, b, c, d),
    ):
        for stream in (new, None):
            chip.busy(c, d, large, stream, 1)  # so that what follows is queued behind it
            for k in range(count):  # each is judged: a copy that came too early may see the last
                chip.fill(a, k, size, stream)
                chip.library.call("mem_copy", b + k * size, 0, a, 0, size, stream)
                chip.fill(a, 255, size, stream)
            found = chip.library.read(b, count * size, 0, stream)
            for k in range(count):
                part = found[k * size : (k + 1) * size]
                same(part, bytes([k]) * size, f"copy {k} of {count}")


def work_is_read_on_its_stream(chip: Chip) -> None:
    """Does a copy to the host see the work that its stream was given before?"""
    chip.needs(*STREAMS)
    size = 4 * MIB
    with chip.streams(1) as (stream,), chip.memory(size, size) as (a, b):
        for value in (3, 77, 200):
            chip.busy(a, b, size, stream, value)
            same(chip.library.read(b, size, 0, stream), bytes([value]) * size, "at the end")


def a_new_stream_is_idle(chip: Chip) -> None:
    """Is stream_query OK for a stream that was given nothing, also while another is busy?"""
    chip.needs(*STREAMS)
    size = 16 * MIB
    with chip.streams(2) as (one, two), chip.memory(size, size) as (a, b):
        chip.busy(a, b, size, one, 1)
        status = chip.library.status("stream_query", 0, two)
        expect(status == "OK", "OK of the idle stream", status)
        busy = chip.library.status("stream_query", 0, one)
        expect(busy in ("OK", "NOT_READY"), "OK or NOT_READY of the busy one", busy)
        chip.library.call("stream_sync", 0, one)
        status = chip.library.status("stream_query", 0, one)
        expect(status == "OK", "OK after stream_sync", status)


def streams_do_not_wait_for_each_other(chip: Chip) -> None:
    """Is a little work on one stream done while much work on another is queued?"""
    chip.needs(*STREAMS)
    size = 16 * MIB
    with chip.streams(2) as (one, two), chip.memory(size, size, 64) as (a, b, c):
        for _ in range(4):
            chip.busy(a, b, size, one, 1)
        if chip.library.status("stream_query", 0, one) == "OK":
            raise Skipped("work is done before the call returns")
        chip.fill(c, 9, 64, two)
        chip.library.call("stream_sync", 0, two)
        after = chip.library.status("stream_query", 0, one)
        same(chip.library.read(c, 64, 0, two), b"\x09" * 64, "the little work")
        if after == "OK":  # allowed: a chip may have one queue; and time proves nothing
            raise Skipped("the streams were not seen to overlap")


def events_order_two_streams(chip: Chip) -> None:
    """Does work behind stream_wait see all that was before the event on another stream?"""
    chip.needs(*STREAMS, *EVENTS)
    size = 8 * MIB
    with chip.streams(2) as (one, two), chip.events(1) as (done,):
        with chip.memory(size, size, size) as (a, b, c):
            for first, second, value in ((one, two, 5), (two, one, 99), (None, two, 201),
                                         (one, None, 44)):  # fmt: skip
                chip.busy(a, b, size, first, value)
                chip.library.call("event_record", 0, done, first)
                chip.library.call("stream_wait", 0, second, done)
                chip.library.call("mem_copy", c, 0, b, 0, size, second)
                found = chip.library.read(c, size, 0, second)
                same(found, bytes([value]) * size, "the second stream's copy")
                chip.wait(first)


def a_wait_is_for_the_record_that_was(chip: Chip) -> None:
    """Does a stream that waits for an event not wait for work recorded on it later?"""
    chip.needs(*STREAMS, *EVENTS)
    size = 16 * MIB
    with chip.streams(2) as (one, two), chip.events(1) as (event,):
        with chip.memory(size, size) as (a, b):
            chip.library.call("event_record", 0, event, one)
            chip.library.call("stream_wait", 0, two, event)
            for _ in range(4):
                chip.busy(a, b, size, one, 1)
            chip.library.call("event_record", 0, event, one)
            if chip.library.status("event_query", 0, event) == "OK":
                raise Skipped("work is done before the call returns")
            chip.library.call("stream_sync", 0, two)
            after = chip.library.status("event_query", 0, event)
            if after == "OK":  # the wait may have been right, and the work quick
                raise Skipped("the later work was done as well")


def an_event_never_recorded_is_ready(chip: Chip) -> None:
    """Is an event that was never recorded ready, and no obstacle to a stream?"""
    chip.needs(*STREAMS, *EVENTS)
    with chip.streams(1) as (stream,), chip.events(1) as (event,):
        status = chip.library.status("event_query", 0, event)
        expect(status == "OK", "OK", status)
        chip.library.call("event_sync", 0, event)
        chip.library.call("stream_wait", 0, stream, event)
        chip.library.call("stream_sync", 0, stream)


def event_sync_waits(chip: Chip) -> None:
    """Is an event OK or NOT_READY while work runs, and OK with the work done after event_sync?"""
    chip.needs(*STREAMS, *EVENTS)
    size = 8 * MIB
    with chip.streams(1) as (stream,), chip.events(1) as (event,):
        with chip.memory(size, size) as (a, b):
            chip.busy(a, b, size, stream, 66)
            chip.library.call("event_record", 0, event, stream)
            status = chip.library.status("event_query", 0, event)
            expect(status in ("OK", "NOT_READY"), "OK or NOT_READY", status)
            chip.library.call("event_sync", 0, event)
            status = chip.library.status("event_query", 0, event)
            expect(status == "OK", "OK after event_sync", status)
            # On the default stream, which nothing but event_sync has ordered.
            same(chip.library.read(b, size), bytes([66]) * size, "what the event stands for")


def an_event_recorded_again_is_the_last_record(chip: Chip) -> None:
    """Does event_sync wait for the last record of an event that was recorded twice?"""
    chip.needs(*STREAMS, *EVENTS)
    size = 8 * MIB
    with chip.streams(2) as (one, two), chip.events(1) as (event,):
        with chip.memory(size, size) as (a, b):
            chip.library.call("event_record", 0, event, one)
            chip.library.call("event_sync", 0, event)
            chip.busy(a, b, size, two, 31)
            chip.library.call("event_record", 0, event, two)
            chip.library.call("event_sync", 0, event)
            same(chip.library.read(b, size), bytes([31]) * size, "what the event stands for")


def elapsed_time_is_of_the_stream(chip: Chip) -> None:
    """Is elapsed time not negative, more for more work, and refused where nothing was recorded?"""
    chip.needs(*STREAMS, *EVENTS)
    size = 8 * MIB
    with chip.streams(1) as (stream,), chip.events(3) as (start, middle, end):
        with chip.memory(size, size) as (a, b):
            error = chip.refused("event_elapsed", 0, start, end, C.byref(C.c_double()))
            expect(error.status != "DEVICE_LOST", "a failure of the call alone", error)
            began = time.perf_counter()
            chip.library.call("event_record", 0, start, stream)
            chip.library.call("event_record", 0, middle, stream)
            chip.busy(a, b, size, stream, 1)
            chip.library.call("event_record", 0, end, stream)
            chip.library.call("event_sync", 0, end)
            wall = (time.perf_counter() - began) * 1e3
            none: float = chip.library.get("event_elapsed", C.c_double, 0, start, middle)
            much: float = chip.library.get("event_elapsed", C.c_double, 0, start, end)
            expect(0 <= none <= much, "0 <= time of nothing <= time of work", f"{none}, {much} ms")
            expect(much > 0, "some time for the work", f"{much} ms")
            expect(much <= 2 * wall + 10, f"about the {wall:.1f} ms that the host saw", f"{much}")


def the_profile_says_when_work_ran(chip: Chip) -> None:
    """Has profile.v1 each copy once, under its number, within the time in which it can have run?"""
    profile = chip.extension("profile.v1", chip.library.profile)

    def ask(entry: str, *args: object) -> None:
        status = getattr(profile, entry)(*args)
        expect(status == 0, f"OK of {entry}", f"{STATUS[status]}: {chip.library.words()}")

    def now() -> int:
        ns = i64()
        ask("clock", 0, C.byref(ns))
        return ns.value

    def read() -> list[Activity]:
        got, count, found = (Activity * 4)(), u32(), []
        while True:
            ask("read", got, 4, C.byref(count))
            expect(count.value <= 4, "at most the 4 asked for", count.value)
            found += [Activity.from_buffer_copy(a) for a in got[: count.value]]
            if count.value < 4:
                return found

    size = 4 * MIB
    with chip.memory(size, size) as (a, b):
        ask("start")
        began = now()
        for number in range(1, 7):
            ask("correlate", number)
            chip.library.call("mem_copy", b, 0, a, 0, size, None)
        ask("correlate", 0)
        chip.library.sync()
        ended = now()
        ask("stop")
        chip.library.call("mem_copy", b, 0, a, 0, size, None)
        chip.library.sync()
        found = read()
        numbers = sorted(x.correlation for x in found if x.correlation)
        expect(numbers == [1, 2, 3, 4, 5, 6], "activities 1 to 6, each once", numbers)
        last = began
        for x in sorted(found, key=lambda x: int(x.correlation)):
            if x.correlation:
                good = last <= x.begin_ns <= x.end_ns <= ended
                expect(good, f"{last} <= begin <= end <= {ended}", f"{x.begin_ns}, {x.end_ns}")
                last = x.end_ns
        expect(last > began, "some time for the work", f"{last - began} ns")
        expect(read() == [], "each activity handed out once", "more of them")


def code_is_built_and_launched_in_order(chip: Chip) -> None:
    """Does code.v1 build source, launch it in the stream's order, and refuse what is wrong?"""
    code = Code(chip)
    wrong = (code.source + "no such words;").encode()
    status = code.answer("build", 0, wrong, None, C.byref(code.program))
    expect(status == "INVALID", "INVALID for source that is wrong", status)
    expect(bool(chip.library.words()), "the compiler's words", "none")
    code.build()
    status = code.answer("function", code.program, b"nowhere", C.byref(ptr()))
    expect(status == "INVALID", "INVALID for a function that is not there", status)

    n, skip = 1000, 64  # addresses within an allocation, as those of views are
    with chip.memory(4 * n + skip, 4 * n + skip) as (a, b):
        chip.library.write(a + skip, struct.pack(f"={n}i", *range(n)))
        for k in range(3):  # each reads what the one before it wrote
            to, source = (b, a) if k % 2 == 0 else (a, b)
            status = code.launch(to + skip, source + skip, n, groups=7)
            expect(status == "OK", "OK of launch", f"{status}: {chip.library.words()}")
        chip.library.sync()
        found = chip.library.read(b, 4 * n + skip)[skip:]
        same(found, struct.pack(f"={n}i", *[15 * i for i in range(n)]), "what three launches made")
        status = code.launch(b, a, n, given=3)
        expect(status == "INVALID", "INVALID for too few arguments", status)
    code.good("release", code.program)


def small_launches_are_waited_for(chip: Chip) -> None:
    """Does whatever waits for a stream wait for small launches too, few or many?"""
    chip.needs(*STREAMS, *EVENTS)
    code = Code(chip)
    code.build()
    n, call, status = 5, chip.library.call, chip.library.status

    def until_ready(entry: str, *args: object) -> None:
        until = time.monotonic() + 60
        while status(entry, *args) != "OK":
            expect(time.monotonic() < until, f"OK of {entry} within a minute", "NOT_READY")

    with chip.streams(2) as (one, two), chip.events(1) as (event,):

        def by_event(way: str) -> None:
            call("event_record", 0, event, one)
            if way == "event_sync":
                call("event_sync", 0, event)
            elif way == "event_query":
                until_ready("event_query", 0, event)
            else:
                call("stream_wait", 0, two, event)
                call("stream_sync", 0, two)

        waits: dict[str, Callable[[], None]] = {
            "stream_sync": lambda: call("stream_sync", 0, one),
            "stream_query": lambda: until_ready("stream_query", 0, one),
            "sync": chip.library.sync,
            "mem_copy": lambda: None,  # read on the stream itself
        }
        for way in ("event_sync", "event_query", "stream_wait"):
            waits[way] = partial(by_event, way)
        with chip.memory(4 * n, 4 * n) as places:
            for way, wait in waits.items():
                for count in (1, 3, 25):  # each reads what the one before it wrote
                    values = list(range(n))
                    chip.library.write(places[0], struct.pack(f"={n}i", *values))
                    for k in range(count):
                        to, source = places[(k + 1) % 2], places[k % 2]
                        answer = code.launch(to, source, n, stream=one)
                        expect(answer == "OK", "OK of launch", f"{answer}: {chip.library.words()}")
                        values = [2 * v + i for i, v in enumerate(values)]
                    wait()
                    # Else on the default stream, which nothing but the wait has ordered.
                    on = one if way == "mem_copy" else None
                    found = chip.library.read(places[1], 4 * n, 0, on)
                    same(found, struct.pack(f"={n}i", *values), f"{count} launches after {way}")
    code.good("release", code.program)


def an_event_may_go_before_its_work(chip: Chip) -> None:
    """May an event be destroyed while a stream still waits for it?"""
    chip.needs(*STREAMS, *EVENTS)
    size = 4 * MIB
    with chip.streams(2) as (one, two), chip.memory(size, size, size) as (a, b, c):
        event = chip.library.event()
        chip.busy(a, b, size, one, 12)
        chip.library.call("event_record", 0, event, one)
        chip.library.call("stream_wait", 0, two, event)
        chip.library.call("event_destroy", 0, event)
        chip.library.call("mem_copy", c, 0, b, 0, size, two)
        same(chip.library.read(c, size, 0, two), bytes([12]) * size, "the second stream's copy")


def sync_waits_for_every_stream(chip: Chip) -> None:
    """Is all work of all streams done after sync of the device?"""
    chip.needs(*STREAMS)
    size = 4 * MIB
    with chip.streams(3) as streams, chip.memory(*[size] * 6) as got:
        for k, stream in enumerate(streams):
            chip.busy(got[2 * k], got[2 * k + 1], size, stream, 50 + k)
        chip.library.sync()
        for k, stream in enumerate(streams):
            status = chip.library.status("stream_query", 0, stream)
            expect(status == "OK", f"OK of stream {k}", status)
            same(chip.library.read(got[2 * k + 1], size), bytes([50 + k]) * size, f"stream {k}")


def streams_have_priorities(chip: Chip) -> None:
    """Can a stream of each priority that device_info names be made and used?"""
    chip.needs(*STREAMS)
    for priority in {chip.info.priority_lowest, chip.info.priority_highest}:
        stream = chip.library.stream(0, priority)
        with chip.memory(64) as (address,):
            chip.fill(address, 8, 64, stream)
            same(chip.library.read(address, 64, 0, stream), b"\x08" * 64, f"priority {priority}")
        chip.library.call("stream_destroy", 0, stream)


def threads_use_streams(chip: Chip) -> None:
    """Do eight threads, each with a stream and an event of its own, keep order and bytes?"""
    chip.needs(*STREAMS, *EVENTS)
    size = 64 * KIB

    def work(k: int) -> None:
        if chip.library.offers("bind"):
            chip.library.call("bind", 0)
        a, b = chip.library.alloc(size), chip.library.alloc(size)
        with chip.streams(1) as (stream,), chip.events(1) as (event,):
            for round in range(10):
                value = (k * 16 + round) % 256
                chip.busy(a, b, size, stream, value)
                chip.library.call("event_record", 0, event, stream)
                chip.library.call("event_sync", 0, event)
                found = chip.library.read(b, size, 0, stream)
                same(found, bytes([value]) * size, f"thread {k}")
        chip.library.free(a)
        chip.library.free(b)

    in_threads(8, work)


def threads_share_a_stream(chip: Chip) -> None:
    """Does one stream take work of four threads at once?"""
    chip.needs(*STREAMS)
    with chip.streams(1) as (stream,), chip.memory(*[4096] * 4) as got:

        def work(k: int) -> None:
            for _ in range(50):
                chip.fill(got[k], k + 1, 4096, stream)

        in_threads(4, work)
        for k, address in enumerate(got):
            same(chip.library.read(address, 4096, 0, stream), bytes([k + 1]) * 4096, f"thread {k}")


def _work(chip: Chip, a: int, b: int, size: int, stream: int | None, value: int) -> None:
    for _ in range(2):
        chip.busy(a, b, size, stream, value)


def ready_means_done(chip: Chip) -> None:
    """Is work done when event_query or stream_query says so, on any stream?"""
    chip.needs(*STREAMS, *EVENTS)
    size = 16 * MIB
    with chip.streams(2) as (one, other), chip.events(1) as (event,):
        with chip.memory(size, size) as (a, b):
            for round, (stream, asked) in enumerate(
                itertools.product((one, None), ("event_query", "stream_query"))
            ):
                value = 16 * (round + 1)
                _work(chip, a, b, size, stream, value)
                chip.library.call("event_record", 0, event, stream)
                of = {"event_query": event, "stream_query": stream}
                until = time.monotonic() + 60
                while chip.library.status(asked, 0, of[asked]) != "OK":
                    expect(time.monotonic() < until, f"OK of {asked} in a minute", "NOT_READY")
                # On a stream that nothing has ordered with the work.
                found = chip.library.read(b, size, 0, other)
                same(found, bytes([value]) * size, f"what was done when {asked} said OK")
                for entry, handle in of.items():
                    status = chip.library.status(entry, 0, handle)
                    expect(status == "OK", f"OK of {entry} after {asked} said OK", status)


def every_wait_waits_for_the_default_stream(chip: Chip) -> None:
    """Is the default stream's work done after stream_sync, event_sync or sync?"""
    chip.needs(*STREAMS, *EVENTS)
    size = 16 * MIB
    with chip.streams(1) as (other,), chip.events(1) as (event,):
        with chip.memory(size, size) as (a, b):
            for value, entry in ((11, "stream_sync"), (12, "event_sync"), (13, "sync")):
                _work(chip, a, b, size, None, value)
                chip.library.call("event_record", 0, event, None)
                handle = {"stream_sync": (None,), "event_sync": (event,), "sync": ()}[entry]
                chip.library.call(entry, 0, *handle)
                found = chip.library.read(b, size, 0, other)
                same(found, bytes([value]) * size, f"what was done after {entry}")


def a_destroyed_stream_ends_its_work(chip: Chip) -> None:
    """Is the work of a stream that is destroyed while it runs done when sync returns?"""
    chip.needs(*STREAMS)
    size = 16 * MIB
    with chip.memory(size, size) as (a, b):
        for value in (21, 22):
            stream = chip.library.stream()
            _work(chip, a, b, size, stream, value)
            chip.library.call("stream_destroy", 0, stream)
            # One that takes its place begins idle, and lets the work be.
            with chip.streams(1) as (new,):
                chip.library.call("stream_sync", 0, new)
                chip.library.sync()
                found = chip.library.read(b, size, 0, new)
                same(found, bytes([value]) * size, "the work of the destroyed stream")


def waits_hold_between_all_streams(chip: Chip) -> None:
    """Does each of many streams, of every priority, wait for the event of the one before it?"""
    chip.needs(*STREAMS, *EVENTS)
    size = 4 * MIB
    levels = (chip.info.priority_lowest, chip.info.priority_highest)
    made = [chip.library.stream(0, levels[k % 2]) for k in range(8)]
    streams: list[int | None] = [*made[:4], None, *made[4:]]
    try:
        with chip.events(len(streams)) as events, chip.memory(*[size] * 10) as got:
            for value in (31, 32):
                _work(chip, got[8], got[0], size, streams[0], value)
                for k, (stream, event) in enumerate(zip(streams, events, strict=True)):
                    if k:
                        chip.library.call("stream_wait", 0, stream, events[k - 1])
                        to, source = got[k % 8], got[(k - 1) % 8]
                        chip.library.call("mem_copy", to, 0, source, 0, size, stream)
                    chip.library.call("event_record", 0, event, stream)
                last = len(streams) - 1
                found = chip.library.read(got[last % 8], size, 0, streams[last])
                same(found, bytes([value]) * size, f"what went through {len(streams)} streams")
                chip.library.sync()
    finally:
        for stream in made:
            chip.library.call("stream_sync", 0, stream)
            chip.library.call("stream_destroy", 0, stream)


def elapsed_time_is_in_milliseconds(chip: Chip) -> None:
    """Is elapsed time what passed between two events, in milliseconds?"""
    chip.needs(*STREAMS, *EVENTS)
    with chip.streams(1) as (stream,), chip.events(2) as (start, end):
        began = time.perf_counter()
        chip.library.call("event_record", 0, start, stream)
        chip.library.call("event_sync", 0, start)
        reached = time.perf_counter()
        time.sleep(0.05)
        least = (time.perf_counter() - reached) * 1e3
        chip.library.call("event_record", 0, end, stream)
        chip.library.call("event_sync", 0, end)
        most = (time.perf_counter() - began) * 1e3
        came: float = chip.library.get("event_elapsed", C.c_double, 0, start, end)
        between = f"{least:.1f} to {most:.1f} ms, as the host saw"
        expect(0.95 * least <= came <= 1.05 * most + 1, between, f"{came} ms")


def a_new_event_is_new(chip: Chip) -> None:
    """Is an event that takes the place of a destroyed one not recorded, and without a time?"""
    chip.needs(*STREAMS, *EVENTS)
    size = 16 * MIB
    with chip.streams(1) as (stream,), chip.memory(size, size) as (a, b):
        with chip.events(2) as old:
            _work(chip, a, b, size, stream, 1)
            for event in old:
                chip.library.call("event_record", 0, event, stream)
        with chip.events(2) as (start, end):
            for event in (start, end):
                status = chip.library.status("event_query", 0, event)
                expect(status == "OK", "OK of an event that was not recorded", status)
            chip.refused("event_elapsed", 0, start, end, C.byref(C.c_double()))


def close_comes_last(chip: Chip) -> None:
    """Does close answer OK when all work is done? Nothing is asked of the chip after it."""
    chip.needs("close")
    with chip.memory(KIB) as (address,):
        chip.fill(address, 1, KIB)
    for device in range(chip.count):
        chip.library.sync(device)
    chip.library.call("close")


LEVELS: dict[int, tuple[Callable[[Chip], None], ...]] = {
    0: (
        table_has_what_is_needed,
        device_info_is_sane,
        device_info_writes_no_further,
        addresses_are_aligned,
        allocations_are_apart,
        bytes_come_back,
        copies_within_a_device,
        copies_between_devices,
        nothing_is_copied,
        set_fills_its_bytes,
        out_of_memory_is_an_answer,
        memory_comes_back,
        mem_info_counts,
        host_memory_is_copied,
        peers_are_told,
        attributes_have_their_types,
        host_memory_is_registered,
        a_fault_is_of_the_last_failure,
        *entries.MEMORY,
        a_wrong_device_has_words,
        words_belong_to_a_thread,
        threads_use_memory,
        copies_of_every_size_within_a_buffer,
        addresses_reach_beyond_4_gib,
        host_memory_is_read_in_time,
        host_memory_is_written_in_time,
    ),
    1: (
        unknown_operators_are_unsupported,
        operators_are_answered_twice_alike,
        op_find_writes_no_further,
        threads_find_operators,
        *entries.OPERATORS,
        *layouts.CHECKS,
    ),
    2: (
        work_on_a_stream_keeps_its_order,
        work_is_read_on_its_stream,
        a_new_stream_is_idle,
        streams_do_not_wait_for_each_other,
        events_order_two_streams,
        a_wait_is_for_the_record_that_was,
        an_event_never_recorded_is_ready,
        event_sync_waits,
        an_event_recorded_again_is_the_last_record,
        elapsed_time_is_of_the_stream,
        the_profile_says_when_work_ran,
        code_is_built_and_launched_in_order,
        small_launches_are_waited_for,
        an_event_may_go_before_its_work,
        sync_waits_for_every_stream,
        streams_have_priorities,
        entries.a_share_of_the_cores_holds,
        threads_use_streams,
        threads_share_a_stream,
        ready_means_done,
        every_wait_waits_for_the_default_stream,
        a_destroyed_stream_ends_its_work,
        waits_hold_between_all_streams,
        elapsed_time_is_in_milliseconds,
        a_new_event_is_new,
        *entries.STREAMS,
        close_comes_last,
    ),
}


def plan(level: int) -> list[Check]:
    """The checks up to `level`, in their order, none of them run yet."""
    return [
        Check(at, function.__name__, (function.__doc__ or "").splitlines()[0], "planned")
        for at, functions in LEVELS.items()
        for function in functions
        if at <= level
    ]


def answered(check: Check, ask: Callable[[], None]) -> Check:
    """`check` with the answer that `ask` gets; what the vendor's library throws back is one."""
    try:
        ask()
    except Skipped as why:
        return replace(check, state="skipped", came=str(why))
    except Differs as error:
        return replace(check, state="failed", expected=error.expected, came=error.came)
    except (TableError, TimeoutError) as error:
        return replace(check, state="failed", expected="OK", came=str(error))
    return replace(check, state="passed")


def run(check: Check, chip: Chip) -> Check:
    """Ask the chip."""
    function = next(f for f in LEVELS[check.level] if f.__name__ == check.name)
    return answered(check, lambda: function(chip))


def main() -> None:
    """Read {library, settings_of, checks, operators}; write lines, for `workers`."""
    from causeway import vendor
    from causeway.conformance.pipe import begin

    task, say = begin()
    try:
        library = Library(task["library"], vendor.Settings(task["settings_of"]))
        chip = Chip(library, task["operators"], task["taken"])
    except (OSError, AttributeError, TableError, Skipped) as error:
        say(broken=str(error) if isinstance(error, Skipped) else f"{type(error).__name__}: {error}")
        return
    say(entries=[field[0] for field in library.table._fields_[4:] if library.offers(field[0])])
    for check in task["checks"]:
        say(begins=check["name"])
        say(ended=asdict(run(Check(**check), chip)))
