"""A share of a device's cores, counted in threads that launches of the simulated chip use."""

from __future__ import annotations

# Kernels of the portable rung are launches of many groups, which the chip's threads share.
USES = """
import os, torch
from causeway import _C
x = torch.ones(1 << 20, device="sim")
torch.accelerator.synchronize()  # else its own launch is counted
def used(tries=1):
    most = 0
    for _ in range(tries):
        _C.device_attribute(0, "cores_used")
        x * 2 + 1
        torch.accelerator.synchronize()
        most = max(most, _C.device_attribute(0, "cores_used"))
        if most > 1:
            break
    return most
several = len(os.sched_getaffinity(0)) > 1
"""
CHIP = {"ops": "none", "CAUSEWAY_SIM_CODE": "1"}


def test_a_process_keeps_to_its_share(run) -> None:
    program = (
        USES
        + """
most = torch.sim.core_limit()
assert most >= 2 and (used(5000) > 1 or not several)
torch.sim.set_core_limit(1)
assert torch.sim.core_limit() == 1 and torch.sim.core_limit(1) == most
assert {used() for _ in range(20)} == {1}
assert (x * 2).sum().item() == 2 << 20
torch.sim.set_core_limit(None)
assert torch.sim.core_limit() == most and (used(5000) > 1 or not several)
for wrong in (0, -1, most + 1):
    try:
        torch.sim.set_core_limit(wrong)
    except ValueError as error:
        assert f"sim:0 has {most} cores" in str(error)
    else:
        raise AssertionError(wrong)
"""
    )
    for execution in ("inline", "async"):
        assert run(program, **CHIP, execution=execution) == ""


def test_a_stream_has_a_share_of_its_own(run) -> None:
    program = (
        USES
        + """
most = torch.sim.core_limit()
stream = torch.sim.Stream()
torch.sim.set_core_limit(1, stream=stream)
assert torch.sim.core_limit(stream=stream) == 1 and torch.sim.core_limit() == most
with torch.sim.stream(stream):
    assert {used() for _ in range(20)} == {1}
assert used(5000) > 1 or not several
torch.sim.set_core_limit(None, stream=stream)
torch.sim.set_core_limit(1)
assert torch.sim.core_limit(stream=stream) == 1  # the lower one holds
try:
    torch.sim.set_core_limit(1, 1, stream=stream)
except ValueError as error:
    assert "the stream is of device 0" in str(error)
else:
    raise AssertionError
"""
    )
    assert run(program, **CHIP, execution="async") == ""


def test_a_vendor_that_shares_none_says_so(run) -> None:
    program = """
        import torch
        for call in (torch.sim.core_limit, lambda: torch.sim.set_core_limit(1)):
            try:
                call()
            except Exception as error:
                print(type(error).__name__, "cores.v1" in str(error))
    """
    assert run(program, **CHIP, without="cores.v1") == "VendorError True\n" * 2
    assert run(program) == "VendorError True\n" * 2  # without a compiler it runs no groups


def test_ct_set_core_number_is_the_share(run) -> None:
    program = """
        import torch
        import torch_mlu.core.mlu_model as ct
        most = torch.mlu.core_limit()
        ct.set_core_number(1)
        assert torch.mlu.core_limit() == 1
        ct.set_core_number(16)
        assert torch.mlu.core_limit() == min(16, most)
    """
    assert run(program, **CHIP, CAUSEWAY_COMPAT="mlu") == ""
