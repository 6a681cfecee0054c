"""What the suite takes for right where the CPU is wrong, or where more than one answer is right."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from causeway.conformance import reference, variations
from causeway.conformance.families import family
from causeway.conformance.placement import Placement
from causeway.conformance.randoms import random_cases
from causeway.conformance.reference import (
    Case,
    Reference,
    References,
    Refused,
    Wrong,
    _elements,
    judge,
    on_cpu,
    reference_of,
)


def case(operator: str, *inputs: Any) -> Case:
    found = family(operator, frozenset({operator}))
    return Case(found, torch.float32, "functional", found.reference, "by hand", "as it is", inputs)


def judged(reference: Reference, results: list[torch.Tensor]) -> float:
    return judge(results, reference, strides=True)


def test_the_median_of_an_expanded_tensor_is_not_the_cpus() -> None:
    x = torch.tensor([[6.0, -8.0]]).expand(3, 2)
    assert reference_of(case("aten::median.dim_values", x, 0, False)).results[0].tolist() == [6, -8]


def test_places_are_read_densely_where_the_cpu_reads_what_is_between() -> None:
    x = torch.randn(1, 2, 4, 4, 4)
    out, at = torch.ops.aten.adaptive_max_pool3d(x, [2, 2, 2])
    spread = torch.full((1, 2, 2, 2, 4), 1 << 40)[..., ::2].copy_(at)
    found = reference_of(
        case("aten::adaptive_max_pool3d_backward.grad_input", torch.ones_like(out), x, spread)
    )
    assert found.results[0].sum() == out.numel()


def test_a_value_may_be_found_anywhere_that_it_stands() -> None:
    x = torch.tensor([[1.0, 2.0, 2.0, 3.0]])
    found = reference_of(case("aten::mode.values", x, 1, False))
    two = torch.tensor([2.0])
    for place in (1, 2):
        judged(found, [two, torch.tensor([place])])
    for place, words in ((0, "wrong values"), (4, "not in a dimension")):
        with pytest.raises(Wrong, match=words):
            judged(found, [two, torch.tensor([place])])
    with pytest.raises(Wrong, match="wrong dtype"):
        judged(found, [two, torch.tensor([1], dtype=torch.int32)])


def test_a_place_is_named_once() -> None:
    x = torch.tensor([2.0, 1.0, 2.0])
    found = reference_of(case("aten::topk.values", x, 2, -1, True, True))
    judged(found, [found.results[0], torch.tensor([2, 0])])
    with pytest.raises(Wrong, match="a place twice"):
        judged(found, [found.results[0], torch.tensor([0, 0])])


def test_running_statistics_are_compared() -> None:
    mean, var = torch.zeros(2), torch.ones(2)
    inputs = (torch.randn(4, 2, 3), None, None, mean, var, True, 0.1, 1e-5)
    found = reference_of(case("aten::native_batch_norm", *inputs))
    assert len(found.results) == 5
    judged(found, found.results)
    with pytest.raises(Wrong, match="result 4"):
        judged(found, [*found.results[:4], found.results[4] + 1])


def test_digamma_is_as_right_as_its_argument_allows() -> None:
    x = torch.tensor([1.4616322, -0.5040830, -3.9999])
    found = reference_of(case("aten::digamma.out", x))
    assert found.exact is not None
    near = torch.digamma(x.double() * (1 + 1e-7)).float()
    judged(found, [near])
    with pytest.raises(Wrong):
        judged(found, [torch.digamma(x.double() * (1 + 1e-4)).float()])


def test_what_depends_on_data_counts_as_all_inputs_at_once() -> None:
    x, mask = torch.empty(1000, 1, 10), torch.empty(1000, 10, dtype=torch.bool)
    assert _elements(case("aten::masked_select.out", x, mask)) == 10_000_000


def test_forms_with_the_same_inputs_share_a_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(reference, "on_cpu", lambda case: asked.append(case.kind) or on_cpu(case))
    offered = "aten::relu.out"
    found = family(offered, frozenset({offered}))
    inputs = (torch.randn(3),)

    def of(kind: str, form: str, inputs: Any, out: str = "plain") -> Reference:
        return references.of(
            Case(found, torch.float32, kind, form, "by hand", "as it is", inputs, out)
        )

    references = References()
    first = of("functional", "aten::relu", inputs)
    assert of("out", offered, inputs) is first
    assert of("out", offered, inputs, "input") is first
    assert of("in-place", "aten::relu_", inputs) is not first
    assert of("out", offered, (torch.ones(3),)).results[0].tolist() == [1, 1, 1]
    assert asked == ["functional", "in-place", "out"]
    expanded = (torch.ones(1).expand(3),)
    of("out", offered, expanded)
    with pytest.raises(Refused, match="cannot hold"):  # asked for in any order
        of("out", offered, expanded, "input")


def test_a_target_of_floats_is_as_exact_as_the_rest() -> None:
    x, target = torch.tensor([0.0, 0.25]).half(), torch.tensor([0.0, 1.0]).half()
    name = "aten::binary_cross_entropy_backward.grad_input"
    found = reference_of(case(name, torch.ones(2).half(), x, target, None, 0))
    # The CPU has no 1e-12 in float16, and so a NaN; a chip that computes in float32 has both.
    assert found.results[0][0].isnan()
    judged(found, [torch.tensor([0.0, -4.0]).half()])
    with pytest.raises(Wrong, match="wrong values"):
        judged(found, [torch.tensor([0.0, -4.1]).half()])


def test_a_constant_that_the_cpu_rounds_may_be_exact() -> None:
    grad, x = torch.tensor([1.0, 3.0]).double(), torch.zeros(2).double()
    found = reference_of(case("aten::hardsigmoid_backward.grad_input", grad, x))
    for right in (torch.ops.aten.hardsigmoid_backward(grad, x), grad / 6):
        judged(found, [right])
    with pytest.raises(Wrong, match="wrong values"):
        judged(found, [grad / 6 * (1 + 1e-9)])


def test_what_a_forward_saved_is_not_replaced() -> None:
    x, saved = torch.randn(4, 3, 2), torch.tensor([1.0, 2.0, 3.0])
    inputs = (x, x, None, None, None, torch.zeros(3), saved, True, 1e-5, [True, True, True])
    name = "aten::native_batch_norm_backward"
    found = family(name, frozenset({name}))
    given = dict(variations.variations(found, inputs, torch.float32, layouts=False))
    assert {"random 1", "large", "NaN and Inf"} <= set(given)
    for changed in given.values():
        assert torch.equal(changed[6], saved)
        if changed[-2] == inputs[-2]:
            assert not torch.equal(changed[1], x)


def test_a_chance_without_a_default_is_given() -> None:
    name = "aten::normal.float_Tensor_out"
    found = family(name, frozenset({name}))
    tests = dict(random_cases(found, torch.float32, torch.device("cpu")))
    assert {"same seed", "distribution", "distribution with other arguments"} <= set(tests)
    for test in tests.values():
        test()


class _Copied(Placement):
    """On the CPU, apart from the bytes that are compared with."""

    def _upload(self, before: torch.Tensor, dtype: torch.dtype) -> Any:
        return before.clone().view(dtype)


@pytest.mark.parametrize(("written", "damage"), [(0, "between"), (5, "behind"), (6, "")])
def test_a_call_that_makes_its_input_larger_may_write_that_much(written: int, damage: str) -> None:
    placement = _Copied(torch.device("cpu"))
    t = torch.zeros(1)
    there = placement.put(t, "input 0")
    placement.writes(t, written)
    there.as_strided((6,), (1,)).fill_(1)
    assert (damage in placement.damage()) if damage else not placement.damage()


def test_results_of_a_chip_that_flushes_are_judged_so_from_the_cpu_too() -> None:
    one = case("aten::mul.Tensor", torch.tensor([1e-39, 1.0]), torch.tensor([1.0, 1.0]))
    should = reference_of(one)
    flushed = [torch.tensor([0.0, 1.0])]
    assert judge(flushed, should, strides=True, flushes=True) <= 1
    with pytest.raises(Wrong):
        judge(flushed, should, strides=True)
    with pytest.raises(Wrong):
        judge([torch.tensor([0.0, 0.999])], should, strides=True, flushes=True)
