"""Traces of two machines are matched call by call, and where they part is named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from causeway.observe.arguments import overload
from causeway.trace import align, tensors
from causeway.trace.diff import Difference, compare
from causeway.trace.reader import Trace
from causeway.trace.trace import RecordedCall, Writer

from .conftest import kept

Step = tuple[str, list[torch.Tensor], list[torch.Tensor]]


def write(folder: Path, steps: list[Step], *, keep: str = "full", module: str = "Net.{}") -> Trace:
    """A trace of calls: operator, inputs, results."""
    writer = Writer(folder, {})

    def look(t: torch.Tensor, storages: dict[int, int]) -> tensors.TensorRecord:
        record = kept(writer, t, storages)
        if keep == "statistics":
            return replace(record, digest=None, data=None)
        if keep == "hash":
            return replace(record, data=None)
        return record

    for number, (name, inputs, results) in enumerate(steps):
        storages: dict[int, int] = {}
        call = RecordedCall(
            number,
            name,
            [look(t, storages) for t in inputs],
            [look(t, storages) for t in results],
            module=module.format(number),
            step=1,
        )
        writer.write(call, str(overload(name)._schema))
    writer.close()
    return Trace(folder)


def numbers(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*(shape or (4, 5)), generator=torch.Generator().manual_seed(seed))


A, B, C = numbers(1), numbers(2), numbers(3)


def test_a_trace_equals_itself(trace: Path) -> None:
    found = compare(Trace(trace), Trace(trace))
    assert found.same
    assert len(found.rows) == 4
    assert all(row.result.size == 0 for row in found.rows)


def test_forms_of_an_operator_are_one(tmp_path: Path) -> None:
    ours = write(tmp_path / "a", [("aten::add.Tensor", [A, B], [A + B])])
    theirs = write(tmp_path / "b", [("aten::add.out", [A, B], [A + B])])
    also = write(tmp_path / "c", [("aten::add_.Tensor", [A, B], [A + B])])
    assert compare(ours, theirs).same
    assert compare(ours, also).same
    assert len(compare(ours, also).rows) == 1


def test_views_and_allocations_are_no_difference(tmp_path: Path) -> None:
    ours = write(tmp_path / "a", [("aten::t", [A], [A.t()]), ("aten::relu", [A], [A.relu()])])
    theirs = write(
        tmp_path / "b",
        [("aten::empty.memory_format", [], [B]), ("aten::relu.out", [A], [A.relu()])],
    )
    found = compare(ours, theirs)
    assert found.same
    assert len(found.rows) == 1


def test_a_computation_that_was_split_differently_is_said_and_is_no_difference(
    tmp_path: Path,
) -> None:
    end = ("aten::relu", [C], [C.relu()])
    ours = write(tmp_path / "a", [("aten::addcmul", [A, B, C], [A + B * C]), end], module="Net")
    theirs = write(
        tmp_path / "b",
        [("aten::mul.Tensor", [B, C], [B * C]), ("aten::add.Tensor", [A, C], [A + B * C]), end],
        module="Net",
    )
    found = compare(ours, theirs)
    assert found.same
    assert len(found.split) == 1
    assert "addcmul against mul.Tensor, add.Tensor" in found.notes()[0]


def test_a_call_that_one_machine_lacks_is_a_difference(tmp_path: Path) -> None:
    steps: list[Step] = [("aten::relu", [A], [A.relu()]), ("aten::neg", [A], [-A])]
    found = compare(write(tmp_path / "a", steps), write(tmp_path / "b", steps[:1]))
    assert not found.same
    assert [c.operator for c in found.only_a] == ["aten::neg"]


def chain(spoil: int = -1, by: float = 0.0) -> list[Step]:
    """relu, then products; the result of call `spoil` is off, and what follows from it."""
    steps: list[Step] = []
    x = numbers(7, 6, 6)
    weight = numbers(8, 6, 6) / 3
    for number in range(6):
        name = "aten::relu" if number % 2 else "aten::mm"
        y = x.relu() if number % 2 else x @ weight
        if number == spoil:
            y = y + by * y.abs().max()
        steps.append((name, [x] if number % 2 else [x, weight], [y]))
        x = y
    return steps


@pytest.mark.parametrize("keep", ["full", "statistics"])
@pytest.mark.parametrize("spoil", [0, 2, 3])
def test_the_call_where_machines_part_is_named(tmp_path: Path, spoil: int, keep: str) -> None:
    ours = write(tmp_path / "a", chain(), keep=keep)
    theirs = write(tmp_path / "b", chain(spoil, 0.05), keep=keep)
    found = compare(ours, theirs)
    assert found.first is not None
    assert found.first.a.module == f"Net.{spoil}"
    assert found.origin is found.first
    assert str(found.first.a.operator) in str(found.first)


def test_rounding_is_no_difference(tmp_path: Path) -> None:
    assert compare(write(tmp_path / "a", chain()), write(tmp_path / "b", chain(2, 1e-6))).same
    strict = compare(Trace(tmp_path / "a"), Trace(tmp_path / "b"), rtol=1e-8)
    assert strict.first is not None
    assert strict.first.a.module == "Net.2"


def test_other_bits_of_integers_are_a_difference(tmp_path: Path) -> None:
    ours, theirs = torch.tensor([1, 2, 3]), torch.tensor([3, 2, 1])
    steps = [[("aten::sort", [A], [A, t])] for t in (ours, theirs)]
    found = compare(
        write(tmp_path / "a", steps[0], keep="hash"), write(tmp_path / "b", steps[1], keep="hash")
    )
    assert not found.same
    assert "other values, of the same statistics" in str(found.first)


def test_nan_in_another_place_is_a_difference(tmp_path: Path) -> None:
    ours, theirs = torch.ones(4, 5), torch.ones(4, 5)
    ours[1, 2] = theirs[2, 1] = float("nan")
    found: list[Difference] = []
    for keep in ("full", "statistics"):
        a = write(tmp_path / f"a{keep}", [("aten::relu", [A], [ours])], keep=keep)
        b = write(tmp_path / f"b{keep}", [("aten::relu", [A], [theirs])], keep=keep)
        found.append(compare(a, b))
    assert "NaN or infinity at 2 other places, the first at [1, 2]" in str(found[0].first)
    assert found[1].same  # statistics cannot tell: that is their limit


def test_random_operators_are_said_not_compared(tmp_path: Path) -> None:
    a = write(tmp_path / "a", [("aten::rand", [], [A])])
    b = write(tmp_path / "b", [("aten::rand", [], [B])])
    found = compare(a, b)
    assert found.same
    assert found.random == 1
    assert "drew other random numbers" in found.notes()[0]


def test_an_optimizer_may_go_by_parameters_or_by_operators(tmp_path: Path) -> None:
    params = [numbers(k, 3, 3) for k in range(4)]
    muls: list[Step] = [("aten::mul_.Tensor", [p], [p * 0.9]) for p in params]
    negs: list[Step] = [("aten::neg_", [p * 0.9], [-p * 0.9]) for p in params]
    by_parameter = [step for pair in zip(muls, negs, strict=True) for step in pair]
    found = compare(
        write(tmp_path / "a", by_parameter, module="SGD"),
        write(tmp_path / "b", [*muls, *negs], module="SGD"),
    )
    assert found.same
    assert len(found.rows) == 8
    assert all(row.result.size == 0 for row in found.rows)


def test_what_follows_from_random_numbers_is_counted_and_a_fault_behind_is_named(
    tmp_path: Path,
) -> None:
    def steps(mask: torch.Tensor, fault: float) -> list[Step]:
        dropped = A * mask
        return [
            ("aten::native_dropout", [A], [dropped, mask]),
            ("aten::neg", [dropped], [-dropped]),
            ("aten::relu", [B], [B.relu() + fault]),
        ]

    ours = write(tmp_path / "a", steps(numbers(9).gt(0).float(), 0.0))
    theirs = write(tmp_path / "b", steps(numbers(10).gt(0).float(), 0.0))
    wrong = write(tmp_path / "c", steps(numbers(10).gt(0).float(), 0.1))
    found = compare(ours, theirs)
    assert found.same
    assert sum(row.noise for row in found.rows) == 1
    found = compare(ours, wrong)
    assert found.first is not None
    assert found.first.a.operator == "aten::relu"


def test_long_traces_are_aligned_around_what_is_missing() -> None:
    def calls(names: str) -> list[RecordedCall]:
        return [RecordedCall(k, f"aten::{name}", [], []) for k, name in enumerate(names)]

    a = calls("abcde" * 400)
    b = calls("abcde" * 200 + "x" + "abcde" * 200)
    found = align.align(a, b)
    assert len(found.pairs) == 2000
    assert [c.operator for c in found.only_b] == ["aten::x"]
    assert not found.only_a
