"""What a program did is in its trace, and traces of two devices are compared."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import causeway
from causeway.cli import app
from causeway.errors import ConfigError
from causeway.trace.diff import compare
from causeway.trace.reader import Trace
from causeway.trace.record import Options

pytestmark = pytest.mark.usefixtures("own_main")


class Net(nn.Module):
    """A convolution before a batch norm (the gradient of its bias is nothing but rounding)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.embed = nn.Embedding(8, 5)
        self.fc = nn.Linear(4 * 36, 5)

    def forward(self, x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.norm(self.conv(x)))
        return torch.nn.functional.gelu(self.fc(x.flatten(1)) + self.embed(i))


def train(device: torch.device | str, steps: int = 2) -> None:
    torch.manual_seed(0)
    net = Net()
    x, i = torch.randn(3, 1, 8, 8), torch.tensor([1, 7, 1])
    net, x, i = net.to(device), x.to(device), i.to(device)
    optimizer = torch.optim.AdamW(net.parameters())
    for _ in range(steps):
        optimizer.zero_grad()
        net(x, i).square().mean().backward()
        optimizer.step()


def recorded(folder: Path, device: torch.device | str, **options: object) -> Trace:
    with causeway.record(folder, **options):
        train(device)
    return Trace(folder)


def test_a_trace_has_module_phase_step_and_rung(tmp_path: Path, device: torch.device) -> None:
    trace = recorded(tmp_path / "t", device)
    assert trace.complete
    found = {(c.operator.split("::")[1].split(".")[0], c.phase, c.module) for c in trace.calls}
    assert ("addmm", "forward", "Net.fc") in found
    assert ("native_batch_norm_backward", "backward", "Net.norm") in found
    assert any(phase == "optimizer" and module == "AdamW" for _, phase, module in found)
    assert {c.step for c in trace.calls} == {1, 2}
    assert {c.rung for c in trace.calls} <= {"native", "derived", "host", "core", "torch"}
    addmm = next(c for c in trace.calls if c.operator.startswith("aten::addmm"))
    assert addmm.results[0].statistics["count"] == 15


def test_a_program_runs_the_same_while_it_is_recorded(tmp_path: Path, device) -> None:
    def run() -> torch.Tensor:
        torch.manual_seed(1)
        x = torch.randn(4, 4, device=device, requires_grad=True)
        (x @ x).tanh().sum().backward()
        return x.grad.cpu()

    plain = run()
    with causeway.record(tmp_path / "t", keep="full"):
        watched = run()
    torch.testing.assert_close(watched, plain, rtol=0, atol=0)


def test_a_trace_of_the_cpu_equals_that_of_the_chip(tmp_path: Path, device: torch.device) -> None:
    ours, theirs = recorded(tmp_path / "cpu", "cpu"), recorded(tmp_path / "chip", device)
    found = compare(ours, theirs)
    assert found.same, str(found.first)
    assert len(found.rows) > 100  # three quarters of all that compute
    assert not found.only_a
    assert not found.only_b


def test_steps_and_operators_can_be_chosen(tmp_path: Path, device: torch.device) -> None:
    trace = recorded(tmp_path / "t", device, ops=["addmm", "mm"], steps=(2, 2), keep="none")
    assert {c.step for c in trace.calls} == {2}
    assert {c.operator.split(".")[0] for c in trace.calls} <= {"aten::addmm", "aten::mm"}
    assert trace.calls[0].args[0].statistics is None


def test_chosen_operators_keep_their_values(tmp_path: Path, device: torch.device) -> None:
    trace = recorded(tmp_path / "t", device, full="addmm", full_steps=(2, 2), via="device")
    kept = {(c.operator.split(".")[0], c.step) for c in trace.calls
            if any(getattr(r, "data", None) for r in c.results)}  # fmt: skip
    assert kept == {("aten::addmm", 2)}


def test_arguments_that_are_changed_are_recorded_as_before_and_after(tmp_path, device) -> None:
    x, y = torch.ones(3, device=device), torch.full((3,), 2.0)
    with causeway.record(tmp_path / "t", keep="full"):
        x.add_(1)
        torch._foreach_add_([y, y.clone()], 1.0)
    trace = Trace(tmp_path / "t")
    add = next(c for c in trace.calls if c.operator == "aten::add_.Tensor")
    assert trace.values(add.args[0]).tolist() == [1, 1, 1]
    assert trace.values(add.results[0]).tolist() == [2, 2, 2]
    foreach = next(c for c in trace.calls if c.operator == "aten::_foreach_add_.Scalar")
    assert foreach.results == []
    assert trace.values(foreach.written[0][0]).tolist() == [3, 3, 3]


def test_an_operator_that_raises_is_in_the_trace(tmp_path: Path, device: torch.device) -> None:
    a = torch.ones(2, 3, device=device)
    with causeway.record(tmp_path / "t"), pytest.raises(RuntimeError):
        torch.ops.aten.mm(a, a)
    failed = [c for c in Trace(tmp_path / "t").calls if c.error]
    assert len(failed) <= 1
    assert all("mm" in c.operator for c in failed)


def test_a_program_that_fails_leaves_a_complete_trace_that_says_so(tmp_path: Path) -> None:
    def run() -> None:
        with causeway.record(tmp_path / "t", via="dispatch"):
            torch.ones(2) + 1
            raise ZeroDivisionError("no reason")

    with pytest.raises(ZeroDivisionError):
        run()
    trace = Trace(tmp_path / "t")
    assert trace.complete
    assert "ZeroDivisionError" in trace.state()
    assert any(c.operator == "aten::add.Tensor" for c in trace.calls)


def test_ranks_write_folders_of_their_own(tmp_path: Path, monkeypatch, device) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with causeway.record(tmp_path / "t", ranks=[1]):
        torch.ones(2, device=device)
    with causeway.record(tmp_path / "u", ranks=[0]) as writer:
        torch.ones(2, device=device)
    assert writer is None
    assert not (tmp_path / "u").exists()
    assert Trace(tmp_path / "t" / "rank1").about["rank"] == 1
    with pytest.raises(causeway.TraceError, match="name one: rank1"):
        Trace(tmp_path / "t")


def test_an_unknown_choice_is_refused() -> None:
    with pytest.raises(ConfigError, match="expected one of none, statistics, hash, full"):
        Options(keep="everything")  # type: ignore[arg-type]


# --- the command ----------------------------------------------------------------------------------

PROGRAM = """
import sys, torch
torch.manual_seed(0)
device = sys.argv[1]
x, w = torch.randn(6, 6).to(device), torch.randn(6, 6).to(device).requires_grad_()
optimizer = torch.optim.SGD([w], lr=0.1, momentum=0.9)
for _ in range(3):
    optimizer.zero_grad()
    (x @ w).tanh().square().sum().backward()
    optimizer.step()
print("--epochs" in sys.argv)
sys.exit(int(sys.argv[-1]))
"""


def command(*args: object) -> tuple[int, str]:
    """The exit status of `causeway ...` in this process, and what it printed."""
    result = CliRunner().invoke(app, [str(arg) for arg in args], env={"COLUMNS": "200"})
    assert result.exception is None or isinstance(result.exception, SystemExit), result.output
    return result.exit_code, result.output


def test_commands_record_and_compare_a_program(tmp_path: Path, device: torch.device) -> None:
    script = tmp_path / "train.py"
    script.write_text(PROGRAM)
    good, chip = tmp_path / "good", tmp_path / "chip"
    status, said = command("record", "-o", good, "--full", ".*", script, "cpu", "--epochs", 1, 3)
    assert status == 3
    assert said.startswith("True")
    assert f"calls in {good}" in said
    assert "exit status 3" in Trace(good).state()
    assert command("record", "-o", good, script, "cpu", 0) == (
        2, f"causeway record: {good} exists already: name another folder, or remove it\n"
    )  # fmt: skip
    assert command("record", "-o", chip, script, device, 0)[0] == 0
    status, said = command("diff", good, chip, "--json", tmp_path / "d.json")
    assert status == 0
    assert "the same: " in said
    assert json.loads((tmp_path / "d.json").read_text())["same"] is True
    status, said = command("replay", good, "--device", device, "--op", "tanh")
    assert status == 0
    assert "1 agrees" in said or "3 agrees" in said


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (["record", "missing.py"], "there is no such file"),
        (["record", "--via", "wire", __file__], "expected auto, device or dispatch"),
        (["record", "--steps", "9-3", __file__], "--steps is '9-3'"),
        (["record", "--budget", "much", __file__], "--budget is 'much'"),
        (["record", "--keep", "all", __file__], "expected one of none"),
        (["record", "--ops", "(", __file__], "no regular expression"),
        (["diff", "nowhere", "nowhere"], "no trace"),
        (["replay", "nowhere"], "no trace"),
        (["cases", "nowhere"], "no trace"),
    ],
)
def test_what_cannot_be_done_is_said_and_the_status_is_2(args, why, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    status, said = command(*args)
    assert status == 2
    assert why in said


@pytest.mark.slow
def test_a_wrong_kernel_is_where_the_traces_part(run_python, tmp_path: Path) -> None:
    """The simulated chip computes garbage in the second tanh: that call is named."""
    script = tmp_path / "train.py"
    script.write_text(PROGRAM)
    assert command("record", "-o", tmp_path / "good", script, "cpu", 0)[0] == 0
    program = "import sys; from causeway.cli import app; app(sys.argv[1:])"
    run_python(
        program,
        args=("record", "-o", str(tmp_path / "bad"), str(script), "sim", "0"),
        CAUSEWAY_SIM_CORRUPT="aten::tanh.out:2",
        CAUSEWAY_SIM_OPS="all",
    )
    status, said = command("diff", tmp_path / "good", tmp_path / "bad")
    assert status == 1
    assert "first divergence: aten::tanh" in said
    assert "step 2, forward" in said
