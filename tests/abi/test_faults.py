"""Faults on demand: each reaches the caller with status and words where a real chip's would."""

from __future__ import annotations

import ctypes as C
import threading
from collections.abc import Callable

import pytest
from sim import DeviceTensor, Op, Sim, SimError, ptr

Make = Callable[..., Sim]


def vector(sim: Sim, bytes: int = 64) -> DeviceTensor:
    return DeviceTensor(sim.alloc(bytes), "float32", (bytes // 4,), (1,))


def test_the_nth_call_fails_and_no_other(make_sim: Make) -> None:
    sim = make_sim(fault="mem_alloc:3=OUT_OF_MEMORY")
    sim.alloc(1), sim.alloc(1)
    with pytest.raises(
        SimError, match="injected fault: call 3 of mem_alloc answers OUT_OF_MEMORY"
    ) as caught:
        sim.alloc(1)
    assert caught.value.status == "OUT_OF_MEMORY"
    sim.alloc(1)


def test_every_call_fails(make_sim: Make) -> None:
    sim = make_sim(fault="stream_create:*=FAILED, mem_info:1=INVALID")
    for _ in range(3):
        with pytest.raises(SimError, match="FAILED"):
            sim.stream()


@pytest.mark.parametrize(
    "status", ["UNSUPPORTED", "OUT_OF_MEMORY", "INVALID", "FAILED", "NOT_READY"]
)
def test_any_status(make_sim: Make, status: str) -> None:
    assert make_sim(fault=f"bind:1={status}").status("bind", 0) == status


def test_an_operator_fails_at_the_call(make_sim: Make) -> None:
    sim = make_sim(ops="all", fault="op:aten::neg.out:2=FAILED")
    x = vector(sim)
    sim.run("aten::neg.out", x, x)
    with pytest.raises(SimError, match=r"call 2 of op:aten::neg\.out answers FAILED"):
        sim.run("aten::neg.out", x, x)


def test_a_queued_operator_fails_at_the_next_sync_with_its_name(make_sim: Make) -> None:
    sim = make_sim(ops="all", execution="async", fault="op:aten::neg.out:1=FAILED")
    x = vector(sim)
    sim.run("aten::neg.out", x, x)
    with pytest.raises(SimError, match=r"FAILED: aten::neg\.out: injected fault"):
        sim.sync()
    sim.sync()  # told once


def test_declining_is_told_at_the_call_also_when_queued(make_sim: Make) -> None:
    sim = make_sim(ops="all", execution="async", fault="op:aten::neg.out:1=UNSUPPORTED")
    x = vector(sim)
    with pytest.raises(SimError, match="UNSUPPORTED"):
        sim.run("aten::neg.out", x, x)


@pytest.mark.parametrize("execution", ["inline", "async"])
def test_a_lost_device_stays_lost(make_sim: Make, execution: str) -> None:
    sim = make_sim(ops="all", execution=execution, fault="stream_sync:1=DEVICE_LOST")
    x, stream, event = vector(sim), sim.stream(), sim.event()
    with pytest.raises(SimError, match="DEVICE_LOST: injected fault"):
        sim.call("stream_sync", 0, stream)
    for call in (
        lambda: sim.alloc(1),
        lambda: sim.free(x.data),
        sim.sync,
        lambda: sim.call("mem_set", 0, x.data, 0, 1, None),
        lambda: sim.call("event_sync", 0, event),
        lambda: sim.run("aten::neg.out", x, x),
    ):
        with pytest.raises(SimError, match=r"DEVICE_LOST: .*device 0"):
            call()
    sim.alloc(1, 1)  # the other one is well


def test_a_device_lost_by_queued_work_frees_its_waiters(make_sim: Make) -> None:
    sim = make_sim(ops="all", execution="async", fault="op:aten::neg.out:1=DEVICE_LOST")
    x, event, other = vector(sim), sim.event(), sim.stream(1)
    sim.run("aten::neg.out", x, x)
    for entry, args in (("event_record", (0, event, None)), ("stream_wait", (1, other, event))):
        if sim.status(entry, *args) == "DEVICE_LOST":  # it may be lost already
            break
    sim.call("stream_sync", 1, other)
    with pytest.raises(SimError, match="DEVICE_LOST"):
        sim.sync(0)


@pytest.mark.parametrize("execution", ["inline", "async"])
def test_planted_wrong_kernel(make_sim: Make, execution: str) -> None:
    sim = make_sim(ops="all", execution=execution, corrupt="aten::neg.out:2")
    x, y = vector(sim), vector(sim)
    sim.call("mem_set", 0, x.data, 0, 64, None)
    results = []
    for _ in range(3):
        sim.run("aten::neg.out", y, x)
        results.append(C.c_float.from_buffer_copy(sim.read(y.data, 4)).value)
    assert results == [0.0, 1.0, 0.0]


def test_planted_kernel_that_does_not_wait(make_sim: Make) -> None:
    sim = make_sim(ops="all", execution="async", latency_us=20000, skip_wait="aten::copy_")
    x, y = vector(sim), vector(sim)
    sim.call("mem_set", 0, x.data, 1, 64, None)
    sim.run("aten::copy_", y, x, False)
    assert sim.read(y.data, 4) != b"\1" * 4


def test_words_are_each_threads_own(make_sim: Make) -> None:
    sim = make_sim()
    with pytest.raises(SimError, match="no device 9"):
        sim.alloc(1, 9)
    seen = []
    thread = threading.Thread(target=lambda: seen.append(sim.table.last_error()))
    thread.start()
    thread.join()
    assert seen == [b""]
    assert b"no device 9" in sim.table.last_error()


@pytest.mark.parametrize(
    ("entry", "args"),
    [
        ("host_alloc", (64, C.byref(ptr()))),
        ("event_create", (0, 0, C.byref(ptr()))),
        ("extension", (b"ipc.v1", C.byref(ptr()))),
        ("op_find", (b"aten::add.out", C.byref(Op()))),
    ],
)
def test_entries_of_every_group_can_fail(
    make_sim: Make, entry: str, args: tuple[object, ...]
) -> None:
    assert make_sim(fault=f"{entry}:1=FAILED").status(entry, *args) == "FAILED"
