"""RMS norm is one kernel forward and one backward where there are kernels, and right where not."""

from __future__ import annotations

import ast

import pytest

PROGRAM = """
import json, sys, torch, causeway
from torch.nn.functional import rms_norm

torch.manual_seed(0)

def calls(run):
    with causeway.ledger() as ledger:
        result = run()
    return result, sorted({(row.operator, row.rung) for row in ledger.rows})

def both(work, *tensors):
    def on(device):
        return work(*(t.to(device).requires_grad_(t.requires_grad) for t in tensors))
    found, names = calls(lambda: [t.cpu() for t in on("sim")])
    for ours, theirs in zip(found, on("cpu"), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=2e-5, atol=2e-5)
    return {name for name, _ in names}, {rung for _, rung in names}
"""


@pytest.fixture
def names(run_python):
    """The operators that a piece of program called, and their rungs."""

    def names(body: str, **settings: str) -> tuple[set[str], set[str]]:
        given = {"CAUSEWAY_SIM_CODE": "1", "CAUSEWAY_SIM_OPS": "none"} | settings
        done = run_python(PROGRAM + body + "\nprint([*map(sorted, found)])", **given)
        operators, rungs = ast.literal_eval(done.stdout.splitlines()[-1])
        return {*operators}, {*rungs}

    return names


X = "x, w = torch.randn(5, 4, 33, requires_grad=True), torch.randn(33, requires_grad=True)\n"
TRAIN = """
def work(x, w):
    y = rms_norm(x, (33,), w, 1e-3)
    return torch.autograd.grad(y.sin().sum(), (x, w))
"""
FORWARD, BACKWARD = "aten::_fused_rms_norm", "aten::_fused_rms_norm_backward"


def test_training_takes_a_kernel_each_way(names) -> None:
    operators, rungs = names(X + TRAIN + "found = both(work, x, w)")
    assert {FORWARD, BACKWARD} <= operators
    assert not {"aten::rsqrt", "aten::mean.dim", "aten::pow.Tensor_Scalar"} & operators
    assert "host" not in rungs


def test_rows_of_another_length_than_asked_are_left_to_the_host(names) -> None:
    # torch's function refuses them. Its operator takes the mean over as many dimensions.
    body = "def work(x, w): return (torch.ops.aten._fused_rms_norm(x, [5], None, None)[0],)\n"
    _, rungs = names(X + body + "found = both(work, x, w)")
    assert "host" in rungs


@pytest.mark.parametrize("around", ["torch.no_grad()", "torch.inference_mode()"])
@pytest.mark.parametrize("weight", ["w", "None"])
def test_inference_takes_one_kernel(names, around: str, weight: str) -> None:
    body = f"def work(x, w):\n    with {around}: return (rms_norm(x, (4, 33), {weight}),)\n"
    shapes = "x, w = torch.randn(5, 4, 33), torch.randn(4, 33)\n"
    operators, rungs = names(shapes + body + "found = both(work, x, w)")
    assert FORWARD in operators
    assert not {"aten::rsqrt", "aten::mean.dim"} & operators
    assert "host" not in rungs


SECOND = """
def work(x, w):
    y = rms_norm(x, (33,), w)
    g = torch.autograd.grad(y.sin().sum(), (x, w), create_graph=True)
    return torch.autograd.grad(sum(t.square().sum() for t in g), (x, w))
"""
FUNCTIONAL = """
from torch.func import grad, jvp, vmap
def work(x, w):
    x, w = x.detach(), w.detach()
    f = lambda x, w: rms_norm(x, (33,), w).sin().sum()
    return (*grad(f, (0, 1))(x, w), vmap(grad(f), (0, None))(x, w), jvp(f, (x, w), (w + x, w))[1])
"""
DUAL = """
import torch.autograd.forward_ad as fw
def work(x, w):
    with fw.dual_level():
        y = rms_norm(fw.make_dual(x.detach(), x.detach().cos()), (33,), w.detach())
        return fw.unpack_dual(y)
"""
CHECKED = """
from torch.utils.checkpoint import checkpoint
def work(x, w):
    y = checkpoint(lambda x: rms_norm(x, (33,), w), x, use_reentrant=False)
    return torch.autograd.grad(y.sin().sum(), (x, w))
"""


@pytest.mark.parametrize("work", [SECOND, FUNCTIONAL, DUAL, CHECKED])
def test_what_a_kernel_cannot_do_is_right_too(names, work: str) -> None:
    names(X + work + "found = both(work, x, w)")


def test_mixed_dtypes_and_empty_rows_are_right(names) -> None:
    mixed = X + "x = x.detach().bfloat16().requires_grad_()\n" + TRAIN
    names(mixed + "found = both(work, x, w)")
    names(X + "x = x.detach()[:0].requires_grad_()\n" + TRAIN + "found = both(work, x, w)")


@pytest.mark.parametrize(
    "settings",
    [
        {"CAUSEWAY_SIM_CODE": "0"},
        {"CAUSEWAY_SIM_CODE": "0", "CAUSEWAY_SIM_OPS": "all"},
        {"CAUSEWAY_SIM_LEVEL": "0"},
    ],
)
def test_chips_without_the_kernels_take_the_composite(names, settings: dict[str, str]) -> None:
    for work in (TRAIN, SECOND):
        operators, _ = names(X + work + "found = both(work, x, w)", **settings)
        assert FORWARD not in operators
    names(X + "def work(x, w):\n    with torch.inference_mode(): return (rms_norm(x, (33,), w),)\n"
          "found = both(work, x.detach(), w.detach())", **settings)  # fmt: skip
