"""Calls of Causeway's own operators, of which torch has no samples: steps of recurrent layers, and
layers in integers. Their schemas and arithmetic are in csrc/aten/rnn.cpp and quantized.cpp.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from causeway.conformance.dtypes import numbers

Inputs = tuple[Any, ...]
Recipe = Callable[[torch.dtype], Iterator[Inputs]]

ROWS = ((3, 5), (1, 1), (7, 32), (16, 129), (2, 1000))  # rows and hidden places of a step
ONE_SIDED = {torch.uint8: (0, 255), torch.int8: (-128, 127), torch.int16: (-32768, 32767)}


def _states(dtype: torch.dtype, rows: int, *columns: int) -> list[Tensor]:
    return [numbers(rows, n, dtype=dtype, seed=seed) for seed, n in enumerate(columns)]


def _lstm(dtype: torch.dtype) -> Iterator[Inputs]:
    for rows, n in ROWS if dtype.is_floating_point else ():
        yield (*_states(dtype, rows, 4 * n, n, n, n),)


def _lstm_backward(dtype: torch.dtype) -> Iterator[Inputs]:
    for rows, n in ROWS if dtype.is_floating_point else ():
        gates, *states = _states(dtype, rows, 4 * n, n, n, n, n, n, 4 * n)
        cx, cy, grad_output, grad_h, grad_c, grad_gates = states
        for grad in (grad_output, None):
            yield gates.sigmoid(), cx, cy, grad, grad_h, grad_c, grad_gates


def _layers(dtype: torch.dtype) -> Iterator[tuple[list[Tensor], list[Tensor | None], list[Tensor]]]:
    """Input and weights, biases, and states of a layer: [steps, rows, in] and [rows, n]."""
    sizes = ((1, 1, 3, 2), (4, 3, 5, 8), (7, 2, 16, 6)) if dtype.is_floating_point else ()
    for steps, rows, wide, n in sizes:
        shapes = ((steps, rows, wide), (4 * n, wide), (4 * n, n), (4 * n,), (4 * n,))
        parts = [numbers(*shape, dtype=dtype, seed=i) / 2 for i, shape in enumerate(shapes)]
        states = [numbers(rows, n, dtype=dtype, seed=i) for i in (5, 6)]
        yield parts[:3], list(parts[3:]), states
        yield parts[:3], [None, None], states


def _results(x: Tensor, hx: Tensor, steps: int) -> list[Tensor]:
    """Room for a layer's output, last states, and what it keeps of so many steps."""
    output = x.new_zeros(*x.shape[:2], hx.shape[1])
    return [output, hx.clone(), hx.clone(), x.new_zeros(6, steps, *hx.shape)]


def _lstm_layer(dtype: torch.dtype) -> Iterator[Inputs]:
    for inputs, biases, states in _layers(dtype):
        for steps in (len(inputs[0]), 0):  # for a backward, and for none
            yield *inputs, *biases, *states, *_results(inputs[0], states[0], steps)


def _lstm_layer_backward(dtype: torch.dtype) -> Iterator[Inputs]:
    for inputs, biases, states in _layers(dtype):
        output, hy, cy, kept = _results(inputs[0], states[0], len(inputs[0]))
        torch.ops.causeway.lstm_layer(*inputs, *biases, *states, output, hy, cy, kept)
        grads = [numbers(*t.shape, dtype=dtype, seed=i) for i, t in enumerate((output, hy, cy))]
        to_bias = inputs[0].new_zeros(0 if biases[0] is None else len(inputs[1]))
        for given in (grads, [grads[0], None, None], [None, *grads[1:]]):
            to = [*map(torch.zeros_like, inputs), to_bias, *map(torch.zeros_like, states)]
            yield *inputs, *biases, *states, output, kept, *given, *to


def _lstm_steps(dtype: torch.dtype) -> Iterator[Inputs]:
    """Gates, weights and states; places of which kernels make vectors, and such as they do not."""
    sizes = ((1, 1, 2), (4, 3, 16), (3, 9, 48)) if dtype.is_floating_point else ()
    for steps, rows, n in sizes:
        gates = numbers(steps, rows, 4 * n, dtype=dtype)
        states = _states(dtype, rows, n, n)
        weight = numbers(4 * n, n, dtype=dtype, seed=9) / 4
        for reverse in (False, True):
            yield gates, weight, *states, *_steps(steps, states[0]), reverse


def _steps(steps: int, state: Tensor) -> list[Tensor]:
    return [state.new_zeros(steps, *state.shape) for _ in range(2)]


def _lstm_steps_backward(dtype: torch.dtype) -> Iterator[Inputs]:
    for gates, weight, hx, cx, output, cells, reverse in _lstm_steps(dtype):
        torch.ops.causeway.lstm_steps(gates, weight, hx, cx, output, cells, reverse)
        of_output = numbers(*output.shape, dtype=dtype, seed=3)
        for grad in (of_output, None):
            of_states = [numbers(*hx.shape, dtype=dtype, seed=seed) for seed in (4, 5)]
            yield gates, weight, cx, cells, grad, *of_states, torch.zeros_like(gates), reverse


def _gru_steps(dtype: torch.dtype) -> Iterator[Inputs]:
    for gates, weight, hx, _cx, *each, reverse in _lstm_steps(dtype):
        wide = 3 * hx.shape[1]
        bias = numbers(wide, dtype=dtype, seed=6)
        for given in (bias, None):
            dense = gates[..., :wide].contiguous(), weight[:wide].contiguous()
            yield *dense, given, hx, *map(torch.zeros_like, each), reverse


def _gru_steps_backward(dtype: torch.dtype) -> Iterator[Inputs]:
    for gates, weight, bias, hx, output, hidden_n, reverse in _gru_steps(dtype):
        torch.ops.causeway.gru_steps(gates, weight, bias, hx, output, hidden_n, reverse)
        of_output, of_state = (numbers(*t.shape, dtype=dtype, seed=3) for t in (output, hx))
        to = [torch.zeros_like(gates) for _ in range(2)]
        for grad in (of_output, None):
            yield gates, weight, hidden_n, hx, output, grad, of_state.clone(), *to, reverse


def _rnn_steps(dtype: torch.dtype) -> Iterator[Inputs]:
    for gates, weight, hx, _cx, output, _cells, reverse in _lstm_steps(dtype):
        n = hx.shape[1]
        for relu in (False, True):
            dense = gates[..., :n].contiguous(), weight[:n].contiguous()
            yield *dense, hx, torch.zeros_like(output), relu, reverse


def _rnn_steps_backward(dtype: torch.dtype) -> Iterator[Inputs]:
    for gates, weight, hx, output, relu, reverse in _rnn_steps(dtype):
        torch.ops.causeway.rnn_steps(gates, weight, hx, output, relu, reverse)
        of_output, of_state = (numbers(*t.shape, dtype=dtype, seed=3) for t in (output, hx))
        for grad in (of_output, None):
            to = of_state.clone(), torch.zeros_like(gates)
            yield output, weight, grad, *to, relu, reverse


def _gru(dtype: torch.dtype) -> Iterator[Inputs]:
    for rows, n in ROWS if dtype.is_floating_point else ():
        yield (*_states(dtype, rows, 3 * n, 3 * n, n, n, n),)


def _gru_backward(dtype: torch.dtype) -> Iterator[Inputs]:
    for rows, n in ROWS if dtype.is_floating_point else ():
        gates, *states = _states(dtype, rows, 3 * n, n, n, n, n, 3 * n, 3 * n)
        hidden_n, hx, grad_output, grad_h, grad_gates, grad_hidden = states
        for grad in (grad_output, None):
            yield gates.sigmoid(), hidden_n, hx, grad, grad_h, grad_gates, grad_hidden


def _quantize(dtype: torch.dtype) -> Iterator[Inputs]:
    if not dtype.is_floating_point or dtype.itemsize == 1:
        return
    for to, (low, high) in ONE_SIDED.items():
        for shape, axis in (((2, 3, 4, 5), 1), ((20, 33), 1), ((1000,), 0), ((), 0)):
            x = numbers(*shape, dtype=dtype)
            channels = shape[axis] if shape else 1
            for count in {1, channels}:
                inverse = numbers(count, dtype=torch.float32, seed=1).abs() * 20 + 1
                zero = torch.arange(count, dtype=torch.int32) - 3
                yield x, inverse, None, axis, low, high, to
                yield x, inverse, zero, axis, low, high, to
        # Ties, what lies beyond the ends, and what is no number.
        odd = torch.tensor([0.5, 1.5, 2.5, -0.5, -1.5, 1e9, -1e9, float("inf"), float("nan")])
        yield odd.to(dtype), torch.ones(1), torch.tensor([3], dtype=torch.int32), 0, low, high, to


def _after(channels: int, taps: int) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
    """What follows a sum: scale, bias, taps and shift; relu, and what the results are."""
    scale = numbers(channels, dtype=torch.float32, seed=2).abs() / 64 + 0.01
    bias = numbers(channels, dtype=torch.float32, seed=3)
    wide = numbers(channels, taps, dtype=torch.int64, seed=4)
    floats = (None, None, 0, 0)
    yield (scale, None, None, 0), (False, *floats, torch.float32)
    yield (scale[:1], bias, None, 0), (True, *floats, torch.float32)
    yield (scale, bias, wide, 3), (False, *floats, torch.float32)
    yield (scale, bias, wide.int(), 0), (True, *floats, torch.float16)
    inverse = numbers(channels, dtype=torch.float32, seed=5).abs() * 8 + 1
    zero = torch.arange(channels, dtype=torch.int32)
    for to, (low, high) in ONE_SIDED.items():
        yield (scale, bias, None, 0), (False, inverse, zero, low, high, to)
        yield (scale, bias, wide, 1), (True, inverse[:1], None, low, high, to)


def _linear(dtype: torch.dtype) -> Iterator[Inputs]:
    for (*rows, k), n in (((3, 16), 5), ((1, 1), 1), ((2, 3, 33), 7), ((40, 256), 66)):
        for of_weight in (torch.int8, torch.int16) if dtype in ONE_SIDED else ():
            weight = numbers(n, k, dtype=of_weight, seed=1)
            for before, after in _after(n, 1):
                yield numbers(*rows, k, dtype=dtype), weight, *before, *after


def _floats(dtype: torch.dtype) -> Iterator[Inputs]:
    if not dtype.is_floating_point or dtype.itemsize == 1:
        return
    inverse, zero = torch.tensor([20.0]), torch.tensor([3], dtype=torch.int32)
    for (*rows, k), n in (((1, 64), 5), ((3, 192), 67), ((2, 2, 33), 7), ((40, 256), 66)):
        x, bias = numbers(*rows, k, dtype=dtype), numbers(n, dtype=torch.float32, seed=3)
        scale = numbers(n, dtype=torch.float32, seed=2).abs() / 64 + 0.01
        wide = numbers(n, 1, dtype=torch.int64, seed=4)
        for kind in (torch.int8, torch.int16):
            low, high = ONE_SIDED[kind]
            weight = numbers(n, k, dtype=kind, seed=1)
            yield x, inverse, None, -high, high, weight, scale[:1], None, None
            yield x, inverse, None, -high, high, weight, scale, bias, None
            for taps in (wide, wide.int()):
                yield x, inverse, zero, low, high, weight, scale, bias, taps


def _convolution(dtype: torch.dtype) -> Iterator[Inputs]:
    # The sizes of an input and a weight; stride, padding, dilation, transposed, output padding,
    # groups.
    plain: tuple[Any, ...] = ([1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    cases: tuple[tuple[Any, ...], ...] = (
        ((2, 3, 6, 7), (4, 3, 3, 3), plain),
        ((2, 4, 6, 7), (6, 2, 3, 2), ([2, 1], [1, 1], [1, 2], False, [0, 0], 2)),
        ((1, 8, 9, 9), (8, 1, 3, 3), ([1, 1], [1, 1], [1, 1], False, [0, 0], 8)),
        ((2, 3, 9), (5, 3, 4), ([2], [1], [1], False, [0], 1)),
        ((1, 2, 4, 5, 4), (3, 2, 2, 2, 2), ([1] * 3, [1] * 3, [1] * 3, False, [0] * 3, 1)),
        ((2, 4, 5, 5), (4, 3, 3, 3), ([2, 2], [1, 1], [1, 1], True, [1, 0], 1)),
    )
    for size, of_weight, (*steps, transposed, output_padding, groups) in cases:
        for kind in (torch.int8, torch.int16) if dtype in ONE_SIDED else ():
            weight = numbers(*of_weight, dtype=kind, seed=1)
            channels = of_weight[1] * groups if transposed else of_weight[0]
            for before, after in _after(channels, weight[0, 0].numel()):
                where = (*steps, transposed, output_padding, groups)
                yield numbers(*size, dtype=dtype), weight, *before, *where, *after


def _residual(dtype: torch.dtype) -> Iterator[Inputs]:
    for x, weight, *rest in _convolution(dtype):
        before, where, after = rest[:4], rest[4:10], rest[10:]
        result = torch.ops.causeway.qconv(x, weight, *before, *where, *after)
        shape, channels = result.shape, result.shape[1]
        scale = numbers(channels, dtype=torch.float32, seed=6).abs() / 8
        zero = torch.arange(channels, dtype=torch.int32) - 2
        yield (
            *(x, weight, *before, *where),
            *(numbers(*shape, dtype=torch.float32, seed=7), None, None, *after),
        )
        for factors in ((scale[:1], None), (scale, zero)):
            added = numbers(*shape, dtype=torch.int8, seed=8)
            yield x, weight, *before, *where, added, *factors, *after


def _pool(dtype: torch.dtype) -> Iterator[Inputs]:
    if dtype in (torch.bool, torch.float16) or dtype.is_complex:
        return
    for shape in ((2, 3, 8, 9), (1, 65, 5, 5)):
        x = numbers(*shape, dtype=dtype)
        for given in (x, x.to(memory_format=torch.channels_last)):
            yield given, [3, 3], [2, 2], [1, 1], [1, 1], False
            yield given, [2, 2], [], [0, 0], [2, 1], True


def _packed(dtype: torch.dtype) -> Iterator[Inputs]:
    if not dtype.is_floating_point or dtype.itemsize == 1:
        return
    for (*rows, k), n, group in (((3, 32), 5, 32), ((1, 64), 1, 64), ((2, 3, 128), 33, 32)):
        x = numbers(*rows, k, dtype=dtype)
        scale = numbers(n, k // group, dtype=torch.float32, seed=1).abs() + 0.1
        zero = numbers(n, k // group, dtype=torch.float32, seed=2).round()
        bytes_ = torch.randint(0, 256, (n, k // 2), generator=torch.Generator().manual_seed(3))
        for zeros in (None, zero):
            yield x, numbers(n, k, dtype=torch.int8, seed=4), scale, zeros, group, 8
            yield x, bytes_.to(torch.uint8), scale, zeros, group, 4
            yield x, bytes_.to(torch.uint8).view(torch.int8), scale, zeros, group, 4
            float8 = numbers(n, k, dtype=torch.float32, seed=4).to(torch.float8_e4m3fn)
            yield x, float8, scale, zeros, group, 8


OWN: dict[str, Recipe] = {
    "causeway::lstm_step": _lstm,
    "causeway::lstm_step_backward": _lstm_backward,
    "causeway::lstm_steps": _lstm_steps,
    "causeway::lstm_steps_backward": _lstm_steps_backward,
    "causeway::lstm_layer": _lstm_layer,
    "causeway::lstm_layer_backward": _lstm_layer_backward,
    "causeway::gru_steps": _gru_steps,
    "causeway::gru_steps_backward": _gru_steps_backward,
    "causeway::rnn_steps": _rnn_steps,
    "causeway::rnn_steps_backward": _rnn_steps_backward,
    "causeway::gru_step": _gru,
    "causeway::gru_step_backward": _gru_backward,
    "causeway::quantize": _quantize,
    "causeway::qlinear": _linear,
    "causeway::quantize_qlinear": _floats,
    "causeway::qconv": _convolution,
    "causeway::qconv_add": _residual,
    "causeway::max_pool2d": _pool,
    "causeway::qlinear_weight": _packed,
}
