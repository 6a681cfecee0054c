"""Kernels against numpy: every family over dtypes, layouts, broadcasting, no elements, and NaN."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sim import DTYPES, HOST, DeviceTensor, Dtype, Philox, Sim, SimError

Array = np.ndarray
SHAPES = [(), (1,), (7,), (0,), (3, 5), (300,), (2, 0, 3), (2, 3, 4), (17, 259)]
LAYOUTS = ["dense", "transposed", "strided", "backwards"]
FLOATS = ["float32", "float64", "float16"]
INTS = ["int64", "int32", "int16", "int8", "uint8"]
TOLERANCE = {"float32": 2e-6, "float64": 1e-13, "float16": 2e-3}

rng = np.random.default_rng(0)


def make(shape: tuple[int, ...], dtype: str, layout: str = "dense", nan: bool = False) -> Array:
    """Numbers of the dtype, laid out in memory as asked for."""
    if dtype == "bool":
        values = rng.random(shape) > 0.5
    elif dtype in FLOATS:
        values = np.asarray(rng.normal(size=shape) * 2).astype(dtype)
        if nan and values.size > 3:
            values.flat[:3] = [np.nan, np.inf, -np.inf]
    else:
        values = rng.integers(0 if dtype == "uint8" else -9, 9, shape).astype(dtype)
    values = np.asarray(values)
    if layout == "transposed":
        return values.T.copy().T
    if layout == "strided" and values.ndim:
        wide = np.zeros([2 * n + 1 for n in shape], dtype)
        view = wide[tuple(slice(1, 1 + 2 * n, 2) for n in shape)]
        view[...] = values
        return view
    if layout == "backwards" and values.ndim:
        return values[::-1].copy()[::-1]
    return values


class Bench:
    """Numpy arrays in, numpy arrays out."""

    def __init__(self, sim: Sim):
        self.sim = sim
        self.used: list[int] = []

    def put(self, array: Array, dtype: str | None = None) -> DeviceTensor:
        """A copy on the device, with the array's own strides."""
        name, strides = dtype or array.dtype.name, [s // array.itemsize for s in array.strides]
        if array.size == 0:
            return DeviceTensor(0, name, array.shape, strides)
        low, high = np.lib.array_utils.byte_bounds(array)
        address = self.sim.alloc(high - low)
        self.used.append(address)
        self.sim.call("mem_copy", address, 0, low, HOST, high - low, None)
        self.sim.sync()
        return DeviceTensor(
            address + array.__array_interface__["data"][0] - low, name, array.shape, strides
        )

    def take(self, tensor: DeviceTensor, array: Array) -> None:
        """Copy what put() copied back into the same array."""
        if array.size:
            low, high = np.lib.array_utils.byte_bounds(array)
            start = tensor.data - (array.__array_interface__["data"][0] - low)
            self.sim.call("mem_copy", low, HOST, start, 0, high - low, None)
        self.sim.sync()

    def run(self, name: str, outs: list[Array], *args: object) -> list[Array]:
        """Run an operator; give back `outs` with what it wrote."""
        tensors = [self.put(out) for out in outs]
        rest = [self.put(a) if isinstance(a, np.ndarray) else a for a in args]
        rest = [
            [self.put(a) for a in r]
            if isinstance(r, list) and r and isinstance(r[0], np.ndarray)
            else r
            for r in rest
        ]
        self.sim.run(name, *tensors, *rest)
        for tensor, out in zip(tensors, outs, strict=True):
            self.take(tensor, out)
        for address in self.used:
            self.sim.free(address)
        self.used.clear()
        return outs


@pytest.fixture(scope="module")
def bench(sim_library: object) -> Bench:
    return Bench(Sim(sim_library, ops="all"))  # type: ignore[arg-type]


def same(got: Array, want: Any, tolerance: float | None = None) -> None:
    want = np.asarray(want)
    assert got.shape == want.shape
    if got.dtype.kind == "f":
        close = tolerance or TOLERANCE[got.dtype.name]
        np.testing.assert_allclose(got.astype("f8"), want.astype("f8"), rtol=close, atol=close)
    else:
        np.testing.assert_array_equal(got, want)


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


erf = np.vectorize(math.erf, otypes=["f8"])

UNARY: dict[str, Callable[[Array], Array]] = {
    "neg": np.negative, "abs": np.abs, "relu": lambda x: np.where(x < 0, 0, x),
    "exp": np.exp, "log": np.log, "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x),
    "sin": np.sin, "cos": np.cos, "tanh": np.tanh,
    "erf": erf, "sigmoid": sigmoid, "floor": np.floor, "ceil": np.ceil,
    "silu": lambda x: x * sigmoid(x),
    "reciprocal": lambda x: 1 / x,
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", UNARY)
def test_unary(bench: Bench, name: str, dtype: str) -> None:
    for shape in SHAPES:
        for layout in LAYOUTS:
            x = make(shape, dtype, layout, nan=True)
            (out,) = bench.run(f"aten::{name}.out", [make(shape, dtype, layout)], x)
            same(out, UNARY[name](x.astype("f8")).astype(dtype))


@pytest.mark.parametrize("dtype", INTS)
def test_unary_of_integers(bench: Bench, dtype: str) -> None:
    x = make((3, 5), dtype)
    same(bench.run("aten::neg.out", [make((3, 5), dtype)], x)[0], -x)
    same(bench.run("aten::abs.out", [make((3, 5), dtype)], x)[0], abs(x))
    same(bench.run("aten::exp.out", [make((3, 5), "float32")], x)[0], np.exp(x.astype("f4")))


BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "add.out": np.add, "sub.out": np.subtract, "mul.out": np.multiply, "maximum.out": np.maximum,
    "minimum.out": np.minimum, "eq.Tensor_out": np.equal, "ne.Tensor_out": np.not_equal,
    "lt.Tensor_out": np.less,
    "le.Tensor_out": np.less_equal, "gt.Tensor_out": np.greater, "ge.Tensor_out": np.greater_equal,
    "logical_and.out": np.logical_and, "logical_or.out": np.logical_or,
}  # fmt: skip
PAIRS = [
    ((), ()), ((3, 5), (3, 5)), ((3, 5), (5,)), ((3, 1), (1, 5)), ((3, 5), ()), ((), (4,)),
    ((2, 0, 3), (3,)),
    ((17, 259), (17, 1)), ((300,), (300,)), ((2, 3, 4), (3, 1)),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", FLOATS + INTS)
@pytest.mark.parametrize("name", BINARY)
def test_binary_broadcasts(bench: Bench, name: str, dtype: str) -> None:
    alpha = [1] if name in ("add.out", "sub.out") else []
    for left, right in PAIRS:
        for layout in LAYOUTS:
            x, y = make(left, dtype, layout, nan=True), make(right, dtype, layout)
            want = BINARY[name](x, y)
            (out,) = bench.run(
                f"aten::{name}", [make(want.shape, want.dtype.name, layout)], x, y, *alpha
            )
            same(out, want)


def test_alpha_and_wrapping(bench: Bench) -> None:
    x, y = np.array([100, -100], "i1"), np.array([60, -60], "i1")
    same(bench.run("aten::add.out", [x.copy()], x, y, 2)[0], np.array([-36, 36], "i1"))
    a, b = make((4,), "float32"), make((4,), "float32")
    same(bench.run("aten::sub.out", [a.copy()], a, b, 0.5)[0], a - b / 2)


def test_division(bench: Bench) -> None:
    x, y = np.array([7, -7, 1], "i8"), np.array([2, 2, 0], "i8")
    same(
        bench.run("aten::div.out", [np.zeros(3, "f4")], x, y)[0],
        np.array([3.5, -3.5, np.inf], "f4"),
    )


def test_mixed_dtypes_take_the_outputs_precision(bench: Bench) -> None:
    x, y = make((5,), "int64"), make((5,), "float64")
    same(bench.run("aten::add.out", [np.zeros(5)], x, y, 1)[0], x + y)


def test_bool_arithmetic_is_logic(bench: Bench) -> None:
    x, y = np.array([0, 0, 1, 1], bool), np.array([0, 1, 0, 1], bool)
    same(bench.run("aten::add.out", [x.copy()], x, y, 1)[0], x | y)
    same(bench.run("aten::mul.out", [x.copy()], x, y)[0], x & y)


def test_integer_bits(bench: Bench) -> None:
    x, y = make((9,), "int32"), make((9,), "int32")
    for name, op in (("and", np.bitwise_and), ("or", np.bitwise_or), ("xor", np.bitwise_xor)):
        same(bench.run(f"aten::bitwise_{name}.Tensor_out", [x.copy()], x, y)[0], op(x, y))
    with pytest.raises(SimError, match="UNSUPPORTED"):
        bench.run("aten::bitwise_and.Tensor_out", [x.copy()], x.astype("f4"), y)


def test_bfloat16_rounds_to_even(bench: Bench) -> None:
    """Kept as uint16 here: numpy has no bfloat16."""
    sim = bench.sim
    x = make((64,), "float32", nan=True)
    source, half, back = (
        bench.put(x),
        bench.put(np.zeros(64, "u2"), "bfloat16"),
        bench.put(np.zeros(64, "f4")),
    )
    sim.run("aten::copy_", half, source, False)
    sim.run("aten::copy_", back, half, False)
    got = np.zeros(64, "f4")
    back_array = np.frombuffer(sim.read(back.data, 256), "f4")
    got[:] = back_array
    bits = x.view("u4").astype("u8")
    want = (((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) << 16).astype("u4").view("f4").copy()
    want[np.isnan(x)] = np.nan
    np.testing.assert_array_equal(got, want)


def test_numbers(bench: Bench) -> None:
    x = make((3, 7), "float32", nan=True)
    same(bench.run("aten::clamp.out", [x.copy()], x, -1.0, 1.0)[0], np.clip(x, -1, 1))
    same(bench.run("aten::clamp.out", [x.copy()], x, None, 1.0)[0], np.clip(x, None, 1))
    same(bench.run("aten::pow.Tensor_Scalar_out", [x.copy()], x, 3)[0], x**3, 1e-5)
    same(bench.run("aten::ge.Scalar_out", [make((3, 7), "bool")], x, 0.5)[0], x >= 0.5)
    half = np.array([0.1], "f2")
    assert bench.run("aten::eq.Scalar_out", [np.zeros(1, bool)], half, 0.1)[0][0]


def test_where(bench: Bench) -> None:
    c, x, y = make((3, 1), "bool"), make((3, 5), "float64", "strided"), make((5,), "float64")
    same(bench.run("aten::where.self_out", [np.zeros((3, 5))], c, x, y)[0], np.where(c, x, y))


def test_gradients_of_activations(bench: Bench) -> None:
    g, x = make((40,), "float64"), make((40,), "float64")
    y, s = np.tanh(x), sigmoid(x)
    for name, args, want in (
        ("threshold_backward", (g, x, 0), np.where(x <= 0, 0, g)),
        ("tanh_backward", (g, y), g * (1 - y * y)),
        ("sigmoid_backward", (g, s), g * s * (1 - s)),
        (
            "gelu_backward",
            (g, x, "none"),
            g * ((1 + erf(x / 2**0.5)) / 2 + x * np.exp(-x * x / 2) / (2 * np.pi) ** 0.5),
        ),
    ):
        same(bench.run(f"aten::{name}.grad_input", [np.zeros(40)], *args)[0], want)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTS, "bool"])
def test_fill_and_zero(bench: Bench, dtype: str) -> None:
    for layout in LAYOUTS:
        same(
            bench.run("aten::fill_.Scalar", [make((3, 5), dtype, layout)], 1)[0],
            np.ones((3, 5), dtype),
        )
        same(bench.run("aten::zero_", [make((3, 5), dtype, layout)])[0], np.zeros((3, 5), dtype))


@pytest.mark.parametrize("to", [*FLOATS, *INTS, "bool"])
def test_copy_converts(bench: Bench, to: str) -> None:
    for dtype in [*FLOATS, *INTS, "bool"]:
        x = abs(make((4, 6), dtype, "transposed")) if dtype != "bool" else make((4, 6), dtype)
        same(bench.run("aten::copy_", [make((4, 6), to, "strided")], x, False)[0], x.astype(to))


REDUCTIONS: dict[str, tuple[Callable[..., Array], list[object]]] = {
    "sum.IntList_out": (np.sum, [None]), "mean.out": (np.mean, [None]), "amax.out": (np.max, []),
    "amin.out": (np.min, []),
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(bench: Bench, name: str, dtype: str) -> None:
    if name == "mean.out" and dtype == "int32":
        pytest.skip("torch has no mean of integers")
    f, more = REDUCTIONS[name]
    for shape, dims in [
        ((7,), [0]),
        ((3, 5), [0]),
        ((3, 5), [-1]),
        ((2, 3, 4), [0, 2]),
        ((17, 259), []),
        ((300, 20), [0]),
    ]:
        for layout in LAYOUTS:
            for keep in (False, True):
                x = make(shape, dtype, layout)
                want = np.asarray(
                    f(
                        x.astype("f8") if dtype != "int32" else x,
                        axis=tuple(dims) or None,
                        keepdims=keep,
                    )
                )
                (out,) = bench.run(
                    f"aten::{name}",
                    [np.zeros(want.shape, dtype if dtype != "int32" else want.dtype)],
                    x,
                    dims,
                    keep,
                    *more,
                )
                same(out, want)


def test_reductions_meet_nan_and_nothing(bench: Bench) -> None:
    x = np.array([1, np.nan, 3], "f4")
    assert np.isnan(bench.run("aten::amax.out", [np.zeros((), "f4")], x, [], False)[0])
    assert bench.run("aten::argmax.out", [np.zeros((), "i8")], x, None, False)[0] == 1
    same(
        bench.run(
            "aten::sum.IntList_out", [np.ones(3, "f4")], np.zeros((0, 3), "f4"), [0], False, None
        )[0],
        np.zeros(3),
    )
    assert bench.run("aten::all.all_out", [np.zeros((), bool)], np.zeros(0, bool))[0]


def test_sums_of_integers_do_not_overflow_their_dtype(bench: Bench) -> None:
    x = np.full(300, 100, "i1")
    assert (
        bench.run("aten::sum.IntList_out", [np.zeros((), "i8")], x, None, False, None)[0] == 30000
    )
    assert (
        bench.run("aten::sum.IntList_out", [np.zeros((), "f4")], x, None, False, Dtype("float32"))[
            0
        ]
        == 30000
    )


def test_maximum_and_its_place(bench: Bench) -> None:
    x = make((4, 6, 5), "int32", "strided")
    values, places = bench.run(
        "aten::max.dim_max", [np.zeros((4, 5), "i4"), np.zeros((4, 5), "i8")], x, 1, False
    )
    same(values, x.max(1))
    same(places, x.argmax(1))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64"])
def test_matrix_products(bench: Bench, dtype: str) -> None:
    tolerance = {"float32": 1e-3, "float64": 1e-11, "float16": 5e-2}.get(dtype)
    for m, k, n in ((1, 1, 1), (3, 5, 7), (65, 300, 270), (0, 3, 4), (3, 0, 4)):
        for layout in LAYOUTS[:3]:
            a, b, c = make((m, k), dtype, layout), make((k, n), dtype, layout), make((n,), dtype)
            wide = (lambda x: x.astype("f8")) if dtype != "int64" else (lambda x: x)
            want = wide(a) @ wide(b)
            same(
                bench.run("aten::mm.out", [make((m, n), dtype, layout)], a, b)[0],
                want.astype(dtype),
                tolerance,
            )
            (out,) = bench.run("aten::addmm.out", [make((m, n), dtype)], c, a, b, 2, 3)
            same(out, (2 * wide(c) + 3 * want).astype(dtype), tolerance)
    a, b = make((4, 3, 5), dtype), make((4, 5, 2), dtype)
    same(bench.run("aten::bmm.out", [make((4, 3, 2), dtype)], a, b)[0], a @ b, tolerance)


def test_beta_0_does_not_read(bench: Bench) -> None:
    a, nan = make((3, 3), "float32"), np.full((3, 3), np.nan, "f4")
    same(bench.run("aten::addmm.out", [nan.copy()], nan, a, a, 0, 1)[0], a @ a, 1e-5)


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_softmax_and_its_gradient(bench: Bench, dim: int) -> None:
    x, g = make((5, 6, 7), "float64", "transposed"), make((5, 6, 7), "float64")
    e = np.exp(x - x.max(dim, keepdims=True))
    y = e / e.sum(dim, keepdims=True)
    same(bench.run("aten::_softmax.out", [np.zeros_like(x)], x, dim, False)[0], y)
    same(bench.run("aten::_log_softmax.out", [np.zeros_like(x)], x, dim, False)[0], np.log(y))
    want = (g - (g * y).sum(dim, keepdims=True)) * y
    same(
        bench.run(
            "aten::_softmax_backward_data.out", [np.zeros_like(x)], g, y, dim, Dtype("float64")
        )[0],
        want,
    )
    want = g - y * g.sum(dim, keepdims=True)
    (out,) = bench.run(
        "aten::_log_softmax_backward_data.out",
        [np.zeros_like(x)],
        g,
        np.log(y),
        dim,
        Dtype("float64"),
    )
    same(out, want)


def test_layer_norm(bench: Bench) -> None:
    x, w, b = make((4, 3, 6), "float64"), make((3, 6), "float64"), make((3, 6), "float64")
    mean, var = x.mean((1, 2), keepdims=True), x.var((1, 2), keepdims=True)
    rstd = 1 / np.sqrt(var + 1e-5)
    small = np.zeros((4, 1, 1))
    out, got_mean, got_rstd = bench.run(
        "aten::native_layer_norm.out",
        [np.zeros_like(x), small, small.copy()],
        x,
        [3, 6],
        w,
        b,
        1e-5,
    )
    same(out, (x - mean) * rstd * w + b)
    same(got_mean, mean)
    same(got_rstd, rstd)


def test_convolution(bench: Bench) -> None:
    x, w, b = make((2, 4, 7, 8), "float64"), make((6, 2, 3, 2), "float64"), make((6,), "float64")
    stride, pad, groups = (2, 1), (1, 0), 2
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (0, 0)))
    rows, columns = (7 + 2 - 3) // 2 + 1, (8 - 2) // 1 + 1
    want = np.zeros((2, 6, rows, columns))
    for o in range(6):
        group = padded[:, 2 * (o // 3) : 2 * (o // 3) + 2]
        for i in range(rows):
            for j in range(columns):
                patch = group[
                    :, :, i * stride[0] : i * stride[0] + 3, j * stride[1] : j * stride[1] + 2
                ]
                want[:, o, i, j] = (patch * w[o]).sum((1, 2, 3)) + b[o]
    args = (x, w, b, list(stride), list(pad), [1, 1], False, [0, 0], groups)
    same(bench.run("aten::convolution_overrideable", [np.zeros_like(want)], *args)[0], want, 1e-12)


def test_pooling(bench: Bench) -> None:
    x = make((2, 3, 6, 8), "float32")
    windows = x.reshape(2, 3, 3, 2, 4, 2).transpose(0, 1, 2, 4, 3, 5).reshape(2, 3, 3, 4, 4)
    out, where = bench.run(
        "aten::max_pool2d_with_indices.out",
        [np.zeros((2, 3, 3, 4), "f4"), np.zeros((2, 3, 3, 4), "i8")],
        x, [2, 2], [], [0, 0], [1, 1], False,
    )  # fmt: skip
    same(out, windows.max(-1))
    same(
        np.take_along_axis(x.reshape(2, 3, 48), where.reshape(2, 3, 12), 2).reshape(2, 3, 3, 4), out
    )
    (out,) = bench.run(
        "aten::avg_pool2d.out",
        [np.zeros((2, 3, 3, 4), "f4")],
        x,
        [2, 2],
        [],
        [0],
        False,
        True,
        None,
    )
    same(out, windows.mean(-1))


def test_indexing(bench: Bench) -> None:
    w, i = make((11, 5), "float32"), rng.integers(0, 11, (2, 3))
    same(
        bench.run("aten::embedding.out", [np.zeros((2, 3, 5), "f4")], w, i, -1, False, False)[0],
        w[i],
    )
    x, k = make((4, 6), "int16", "strided"), np.array([3, 0, 3])
    same(bench.run("aten::index_select.out", [np.zeros((4, 3), "i2")], x, 1, k)[0], x[:, k])
    g = rng.integers(0, 4, (2, 6))
    same(
        bench.run("aten::gather.out", [np.zeros((2, 6), "i2")], x, 0, g, False)[0],
        np.take_along_axis(x, g, 0),
    )
    parts = [make((4, n), "int16") for n in (2, 0, 5)]
    same(
        bench.run("aten::cat.out", [np.zeros((4, 7), "i2")], parts, 1)[0], np.concatenate(parts, 1)
    )
    same(bench.run("aten::arange.start_out", [np.zeros(5, "i4")], 3, 18, 3)[0], np.arange(3, 18, 3))


def test_an_index_out_of_range_is_named(sim: Sim) -> None:
    bench = Bench(sim)
    with pytest.raises(
        SimError, match=r"aten::embedding.out: index 11 is out of range, there are 11"
    ):
        bench.run(
            "aten::embedding.out",
            [np.zeros((1, 5), "f4")],
            make((11, 5), "float32"),
            np.array([11]),
            -1,
            False,
            False,
        )


def test_loss_and_its_gradient(bench: Bench) -> None:
    x, t = np.log(rng.dirichlet(np.ones(5), 6)), np.array([0, 4, -100, 2, 2, 1])
    kept = t >= 0
    loss, weight = bench.run(
        "aten::nll_loss_forward.output", [np.zeros(()), np.zeros(())], x, t, None, 1, -100
    )
    same(loss, -x[kept, t[kept]].mean())
    assert weight == 5
    want = np.zeros_like(x)
    want[kept, t[kept]] = -1 / 5
    (grad,) = bench.run(
        "aten::nll_loss_backward.grad_input", [x.copy()], np.ones(()), x, t, None, 1, -100, weight
    )
    same(grad, want)


def test_nonzero_asks_for_its_shape(sim: Sim) -> None:
    x = np.array([[0, 1, 0], [2, 0, 3]], "i4")
    (out,) = Bench(sim).run("aten::nonzero.out", [np.zeros((6, 2), "i8")], x)
    assert sim.resized == [(3, 2)]
    same(out[:3], np.argwhere(x))


def test_random_numbers_depend_on_seed_and_place_alone(bench: Bench) -> None:
    def draw(n: int, seed: int, offset: int = 0) -> Array:
        return bench.run("aten::uniform_", [np.zeros(n, "f4")], 0.0, 1.0, Philox(seed, offset))[0]

    x = draw(10000, 1)
    assert x.min() >= 0
    assert x.max() < 1
    assert abs(x.mean() - 0.5) < 0.02
    np.testing.assert_array_equal(draw(100, 1), x[:100])
    np.testing.assert_array_equal(draw(100, 1, 25), x[100:200])
    assert (draw(100, 2) != x[:100]).all()
    (normal,) = bench.run("aten::normal_", [np.zeros(10000)], 3.0, 2.0, Philox(1, 0))
    assert abs(normal.mean() - 3) < 0.1
    assert abs(normal.std() - 2) < 0.1
    # The words themselves, from Random123's known answers: all zero key and counter.
    assert draw(1, 0)[0] == (0x6627E8D5 >> 8) / 2**24


def test_a_kernel_declines_what_it_does_not_take(bench: Bench) -> None:
    x = make((3,), "float32").astype("complex64")
    with pytest.raises(SimError, match=r"^UNSUPPORTED$"):
        bench.run("aten::add.out", [x.copy()], x, x, 1)


def test_a_kernel_refuses_memory_that_is_not_the_devices(sim: Sim) -> None:
    inside = DeviceTensor(sim.alloc(64), "float32", (16,), (1,))
    beyond = DeviceTensor(inside.data, "float32", (17,), (1,))
    with pytest.raises(
        SimError, match=r"68 bytes at .* not inside one live allocation of device 0"
    ):
        sim.run("aten::neg.out", inside, beyond)


def test_a_number_may_stand_for_a_tensor(bench: Bench) -> None:
    x = np.arange(4, dtype="f4")
    same(bench.run("aten::mul.out", [x.copy()], x, 2.0)[0], 2 * x)
    same(bench.run("aten::sub.out", [x.copy()], 1, x, 1)[0], 1 - x)
    same(
        bench.run("aten::add.out", [np.zeros(4, "u1")], x.astype("u1"), -1, 1)[0],
        x.astype("u1") - np.uint8(1),
    )
    same(
        bench.run("aten::where.self_out", [x.copy()], x > 1, x, 0.5)[0],
        np.where(x > 1, x, np.float32(0.5)),
    )
    half = np.full(1, 0.1, "f2")
    assert bench.run("aten::eq.Tensor_out", [np.zeros(1, bool)], half, 0.1)[0]
    assert (
        bench.run("aten::lt.Tensor_out", [np.zeros(3, bool)], np.array([1, 2, 3]), 2.5)[0].sum()
        == 2
    )


@pytest.mark.parametrize("execution", ["inline", "async"])
def test_families_run_in_every_memory(make_sim: Callable[..., Sim], execution: str) -> None:
    bench = Bench(make_sim(ops="all", memory_model="discrete", execution=execution))
    x, w = make((2, 3, 6, 6), "float32"), make((4, 3, 3, 3), "float32")
    (y,) = bench.run(
        "aten::convolution_overrideable",
        [np.zeros((2, 4, 4, 4), "f4")],
        x,
        w,
        None,
        [1],
        [0],
        [1],
        False,
        [0],
        1,
    )
    same(bench.run("aten::relu.out", [np.zeros_like(y)], y)[0], np.maximum(y, 0))
    same(
        bench.run("aten::sum.IntList_out", [np.zeros(2, "f4")], y, [1, 2, 3], False, None)[0],
        y.sum((1, 2, 3)),
        1e-5,
    )


def test_every_dtype_has_its_bit() -> None:
    assert sorted(bit for _, _, bit in DTYPES.values()) == [*range(13), 14, 15]
