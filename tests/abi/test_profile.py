"""Extension profile.v1: what the chip did, and when."""

from __future__ import annotations

import ctypes as C
from collections.abc import Callable

import pytest
from sim import STATUS, Activity, DeviceTensor, Sim, i64, ptr, u32

Make = Callable[..., Sim]


def clock(sim: Sim) -> int:
    ns = i64()
    assert sim.profile().clock(0, C.byref(ns)) == 0
    return ns.value


def read(sim: Sim, at_a_time: int = 100) -> list[Activity]:
    got, count, found = (Activity * at_a_time)(), u32(), []
    while sim.profile().read(got, at_a_time, C.byref(count)) == 0:
        found += [Activity.from_buffer_copy(a) for a in got[: count.value]]
        if count.value < at_a_time:
            break
    return found


def work(sim: Sim, number: int, stream: int | None = None) -> None:
    address = sim.alloc(64)
    sim.profile().correlate(number)
    sim.call("mem_set", 0, address, 1, 64, stream)
    sim.profile().correlate(0)


@pytest.mark.parametrize("execution", ["inline", "async"])
def test_work_is_noted_once_under_its_number_in_its_time(make_sim: Make, execution: str) -> None:
    sim = make_sim(execution=execution)
    work(sim, 1)  # before the start
    assert sim.profile().start() == 0
    began = clock(sim)
    for number in (7, 8, 9):
        work(sim, number)
    sim.sync()
    ended = clock(sim)
    assert sim.profile().stop() == 0
    work(sim, 2)  # after the stop
    sim.sync()
    found = read(sim, at_a_time=2)
    assert [(a.correlation, a.name) for a in found] == [(n, b"mem_set") for n in (7, 8, 9)]
    times = [t for a in found for t in (a.begin_ns, a.end_ns)]
    assert [began, *times, ended] == sorted([began, *times, ended])
    assert read(sim) == []


def test_a_start_forgets_what_was_noted(make_sim: Make) -> None:
    sim = make_sim()
    sim.profile().start()
    work(sim, 1)
    sim.sync()
    sim.profile().start()
    assert read(sim) == []


def test_events_and_waits_are_no_activities(make_sim: Make) -> None:
    sim = make_sim(execution="async")
    sim.profile().start()
    event = sim.event()
    sim.call("event_record", 0, event, None)
    sim.call("stream_wait", 0, sim.stream(), event)
    sim.sync()
    assert read(sim) == []


def test_a_kernel_has_the_operators_name(make_sim: Make) -> None:
    sim = make_sim(ops="all")
    x = DeviceTensor(sim.alloc(8), "float32", (2,), (1,))
    sim.profile().start()
    sim.run("aten::neg.out", x, x)
    sim.sync()
    assert [a.name for a in read(sim)] == [b"aten::neg.out"]


@pytest.mark.parametrize("entry", ["profile_clock", "profile_start", "profile_stop"])
def test_entries_can_fail(make_sim: Make, entry: str) -> None:
    sim = make_sim(fault=f"{entry}:1=FAILED")
    profile = sim.profile()
    status = {
        "profile_clock": lambda: profile.clock(0, C.byref(i64())),
        "profile_start": profile.start,
        "profile_stop": profile.stop,
    }[entry]()
    assert STATUS[status] == "FAILED"


def test_level_one_has_no_profile(make_sim: Make) -> None:
    assert not make_sim(level=1).offers("extension")
    assert make_sim().get("extension", ptr, b"profile.v1")
