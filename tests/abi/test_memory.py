"""Memory: what is written is read back, what is used is counted, what is wrong is named."""

from __future__ import annotations

import ctypes as C
import subprocess
from collections.abc import Callable

import pytest
from sim import HOST, Sim, SimError, i32, ptr, u64

Make = Callable[..., Sim]
KIB, MIB = 1 << 10, 1 << 20


def free_bytes(sim: Sim, device: int = 0) -> int:
    free, total = u64(), u64()
    sim.call("mem_info", device, C.byref(free), C.byref(total))
    return free.value


def test_bytes_come_back(sim: Sim) -> None:
    address = sim.alloc(MIB)
    data = bytes(range(256)) * 64
    sim.write(address + 100, data)
    assert sim.read(address + 100, len(data)) == data


def test_addresses_are_aligned(sim: Sim) -> None:
    assert all(sim.alloc(n) % sim.info().alignment == 0 for n in (1, 100, MIB, 3 * MIB))


def test_copy_between_devices(sim: Sim) -> None:
    here, there = sim.alloc(KIB, 0), sim.alloc(KIB, 1)
    sim.write(here, b"from 0 to 1", 0)
    sim.call("mem_copy", there, 1, here, 0, 11, None)
    assert sim.read(there, 11, 1) == b"from 0 to 1"


def test_copy_within_a_device_may_overlap(sim: Sim) -> None:
    address = sim.alloc(KIB)
    sim.write(address, b"abcdef")
    sim.call("mem_copy", address + 2, 0, address, 0, 6, None)
    assert sim.read(address, 8) == b"ababcdef"


def test_set_fills_bytes(sim: Sim) -> None:
    address = sim.alloc(KIB)
    sim.call("mem_set", 0, address, 0x5A, KIB, None)
    assert sim.read(address, KIB) == b"\x5a" * KIB


def test_memory_is_counted(make_sim: Make) -> None:
    sim = make_sim(memory="64M")
    assert free_bytes(sim) == 64 * MIB
    address = sim.alloc(10 * MIB)
    assert free_bytes(sim) == 54 * MIB
    assert free_bytes(sim, 1) == 64 * MIB
    sim.free(address)
    assert free_bytes(sim) == 64 * MIB


def test_out_of_memory_says_asked_and_free(make_sim: Make) -> None:
    sim = make_sim(memory="64MiB")
    sim.alloc(60 * MIB)
    with pytest.raises(
        SimError, match=f"{4 * MIB} of {64 * MIB} bytes free, and {8 * MIB}"
    ) as caught:
        sim.alloc(8 * MIB)
    assert caught.value.status == "OUT_OF_MEMORY"
    sim.alloc(4 * MIB)


def test_holes_are_used_again(make_sim: Make) -> None:
    sim = make_sim(memory="16M")
    for round in range(200):
        addresses = [sim.alloc((1 + (round + k) % 3) * MIB) for k in range(5)]
        for address in addresses[::2] + addresses[1::2]:
            sim.free(address)
    assert free_bytes(sim) == 16 * MIB


def test_no_bytes_is_no_memory(sim: Sim) -> None:
    address = sim.get("mem_alloc", ptr, 0, 0)
    assert address is None
    sim.call("mem_free", 0, address)


@pytest.mark.parametrize(("bytes", "offset"), [(KIB + 1, 0), (2, KIB - 1), (1, KIB)])
def test_a_copy_beyond_the_allocation_is_refused(sim: Sim, bytes: int, offset: int) -> None:
    address = sim.alloc(KIB)
    with pytest.raises(SimError, match="not inside one live allocation of device 0") as caught:
        sim.call("mem_copy", address + offset, 0, b"\0" * 4096, HOST, bytes, None)
    assert caught.value.status == "INVALID"


def test_memory_of_another_device_is_refused(sim: Sim) -> None:
    there = sim.alloc(KIB, 1)
    with pytest.raises(SimError, match="device 0"):
        sim.call("mem_set", 0, there, 0, 1, None)


def test_freed_memory_is_refused(sim: Sim) -> None:
    address = sim.alloc(KIB)
    sim.free(address)
    for entry in (lambda: sim.free(address), lambda: sim.call("mem_set", 0, address, 0, 1, None)):
        with pytest.raises(SimError, match="INVALID"):
            entry()


def test_only_the_start_of_an_allocation_is_freed(sim: Sim) -> None:
    address = sim.alloc(KIB)
    with pytest.raises(SimError, match="not the start of an allocation"):
        sim.free(address + 64)


def test_unified_memory_is_the_hosts_too(make_sim: Make) -> None:
    sim = make_sim()
    assert sim.info().flags & 1
    address = sim.alloc(KIB)
    sim.write(address, b"seen by both")
    assert C.string_at(address, 12) == b"seen by both"
    C.memmove(address, b"SEEN", 4)
    assert sim.read(address, 12) == b"SEEN by both"


def test_pinned_memory(sim: Sim) -> None:
    host = sim.get("host_alloc", ptr, MIB)
    address = sim.alloc(MIB)
    C.memset(host, 7, MIB)
    sim.call("mem_copy", address, 0, host, HOST, MIB, None)
    assert sim.read(address, MIB) == b"\7" * MIB
    sim.call("host_free", host)


def test_unknown_device_is_named(sim: Sim) -> None:
    with pytest.raises(SimError, match="there is no device 7; the simulated chip has 2"):
        sim.alloc(1, 7)


def test_devices_open_at_first_use(make_sim: Make) -> None:
    sim = make_sim()
    assert sim.get("device_count", i32) == 2
    sim.info(0)
    free_bytes(sim)
    assert sim.logged == []
    sim.alloc(1, 1)
    assert sim.logged == [(0, "sim: device 1 opened, unified, inline")]


# ---- discrete memory ------------------------------------------------------------------------
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.mark.parametrize("touch", ["C.string_at(a + 5, 1)", "C.memset(a + 5, 0, 1)"])
def test_a_host_touch_of_discrete_memory_says_so_and_ends_the_process(
    run_python: Run, touch: str
) -> None:
    done = run_python(
        f"s = Sim(path, memory_model='discrete'); a = s.alloc(4096); print(hex(a + 5)); {touch}"
    )
    assert done.returncode == -11
    expected = (
        f"causeway-sim: the host touched memory of device 0 at {done.stdout.strip()} "
        "(allocation of 4096 bytes): copy it with .cpu() first\n"
    )
    assert done.stderr == expected


def test_the_previous_handler_of_faults_still_runs(run_python: Run) -> None:
    done = run_python("""
import faulthandler
faulthandler.enable()
s = Sim(path, memory_model='discrete'); C.string_at(s.alloc(64), 1)
""")
    assert done.returncode == -11
    assert done.stderr.startswith("causeway-sim: the host touched")
    assert "Fatal Python error" in done.stderr


def test_other_faults_are_left_alone(run_python: Run) -> None:
    done = run_python("s = Sim(path, memory_model='discrete'); s.alloc(64); C.string_at(8, 1)")
    assert done.returncode == -11
    assert done.stderr == ""


def test_freed_discrete_memory_is_poisoned(make_sim: Make) -> None:
    """Work that should have been waited for reads a pattern, not the next tensor's data."""
    sim = make_sim(memory_model="discrete", execution="async", latency_us=30000)
    a, b = sim.alloc(KIB), sim.alloc(KIB)
    sim.write(a, b"\1" * KIB)
    sim.call("mem_copy", b, 0, a, 0, KIB, None)  # sleeps before it copies
    sim.free(a)  # too early
    sim.sync()
    assert sim.read(b, KIB) == b"\xdd" * KIB
