"""Convolutions without a batch, channels or a kernel: the CPU's numbers, or its refusal."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F
from elsewhere import on

SIZES = [  # batch, channels in and out, size, kernel
    (0, 3, 4, 5, 3),
    (2, 0, 4, 5, 3),
    (2, 3, 0, 5, 3),
    (2, 0, 0, 5, 3),
    (2, 3, 4, 0, 1),
    (2, 3, 4, 5, 0),
    (2, 3, 4, 2, 3),
]


def _results(
    device: str, dims: int, transposed: bool, sizes: tuple[int, ...], grad: bool
) -> list[torch.Tensor] | type[Exception]:
    batch, channels, out, size, kernel = sizes
    torch.manual_seed(0)
    shape = (channels, out) if transposed else (out, channels)
    x, w, b = (
        torch.randn(s).to(device).requires_grad_(grad)
        for s in ((batch, channels, *[size] * dims), (*shape, *[kernel] * dims), (out,))
    )
    conv = getattr(F, f"conv{'_transpose' if transposed else ''}{dims}d")
    try:
        y = conv(x, w, b)
        if grad:
            y.sum().backward()
    except Exception as error:
        return type(error)
    grads = [t.grad for t in (x, w, b) if t.grad is not None]
    return [t.detach().cpu() for t in (y, *grads)]


@on({"ops": "all"}, {"ops": "none", "code": "1"}, {"level": "0"})
@pytest.mark.parametrize("transposed", [0, 1])
@pytest.mark.parametrize("case", range(len(SIZES)))
def test_a_convolution_of_nothing_is_that_of_the_cpu(case: int, transposed: int) -> None:
    sizes = SIZES[case]
    for dims, grad in itertools.product((1, 2, 3), (False, True)):
        expected = _results("cpu", dims, bool(transposed), sizes, grad)
        found = _results("sim", dims, bool(transposed), sizes, grad)
        if isinstance(expected, type) or isinstance(found, type):
            assert found == expected, (dims, grad)
        else:
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
