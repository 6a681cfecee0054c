"""Calls that torch's samples do not make: operators that they never reach, and sizes at which
kernels change what they do, such as a sum longer than a block.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from causeway.conformance.dtypes import around, is_stored, numbers, patterns
from causeway.conformance.families import Family
from causeway.conformance.libraries import LIBRARIES, of_schema
from causeway.conformance.own import OWN

Inputs = tuple[Any, ...]


def of_torch(operator: str) -> bool:
    """Whether it is torch's or Causeway's own: not of another library."""
    return operator.partition("::")[0] in ("aten", "prim", "prims", "causeway")


def _fill(dtype: torch.dtype) -> Iterator[Inputs]:
    value = 2.5 if dtype.is_floating_point else True if dtype == torch.bool else 3
    for shape in ((3, 4), (1000,), (2, 3, 5), ()):
        yield numbers(*shape, dtype=dtype), value
    yield numbers(3, 4, dtype=dtype), 0
    if dtype.is_floating_point:
        yield numbers(3, 4, dtype=dtype), float("nan")
    elif dtype.itemsize == 8 and not dtype.is_complex:
        yield numbers(3, 4, dtype=dtype), (1 << 53) + 1  # no float64


def _bounds(dtype: torch.dtype) -> Iterator[Inputs]:
    low, high = (-0.4, 0.7) if dtype.is_floating_point else (2, 5)
    for shape in ((20, 20), (1000,), ()):
        x = numbers(*shape, dtype=dtype)
        yield x, low, high
        yield x, None, high
        yield x, low, None
    yield numbers(20, dtype=dtype), high, low
    yield numbers(20, dtype=dtype), float("nan"), high


def _bound(dtype: torch.dtype) -> Iterator[Inputs]:
    for bound in (0.4, 3, -1) if dtype.is_floating_point else (3, 0):
        for shape in ((20, 20), (1000,), ()):
            yield numbers(*shape, dtype=dtype), bound


def _beside_a_number(dtype: torch.dtype) -> Iterator[Inputs]:
    values: tuple[Any, ...] = (3, 0, 0.5, True, float("inf"), float("nan"))
    for value in values:
        for shape in ((20, 20), ()):
            x = numbers(*shape, dtype=dtype)
            yield x, value
            if x.ndim:
                yield x, x.flatten()[7].item()


def _powers(dtype: torch.dtype) -> Iterator[Inputs]:
    exponents: tuple[Any, ...] = (2, 3, 0, 1, -1, 0.5, 2.5, -0.5)
    for exponent in exponents:
        for shape in ((20, 20), ()):
            yield numbers(*shape, dtype=dtype), exponent


def _copy(dtype: torch.dtype) -> Iterator[Inputs]:
    for shape in ((3, 4), (1000,), (2, 3, 5), ()):
        yield numbers(*shape, dtype=dtype), numbers(*shape, dtype=dtype, seed=1), False
    yield numbers(3, 4, dtype=dtype), numbers(4, dtype=dtype, seed=1), False
    yield numbers(3, 4, dtype=dtype), numbers(4, 3, dtype=dtype, seed=1).t(), False
    for other in (
        torch.float32,
        torch.float64,
        torch.float16,
        torch.int64,
        torch.int32,
        torch.bool,
    ):
        yield numbers(5, 7, dtype=other), numbers(5, 7, dtype=dtype, seed=1), False
    # In the layouts of images, also where the numbers change their dtype on the way.
    for size in ((2, 3, 4, 5), (2, 3, 2, 4, 3)):
        for other in (dtype, torch.float32 if dtype != torch.float32 else torch.int64):
            to, source = numbers(*size, dtype=other), numbers(*size, dtype=dtype, seed=1)
            yield channels_last(to), source, False
            yield to, channels_last(source), False
            yield channels_last(to), channels_last(source), False
    for target, given in _casts(dtype):
        yield numbers(*given.shape, dtype=target, seed=2), given, False


def _casts(dtype: torch.dtype) -> Iterator[tuple[torch.dtype, torch.Tensor]]:
    """(dtype, numbers to cast to it): what a conversion in a hurry gets wrong."""
    if dtype.is_floating_point and dtype.itemsize < 4:
        yield dtype, around(dtype)
        for other in (torch.float64, torch.float16, torch.bfloat16):
            yield dtype, around(dtype).to(other)
        for other in (torch.float32, torch.float64):
            yield other, patterns(dtype)
    elif dtype == torch.bool:  # whatever is not 0: a part of a number, a NaN, a high byte
        yield dtype, torch.tensor([0.0, -0.0, 0.25, -0.5, 1e-40, float("nan"), float("inf")])
        yield dtype, torch.tensor([0, 1, 256, 1 << 16, 1 << 32, -256, -1])
        yield dtype, torch.tensor([0, 1, 256, 1 << 16, -256], dtype=torch.int32)
    elif dtype.is_complex:
        for other in (torch.complex64, torch.complex128, torch.float32):
            yield dtype, numbers(5, 7, dtype=other)
            yield other, numbers(5, 7, dtype=dtype)
    elif not dtype.is_floating_point:
        # An integer that does not fit keeps its low bits; as a float each has its nearest.
        low = -1 if dtype.is_signed else 0
        ends = torch.tensor([torch.iinfo(dtype).max, torch.iinfo(dtype).min, 1, low], dtype=dtype)
        for other in (torch.int64, torch.int32, torch.uint8, torch.float32, torch.float64):
            yield other, ends
        wide = (0, 1, -1, 127, 128, 255, 256, 1 << 15, 1 << 16, (1 << 31) + 1, (1 << 53) + 1)
        yield dtype, torch.tensor([*wide, (1 << 63) - 1, -(1 << 63)])


def channels_last(t: torch.Tensor) -> torch.Tensor:
    """Strides of torch.channels_last, channels_last_3d; a channel is the innermost."""
    return t.movedim(1, -1).contiguous().movedim(-1, 1)


def _arange(dtype: torch.dtype) -> Iterator[Inputs]:
    if dtype.is_floating_point:
        yield from ((0.0, 5.0, 0.5), (-1.5, 2.0, 0.25), (3.0, 0.0, -0.5))
    yield from ((0, 10, 1), (1, 100, 3), (0, 0, 1), (10, 0, -2))


def _products(dims: int, added: bool) -> Callable[[torch.dtype], Iterator[Inputs]]:
    def make(dtype: torch.dtype) -> Iterator[Inputs]:
        for m, k, n in ((5, 7, 3), (37, 301, 65), (1, 1000, 1), (70, 4, 9)):
            batch = (3,) if dims == 3 else ()
            a = numbers(*batch, m, k, dtype=dtype)
            b = numbers(*batch, k, n, dtype=dtype, seed=1)
            if not added:
                yield a, b
                continue
            scalars = (0.5, -2.0) if dtype.is_floating_point else (2, -3)
            yield numbers(*batch, m, n, dtype=dtype, seed=2), a, b, 1, 1
            yield numbers(n, dtype=dtype, seed=2), a, b, *scalars
            yield numbers(*batch, m, n, dtype=dtype, seed=2), a, b, 0, scalars[0]

    return make


def _sort(dtype: torch.dtype) -> Iterator[Inputs]:
    for descending in (False, True):
        yield numbers(1000, dtype=dtype), True, -1, descending
        yield numbers(7, 300, dtype=dtype).round(), True, 1, descending
        yield numbers(300, 7, dtype=dtype).round(), True, 0, descending
        yield numbers(3, 5, 4, dtype=dtype), True, 1, descending


def _threshold_backward(dtype: torch.dtype) -> Iterator[Inputs]:
    for shape in ((20, 20), (1000,), ()):
        yield numbers(*shape, dtype=dtype), numbers(*shape, dtype=dtype, seed=1), 0
        yield numbers(*shape, dtype=dtype), numbers(*shape, dtype=dtype, seed=1), 2


def _embedding(dtype: torch.dtype) -> Iterator[Inputs]:
    for shape in ((7,), (3, 5), ()):
        places = numbers(*shape, dtype=torch.uint8).to(torch.int64)
        yield numbers(10, 6, dtype=dtype), places, -1, False, False


def _sum(dtype: torch.dtype) -> Iterator[Inputs]:
    for shape, dim in (((10007,), [0]), ((3, 5000), [1]), ((5000, 3), [0]), ((30, 40, 50), [0, 2])):
        yield numbers(*shape, dtype=dtype), dim, False, None
    if not (dtype.is_floating_point or dtype.is_complex or dtype == torch.bool):
        high = torch.iinfo(dtype).max  # the sum is an int64
        yield torch.full((1000,), min(high, 2**40), dtype=dtype), [0], False, None


# (input, weight, stride, padding, dilation, groups)
CONVOLUTIONS: tuple[tuple[tuple[int, ...], tuple[int, ...], int, int, int, int], ...] = (
    ((2, 3, 8, 9), (4, 3, 3, 3), 1, 1, 1, 1),
    ((2, 4, 9, 8), (6, 2, 3, 2), 2, 0, 1, 2),
    ((1, 2, 10, 10), (3, 2, 3, 3), 1, 2, 2, 1),
    ((2, 3, 20), (5, 3, 4), 2, 1, 1, 1),
    ((1, 2, 5, 6, 7), (3, 2, 2, 3, 2), 1, 0, 1, 1),
)


def _convolution(dtype: torch.dtype) -> Iterator[Inputs]:
    for size, kernel, stride, padding, dilation, groups in CONVOLUTIONS:
        x, weight = numbers(*size, dtype=dtype), numbers(*kernel, dtype=dtype, seed=1)
        n = len(size) - 2
        how = ([stride] * n, [padding] * n, [dilation] * n, False, [0] * n, groups)
        yield x, weight, numbers(kernel[0], dtype=dtype, seed=2), *how
        yield x, weight, None, *how


def _convolution_backward(dtype: torch.dtype) -> Iterator[Inputs]:
    for x, weight, bias, *how in _convolution(dtype):
        out = torch.ops.aten.convolution(x, weight, bias, *how)
        grad = numbers(*out.shape, dtype=dtype, seed=3)
        biases = None if bias is None else [weight.shape[0]]
        for mask in ([True, True, bias is not None], [False, True, False]):
            yield grad, x, weight, biases, *how, mask


def _layer_norm(dtype: torch.dtype) -> Iterator[Inputs]:
    for rows, length in ((4, 6), (3, 1000), (33, 65)):
        x = numbers(rows, length, dtype=dtype) * 3 + 1
        yield x, [length], numbers(length, dtype=dtype), numbers(length, dtype=dtype, seed=1), 1e-5
        yield x, [length], None, None, 1e-3


def _layer_norm_backward(dtype: torch.dtype) -> Iterator[Inputs]:
    for rows, length in ((4, 6), (3, 1000), (33, 65)):
        x = numbers(rows, length, dtype=dtype) * 3 + 1
        weight, bias = numbers(length, dtype=dtype), numbers(length, dtype=dtype, seed=1)
        _, mean, rstd = torch.ops.aten.native_layer_norm(x, [length], weight, bias, 1e-5)
        grad = numbers(rows, length, dtype=dtype, seed=2)
        yield grad, x, [length], mean, rstd, weight, bias, [True, True, True]
        yield grad, x, [length], mean, rstd, None, None, [True, False, False]


def _eye(sizes: tuple[tuple[int, ...], ...]) -> Callable[[torch.dtype], Iterator[Inputs]]:
    return lambda dtype: iter(sizes)


def _spaced(*base: float) -> Callable[[torch.dtype], Iterator[Inputs]]:
    def make(dtype: torch.dtype) -> Iterator[Inputs]:
        low = -3 if dtype.is_signed else 0  # what becomes of others is not said
        for start, end, steps in ((0, 3, 4), (low, 5, 33), (2, 2, 5), (3, low, 100), (1, 2, 1)):
            yield start, end, steps, *base
        if dtype.is_floating_point:
            yield from (
                (*ends, *base) for ends in ((-0.7, 1.3, 1000), (2.5, -0.5, 7), (0.0, 1.0, 0))
            )

    return make


def _filled(dtype: torch.dtype) -> Iterator[Inputs]:
    for x, value in _fill(dtype):
        yield x, torch.tensor(value, dtype=dtype)


def _bytes(dtype: torch.dtype) -> Iterator[Inputs]:
    if dtype == torch.int8:
        for m, k, n in ((32, 16, 8), (17, 24, 16), (40, 128, 64)):
            yield numbers(m, k, dtype=dtype) * 14, numbers(k, n, dtype=dtype, seed=1) * 14


def _put(dtype: torch.dtype) -> Iterator[Inputs]:
    places = torch.tensor([3, 0, 4])
    for accumulate in (False, True):
        x = numbers(5, 6, 7, dtype=dtype)
        yield x, [places], numbers(3, 6, 7, dtype=dtype, seed=1), accumulate, False
        yield x, [places, places], numbers(7, dtype=dtype, seed=1), accumulate, False
        yield x, [None, places], numbers(1, dtype=dtype, seed=1), accumulate, False


def _lists(dtype: torch.dtype) -> Iterator[list[torch.Tensor]]:
    for shapes in (((20, 20), (7,), (1000,)), ((3, 5),), ((), (4, 1, 3))):
        yield [numbers(*shape, dtype=dtype, seed=i) for i, shape in enumerate(shapes)]


def _number_to_powers(dtype: torch.dtype) -> Iterator[Inputs]:
    for exponents in _lists(dtype):
        if not dtype.is_floating_point:
            exponents = [t.abs() for t in exponents]  # noqa: PLW2901
        yield from ((number, exponents) for number in (2, 1, 0))
        if dtype.is_floating_point:
            yield 0.5, exponents


def _power_sums(dtype: torch.dtype) -> Iterator[Inputs]:
    for tensors in _lists(dtype):
        yield from ((tensors, order, None) for order in (2, 1, 3, 0.5))


def _along(dtype: torch.dtype) -> Iterator[Inputs]:
    for shape, dim in (((1000,), 0), ((7, 300), 1), ((300, 7), 0), ((3, 5, 4), 1)):
        yield numbers(*shape, dtype=dtype), dim


def _running(dtype: torch.dtype) -> Iterator[Inputs]:
    for x, dim in _along(dtype):
        yield x, torch.empty_like(x), torch.empty(x.shape, dtype=torch.int64), dim
        if dtype.is_floating_point:
            odd = x.clone()
            odd.view(-1)[odd.numel() // 2] = float("nan")
            yield odd, torch.empty_like(odd), torch.empty(odd.shape, dtype=torch.int64), dim


def _unscale(dtype: torch.dtype) -> Iterator[Inputs]:
    if not dtype.is_floating_point:
        return
    for tensors in _lists(dtype):
        yield tensors, torch.zeros(1), torch.full((1,), 0.25)
        for odd in (float("inf"), float("nan")):
            hit = [t.clone() for t in tensors]
            hit[-1].view(-1)[-1] = odd
            yield hit, torch.zeros(1), torch.full((1,), 0.25)


def _update_scale(dtype: torch.dtype) -> Iterator[Inputs]:
    if dtype == torch.float32:
        for tracker, found in ((0, 0.0), (9, 0.0), (9, 1.0), (3, 1.0)):
            steps = torch.full((1,), tracker, dtype=torch.int32)
            yield torch.full((1,), 1024.0), steps, torch.full((1,), found), 2.0, 0.5, 10


def _one(dtype: torch.dtype) -> Iterator[Inputs]:
    for shape in ((3, 4), (1000,), (2, 3, 5), ()):
        yield (numbers(*shape, dtype=dtype),)


def _mean_pool(dims: int) -> Callable[[torch.dtype], Iterator[Inputs]]:
    def make(dtype: torch.dtype) -> Iterator[Inputs]:
        if not dtype.is_floating_point:
            return
        for size, out in ((6, 2), (7, 3), (5, 1), (4, 4), (3, 5)):
            yield numbers(2, 3, *[size] * dims, dtype=dtype), [out] * dims

    return make


def _rms_norm(dtype: torch.dtype) -> Iterator[Inputs]:
    if not dtype.is_floating_point:
        return
    for rows, length in ((4, 6), (3, 1000), (33, 65)):
        x = numbers(rows, length, dtype=dtype) * 3 + 1
        yield x, [length], numbers(length, dtype=dtype, seed=1), 1e-5
        yield x, [length], None, None
        yield x, [rows, length], numbers(rows, length, dtype=dtype, seed=1), 1e-3


def _rms_norm_backward(dtype: torch.dtype) -> Iterator[Inputs]:
    for x, shape, weight, eps in _rms_norm(dtype):
        _, rstd = torch.ops.aten._fused_rms_norm(x, shape, weight, eps)
        grad = numbers(*x.shape, dtype=dtype, seed=2)
        yield grad, x, shape, rstd, weight, [True, weight is not None]


def _stored(make: Callable[[torch.dtype], Iterator[Inputs]]) -> Callable[..., Iterator[Inputs]]:
    """A recipe for the dtypes of which torch has no samples."""
    return lambda dtype: make(dtype) if is_stored(dtype) else iter(())


def _pairs(dtype: torch.dtype) -> Iterator[Inputs]:
    for shape in ((20, 20), (1000,), ()):
        a, b = numbers(*shape, dtype=dtype), numbers(*shape, dtype=dtype, seed=1)
        yield a, b
        yield a, torch.where(numbers(*shape, dtype=torch.bool), a, b)
    if dtype.itemsize == 1:
        yield patterns(dtype), patterns(dtype)
    yield numbers(5, 7, dtype=dtype), numbers(7, dtype=dtype, seed=1)
    yield numbers(5, 7, dtype=dtype), numbers(5, 1, dtype=dtype, seed=1)


def _joined(dtype: torch.dtype) -> Iterator[Inputs]:
    for shapes, dim in (((3, 4), (2, 4)), 0), (((3, 4), (3, 1), (3, 5)), 1), (((7,), (300,)), -1):
        yield [numbers(*shape, dtype=dtype, seed=i) for i, shape in enumerate(shapes)], dim
    yield [numbers(2, 3, 4, dtype=dtype), numbers(2, 4, 3, dtype=dtype).transpose(1, 2)], 0


def _picked(dtype: torch.dtype) -> Iterator[Inputs]:
    places = torch.tensor([3, 0, 4, 0, -1])
    yield numbers(5, 6, dtype=dtype), [places]
    yield numbers(5, 6, dtype=dtype), [None, places]
    yield numbers(1000, dtype=dtype), [numbers(7, 5, dtype=torch.uint8).long()]


def _selected(dtype: torch.dtype) -> Iterator[Inputs]:
    for dim in (0, 1):
        yield numbers(5, 6, dtype=dtype), dim, torch.tensor([3, 0, 4, 0])


def _where(dtype: torch.dtype) -> Iterator[Inputs]:
    for shape in ((20, 20), (1000,), ()):
        mask = numbers(*shape, dtype=torch.bool)
        yield mask, numbers(*shape, dtype=dtype), numbers(*shape, dtype=dtype, seed=1)


def _scaled(dtype: torch.dtype) -> Iterator[Inputs]:
    """Products of 8-bit floats: a scale for all, or one for each row and column."""
    if dtype.itemsize != 1 or not dtype.is_floating_point or dtype == torch.float8_e8m0fnu:
        return
    for m, k, n in ((32, 48, 16), (16, 256, 64)):
        a = numbers(m, k, dtype=dtype)
        b = numbers(n, k, dtype=dtype, seed=1).t()
        one = torch.tensor(0.5), torch.tensor(2.0)
        each = numbers(m, 1, dtype=torch.float32).abs(), numbers(1, n, dtype=torch.float32).abs()
        for scales in (one, each):
            for result in (torch.float32, torch.bfloat16):
                yield a, b, *scales, None, None, result, False
        yield a, b, *one, numbers(n, dtype=torch.bfloat16), None, torch.bfloat16, False


RECIPES: dict[str, Callable[[torch.dtype], Iterator[Inputs]]] = {
    "aten::pow.Tensor_Scalar": _powers,
    "aten::clamp": _bounds,
    "aten::clamp_min": _bound,
    "aten::clamp_max": _bound,
    **{f"aten::{name}.Scalar": _beside_a_number for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    "aten::eq.Tensor": _stored(_pairs),
    "aten::ne.Tensor": _stored(_pairs),
    "aten::cat": _stored(_joined),
    "aten::index.Tensor": _stored(_picked),
    "aten::index_select": _stored(_selected),
    "aten::where.self": _stored(_where),
    "aten::_scaled_mm": _scaled,
    "aten::fill_.Scalar": _fill,
    "aten::fill_.Tensor": _filled,
    "aten::eye.out": _eye(((5,), (1,), (70,))),
    "aten::eye.m_out": _eye(((3, 5), (5, 3), (33, 65))),
    "aten::linspace.out": _spaced(),
    "aten::logspace.out": _spaced(2.0),
    "aten::range.out": _arange,
    "aten::_int_mm": _bytes,
    "aten::_index_put_impl_": _put,
    "aten::_foreach_pow.ScalarAndTensor": _number_to_powers,
    "aten::_foreach_powsum.Scalar": _power_sums,
    "aten::_foreach_norm.Scalar": _power_sums,  # torch's samples all ask for float64
    "aten::_cummax_helper": _running,
    "aten::_cummin_helper": _running,
    "aten::_logcumsumexp": _along,
    "aten::_amp_foreach_non_finite_check_and_unscale_": _unscale,
    "aten::_amp_update_scale_": _update_scale,
    "aten::conj_physical": _one,
    "aten::adaptive_avg_pool2d": _mean_pool(2),
    "aten::adaptive_avg_pool3d": _mean_pool(3),
    "aten::_fused_rms_norm": _rms_norm,
    "aten::_fused_rms_norm_backward": _rms_norm_backward,
    "aten::zero_": _one,
    "aten::copy_": _copy,
    "aten::arange.start_out": _arange,
    "aten::mm": _products(2, False),
    "aten::bmm": _products(3, False),
    "aten::addmm": _products(2, True),
    "aten::baddbmm": _products(3, True),
    "aten::threshold_backward": _threshold_backward,
    "aten::embedding": _embedding,
    "aten::convolution": _convolution,
    "aten::convolution_backward": _convolution_backward,
    "aten::sort.stable": _sort,
    "aten::sum.dim_IntList": _sum,
    "aten::native_layer_norm": _layer_norm,
    "aten::native_layer_norm_backward": _layer_norm_backward,
    **OWN,
}


def recipes(family: Family, dtype: torch.dtype) -> list[Inputs]:
    """The calls of a family by hand, in `dtype`; those that the CPU refuses are dropped later."""
    found: list[Inputs] = []
    recipe = RECIPES.get(family.reference) or LIBRARIES.get(family.reference)
    if recipe is None and not of_torch(family.reference):
        recipe = functools.partial(of_schema, family.schema)
    # One that needs an operator which the CPU lacks for the dtype ends the list.
    with contextlib.suppress(RuntimeError):
        found.extend(recipe(dtype) if recipe else ())
    return found
