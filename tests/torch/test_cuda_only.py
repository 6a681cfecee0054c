"""What torch.cuda takes and the CPU refuses, as torch's database has it, runs on the device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from same import tensors, weights
from torch import Tensor
from torch.testing._internal.common_methods_invocations import op_db

from causeway.integrations.opinfo import cuda_alone, cuda_alone_backward

HALVES = (torch.float16, torch.bfloat16, torch.complex32)
# Relative and absolute; what is made of several operators is rounded after each.
ALIKE = {torch.float16: (1e-2, 5e-3), torch.bfloat16: (5e-2, 2e-2), torch.complex32: (1e-2, 5e-3)}
WIDER_HALVES = (*HALVES, torch.float32, torch.complex64, torch.complex128)
SAMPLES = 8


def nansum(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    return torch.where(x.isnan(), 0, x).sum(*args, **kwargs)


def nanmean(x: Tensor, *args: Any, dtype: torch.dtype | None = None, **kwargs: Any) -> Tensor:
    return nansum(x, *args, **kwargs) / x.isnan().logical_not().sum(*args, **kwargs)


# Where the CPU has complex numbers in no dtype.
BY_HAND = {"nansum": nansum, "nanmean": nanmean}
# Their derivatives are made of numbers beyond float16's largest, on CUDA too.
OVERFLOW = ("logaddexp", "pow")


def asked(which: Any) -> Iterator[Any]:
    for op in op_db:
        for dtype in sorted(which(op), key=str):
            yield pytest.param(op, dtype, id=f"{op.full_name}-{dtype}".replace("torch.", ""))


def wider(dtype: torch.dtype) -> torch.dtype:
    """The dtype that the CPU takes in its place."""
    if dtype in HALVES:
        return torch.complex64 if dtype.is_complex else torch.float32
    return dtype if dtype.is_complex else torch.uint8 if dtype == torch.bool else torch.float64


def samples(op: Any, dtype: torch.dtype, *, grad: bool) -> Iterator[Any]:
    """Samples on the CPU, with numbers that `dtype` has."""
    made = op.sample_inputs("cpu", wider(dtype) if dtype in HALVES else dtype, requires_grad=grad)
    for sample, _ in zip(made, range(SAMPLES), strict=False):
        yield sample.transform(lambda x: cast(x, dtype, grad=grad) if dtype in HALVES else x)


def cast(x: Any, dtype: torch.dtype, *, grad: bool = False) -> Any:
    """Numbers in another dtype: real ones stay real beside complex ones."""
    if isinstance(x, torch.dtype) and (x in HALVES or x in (torch.float32, torch.complex64)):
        return dtype
    if not isinstance(x, Tensor):
        return x
    if x.is_complex() and not dtype.is_complex:
        raise ValueError(f"complex numbers for {dtype}")
    if (x.is_floating_point() or x.is_complex()) and dtype.is_complex != x.is_complex():
        dtype = torch.float16 if dtype == torch.complex32 else torch.float32
    elif not (x.is_floating_point() or x.is_complex()) and dtype in WIDER_HALVES:
        return x  # places and classes
    return x.detach().to(dtype).requires_grad_(grad and x.requires_grad)


def called(op: Any, sample: Any, *, gradient: bool) -> list[Tensor]:
    results = op(sample.input, *sample.args, **sample.kwargs)
    if not gradient:
        return list(tensors(results))
    leaves = [x for x in tensors([sample.input, sample.args, sample.kwargs]) if x.requires_grad]
    outs = [x.to_dense() if x.is_sparse else x for x in tensors(results) if x.requires_grad]
    return list(torch.autograd.grad(outs, leaves, [weights(x) for x in outs]))


def expected(op: Any, sample: Any, dtype: torch.dtype, *, gradient: bool) -> list[Tensor]:
    """The CPU's results: where it does take the dtype, or else of the wider one, rounded."""
    try:
        return called(op, sample, gradient=gradient)
    except RuntimeError:
        wide = sample.transform(lambda x: cast(x, wider(dtype), grad=gradient))
        known = BY_HAND.get(op.name, op)
        return [x.to(rounded(x.dtype, dtype)) for x in called(known, wide, gradient=gradient)]


def rounded(result: torch.dtype, dtype: torch.dtype) -> torch.dtype:
    """What CUDA's result is where the wider call's is `result`."""
    if dtype in (torch.float16, torch.complex32):
        halves = {torch.complex64: torch.complex32, torch.float32: torch.float16}
        return halves.get(result, result)
    return dtype if result == wider(dtype) else result


def check(op: Any, dtype: torch.dtype, device: torch.device, *, gradient: bool) -> None:
    tried = 0
    for sample in samples(op, dtype, grad=gradient):
        there = sample.transform(lambda x: moved(x, device) if isinstance(x, Tensor) else x)
        came = called(op, there, gradient=gradient)
        rtol, atol = ALIKE.get(dtype, (1e-5, 1e-5))
        for x, y in zip(came, expected(op, sample, dtype, gradient=gradient), strict=True):
            assert (x.device, x.dtype, x.shape) == (device, y.dtype, y.shape)
            if gradient and op.name in OVERFLOW:
                continue
            torch.testing.assert_close(x.cpu(), y, rtol=rtol, atol=atol, equal_nan=True)
        tried += 1
    assert tried


def moved(x: Tensor, device: torch.device) -> Tensor:
    return x.detach().to(device).requires_grad_(x.requires_grad)


@pytest.mark.parametrize(("op", "dtype"), asked(cuda_alone))
@pytest.mark.filterwarnings("ignore")
def test_forward(op: Any, dtype: torch.dtype, device: torch.device) -> None:
    check(op, dtype, device, gradient=False)


@pytest.mark.parametrize(("op", "dtype"), asked(cuda_alone_backward))
@pytest.mark.filterwarnings("ignore")
def test_backward(op: Any, dtype: torch.dtype, device: torch.device) -> None:
    check(op, dtype, device, gradient=True)


def test_a_complex_number_makes_complex_halves(device: torch.device) -> None:
    x = torch.rand(5).half()
    there, wide = x.to(device), x.float()
    for work in (
        lambda x: x ** (1 + 2j),
        lambda x: (1 + 2j) ** x,
        lambda x: x / torch.tensor(1 + 2j, device=x.device),
        lambda x: torch.tensor(1 + 2j, dtype=torch.complex32, device=x.device) ** x,
    ):
        torch.testing.assert_close(work(there).cpu(), work(wide).to(torch.complex32))
    out = torch.empty(5, dtype=torch.complex32, device=device)
    assert torch.pow(there, 1j, out=out) is out
    torch.testing.assert_close(out.cpu(), (wide**1j).to(torch.complex32))


def test_a_dtype_that_is_asked_for(device: torch.device) -> None:
    x = torch.rand(5).to(device)
    total = x.sum(dtype=torch.complex32)
    assert (total.dtype, total.real.item()) == (torch.complex32, x.sum().half().item())
    assert x.prod(dtype=torch.complex32).dtype == torch.complex32
    assert torch.where(x.bool(), x, x).half().div(x.to(torch.complex64)).dtype == torch.complex64


def test_outputs_and_what_is_changed_in_place(device: torch.device) -> None:
    x = (torch.rand(3, 4) + 0.5).to(torch.complex32)
    there, wide = x.to(device), x.to(torch.complex64)
    out = torch.empty(4, 3, dtype=torch.complex32, device=device).t()
    assert torch.cos(there, out=out) is out
    assert out.stride() == (1, 3)
    torch.testing.assert_close(out.cpu(), wide.cos().to(torch.complex32))
    changed = there.clone()
    part = changed[:, 1]
    assert part.sqrt_() is part
    torch.testing.assert_close(changed[:, 1].cpu(), wide[:, 1].sqrt().to(torch.complex32))
    torch.testing.assert_close(changed[:, 0], there[:, 0], rtol=0, atol=0)
    empty = torch.empty(0, dtype=torch.float16, device=device)
    torch.angle(there, out=empty)
    torch.testing.assert_close(empty.cpu(), wide.angle().half())


def test_what_is_wrong_for_another_reason_is_said(device: torch.device) -> None:
    with pytest.raises(RuntimeError, match="max must be larger than min"):
        torch.ones(3, dtype=torch.int64, device=device).histc(4, 5, 0)
    with pytest.raises(RuntimeError, match="Unsupported dtype BFloat16"):
        torch.fft.rfft(torch.ones(4, dtype=torch.bfloat16, device=device))
    three, four = (torch.ones(n, dtype=torch.complex32, device=device) for n in (3, 4))
    with pytest.raises(RuntimeError, match="must match the size"):
        torch.div(three, four)
