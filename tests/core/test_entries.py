"""What each entry of the table gives that a vendor may leave out: offered against not offered."""

from __future__ import annotations

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
