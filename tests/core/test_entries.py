"""What each entry of the table gives that a vendor may leave out: offered against not offered."""

from __future__ import annotations

import json

import pytest

# --- close --------------------------------------------------------------------------------------

# The planted fault makes each call of `close` show on stderr.
CLOSES = {"fault": "close:*=FAILED", "execution": "async"}
SAID = "causeway: sim failed to close: injected fault: call 1 of close answers FAILED\n"
USES = "import torch; x = torch.ones(3, device='sim') + 1\n"


def test_close_is_called_once_by_a_process_that_opened_a_device(run) -> None:
    assert run(USES, **CLOSES) == SAID
    assert run("import torch; torch.sim.device_count()", **CLOSES) == ""
    assert run(USES, **CLOSES, without="close") == ""


def test_close_comes_when_the_work_is_done(run) -> None:
    # The chip refuses to close, in words, while a stream has work, and any call after it.
    program = USES + "s = torch.Stream('sim')\nwith s:\n    for _ in range(5): x = x * 2\n"
    for end in ("", "raise SystemExit(0)", "torch.Event('sim').record(s)"):
        assert run(program + end, execution="async", ops="all", latency_us="30000") == ""


def test_a_forked_child_does_not_close(run) -> None:
    program = USES + "import os, sys\nif os.fork() == 0: sys.exit(0)\nos.wait()"
    assert run(program, **CLOSES) == SAID  # the parent's
    program = (
        "import os, torch\nif os.fork() == 0:\n    x = torch.ones(3, device='sim')\nelse: os.wait()"
    )
    assert run(program, **CLOSES) == SAID  # the child's own


# --- peer_access --------------------------------------------------------------------------------

COPIES = """
import torch
x = torch.arange(6.0, device="sim:0").reshape(2, 3)
y = x.to("sim:1")
assert y.device.index == 1 and y.tolist() == x.tolist()
z = torch.zeros(3, 2, dtype=torch.float64, device="sim:1")
z.copy_(x.t())
assert z.tolist() == x.t().tolist()
s = torch.Stream("sim:1")
with s:
    w = x.to("sim:1", non_blocking=True) * 2
torch.accelerator.synchronize(1)
assert w.tolist() == (x * 2).tolist()
print(torch.sim.can_device_access_peer(0, 1), torch.sim.can_device_access_peer(1, 1))
"""


@pytest.mark.parametrize("execution", ["inline", "async"])
def test_devices_that_are_no_peers_copy_through_the_host(run, execution: str) -> None:
    chip = {"execution": execution, "memory_model": "discrete"}
    assert run(COPIES, **chip) == "True False\n"
    assert run(COPIES, **chip, peers="0") == "False False\n"  # the chip refuses a direct copy
    assert run(COPIES, **chip, without="peer_access") == "False False\n"


def test_without_the_answer_a_copy_that_the_chip_refuses_is_an_error(run) -> None:
    program = "import torch\ntorch.ones(3, device='sim:0').to('sim:1')"
    said = run(program, status=1, peers="0", without="peer_access")
    assert "devices 1 and 0 are no peers" in said


# --- device_attribute ---------------------------------------------------------------------------


def test_attributes_are_properties_and_sensors(run) -> None:
    program = """
        import torch
        p = torch.sim.get_device_properties(1)
        assert (p.clock_rate, p.memory_clock_rate, p.memory_bus_width) == (1000000, 2000000, 64)
        assert (p.L2_cache_size, p.gcnArchName, p.driver_version) == (1 << 20, "sim", "1.0")
        assert (p.pci_bus_id, p.pci_domain_id, p.pci_device_id) == (1, 0, 0)
        assert not hasattr(p, "warp_size") and not hasattr(p, "no_such_key")
        assert torch.sim.temperature() == 36 and torch.sim.power_draw("sim:1") == 1000
        assert torch.sim.clock_rate() == 1000 and torch.sim.utilization() == 0
        x = torch.ones(1 << 20, device="sim")
        assert 0 < torch.sim.memory_usage() <= 100
        torch.accelerator.synchronize()
        x * 2
        assert torch.sim.utilization() == 100
    """
    run(program, ops="all", execution="async", latency_us="300000", memory="64M")


def test_what_is_not_known_is_an_error_in_words(run) -> None:
    program = """
        import pytest, torch, causeway
        p = torch.sim.get_device_properties()
        with pytest.raises(AttributeError, match="does not say 'clock_rate' of Sim 0"):
            p.clock_rate
        with pytest.raises(causeway.VendorError, match="does not say the 'temperature'"):
            torch.sim.temperature()
    """
    run(program, without="device_attribute")


# --- host_register ------------------------------------------------------------------------------

# How long a copy keeps the caller that need not be waited for.
REGISTERS = """
import time, torch
from torch.sim.memory import host_register, host_unregister
torch.ones(1, device="sim")
x = torch.arange(1000.0)
def seconds():
    torch.accelerator.synchronize()
    begin = time.perf_counter()
    y = x.to("sim", non_blocking=True)
    took = time.perf_counter() - begin
    assert torch.equal(y.cpu(), x)
    return took
"""
SLOW = {"execution": "async", "memory_model": "discrete", "latency_us": "200000"}


def test_registered_memory_is_copied_in_the_background(run) -> None:
    program = (
        REGISTERS
        + """
assert not x.is_pinned() and seconds() > 0.2
host_register(x)
assert x.is_pinned() and x[10:20].is_pinned() and seconds() < 0.1
y = x.to("sim", non_blocking=True)
host_unregister(x)  # waits for the copy
x.zero_()
assert y.cpu()[5] == 5 and not x.is_pinned()
"""
    )
    assert run(program, **SLOW) == ""


def test_registering_is_refused_in_words(run) -> None:
    program = """
        import pytest, torch, causeway
        from torch.sim.memory import host_register, host_unregister
        x = torch.ones(100)
        host_register(x)
        for call, words in ((lambda: host_register(x), "pinned already"),
                            (lambda: host_unregister(torch.ones(3)), "was not pinned"),
                            (lambda: host_register(torch.ones(0)), "no memory to pin")):
            with pytest.raises(causeway.CausewayError, match=words):
                call()
        with pytest.raises(ValueError, match="of sim:0"):
            host_register(torch.ones(3, device="sim"))
        host_unregister(x)
    """
    run(program)
    program = """
        import pytest, torch, causeway
        with pytest.raises(causeway.VendorError, match="no host_register.*pin_memory"):
            torch.sim.memory.host_register(torch.ones(3))
    """
    run(program, without="host_register")


# --- fault --------------------------------------------------------------------------------------

FAULTS = """
import causeway, torch
x = torch.rand(2, 3, device="sim")
y = torch.empty(2, 3, device="sim")
torch.add(x, x, out=y)
try:
    torch.accelerator.synchronize()
except causeway.VendorError as error:
    print(hex(y.data_ptr()), error)
"""


def test_an_error_of_later_work_says_kernel_and_memory(run) -> None:
    chip = {"ops": "all", "execution": "async", "fault": "op:aten::add.out:1=FAILED"}
    address, _, words = run(FAULTS, **chip).partition(" ")
    assert f"(aten::add.out at {address}, byte 0 of memory of 24 bytes)" in words
    assert " at 0x" not in run(FAULTS, **chip, without="fault")


# --- stream_callback ----------------------------------------------------------------------------

PINNED = """
import torch
torch.ones(1, device="sim")
x = torch.arange(1024.0).pin_memory()
y = x.to("sim", non_blocking=True)
at = x.data_ptr()
del x
z = torch.zeros(1024).pin_memory()  # not the same memory: it is read yet
assert z.data_ptr() != at and y.cpu()[5] == 5
torch.accelerator.synchronize()
import time; time.sleep(0.05)
assert torch.zeros(1024).pin_memory().data_ptr() == at
"""


def test_pinned_memory_is_free_when_the_chip_says_so(run) -> None:
    chip = {"execution": "async", "memory_model": "discrete", "latency_us": "200000"}
    run(PINNED, **chip)
    run(PINNED, **chip, without="stream_callback")
    # No event is recorded, asked or made for it.
    no_events = "event_create:*=FAILED"
    assert run(PINNED, **chip, fault=no_events) == ""
    said = run(PINNED, status=None, **chip, fault=no_events, without="stream_callback")
    assert "event_create" in said


def test_a_callback_that_fails_to_be_put_is_made_good_by_the_stream(run) -> None:
    chip = {"execution": "async", "memory_model": "discrete", "latency_us": "50000"}
    said = run(PINNED, status=None, **chip, fault="stream_callback:1=FAILED")
    assert "stream_callback answers FAILED" in said
    assert "AssertionError" not in said


# --- host_alloc_for -----------------------------------------------------------------------------

FOR_A_DEVICE = """
import time, torch
torch.ones(1, device="sim:0"), torch.ones(1, device="sim:1")
def seconds(x, device):
    torch.accelerator.synchronize(device)
    begin = time.perf_counter()
    y = x.to(device, non_blocking=True)
    took = time.perf_counter() - begin
    assert torch.equal(y.cpu(), x.clone())
    return took
def pinned(): return [torch.sim.get_device_properties(d).pinned_bytes for d in (0, 1)]
before = pinned()
with torch.device("sim:1"), torch.accelerator.device_index(1):
    x = torch.arange(1024.0, device="cpu").pin_memory()
pinned = [b - a for a, b in zip(before, pinned(), strict=True)]
here, there = (seconds(x, f"sim:{d}") > 0.1 for d in (1, 0))
print(x.is_pinned(), here, there, pinned)
"""


def test_memory_is_pinned_for_the_device_that_is_current(run) -> None:
    assert run(FOR_A_DEVICE, **SLOW) == "True False True [0, 4096]\n"
    said = run(FOR_A_DEVICE, **SLOW, without="host_alloc_for")
    assert said == "True False False [0, 0]\n"


# --- mem_alloc_on -------------------------------------------------------------------------------

EMPTIES = """
import time, torch
x = torch.ones(3 << 20, device="sim")
s = torch.Stream("sim")
with s:
    y = torch.ones(3 << 20, device="sim")
torch.accelerator.synchronize()
z = x * 2 + 1
with s: w = y * 3
del x, y
begin = time.perf_counter()
torch.accelerator.empty_cache()
print(time.perf_counter() - begin > 0.15)
x = torch.full((3 << 20,), 7.0, device="sim")  # what was given back
assert z.eq(3).all() and w.eq(3).all() and x.eq(7).all()
"""


def test_the_cache_is_emptied_without_a_wait(run) -> None:
    chip = {"ops": "all", "execution": "async", "latency_us": "200000"}
    for model in ("unified", "discrete"):
        assert run(EMPTIES, **chip, memory_model=model) == "False\n"
        assert run(EMPTIES, **chip, memory_model=model, without="mem_alloc_on") == "True\n"


# --- mem_reserve --------------------------------------------------------------------------------

GROWS = """
import torch
kept = []
for k in range(1, 9):  # each is larger than what the one before it left
    x = torch.full((k * 5 << 18,), float(k), device="sim")
    kept.append(torch.full((1 << 19,), float(k), device="sim"))
    assert x.eq(k).all()
    del x
assert all(t.eq(k + 1).all() for k, t in enumerate(kept))
stats = torch.sim.memory_stats()
print(stats["reserved_bytes.all.peak"] >> 20, stats["segment.all.current"])
"""
EXPANDABLE = {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}


def test_segments_that_grow_hold_less_memory(run) -> None:
    grown, grown_segments = map(int, run(GROWS, memory="1G", **EXPANDABLE).split())
    fixed, fixed_segments = map(int, run(GROWS, memory="1G").split())
    assert grown_segments < fixed_segments
    assert grown < 0.8 * fixed, (grown, fixed)


def test_a_program_that_fits_with_segments_that_grow_does_not_without(run) -> None:
    grown = int(run(GROWS, memory="1G", **EXPANDABLE).split()[0])
    memory = f"{grown + 4}M"
    run(GROWS, memory=memory, **EXPANDABLE)
    said = run(GROWS, status=None, memory=memory, without="mem_reserve", **EXPANDABLE)
    assert "expandable_segments has no effect: sim does not offer" in said


def test_segments_that_grow_shrink_and_tell(run) -> None:
    program = """
        import torch
        m = torch.sim.memory
        m._record_memory_history()
        x = torch.ones(12 << 18, device="sim")
        y = torch.full((12 << 18,), 2.0, device="sim")
        z = torch.full((12 << 18,), 3.0, device="sim")
        snapshot = m._snapshot()
        segments = [s for s in snapshot["segments"] if s["segment_type"] == "large"]
        assert all(s["is_expandable"] for s in segments) and len(segments) == 1, segments
        del y
        before = torch.sim.memory_reserved()
        torch.accelerator.empty_cache()  # from the middle
        assert torch.sim.memory_reserved() <= before - (10 << 20)
        assert x.eq(1).all() and z.eq(3).all()
        actions = {e["action"] for e in m._snapshot()["device_traces"][0]}
        assert {"segment_map", "segment_unmap"} <= actions, actions
        y = torch.full((12 << 18,), 4.0, device="sim")  # into the hole
        assert x.eq(1).all() and y.eq(4).all() and z.eq(3).all()
        assert x.data_ptr() < y.data_ptr() < z.data_ptr()
        del x, y, z
        torch.accelerator.empty_cache()
        assert torch.sim.memory_reserved() == 0
    """
    for model in ("unified", "discrete"):
        run(program, execution="async", memory_model=model, **EXPANDABLE)


def test_a_failure_to_map_is_out_of_memory_or_an_error_in_words(run) -> None:
    program = """
        import pytest, torch, causeway
        with pytest.raises(torch.OutOfMemoryError):
            torch.ones(1 << 30, device="sim")
        x = torch.ones(1 << 20, device="sim")
        assert x.eq(1).all()
    """
    run(program, memory="64M", **EXPANDABLE)
    program = """
        import pytest, torch, causeway
        with pytest.raises(causeway.VendorError, match="call 1 of mem_map answers FAILED"):
            torch.ones(1 << 20, device="sim")
        assert torch.ones(1 << 20, device="sim").eq(1).all()
    """
    run(program, fault="mem_map:1=FAILED", **EXPANDABLE)


# --- op_find_for --------------------------------------------------------------------------------

RUNGS = """
import causeway, torch
for d in range(2):
    x = torch.arange(6.0, device=f"sim:{d}")
    with causeway.ledger() as ledger:
        y = torch.softmax(x, 0)
    torch.testing.assert_close(y.cpu(), x.cpu().softmax(0))
    print(*sorted({r.rung for r in ledger.rows if "softmax" in r.operator}))
"""


def test_each_device_has_its_own_operators(run) -> None:
    assert run(RUNGS, ops="all").split() == ["derived", "derived"]  # of the kernel for the out form
    assert run(RUNGS, ops="all", bare="1").split() == ["derived", "host"]
    assert run(RUNGS, ops="all", bare="0").split() == ["host", "derived"]
    assert run(RUNGS, ops="all", bare="1", without="op_find_for").split() == ["derived", "derived"]


def test_it_is_given_torchs_schema(run) -> None:
    # The chip refuses a text that is no schema of the operator.
    run("import torch; torch.ones(3, device='sim').add_(1).softmax(0).sum().item()", ops="all")


# --- code.v1: binaries and limits ---------------------------------------------------------------

SOURCE = """
#include <stdint.h>
const uint32_t scale_arguments = 4;
void scale(void* const* args, const uint32_t* group, const uint32_t* grid) {
  float* to = *(float**)args[0];
  const float* from = *(float**)args[1];
  float factor = *(float*)args[2];
  uint32_t n = *(uint32_t*)args[3];
  for (uint32_t i = group[0]; i < n; i += grid[0]) to[i] = from[i] * factor;
}
"""
PROGRAM = f"""
import ctypes, pytest, torch, causeway
from causeway.code import Program, limits
SOURCE = {SOURCE!r}
x = torch.arange(1000.0, device="sim")
def scaled(program):
    out = torch.empty_like(x)
    args = out, x, ctypes.c_float(3), ctypes.c_uint32(x.numel())
    program.function("scale")((7,), (1,), *args)
    return out.cpu()
"""


def test_programs_of_the_users_own_are_built_and_launched(run) -> None:
    program = (
        PROGRAM
        + """
program = Program(SOURCE)
assert torch.equal(scaled(program), x.cpu() * 3)
again = Program(binary=program.binary())
assert torch.equal(scaled(again), x.cpu() * 3)
assert limits().language == "C" and limits().binaries == ("own",)
for wrong, words in ((lambda: Program("no C at all"), "error"),
                     (lambda: Program(binary=b"none"), "no shared library"),
                     (lambda: program.function("nothing"), "nothing")):
    with pytest.raises(causeway.CausewayError, match=words):
        wrong()
f = program.function("scale")
with pytest.raises(TypeError, match="whose size is not known"):
    f((1,), (1,), x, x, 3.0, 1000)
with pytest.raises(ValueError, match="argument 1 is a tensor of cpu"):
    f((1,), (1,), x, x.cpu(), ctypes.c_float(1), ctypes.c_uint32(1))
with pytest.raises(ValueError, match="one to three numbers above 0"):
    f((0,), (1,), x, x, ctypes.c_float(1), ctypes.c_uint32(1))
with pytest.raises(causeway.CausewayError, match="scale"):
    f((1,), (1,), x)
with pytest.raises(ValueError, match="either source or a binary"):
    Program()
"""
    )
    run(program, CAUSEWAY_SIM_CODE="1", execution="async")


def test_without_binaries_or_a_compiler_it_says_so(run) -> None:
    program = (
        PROGRAM
        + """
program = Program(SOURCE)
with pytest.raises(causeway.VendorError, match="has no code.binary"):
    program.binary()
with pytest.raises(causeway.VendorError, match="as source only"):
    Program(binary=b"x" * 100)
assert limits().binaries == ()
"""
    )
    run(program, CAUSEWAY_SIM_CODE="1", without="binary,build_binary")
    program = PROGRAM + "with pytest.raises(causeway.VendorError, match='code.v1'): Program(SOURCE)"
    run(program)


LIMITED = """
import causeway, torch
x = torch.arange(300_000.0).reshape(300, 1000)
y = x.to("sim")
with causeway.ledger() as ledger:
    got = torch.where(y > 5, y * 2 + 1, y).sum(1)
torch.testing.assert_close(got.cpu(), torch.where(x > 5, x * 2 + 1, x).sum(1))
print(*sorted({r.rung for r in ledger.rows}))
"""


def test_launches_keep_to_the_chips_limits(run) -> None:
    chip = {"ops": "none", "CAUSEWAY_SIM_CODE": "1"}
    assert run(LIMITED, **chip).split() == ["portable"]
    # One group at most, or 20 bytes of arguments: more would be refused as an error.
    assert run(LIMITED, **chip, grid_limit="1").split() == ["portable"]
    assert "host" in run(LIMITED, **chip, argument_limit="20").split()


LONG = """
import causeway, json, torch
index, rows = torch.arange(50_000) % 3, torch.ones(50_000, 2)
a, b = torch.ones(4, 50_000), torch.ones(50_000, 4)
with causeway.ledger() as ledger:
    many = torch.zeros(3, 2, device="sim").index_add(0, index.to("sim"), rows.to("sim"))
    product = a.to("sim") @ b.to("sim")
    few = torch.ones(100, device="sim") * 2
assert torch.equal(many.cpu(), torch.zeros(3, 2).index_add(0, index, rows))
assert torch.equal(product.cpu(), a @ b)
print(json.dumps({r.operator.partition("::")[2].partition(".")[0]: r.rung for r in ledger.rows}))
"""


def test_kernels_of_longer_loops_than_the_chip_makes_step_down(run) -> None:
    """Mesa's driver for CPUs leaves loops without a word."""
    chip = {"ops": "none", "CAUSEWAY_SIM_CODE": "1", "CAUSEWAY_SIM_TEAMS": "1"}
    free, bound = (
        json.loads(run(LONG, **chip, **limit)) for limit in ({}, {"loop_limit": "40000"})
    )
    assert {free[name] for name in ("index_add", "mm", "mul")} == {"portable"}
    assert (bound["index_add"], bound["mm"], bound["mul"]) == ("host", "host", "portable")


# --- mem_set ------------------------------------------------------------------------------------

ZEROS = """
import json, torch, causeway

def served(make):
    with causeway.ledger() as ledger:
        made = make()
    (row,) = [r for r in ledger.rows if r.operator in ("aten::zero_", "aten::fill_.Scalar")]
    return made.cpu(), [row.rung, row.bytes]

said = {}
for dtype in (torch.float32, torch.float16, torch.int64, torch.int8, torch.uint8, torch.bool,
              torch.complex64):
    x = torch.ones(5, 7, dtype=dtype).to("sim")
    cases = {
        "zero_": lambda: x.zero_(),
        "zeros": lambda: torch.zeros(3, 4, dtype=dtype, device="sim"),
        "fill_(0)": lambda: x.fill_(0),
        "transposed": lambda: torch.ones(6, 4, dtype=dtype).to("sim").t().zero_(),
    }
    for name, make in cases.items():
        made, row = served(make)
        assert not made.any(), (name, dtype, made)
        said[f"{name} {dtype}"] = row

# What is no repeated byte, or has gaps, goes down and is right.
for value, dtype in ((1.5, torch.float32), (-0.0, torch.float32), (3, torch.int64)):
    made, row = served(lambda: torch.ones(9, dtype=dtype).to("sim").fill_(value))
    expected = torch.full((9,), value, dtype=dtype)
    assert torch.equal(made.view(torch.uint8), expected.view(torch.uint8))
    assert row[0] == "host", (value, dtype, row)
y = torch.ones(4, 6).to("sim")
y[:, 1:4].zero_()
expected = torch.ones(4, 6)
expected[:, 1:4] = 0
assert torch.equal(y.cpu(), expected)
for value, dtype in ((-1, torch.int32), (77, torch.int8), (200, torch.uint8), (True, torch.bool)):
    made, row = served(lambda: torch.zeros(9, dtype=dtype).to("sim").fill_(value))
    assert torch.equal(made, torch.full((9,), value, dtype=dtype))
    said[f"fill_({value}) {dtype}"] = row
try:
    torch.zeros(2, dtype=torch.int8, device="sim").fill_(300)
    raise SystemExit("300 is no int8")
except RuntimeError as error:
    assert "overflow" in str(error), error
print(json.dumps(said))
"""


def test_zeros_are_set_where_the_chip_sets_memory(run) -> None:
    settings = {"memory_model": "discrete", "ops": "none"}
    offered = json.loads(run(ZEROS, **settings))
    assert set(map(tuple, offered.values())) == {("native", 0)}, offered
    missing = json.loads(run(ZEROS, **settings, without="mem_set"))
    assert {rung for rung, _ in missing.values()} == {"host"}, missing
    assert all(size > 0 for _, size in missing.values()), missing


# --- code.v1 -------------------------------------------------------------------------------------

FAILS = """
import warnings, torch, causeway

def rungs(call):
    with causeway.ledger() as ledger:
        out = call()
    return out.cpu(), {row.operator: row.rung for row in ledger.rows}

x = torch.randn(64).to("sim")
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    for _ in range(3):
        out, served = rungs(lambda: torch.exp(x))
        torch.testing.assert_close(out, x.cpu().exp())
        assert served["aten::exp"] == "host", served
said = [str(w.message) for w in said]
assert len(said) == 1, said
for part in ("compiler failed", "aten::exp.out", "injected fault: call 1 of code_build"):
    assert part in said[0], said
out, served = rungs(lambda: torch.sigmoid(x))  # another kernel
torch.testing.assert_close(out, x.cpu().sigmoid())
assert served["aten::sigmoid"] == "portable", served
"""


@pytest.mark.parametrize("status", ["FAILED", "INVALID", "UNSUPPORTED"])
def test_a_kernel_that_the_chips_compiler_fails_on_goes_down_the_ladder(run, status: str) -> None:
    run(FAILS, CAUSEWAY_SIM_CODE="1", ops="none", fault=f"code_build:1={status}")


def test_a_device_lost_in_the_compiler_is_an_error(run) -> None:
    program = """
        import torch, causeway
        try:
            torch.exp(torch.randn(64).to("sim"))
            raise SystemExit("no error")
        except causeway.CausewayError as error:
            assert "lost" in str(error).lower(), error
    """
    run(program, CAUSEWAY_SIM_CODE="1", ops="none", fault="code_build:1=DEVICE_LOST")
