"""Streams and events: order within a stream, none between streams, and waits that hold."""

from __future__ import annotations

import ctypes as C
import threading
import time
from collections.abc import Callable

import pytest
from sim import HOST, Sim, SimError

Make = Callable[..., Sim]


@pytest.fixture
def slow(make_sim: Make) -> Sim:
    """Each piece of work takes 30 ms on its stream."""
    return make_sim(execution="async", latency_us=30000)


def ms_since(start: float) -> float:
    return (time.perf_counter() - start) * 1e3


def test_work_on_a_stream_keeps_its_order(sim: Sim) -> None:
    stream, address = sim.stream(), sim.alloc(1 << 16)
    for value in range(50):
        sim.call("mem_set", 0, address, value, 1 << 16, stream)
    assert sim.read(address, 1 << 16, 0, stream) == bytes([49]) * (1 << 16)


def test_queued_work_returns_at_once(slow: Sim) -> None:
    address = slow.alloc(64)
    start = time.perf_counter()
    for _ in range(4):
        slow.call("mem_set", 0, address, 1, 64, None)
    assert ms_since(start) < 25
    assert slow.status("stream_query", 0, None) == "NOT_READY"
    slow.call("stream_sync", 0, None)
    assert ms_since(start) >= 120
    assert slow.status("stream_query", 0, None) == "OK"


def test_inline_work_is_done_on_return(make_sim: Make) -> None:
    sim = make_sim(execution="inline", latency_us=10000)
    address = sim.alloc(64)
    start = time.perf_counter()
    sim.call("mem_set", 0, address, 5, 64, sim.stream())
    assert ms_since(start) >= 10
    assert C.string_at(address, 1) == b"\5"


def test_two_streams_overlap(slow: Sim) -> None:
    address, one, two = slow.alloc(64), slow.stream(), slow.stream()
    start = time.perf_counter()
    for stream in (one, two):
        for _ in range(3):
            slow.call("mem_set", 0, address, 1, 64, stream)
    slow.sync()
    assert 90 <= ms_since(start) < 170


@pytest.mark.parametrize("other_device", [0, 1])
def test_a_stream_waits_for_an_event_of_another(slow: Sim, other_device: int) -> None:
    here, there = slow.alloc(64, 0), slow.alloc(64, other_device)
    one, two, done = slow.stream(0), slow.stream(other_device), slow.event(0)
    slow.call("mem_set", 0, here, 9, 64, one)
    slow.call("event_record", 0, done, one)
    slow.call("stream_wait", other_device, two, done)
    slow.call("mem_copy", there, other_device, here, 0, 64, two)
    assert slow.read(there, 64, other_device, two) == b"\t" * 64


def test_a_wait_is_for_the_record_that_was(slow: Sim) -> None:
    """A later record of the same event does not move an earlier wait."""
    address, one, two, event = slow.alloc(64), slow.stream(), slow.stream(), slow.event()
    slow.call("event_record", 0, event, one)
    slow.call("stream_wait", 0, two, event)
    slow.call("mem_set", 0, address, 1, 64, one)
    slow.call("event_record", 0, event, one)
    start = time.perf_counter()
    slow.call("stream_sync", 0, two)
    assert ms_since(start) < 25
    assert slow.status("event_query", 0, event) == "NOT_READY"


def test_planted_missing_wait_is_visible(make_sim: Make) -> None:
    sim = make_sim(execution="async", latency_us=30000, skip_wait="stream_wait")
    address, out, one, two, done = (
        sim.alloc(64),
        sim.alloc(64),
        sim.stream(),
        sim.stream(),
        sim.event(),
    )
    sim.call("mem_set", 0, address, 1, 64, one)
    sim.call("mem_set", 0, address, 2, 64, one)
    sim.call("event_record", 0, done, one)
    sim.call("stream_wait", 0, two, done)
    sim.call("mem_copy", out, 0, address, 0, 64, two)
    assert sim.read(out, 64, 0, two) != b"\2" * 64


def test_planted_early_copy_is_visible(make_sim: Make) -> None:
    sim = make_sim(execution="async", latency_us=30000, skip_wait="mem_copy")
    address = sim.alloc(64)
    sim.call("mem_set", 0, address, 1, 64, None)
    data = C.create_string_buffer(64)
    sim.call("mem_copy", data, HOST, address, 0, 64, None)
    assert data.raw != b"\1" * 64


def test_events(slow: Sim) -> None:
    event, address = slow.event(), slow.alloc(64)
    assert slow.status("event_query", 0, event) == "OK"  # never recorded
    slow.call("mem_set", 0, address, 1, 64, None)
    slow.call("event_record", 0, event, None)
    assert slow.status("event_query", 0, event) == "NOT_READY"
    slow.call("event_sync", 0, event)
    assert slow.status("event_query", 0, event) == "OK"
    slow.call("event_destroy", 0, event)


@pytest.mark.parametrize("execution", ["inline", "async"])
def test_elapsed_is_the_time_on_the_stream(make_sim: Make, execution: str) -> None:
    sim = make_sim(execution=execution, latency_us=20000)
    start, end, address = sim.event(), sim.event(), sim.alloc(64)
    sim.call("event_record", 0, start, None)
    for _ in range(2):
        sim.call("mem_set", 0, address, 1, 64, None)
    sim.call("event_record", 0, end, None)
    time.sleep(0.08)  # of the host: not counted
    sim.call("event_sync", 0, end)
    assert 40 <= sim.get("event_elapsed", C.c_double, 0, start, end) < 75


def test_elapsed_needs_two_timed_records(sim: Sim) -> None:
    timed, plain = sim.event(), sim.event(timing=False)
    for event in (timed, plain):
        with pytest.raises(SimError, match=r"never recorded|without timing"):
            sim.get("event_elapsed", C.c_double, 0, timed, event)


def test_an_event_may_go_before_its_work(slow: Sim) -> None:
    event, address, other = slow.event(), slow.alloc(64), slow.stream()
    slow.call("mem_set", 0, address, 1, 64, None)
    slow.call("event_record", 0, event, None)
    slow.call("stream_wait", 0, other, event)
    slow.call("event_destroy", 0, event)
    slow.call("stream_sync", 0, other)


def test_destroying_a_stream_waits_for_it(slow: Sim) -> None:
    stream, address = slow.stream(), slow.alloc(64)
    slow.call("mem_set", 0, address, 3, 64, stream)
    slow.call("stream_destroy", 0, stream)
    assert C.string_at(address, 1) == b"\3"
    with pytest.raises(SimError, match="is destroyed"):
        slow.call("stream_sync", 0, stream)


def test_a_stream_belongs_to_its_device(sim: Sim) -> None:
    stream = sim.stream(1)
    with pytest.raises(SimError, match="belongs to another device"):
        sim.call("stream_sync", 0, stream)


def test_priorities_are_reported_and_taken(sim: Sim) -> None:
    info = sim.info()
    assert (info.priority_lowest, info.priority_highest) == (0, -1)
    sim.call("stream_sync", 0, sim.stream(priority=-1))


def test_threads_share_a_stream(sim: Sim) -> None:
    stream = sim.stream()
    addresses = [sim.alloc(4096) for _ in range(4)]

    def work(address: int, value: int) -> None:
        for _ in range(100):
            sim.call("mem_set", 0, address, value, 4096, stream)

    threads = [threading.Thread(target=work, args=(a, k)) for k, a in enumerate(addresses)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [sim.read(a, 4096, 0, stream)[:1] for a in addresses] == [bytes([k]) for k in range(4)]
