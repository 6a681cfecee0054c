"""A vendor's library loads or is refused with a reason; `import torch` goes well either way."""

from __future__ import annotations

from pathlib import Path

import odd_vendors
import pytest
from odd_vendors import FIRST, INCLUDE, NAMES

TEMPLATE = INCLUDE.parent / "vendors/template/template.c"
GOOD = ["good", "newer_table", "older_table"]
# What `causeway doctor` says of those that are refused.
BAD = {
    "bad_name": 'its name is "My Chip!": torch needs lower-case letters',
    "declines": "cw_open_v1 returned NULL",
    "incomplete_group": "it offers streams without stream_wait",
    "no_device": "libtestdriver.so.1 is not installed",
    "no_symbol": "it does not export cw_open_v1",
    "truncated_table": "it lacks mem_copy, which level 0 needs",
    "wrong_version": "its table is of abi version 2",
}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory):
    """The path of an odd vendor's library, built once."""
    folder = tmp_path_factory.mktemp("vendors")
    return lambda name: str(odd_vendors.build(name, folder))


WORKS = """
import torch
assert torch.test.is_available() and torch.test.device_count() == 1
assert torch.accelerator.current_accelerator() == torch.device("test")
x = torch.arange(4.0, device="test", requires_grad=True)
y = x + x
assert y.device == torch.device("test", 0) and y.tolist() == [0, 2, 4, 6]
(y * x).sum().backward()
assert x.grad.tolist() == [0, 4, 8, 12]
s, e = torch.Stream("test"), torch.Event("test", enable_timing=True)
e.record(s); s.synchronize()
net = torch.nn.Linear(4, 2).to("test")
assert net(x).cpu().shape == (2,)
torch.test.empty_cache(); torch.test.synchronize()
"""


@pytest.mark.parametrize("name", GOOD)
def test_a_good_library_is_a_device_named_after_the_vendor(run, library, name: str) -> None:
    assert run(WORKS, CAUSEWAY_VENDOR=library(name)) == ""


def test_a_library_built_with_the_first_header_is_a_device(run, tmp_path: Path) -> None:
    source, to = odd_vendors.HERE / "vendors/good.c", tmp_path / "libcw_good.so"
    library = odd_vendors.compile_c(source, to, include=odd_vendors.FIRST)
    program = (
        WORKS
        + """
from causeway import _C
entries = _C.vendor_state()["entries"]
assert not any(entries[e] for e in ("close", "peer_access", "device_attribute", "fault"))
assert torch.test.can_device_access_peer(0, 0) is False
assert not hasattr(torch.test.get_device_properties(), "clock_rate")
"""
    )
    assert run(program, CAUSEWAY_VENDOR=str(library)) == ""


REFUSED = """
import contextlib, io, json, sys, torch
assert (torch.ones(3) + 1).tolist() == [2, 2, 2]
assert torch.accelerator.current_accelerator(check_available=True) is None
import causeway.autoload
from causeway.cli import app
name = causeway.autoload.state.device
module = getattr(torch, name)
assert module.is_available() is False and module.device_count() == 0
try:
    torch.ones(3, device=name)
except RuntimeError as error:
    assert sys.argv[1] in str(error), error
else:
    raise AssertionError
said = io.StringIO()
try:
    with contextlib.redirect_stdout(said):
        app(["doctor", "--json"])
except SystemExit as end:
    assert end.code == 1, end.code
report = json.loads(said.getvalue())
assert any(sys.argv[1] in line for line in report["broken"]), report["broken"]
assert report["verdict"].startswith("broken: "), report["verdict"]
"""


@pytest.mark.parametrize("name", BAD)
def test_a_bad_library_leaves_torch_well_and_doctor_names_the_reason(run, library, name) -> None:
    run(REFUSED, args=(BAD[name],), CAUSEWAY_VENDOR=library(name), PYTHONWARNINGS="ignore")


def test_every_odd_vendor_is_either_good_or_bad() -> None:
    assert sorted([*GOOD, *BAD]) == NAMES


TRAINS = """
import torch
torch.manual_seed(0)
x = torch.randn(64, 3, device="template")
target = x @ torch.tensor([[1.0], [-2.0], [0.5]], device="template") + 3
net = torch.nn.Linear(3, 1).to("template")
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(200):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(net(x), target)
    loss.backward()
    optimizer.step()
assert loss.item() < 1e-6, loss
torch.testing.assert_close(net.bias.cpu(), torch.tensor([3.0]), rtol=1e-3, atol=1e-3)
from causeway import _C
assert _C.vendor_state()["level"] == 0
"""


@pytest.mark.parametrize("headers", [INCLUDE, FIRST], ids=["now", "oldest"])
def test_the_template_trains_a_linear_layer(run, tmp_path: Path, headers: Path) -> None:
    to = tmp_path / "libcw_template.so"
    built = odd_vendors.compile_c(TEMPLATE, to, "-pedantic", include=headers)
    run(TRAINS, CAUSEWAY_VENDOR=str(built))


NPU = """
import torch
assert torch.npu.is_available() and torch.npu.device_count() == 2
assert not hasattr(torch, "sim")
x = torch.ones(3, device="npu", requires_grad=True)
with torch.npu.device(1):
    y = torch.ones(3).npu()
assert y.device == torch.device("npu:1") and y.is_npu
torch.npu.set_device("npu:0")
with torch.npu.stream(torch.npu.Stream()), torch.autocast("npu"):
    (x * 2).sum().backward()
torch.npu.synchronize()
assert x.grad.tolist() == [2, 2, 2]
assert torch.nn.Linear(2, 2).npu().weight.device.type == "npu"
import causeway
with causeway.ledger() as ledger:
    x.detach() + 1
assert ledger.total() == 1
"""


def test_the_device_takes_the_name_that_a_script_expects(run) -> None:
    run(NPU, CAUSEWAY_DEVICE_NAME="npu")


def test_no_file_and_no_vendor_of_that_name_leave_torch_well(run) -> None:
    for wrong in ("/no/such/libcw_x.so", "no_such_vendor"):
        program = "import torch; print(torch.ones(1).item(), torch.accelerator.is_available())"
        said = run(program, CAUSEWAY_VENDOR=wrong, PYTHONWARNINGS="ignore")
        assert said == "1.0 False\n"
