"""The dump prints operators as they run, and is switched at any time."""

from __future__ import annotations

import io
import os
import time
from pathlib import Path

import pytest
import torch

import causeway
from causeway import config
from causeway.debug import dump as module
from causeway.debug import whole
from causeway.errors import ConfigError


@pytest.fixture(autouse=True)
def _off(monkeypatch: pytest.MonkeyPatch):
    for name in list(os.environ):
        if name.startswith("CAUSEWAY_DUMP"):
            monkeypatch.delenv(name)
    yield
    for name in whole.TOOLS["dump"]:
        config.reset(name)
    assert module.running() is None


def dumped(level: int, work, **options: object) -> str:
    out = io.StringIO()
    with causeway.dump(level, to=out, **options):
        work()
    return out.getvalue()


def test_level_1_names_operator_kernel_rung_and_place(device: torch.device) -> None:
    layer = torch.nn.Linear(3, 2).to(device)
    x = torch.randn(4, 3, device=device)
    text = dumped(1, lambda: layer(x).sum().backward())
    addmm = next(line for line in text.splitlines() if line.startswith("aten::addmm"))
    assert addmm.endswith("[step 1, forward, Linear]")
    assert any(f"  {rung}" in addmm for rung in ("native: addmm", "derived: addmm.out", "host: "))
    assert "[step 1, backward, Linear]" in text
    assert "float32" not in text


def test_level_2_has_arguments_and_results_but_no_values(device: torch.device) -> None:
    x = torch.full((2, 3), 0.125, device=device)
    text = dumped(2, lambda: torch.ops.aten.add_.Tensor(x.t(), 3, alpha=2), ops="add_")
    assert text.splitlines()[1:] == [
        f"    self: float32[3, 2], stride [1, 3], {device.type}:0, view",
        "    other: 3",
        "    alpha: 2",
        f"    -> result: float32[3, 2], stride [1, 3], {device.type}:0, view",
    ]


def test_level_2_says_what_has_a_gradient_and_which_memory_format(device: torch.device) -> None:
    layer = torch.nn.Conv2d(2, 3, 1, device=device)
    x = torch.ones(1, 2, 4, 4, device=device).to(memory_format=torch.channels_last)
    text = dumped(2, lambda: layer(x), ops="convolution")
    lines = {line.split(":")[0].strip(): line for line in text.splitlines()[1:]}
    assert lines["input"].endswith(f"stride [32, 1, 8, 2], channels_last, {device.type}:0")
    assert lines["weight"].endswith(f"{device.type}:0, requires_grad")
    plain = dumped(2, lambda: layer(x.contiguous()), ops="convolution")
    assert "channels_last" not in plain


def test_level_3_prints_values_before_and_after_as_torch_does(device: torch.device) -> None:
    x = torch.tensor([1.0, 2.0], device=device)
    torch.set_printoptions(precision=2)
    try:
        text = dumped(3, lambda: x.mul_(1.23456), ops="mul_")
    finally:
        torch.set_printoptions(profile="default")
    assert "tensor([1., 2.])" in text
    assert "tensor([1.23, 2.47])" in text


def test_lists_of_tensors_are_printed_one_by_one(device: torch.device) -> None:
    x = torch.ones(2, device=device)
    text = dumped(2, lambda: torch.cat([x, x]), ops="cat.*")
    assert "tensors[1]: float32[2]" in text


def test_an_operator_that_raises_is_said(device: torch.device) -> None:
    x = torch.ones(2, 3, device=device)

    def work() -> None:
        with pytest.raises(IndexError):
            x.sort(7)

    lines = dumped(1, work).splitlines()
    assert any("raised" in line for line in lines)


def test_os_environ_switches_the_dump_while_the_program_runs(device, capsys) -> None:
    x = torch.ones(2, device=device)
    x.add_(1)
    os.environ["CAUSEWAY_DUMP"] = "1"
    x.mul_(2)  # the very next operator
    os.environ["CAUSEWAY_DUMP"] = "2"
    x.sub_(3)
    os.environ["CAUSEWAY_DUMP"] = "0"
    x.div_(4)
    os.environ["CAUSEWAY_DUMP"] = "1"
    del os.environ["CAUSEWAY_DUMP"]
    x.neg_()
    said = capsys.readouterr().out
    assert [line.split()[0] for line in said.splitlines() if line.startswith("aten")] == [
        "aten::mul_.Tensor",
        "aten::sub_.Tensor",
    ]
    assert "self: float32[2]" in said
    assert module.running() is None


def test_filters_in_os_environ_are_followed_too(device, capsys, monkeypatch) -> None:
    x = torch.ones(2, device=device)
    monkeypatch.setenv("CAUSEWAY_DUMP", "1")
    monkeypatch.setenv("CAUSEWAY_DUMP_OPS", "neg.*")
    x.mul_(2).neg_()
    monkeypatch.setenv("CAUSEWAY_DUMP_OPS", "mul_")
    x.mul_(2).neg_()
    monkeypatch.setenv("CAUSEWAY_DUMP", "0")
    x.neg_()
    said = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in said] == ["aten::neg_", "aten::mul_.Tensor"]


def test_a_mistake_in_os_environ_warns_and_the_program_goes_on(device, monkeypatch) -> None:
    x = torch.ones(2, device=device)
    monkeypatch.setenv("CAUSEWAY_DUMP", "7")
    with pytest.warns(UserWarning, match="CAUSEWAY_DUMP is '7'"):
        x.neg_()
    monkeypatch.setenv("CAUSEWAY_DUMP_OPS", "no_such_operator")
    monkeypatch.setenv("CAUSEWAY_DUMP", "1")
    with pytest.warns(UserWarning, match="'no_such_operator' matches no operator"):
        x.neg_()
    assert x.tolist() == [1.0, 1.0]
    monkeypatch.setenv("CAUSEWAY_DUMP", "0")
    x.neg_()


def test_a_mistake_from_python_raises_and_changes_nothing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'dump' is 4"):
        causeway.dump(4)
    with pytest.raises(ConfigError, match="matches no operator"):
        causeway.dump(1, ops="no_such_operator")
    with pytest.raises(ConfigError, match="expected a first step"):
        causeway.dump(1, steps=(3, 2))
    with pytest.raises(ConfigError, match="dump_to"):
        causeway.dump(1, to=f"{tmp_path}/no/such/\0folder")
    assert config.get("dump") == 0


def test_steps_and_ranks_filter(device: torch.device, monkeypatch) -> None:
    def work() -> None:
        x = torch.ones(2, device=device)
        for _ in range(3):
            x.neg_()
            causeway.step()

    assert dumped(1, work, steps=(2, 2)).count("neg_") == 1
    assert dumped(1, work, ranks=[0]).count("neg_") == 3
    assert dumped(1, work, ranks=[1]) == ""
    monkeypatch.setenv("RANK", "1")
    assert dumped(1, work, ranks=[1]).count("neg_") == 3


def test_a_callback_gets_the_call_and_the_text(device: torch.device) -> None:
    seen: list[tuple[str, str]] = []
    with causeway.dump(1, ops="neg", to=lambda call, text: seen.append((call.name, text))):
        torch.ones(2, device=device).neg()
    assert [name.split(".")[0] for name, _ in seen] == ["aten::neg"]
    assert seen[0][1].startswith("aten::neg")


def test_a_file_has_the_rank_where_there_are_several(device, tmp_path: Path, monkeypatch) -> None:
    x = torch.ones(2, device=device)
    with causeway.dump(1, to=tmp_path / "alone.txt"):
        x.neg_()
    assert "aten::neg_" in (tmp_path / "alone.txt").read_text()
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "4")
    with causeway.dump(1, to=tmp_path / "run.txt"):
        x.neg_()
    assert "aten::neg_" in (tmp_path / "run.rank3.txt").read_text()
    with causeway.dump(1, to=f"{tmp_path}/{{rank}}-{{pid}}.txt"):
        x.neg_()
    assert (tmp_path / f"3-{os.getpid()}.txt").exists()


def test_dumps_nest_and_the_outer_one_goes_on(device: torch.device) -> None:
    x = torch.ones(2, device=device)
    outer, inner = io.StringIO(), io.StringIO()
    with causeway.dump(1, to=outer):
        with causeway.dump(0):
            x.neg_()
        with causeway.dump(2, to=inner):
            x.exp_()
        x.abs_()
    assert outer.getvalue().startswith("aten::abs")
    assert "exp" in inner.getvalue()
    assert "neg" not in outer.getvalue() + inner.getvalue()


@pytest.mark.slow
def test_a_program_starts_with_the_dump_on(run_python) -> None:
    program = "import torch; torch.ones(2, device='sim').neg_()"
    done = run_python(program, CAUSEWAY_DUMP="1", CAUSEWAY_DUMP_OPS="neg_,mm")
    assert done.stdout.startswith("aten::neg_")
    assert done.stdout.count("\n") == 1


class Digits(torch.nn.Module):
    """The network of torch's MNIST example."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = torch.nn.Conv2d(1, 32, 3), torch.nn.Conv2d(32, 64, 3)
        self.fc1, self.fc2 = torch.nn.Linear(9216, 128), torch.nn.Linear(128, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.conv2(torch.relu(self.conv1(x))))
        x = torch.nn.functional.max_pool2d(x, 2).flatten(1)
        return torch.log_softmax(self.fc2(torch.relu(self.fc1(x))), 1)


@pytest.mark.slow
def test_level_1_costs_a_training_step_at_most_half_again(device, tmp_path: Path) -> None:
    """Steps with and without by turns, in one process; the median of the ratios."""
    net = Digits().to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    x = torch.randn(16, 1, 28, 28).to(device)
    target = torch.randint(0, 10, (16,)).to(device)

    def step() -> float:
        start = time.process_time()
        optimizer.zero_grad()
        torch.nn.functional.nll_loss(net(x), target).backward()
        optimizer.step()
        torch.accelerator.synchronize()
        return time.process_time() - start

    def watched() -> float:
        with causeway.dump(1, to=tmp_path / "dump.txt"):
            return step()

    step()
    ratios = []
    for _ in range(9):
        plain = step()
        ratios.append(watched() / plain)
    assert sorted(ratios)[len(ratios) // 2] < 1.5
