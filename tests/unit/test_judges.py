"""All that compares numbers asks one engine; each of its users finds the same planted faults."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from causeway import numerics
from causeway.comparison import divergence, judge
from causeway.comparison import reference as cpu
from causeway.comparison.snapshot import Snapshot
from causeway.compile import check
from causeway.conformance import reference as conformance
from causeway.conformance.families import family
from causeway.numerics import tolerances
from causeway.trace import diff, replay
from causeway.verify.report import compare_series

PACKAGE = Path(numerics.__file__).parents[1]


def by_compare(name: str, inputs: tuple[Any, ...], came: Tensor, index: int = 0) -> bool:
    writes = cpu.shape_of(name).writes
    given = Snapshot((*inputs, *[None] * (len(writes) - len(inputs))), writes)
    same = cpu.run(name, given)
    one = judge.Judge(name, given, same, tolerances.of(name), judge.Limits())
    return one.tensor(index, came, same.values()[index]).verdict.good


def by_conformance(name: str, inputs: tuple[Any, ...], came: Tensor, index: int = 0) -> bool:
    found = family(name, frozenset({name}))
    dtype = next(t.dtype for t in inputs if isinstance(t, Tensor))
    case = conformance.Case(
        found, dtype, "functional", found.reference, "by hand", "as it is", inputs
    )
    right = conformance.reference_of(case)
    results = list(right.results)
    results[index] = came
    try:
        conformance.judge(results, right, strides=True)
    except conformance.Wrong:
        return False
    return True


def by_replay(name: str, inputs: tuple[Any, ...], came: Tensor, index: int = 0) -> bool:
    runner = replay.Runner.__new__(replay.Runner)
    runner.call = SimpleNamespace(operator=name)  # type: ignore[assignment]
    writes = cpu.shape_of(name).writes
    given = Snapshot((*inputs, *[None] * (len(writes) - len(inputs))), writes)
    runner._reference(given)
    assert runner.best is not None
    results = [t.clone() for t in runner.best]
    results[index] = came
    return runner._compare(results, runner.best) is None


def by_divergence(name: str, inputs: tuple[Any, ...], came: Tensor) -> bool:
    return not divergence.distance(came, the_cpus(name, inputs), None)[1]


def by_trace_diff(name: str, inputs: tuple[Any, ...], came: Tensor) -> bool:
    allowed = numerics.allowed("machines", came.dtype)
    return diff._of_values(came, the_cpus(name, inputs), allowed).good


def by_compile_check(name: str, inputs: tuple[Any, ...], came: Tensor) -> bool:
    return check.difference(came, the_cpus(name, inputs)) is None


def by_verify(name: str, inputs: tuple[Any, ...], came: Tensor) -> bool:
    right = the_cpus(name, inputs)
    tolerance = numerics.allowed("series", came.dtype)
    return compare_series("losses", right.tolist(), came.tolist(), tolerance).same


def the_cpus(name: str, inputs: tuple[Any, ...]) -> Tensor:
    found: Tensor = conformance.overload(name)(*inputs)
    return found


OPERATORS = [by_compare, by_conformance, by_replay]
PROGRAMS = [by_divergence, by_trace_diff, by_compile_check, by_verify]
Judge = Callable[[str, tuple[Any, ...], Tensor], bool]


def names(judge: Judge) -> str:
    return judge.__name__


@pytest.fixture
def sums() -> tuple[Tensor, Tensor]:
    """Inputs of a product whose result has NaN and both infinities."""
    torch.manual_seed(3)
    a, b = torch.randn(5, 40), torch.randn(40, 6)
    a[0, 0], a[1, 1], a[2, 2] = math.nan, math.inf, -math.inf
    return a, b


@pytest.mark.parametrize("judge", [*OPERATORS, *PROGRAMS], ids=names)
def test_the_cpus_result_and_another_order_of_its_sums_are_right(
    judge: Judge, sums: tuple[Tensor, Tensor]
) -> None:
    a, b = sums
    assert judge("aten::mm", sums, a @ b)
    other = torch.zeros(5, 6)
    for k in reversed(range(40)):
        other += a[:, k : k + 1] * b[k : k + 1]
    assert judge("aten::mm", sums, other)


def nan_elsewhere(t: Tensor) -> None:
    t[0, 0], t[3, 3] = 0.5, math.nan


def nan_for_a_number(t: Tensor) -> None:
    t[3, 3] = math.nan


def number_for_a_nan(t: Tensor) -> None:
    t[0, 0] = 0.0


def infinity_of_the_other_sign(t: Tensor) -> None:
    t[1, 0] = -t[1, 0]


def infinity_for_a_number(t: Tensor) -> None:
    t[3, 3] = math.inf


def number_for_an_infinity(t: Tensor) -> None:
    t[1, 0] = torch.finfo(t.dtype).max


def one_wrong_element(t: Tensor) -> None:
    t[4, 5] += t[4, 5].abs() + 1


FAULTS = [
    nan_elsewhere,
    nan_for_a_number,
    number_for_a_nan,
    infinity_of_the_other_sign,
    infinity_for_a_number,
    number_for_an_infinity,
    one_wrong_element,
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
@pytest.mark.parametrize("judge", [*OPERATORS, *PROGRAMS], ids=names)
def test_each_user_finds_a_planted_fault(
    judge: Judge, fault: Callable[[Tensor], None], sums: tuple[Tensor, Tensor]
) -> None:
    came = sums[0] @ sums[1]
    fault(came)
    assert not judge("aten::mm", sums, came)


@pytest.mark.parametrize("judge", OPERATORS, ids=names)
def test_a_sum_in_half_precision_is_found(judge: Judge) -> None:
    torch.manual_seed(0)
    a, b = torch.randn(1, 512).half(), torch.randn(512, 1).half()
    total = torch.zeros(1, 1).half()
    for k in range(512):
        total = (total.float() + a[:, k : k + 1].float() * b[k : k + 1].float()).half()
    assert judge("aten::mm", (a, b), (a.float() @ b.float()).half())
    assert not judge("aten::mm", (a, b), total)


@pytest.mark.parametrize("judge", OPERATORS, ids=names)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_a_quotient_that_is_one_too_small_is_found_beside_a_jump(
    judge: Judge, dtype: torch.dtype
) -> None:
    """6 // 3 lies on a jump: how far it moves with its inputs says nothing of rounding."""
    x, y = torch.tensor([6.0, 7.0, 8.0], dtype=dtype), torch.tensor([3.0] * 3, dtype=dtype)
    right = x // y
    assert judge("aten::floor_divide", (x, y), right)
    wrong = right.clone()
    wrong[1] -= 1
    assert not judge("aten::floor_divide", (x, y), wrong)


@pytest.mark.parametrize("judge", OPERATORS, ids=names)
def test_integers_that_become_floats_are_judged_by_the_true_result(judge: Judge) -> None:
    x = torch.tensor([3, 5, 7])
    near = torch.sigmoid(x)
    assert judge("aten::sigmoid", (x,), near)
    assert judge("aten::sigmoid", (x,), torch.nextafter(near, torch.zeros(3)))
    assert not judge("aten::sigmoid", (x,), near * (1 - 1e-5))


@pytest.mark.parametrize("judge", OPERATORS, ids=names)
def test_sums_of_few_products_have_the_bound_of_few(judge: Judge) -> None:
    """A convolution of nine taps over a large image: its bound is that of nine terms, no more."""
    torch.manual_seed(1)
    x, w = torch.randn(1, 1, 200, 200), torch.randn(1, 1, 3, 3)
    rest = (None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    size = torch.nn.functional.conv2d(x.abs(), w.abs())
    right = torch.nn.functional.conv2d(x, w)
    assert judge("aten::convolution", (x, w, *rest), right)
    assert not judge("aten::convolution", (x, w, *rest), right + 1e-5 * size)


@pytest.mark.parametrize("judge", [by_compare, by_conformance], ids=lambda j: j.__name__)
def test_a_place_that_is_named_twice_is_found(judge: Callable[..., bool]) -> None:
    x = torch.tensor([2.0, 1.0, 2.0])
    given = (x, 2, -1, True, True)
    assert judge("aten::topk", given, torch.tensor([2, 0]), 1)
    assert not judge("aten::topk", given, torch.tensor([0, 0]), 1)
    assert not judge("aten::topk", given, torch.tensor([0, 1]), 1)


@pytest.mark.parametrize("judge", PROGRAMS[:3], ids=names)
def test_large_integers_that_differ_by_one_are_found(judge: Judge) -> None:
    x = torch.tensor([2**60, 5])
    assert judge("aten::neg", (x,), -x)
    assert not judge("aten::neg", (x,), -x + torch.tensor([1, 0]))


@pytest.mark.parametrize("judge", PROGRAMS[:3], ids=names)
def test_complex_numbers_have_the_tolerance_of_their_parts(judge: Judge) -> None:
    torch.manual_seed(2)
    x = torch.randn(50, dtype=torch.complex64)
    assert judge("aten::neg", (x,), -x * (1 + 1e-6))
    assert not judge("aten::neg", (x,), -x * (1 + 1e-2j))


def test_a_running_statistic_is_written_though_the_schema_is_silent_for_both() -> None:
    name = "aten::native_batch_norm"
    inputs = (torch.randn(4, 2, 3), None, None, torch.zeros(2), torch.ones(2), True, 0.1, 1e-5)
    arguments = cpu.shape_of(name).op._schema.arguments
    written = [arguments[k].name for k in cpu.shape_of(name).unreturned]
    assert written == ["running_mean", "running_var"]
    assert len(list(conformance.beside(name, inputs))) == len(written)


def test_no_other_file_has_a_tolerance() -> None:
    wanted = re.compile(r"torch\.(isclose|allclose)\(|\.isclose\(|equal_nan=|float32: [\d.]+e-")
    found = [
        str(path.relative_to(PACKAGE))
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.parent.name != "numerics" and wanted.search(path.read_text(encoding="utf-8"))
    ]
    assert found == ["migrate/advice/table.py"]  # words for people
