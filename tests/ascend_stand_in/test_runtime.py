"""The stand-in libascendcl: what it does, and what it refuses as documented."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

Run = Callable[..., str]


def test_bytes_go_to_the_device_and_come_back(on_chip: Run) -> None:
    assert (
        on_chip("""
        acl.aclrtSetDevice(0)
        a, b = malloc(acl, 1000), malloc(acl, 1000)
        write(acl, a, bytes(range(250)) * 4)
        acl.aclrtMemcpy(at(b, 10), c_size_t(500), at(a, 5), c_size_t(500), ON_DEVICE)
        print(read(acl, at(b, 10), 500) == (bytes(range(250)) * 4)[5:505])
    """)
        == "True"
    )


def test_work_without_a_context_is_refused(on_chip: Run) -> None:
    assert "aclrtSetDevice" in on_chip("print(refused(NO_CONTEXT, malloc, acl, 8))")


def test_a_device_that_is_not_there_is_refused(on_chip: Run) -> None:
    assert "there are 3" in on_chip(
        "print(refused(INVALID_DEVICE, acl.aclrtSetDevice, 3))", DEVICES=3
    )


def test_a_copy_beyond_its_destination_is_refused(on_chip: Run) -> None:
    assert "do not fit" in on_chip("""
        acl.aclrtSetDevice(0)
        a = malloc(acl, 100)
        print(refused(INVALID_PARAMETER, acl.aclrtMemcpy, a, c_size_t(8), b"0" * 16, c_size_t(16), TO_DEVICE))
        refused(INVALID_PARAMETER, acl.aclrtMemcpy, at(a, 90), c_size_t(16), b"0" * 16, c_size_t(16), TO_DEVICE)
    """)


def test_a_copy_of_the_wrong_kind_is_refused(on_chip: Run) -> None:
    assert "host to device" in on_chip("""
        acl.aclrtSetDevice(0)
        a = malloc(acl, 100)
        print(refused(INVALID_PARAMETER, acl.aclrtMemcpy, a, c_size_t(8), b"0" * 8, c_size_t(8), ON_DEVICE))
    """)


def test_freed_memory_is_refused(on_chip: Run) -> None:
    assert "no live block" in on_chip("""
        acl.aclrtSetDevice(0)
        a = malloc(acl, 100)
        acl.aclrtFree(a)
        print(refused(INVALID_PARAMETER, read, acl, a, 8))
        refused(INVALID_PARAMETER, acl.aclrtFree, a)
    """)


def test_a_program_that_reads_device_memory_by_itself_dies(on_chip: Run) -> None:
    on_chip("acl.aclrtSetDevice(0); ctypes.string_at(malloc(acl, 8).value, 8)", dies=True)


def test_a_stream_that_is_none_is_refused(on_chip: Run) -> None:
    assert "no stream" in on_chip("""
        acl.aclrtSetDevice(0)
        print(refused(INVALID_HANDLE, acl.aclrtSynchronizeStream, c_void_p(0x1234)))
    """)


def test_a_stream_of_another_device_is_refused(on_chip: Run) -> None:
    assert "of device 0" in on_chip("""
        acl.aclrtSetDevice(0)
        s = stream(acl)
        acl.aclrtSetDevice(1)
        print(refused(107003, acl.aclrtSynchronizeStream, s))
    """)


def test_streams_work_while_the_program_goes_on_and_wait_for_events(on_chip: Run) -> None:
    assert (
        on_chip("""
        import threading
        acl.aclrtSetDevice(0)
        first, second, done = stream(acl), stream(acl), event(acl)
        gate, order = threading.Event(), []
        Host = ctypes.CFUNCTYPE(None, c_void_p)
        wait, one, two = Host(lambda _: gate.wait()), Host(lambda _: order.append(1)), Host(lambda _: order.append(2))
        acl.aclrtLaunchHostFunc(first, wait, None)
        acl.aclrtLaunchHostFunc(first, one, None)
        acl.aclrtRecordEvent(done, first)
        acl.aclrtStreamWaitEvent(second, done)
        acl.aclrtLaunchHostFunc(second, two, None)
        status = c_int(5)
        acl.aclrtQueryEventStatus(done, byref(status))
        gate.set()
        acl.aclrtSynchronizeStream(second)
        print(status.value, order)
    """)
        == "0 [1, 2]"
    )


def test_an_event_that_was_never_recorded_is_complete_and_has_no_time(on_chip: Run) -> None:
    assert (
        on_chip("""
        acl.aclrtSetDevice(0)
        a, b, status, ms = event(acl), event(acl), c_int(5), c_float()
        acl.aclrtQueryEventStatus(a, byref(status))
        refused(107006, acl.aclrtEventElapsedTime, byref(ms), a, b)
        print(status.value)
    """)
        == "1"
    )


def test_a_fault_on_demand_comes_at_its_call(on_chip: Run) -> None:
    assert "fault on demand" in on_chip(
        """
        acl.aclrtSetDevice(0)
        malloc(acl, 8)
        print(refused(207001, malloc, acl, 8))
        malloc(acl, 8)
    """,
        FAULT="aclrtMalloc:2=207001",
    )


def test_a_fault_on_the_device_stays_until_it_is_reset(on_chip: Run) -> None:
    assert "aclrtMemsetAsync" in on_chip(
        """
        acl.aclrtSetDevice(0)
        a, s = malloc(acl, 8), stream(acl)
        acl.aclrtMemsetAsync(a, c_size_t(8), 1, c_size_t(8), s)
        print(refused(507015, acl.aclrtSynchronizeStream, s))
        refused(507015, acl.aclrtSynchronizeDevice)
        acl.aclrtResetDevice(0)
        acl.aclrtSetDevice(0)
        malloc(acl, 8)
        acl.aclrtSynchronizeDevice()
    """,
        FAULT="aclrtMemsetAsync:1@507015",
    )


def test_more_memory_than_there_is_is_refused(on_chip: Run) -> None:
    assert "16777216" in on_chip(
        """
        acl.aclrtSetDevice(0)
        blocks = [malloc(acl, 5 << 20) for _ in range(3)]
        print(refused(207001, malloc, acl, 5 << 20))
        acl.aclrtFree(blocks[1])
        malloc(acl, 5 << 20)
    """,
        MEMORY_MB=16,
    )


def test_a_capture_runs_what_it_took_and_only_when_asked(on_chip: Run) -> None:
    assert on_chip("""
        acl.aclrtSetDevice(0)
        a, s, side, fork, join, graph = malloc(acl, 8), stream(acl), stream(acl), event(acl), event(acl), c_void_p()
        write(acl, a, bytes(8))
        acl.aclmdlRICaptureBegin(s, 0)
        acl.aclrtMemsetAsync(a, c_size_t(8), 1, c_size_t(8), s)
        acl.aclrtRecordEvent(fork, s)
        acl.aclrtStreamWaitEvent(side, fork)
        acl.aclrtMemsetAsync(a, c_size_t(8), 2, c_size_t(4), side)
        acl.aclrtRecordEvent(join, side)
        acl.aclrtStreamWaitEvent(s, join)
        acl.aclmdlRICaptureEnd(s, byref(graph))
        before = read(acl, a, 8)
        acl.aclmdlRIExecuteAsync(graph, s)
        acl.aclrtSynchronizeStream(s)
        print(before, read(acl, a, 8))
    """) == repr(bytes(8)) + " " + repr(b"\2\2\2\2\1\1\1\1")


def test_a_capture_with_a_stream_that_nobody_waited_for_is_refused(on_chip: Run) -> None:
    assert "not waited for" in on_chip("""
        acl.aclrtSetDevice(0)
        a, s, side, fork, graph = malloc(acl, 8), stream(acl), stream(acl), event(acl), c_void_p()
        acl.aclmdlRICaptureBegin(s, 0)
        acl.aclrtRecordEvent(fork, s)
        acl.aclrtStreamWaitEvent(side, fork)
        acl.aclrtMemsetAsync(a, c_size_t(8), 2, c_size_t(4), side)
        print(refused(107025, acl.aclmdlRICaptureEnd, s, byref(graph)))
    """)


def test_waiting_makes_a_capture_invalid(on_chip: Run) -> None:
    assert "aclrtSynchronizeDevice" in on_chip("""
        acl.aclrtSetDevice(0)
        s, graph = stream(acl), c_void_p()
        acl.aclmdlRICaptureBegin(s, 0)
        refused(107027, acl.aclrtSynchronizeDevice)
        print(refused(507903, acl.aclmdlRICaptureEnd, s, byref(graph)))
    """)


def test_memory_is_shared_with_another_process_by_its_key(on_chip: Run) -> None:
    assert on_chip("""
        import subprocess, sys
        acl.aclrtSetDevice(0)
        a, key = malloc(acl, 5000), create_string_buffer(65)
        write(acl, a, b"hello" * 1000)
        acl.aclrtIpcMemGetExportKey(a, c_size_t(5000), key, c_size_t(65), c_uint64(1))
        assert len(key.value) == 64
        child = '''from ascendcl import *
        acl = start(); acl.aclrtSetDevice(0); p = c_void_p(); key = sys.argv[1].encode()
        acl.aclrtIpcMemImportByKey(byref(p), key, c_uint64(0))
        assert read(acl, p, 5000) == b"hello" * 1000
        write(acl, at(p, 5), b"HELLO")
        acl.aclrtIpcMemClose(key)
        refused(INVALID_PARAMETER, read, acl, p, 8)'''.replace("        ", "")
        subprocess.run([sys.executable, "-S", "-c", "import sys\\n" + child, key.value.decode()], check=True)
        print(read(acl, a, 15))
    """) == repr(b"helloHELLOhello")


def test_the_log_counts_each_function(on_chip: Run, tmp_path: Path) -> None:
    on_chip("acl.aclrtSetDevice(0); malloc(acl, 8); malloc(acl, 8)", CALLS=tmp_path / "calls")
    lines = (tmp_path / "calls").read_text().splitlines()
    assert "2 aclrtMalloc" in lines
    assert "1 aclrtSetDevice" in lines
