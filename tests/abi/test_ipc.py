"""Extension ipc.v1: two processes, one memory."""

from __future__ import annotations

import ctypes as C
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from sim import STATUS, Sim, ptr

HERE = Path(__file__).parent
Make = Callable[..., Sim]

IMPORTER = """
import sys; sys.path.insert(0, {here!r})
from sim import *
s = Sim({library!r}, memory_model={model!r})
ipc = s.ipc()
handle = (C.c_uint8 * 64)(*bytes.fromhex(sys.stdin.readline()))
out = ptr()
status = ipc.mem_import(1, handle, C.byref(out))
if status:
    print(STATUS[status], s.table.last_error().decode(), flush=True)
    sys.exit()
print(s.read(out.value, 5, 1).decode(), flush=True)
s.write(out.value, b"reply", 1)
print("written", flush=True)
sys.stdin.readline()
print(s.read(out.value, 5, 1).decode(), flush=True)
assert ipc.mem_close(1, out.value) == 0
assert ipc.mem_close(1, out.value) == 3
"""


def importer(library: Path, model: str) -> subprocess.Popen[str]:
    script = IMPORTER.format(here=str(HERE), library=str(library), model=model)
    return subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    )


def export(sim: Sim, address: int) -> str:
    handle = (C.c_uint8 * 64)()
    assert sim.ipc().mem_export(0, address, handle) == 0, sim.table.last_error()
    return bytes(handle).hex()


@pytest.mark.parametrize("model", ["unified", "discrete"])
def test_both_processes_see_what_either_writes(
    make_sim: Make, sim_library: Path, model: str
) -> None:
    sim = make_sim(memory_model=model)
    address = sim.alloc(1 << 20)
    sim.write(address, b"hello")
    other = importer(sim_library, model)
    assert other.stdin
    assert other.stdout
    other.stdin.write(export(sim, address) + "\n")
    assert other.stdout.readline() == "hello\n"
    assert other.stdout.readline() == "written\n"
    assert sim.read(address, 5) == b"reply"
    sim.write(address, b"after")
    other.stdin.write("\n")
    assert other.stdout.readline() == "after\n"
    assert other.wait(10) == 0


def test_imported_memory_outlives_the_exporter(sim_library: Path) -> None:
    script = f"""
import sys; sys.path.insert(0, {str(HERE)!r})
from sim import *
s = Sim({str(sim_library)!r}); a = s.alloc(1 << 20); s.write(a, b"hello")
h = (C.c_uint8 * 64)(); s.ipc().mem_export(0, a, h); print(bytes(h).hex(), flush=True)
sys.stdin.readline()
"""
    exporter = subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    )
    other = importer(sim_library, "unified")
    assert exporter.stdout
    assert other.stdin
    assert other.stdout
    other.stdin.write(exporter.stdout.readline())
    assert [other.stdout.readline(), other.stdout.readline()] == ["hello\n", "written\n"]
    exporter.communicate("\n")
    other.stdin.write("\n")
    assert other.stdout.readline() == "reply\n"
    assert other.wait(10) == 0


def test_a_gone_exporter_is_named(run_python: Callable, sim_library: Path) -> None:
    done = run_python("""
s = Sim(path); a = s.alloc(64); h = (C.c_uint8 * 64)()
s.ipc().mem_export(0, a, h); print(bytes(h).hex())
""")
    other = importer(sim_library, "unified")
    words, _ = other.communicate(done.stdout)
    assert words.startswith("FAILED mem_import: process ")
    assert "is gone or has freed it" in words


def test_freed_memory_is_not_imported(make_sim: Make, sim_library: Path) -> None:
    sim = make_sim()
    address = sim.alloc(64)
    handle = export(sim, address)
    sim.free(address)
    sim.alloc(64)  # likely the same descriptor: another file all the same
    words, _ = importer(sim_library, "unified").communicate(handle + "\n")
    assert words.startswith("FAILED mem_import: process ")
    assert "freed" in words


def test_only_the_start_of_an_allocation_is_exported(make_sim: Make) -> None:
    sim = make_sim()
    address = sim.alloc(4096)
    assert STATUS[sim.ipc().mem_export(0, address + 64, (C.c_uint8 * 64)())] == "INVALID"


def test_a_handle_of_something_else_is_refused(make_sim: Make) -> None:
    sim = make_sim()
    assert STATUS[sim.ipc().mem_import(0, (C.c_uint8 * 64)(), C.byref(ptr()))] == "INVALID"
    assert "not a handle" in sim.table.last_error().decode()
