"""The comparison allows what rounding explains, and nothing else."""

from __future__ import annotations

import math

import pytest
import torch

from causeway import numerics
from causeway.numerics import compare

FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int64, torch.uint8, torch.bool, torch.complex64])
def test_the_same_is_right(dtype: torch.dtype) -> None:
    t = torch.arange(12).reshape(3, 4).to(dtype)
    assert compare(t.clone(), t).good


def test_one_wrong_element_is_found_and_counted() -> None:
    should = torch.arange(100000, dtype=torch.float32).reshape(100, 1000)
    came = should.clone()
    came[7, 321] += 1
    verdict = compare(came, should, rule="reduction", exact=should.double(), terms=3)
    assert (verdict.wrong, verdict.first, verdict.elements) == (1, (7, 321), 100000)
    assert (verdict.came, verdict.expected) == ("7322.0", "7321.0")
    assert verdict.max_abs == 1
    assert "1 of 100000 elements" in str(verdict)


def test_squares_that_float32_loses_are_allowed_in_a_deviation_alone() -> None:
    small, lost = torch.tensor([1e-39, 5e-20]), torch.zeros(2)
    assert numerics.rule_of("aten::std.correction_out") == "deviation"
    assert numerics.rule_of("aten::var.correction_out") == "statistics"
    assert compare(lost, small, rule="deviation", exact=small.double(), terms=9).good
    assert not compare(lost, small, rule="statistics", exact=small.double(), terms=9).good
    larger = torch.full((2,), 2e-19)  # whose square is a normal number
    assert not compare(lost, larger, rule="deviation", exact=larger.double(), terms=9).good
    assert not compare(lost.double(), small.double(), rule="deviation", terms=9).good


@pytest.mark.parametrize("what", ["dtype", "shape", "strides"])
def test_dtype_shape_and_strides_count(what: str) -> None:
    should = torch.zeros(3, 4)
    came = {"dtype": should.double(), "shape": should.t(), "strides": torch.zeros(4, 3).t()}[what]
    assert compare(came, should).why == f"wrong {what}"


def test_strides_of_complex_results_count_where_they_are_asked_for() -> None:
    should = torch.ones(3, 4, dtype=torch.complex64)
    came = torch.ones(4, 3, dtype=torch.complex64).t()
    assert compare(came, should).why == "wrong strides"
    assert compare(came, should, strides=False).good
    came[1, 2] = 1 + 2j
    assert compare(came, should, strides=False).wrong == 1


def test_strides_of_ones_and_of_nothing_do_not_count() -> None:
    assert compare(torch.zeros(1, 3).as_strided((1, 3), (77, 1)), torch.zeros(1, 3)).good
    assert compare(torch.zeros(4, 0).t(), torch.zeros(0, 4)).good


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("rule", ["exact", "arithmetic", "statistics"])
def test_nan_and_inf_have_places(value: float, rule: str) -> None:
    should = torch.tensor([1.0, value, 3.0])
    assert compare(should.clone(), should, rule=rule, exact=should.double()).good
    for wrong in (2.0, math.nan if value != value else -value, math.inf):
        came = torch.tensor([1.0, wrong, 3.0])
        if (wrong != wrong and value != value) or wrong == value:
            continue
        assert not compare(came, should, rule=rule, exact=should.double()).good


def test_minus_zero_is_zero() -> None:
    assert compare(torch.tensor([-0.0]), torch.tensor([0.0])).good


@pytest.mark.parametrize("dtype", FLOATS)
def test_rounding_is_right_and_more_is_not(dtype: torch.dtype) -> None:
    exact = torch.rand(1000, dtype=torch.float64) + 1
    should = exact.to(dtype)
    eps = torch.finfo(dtype).eps
    assert compare(should, should, rule="arithmetic", exact=exact).good
    assert compare((exact * (1 + 16 * eps)).to(dtype), should, rule="arithmetic", exact=exact).wrong


def test_float64_tells_when_the_cpu_rounds_too() -> None:
    exact = torch.tensor([1.0], dtype=torch.float64)
    of_the_cpu, came = torch.tensor([1.0 + 2e-3]), torch.tensor([1.0])
    assert not compare(came, of_the_cpu, rule="arithmetic").good
    assert compare(came, of_the_cpu, rule="arithmetic", exact=exact).good


def test_sums_may_be_as_wrong_as_their_terms() -> None:
    """A sum that cancels has the error of what cancelled; its magnitude says how much that was."""
    exact, terms = torch.zeros(1, dtype=torch.float64), 1000
    came = torch.tensor([1e-5])
    total = torch.tensor([1000.0], dtype=torch.float64)
    rule = {"rule": "reduction", "exact": exact, "terms": terms}
    assert not compare(came, torch.zeros(1), **rule).good
    assert compare(came, torch.zeros(1), **rule, magnitude=total).good
    assert not compare(came * 10000, torch.zeros(1), **rule, magnitude=total).good


def test_half_accumulation_is_not_rounding() -> None:
    torch.manual_seed(0)
    a, b = torch.randn(1, 512).half(), torch.randn(512, 1).half()
    exact = a.double() @ b.double()
    magnitude = a.double().abs() @ b.double().abs()
    total = torch.zeros(1, 1).half()
    for k in range(512):
        total = (total.float() + a[:, k : k + 1].float() * b[k : k + 1].float()).half()
    how = {"rule": "matmul", "exact": exact, "terms": 512, "magnitude": magnitude}
    assert compare((a.float() @ b.float()).half(), exact.half(), **how).good
    assert not compare(total, exact.half(), **how).good


def test_overflow_is_infinite() -> None:
    exact = torch.tensor([1e6], dtype=torch.float64)
    inf = torch.tensor([math.inf]).half()
    assert compare(inf, inf, rule="arithmetic", exact=exact).good
    assert not compare(torch.tensor([65504.0]).half(), inf, rule="arithmetic", exact=exact).good


def test_subnormals_count() -> None:
    tiny = torch.tensor([1e-40])
    assert not compare(torch.zeros(1), tiny, rule="arithmetic", exact=tiny.double()).good


def test_a_chip_that_flushes_may_lose_subnormal_numbers_and_no_others() -> None:
    def judge(came: float, right: float, rule: str = "arithmetic", terms: int = 1) -> bool:
        exact = torch.tensor([right], dtype=torch.float64)
        return compare(
            torch.tensor([came]), exact.float(), rule=rule, exact=exact, terms=terms, flushes=True
        ).good

    least = torch.finfo(torch.float32).smallest_normal
    assert judge(0.0, 0.9 * least)
    assert judge(0.0, -1.1 * least)
    assert judge(least, 2.9 * least)
    assert not judge(least, 3.1 * least)
    assert judge(0.0, 9 * least, terms=8)
    assert not judge(0.0, 9.1 * least, terms=8)
    assert not judge(0.0, 1e-40, "exact")
    assert not judge(1.0, 1.000001)
    half = torch.tensor([2.0**-20], dtype=torch.float16)  # computed in float32, where it is normal
    assert not compare(half * 0, half, rule="arithmetic", exact=half.double(), flushes=True).good
    z = torch.tensor([complex(1, 1e-40)])
    assert compare(z.real + 0j, z, rule="arithmetic", flushes=True).good
    assert not compare(z.real + 0j, z, rule="arithmetic").good


def test_spacing_is_the_distance_to_the_next_number() -> None:
    for x in (1.0, 1.5, 2.0, 1000.0, 1e-40):
        t = torch.tensor([x])
        up = torch.nextafter(t, torch.tensor([math.inf]))
        assert numerics.spacing(t.double(), torch.float32).item() == (up - t).item()


def test_every_rule_has_a_reason_and_every_operator_a_rule() -> None:
    assert all(rule.reason for rule in numerics.RULES.values())
    assert set(numerics.OPERATORS.values()) <= set(numerics.RULES)
    assert set(numerics.MAGNITUDE) <= set(numerics.OPERATORS)
    assert numerics.rule_of("aten::_softmax.out") == "statistics"
    assert numerics.rule_of("aten::add_.Tensor") == "arithmetic"


def test_a_verdict_has_mean_relative_error_rms_ratio_and_cosine() -> None:
    came, reference = torch.tensor([3.0, 4.5]), torch.tensor([3.0, 4.0])
    verdict = numerics.compare(came, reference, rule="arithmetic")
    assert verdict.diff1 == pytest.approx(0.5 / 7)
    assert verdict.diff2 == pytest.approx(0.1)
    assert verdict.cosine == pytest.approx((9 + 18) / (5 * (9 + 20.25) ** 0.5))
    same = numerics.compare(reference, reference, rule="arithmetic")
    assert (same.diff1, same.diff2, same.cosine) == (0, 0, 1)
