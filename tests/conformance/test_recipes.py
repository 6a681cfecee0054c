"""Calls by hand are calls that the CPU takes; those chosen of torch's samples have elements."""

from __future__ import annotations

import pytest
import torch

from causeway.conformance import harvest
from causeway.conformance.families import family
from causeway.conformance.recipes import RECIPES, recipes
from causeway.conformance.reference import Case, on_cpu

DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.int8, torch.bool, torch.uint16)
DTYPES += (torch.float8_e4m3fn, torch.complex32)


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_the_cpu_takes_each_call(name: str) -> None:
    offered = frozenset({name})
    found = family(name, offered)
    taken = 0
    for dtype in DTYPES:
        for inputs in recipes(found, dtype):
            kind, form = found.forms[0]
            case = Case(found, dtype, kind, form, "recipe", "as it is", inputs)
            try:
                assert on_cpu(case)
            except Exception:
                if dtype == torch.float32:  # of the others not every operator has each
                    raise
            else:
                taken += 1
    assert taken >= 3


def test_samples_without_elements_are_not_all_that_is_asked() -> None:
    found = family("aten::im2col.out", frozenset({"aten::im2col.out"}))
    calls = harvest.harvest(found, torch.float32)
    assert calls
    assert all(call.inputs[0].numel() for call in calls)


def test_what_the_cpu_has_no_kernel_for_is_torchs_decomposition() -> None:
    name = "aten::_fused_rms_norm_backward"
    found = family(name, frozenset({name}))
    grad, x, shape, rstd, weight, mask = recipes(found, torch.float64)[0]
    case = Case(
        found, torch.float64, "functional", name, "", "", (grad, x, shape, rstd, weight, mask)
    )
    x, weight = x.clone().requires_grad_(), weight.clone().requires_grad_()
    wanted = torch.autograd.grad(
        torch.nn.functional.rms_norm(x, shape, weight, 1e-5), (x, weight), grad
    )
    torch.testing.assert_close(on_cpu(case), [*wanted])
