"""Recorded calls run again, and what differs is named with the machine that is off."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import causeway
from causeway.errors import ConfigError
from causeway.trace import tensors
from causeway.trace.reader import Trace
from causeway.trace.replay import Replayed, replay
from causeway.trace.trace import RecordedCall, Writer

from .conftest import kept


def states(trace: Trace, device: object, **options: object) -> dict[str, Replayed]:
    return {one.call.operator: one for one in replay(trace, device, **options).calls}


def write(folder: Path, *calls: RecordedCall, schema: str = "") -> Trace:
    writer = Writer(folder, {})
    for call in calls:
        writer.write(call, schema or "aten::x() -> Tensor")
    writer.close()
    return Trace(folder)


def record(shape: tuple[int, ...], dtype: str = "float32", **fields: object):
    fields.setdefault("stride", torch.empty(shape, device="meta").stride())
    return tensors.TensorRecord(shape, dtype, "cpu", **fields)


@pytest.fixture(params=["cpu", "chip"])
def where(request: pytest.FixtureRequest, device: torch.device) -> object:
    return "cpu" if request.param == "cpu" else device


def work(device: object) -> None:
    """Views of one storage, an output that is given, an index, a mask, in-place and foreach."""
    torch.manual_seed(3)
    x = torch.randn(4, 6, device=device)
    y = torch.empty(0, device=device)
    torch.mm(x, x.t(), out=y)
    x[:, ::2].add_(x[:, 1::2], alpha=2)
    x[torch.tensor([0, 2], device=device)].exp()
    torch.nn.functional.layer_norm(x, (6,)).softmax(1)
    torch._foreach_mul_([x, y], 0.5)
    x.masked_fill_(x > 0, 7.0)
    torch.cat([x, x]).sum(0).argmax()
    w = torch.randn(2, 1, 3, 3, device=device, requires_grad=True)
    torch.nn.functional.conv2d(x.view(1, 1, 4, 6), w).square().sum().backward()


def test_recorded_calls_agree_on_either_device(tmp_path: Path, device, where) -> None:
    with causeway.record(tmp_path / "t", keep="full"):
        work(device)
        work("cpu")
    found = replay(Trace(tmp_path / "t"), where)
    assert found.wrong == []
    agreed = [one for one in found.calls if one.against == "recorded values"]
    assert len(agreed) > 20
    assert found.counts["not run"] <= 2, [str(o) for o in found.calls if o.state == "not run"]


def test_a_wrong_recorded_result_is_said_to_be_off(tmp_path: Path, where) -> None:
    a, b = torch.randn(3, 3), torch.randn(3, 3)
    writer = Writer(tmp_path / "t", {})
    storages: dict[int, int] = {}
    args = [kept(writer, a, storages), kept(writer, b, storages)]
    call = RecordedCall(0, "aten::mm", args, [kept(writer, a @ b + 0.1, storages)])
    writer.write(call, str(torch.ops.aten.mm.default._schema))
    writer.close()
    one = replay(Trace(tmp_path / "t"), where).calls[0]
    assert one.state == "differs"
    assert "the recorded result is off" in one.why


@pytest.mark.slow
def test_a_wrong_kernel_is_said_to_be_off(run_python, tmp_path: Path) -> None:
    with causeway.record(tmp_path / "t", keep="full"):
        work("cpu")
    program = """
import sys
from causeway.trace.reader import Trace
from causeway.trace.replay import replay
for one in replay(Trace(sys.argv[1]), "sim").wrong:
    print(one)
"""
    done = run_python(
        program,
        args=(str(tmp_path / "t"),),
        CAUSEWAY_SIM_OPS="all",
        CAUSEWAY_SIM_CORRUPT="aten::mm.out",
    )
    assert done.stdout.count("\n") == 1
    assert "aten::mm.out" in done.stdout
    assert "the recorded result agrees with the CPU here: sim is off" in done.stdout


def test_inputs_are_generated_where_only_statistics_were_kept(tmp_path: Path, device) -> None:
    with causeway.record(tmp_path / "t"):
        x = torch.randn(8, 4)
        torch.nn.functional.embedding(torch.tensor([0, 7, 3]), x)
        x @ x.t()
    found = states(Trace(tmp_path / "t"), device)
    assert found["aten::embedding"].state == "agrees"
    assert found["aten::embedding"].inputs == "generated"
    assert found["aten::mm"].against == "the CPU"
    here = states(Trace(tmp_path / "t"), "cpu")
    assert here["aten::mm"].state == "ran"
    assert "the inputs are generated" in here["aten::mm"].why


def test_equal_calls_are_run_once(tmp_path: Path) -> None:
    with causeway.record(tmp_path / "t", keep="full", ops="relu"):
        x = torch.randn(3)
        for _ in range(5):
            x.relu()
    found = replay(Trace(tmp_path / "t"))
    assert [(one.call.operator, one.times) for one in found.calls] == [("aten::relu", 5)]


def test_a_result_of_another_shape_differs(tmp_path: Path) -> None:
    call = RecordedCall(0, "aten::relu", [record((3,))], [record((4,))])
    one = replay(write(tmp_path / "t", call)).calls[0]
    assert one.state == "differs"
    assert "float32[3], recorded was float32[4]" in one.why


UNRUN = {
    "aten::no_such_operator": ([], "has no such operator"),
    "mylib::op": ([], "only those of aten"),
    "aten::from_file": (["/etc/passwd", None, 10, None, None, None, None], "opens a file"),
    "aten::relu": ([1, 2, 3], "with 1 arguments, the trace with 3"),
    "aten::zeros": ([[1 << 50], None, None, None, None], "more than the limit"),
    "aten::neg": ([record((1 << 40,))], "more than the limit"),
    "aten::mm": ([record((2, 3)), record((2, 3))], "it raises on cpu"),
    "aten::abs": ([3], "it raises on cpu"),
    "aten::add.out": ([record((1 << 20,), stride=None)] * 2, "arguments, the trace with"),
}


@pytest.mark.parametrize("name", UNRUN)
def test_what_cannot_be_run_is_left_with_its_reason(tmp_path: Path, name: str) -> None:
    args, why = UNRUN[name]
    args = [replace(a, storage=k) if isinstance(a, tensors.TensorRecord) else a
            for k, a in enumerate(args)]  # fmt: skip
    one = replay(write(tmp_path / "t", RecordedCall(0, name, args))).calls[0]
    assert one.state == "not run"
    assert why in one.why


def test_a_device_that_is_not_here_is_refused(trace: Path) -> None:
    with pytest.raises(ConfigError, match="device 'nonsense'"):
        replay(Trace(trace), "nonsense")
