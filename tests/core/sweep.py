"""A table of operators over dtypes and layouts; what differs between the device and the CPU.

`differences(family)` runs each case on both, forward and backward, and compares values, dtype,
shape and strides. Where the CPU refuses, the device must refuse too; of what CUDA takes beside, as
abs of bool, tests/torch/test_cuda_only.py has all.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

Function = Callable[..., Any]
NAME = torch._C._get_privateuse1_backend_name()

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.int64, torch.int32, torch.uint8, torch.bool)
ALL = FLOATS + INTEGERS
WIDE = (torch.float32, torch.float64)

# A base in memory, and the view of it that the operator gets: (3, 4) but for the last two.
LAYOUTS: dict[str, tuple[tuple[int, ...], Function]] = {
    "contiguous": ((3, 4), lambda x: x),
    "transposed": ((4, 3), lambda x: x.t()),
    "sliced": ((6, 9), lambda x: x[1::2, 1::2]),
    "expanded": ((1, 4), lambda x: x.expand(3, 4)),
    "cube": ((2, 5, 4), lambda x: x.permute(2, 0, 1)[:, :, ::2]),
    "zero-size": ((0, 4), lambda x: x),
    "zero-dim": ((), lambda x: x),
}
MATRIX = ("contiguous", "transposed", "sliced", "expanded")

TOLERANCE = {torch.float16: 4e-3, torch.bfloat16: 3e-2, torch.float32: 2e-5, torch.float64: 1e-9}


def values(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> Tensor:
    """Small numbers without zero, so that integers divide; the same for each seed."""
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.rand(shape, generator=generator, dtype=torch.float64) * 4 + 0.25
    if dtype.is_floating_point:
        sign = torch.randint(0, 2, shape, generator=generator) * 2 - 1
        return (numbers * sign).to(dtype)
    if dtype == torch.bool:
        return numbers > 2
    return numbers.ceil().to(dtype)


@dataclass(frozen=True)
class Input:
    """A tensor that can be made on either side: a base, and a view of it."""

    base: Tensor
    view: Function

    def on(self, place: str, grad: bool = False) -> tuple[Tensor, Tensor]:
        """The base, a leaf, and its view."""
        base = self.base.clone().to(place).requires_grad_(grad)
        return base, self.view(base)


def tensor(dtype: torch.dtype, layout: str = "contiguous", seed: int = 0) -> Input:
    shape, view = LAYOUTS[layout]
    return Input(values(shape, dtype, seed), view)


def dense(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Input:
    return Input(values(shape, dtype, seed), lambda x: x)


def indices(*numbers: int, shape: tuple[int, ...] | None = None) -> Input:
    base = torch.tensor(numbers)
    return Input(base if shape is None else base.view(shape), lambda x: x)


@dataclass(frozen=True)
class Case:
    """One call: `function` on these inputs; numbers and CPU scalars go in as they are."""

    title: str
    function: Function
    inputs: tuple[Any, ...]

    def differs(self) -> str:
        """What the device does otherwise than the CPU; "" for nothing."""
        want, want_error = self._run("cpu")
        have, error = self._run(NAME)
        if want_error is not None:
            return "" if error is not None else f"the CPU refuses it: {want_error}"
        if error is not None:
            return f"{type(error).__name__}: {error}"
        if len(want) != len(have):
            return f"{len(have)} results, not {len(want)}"
        close = max((TOLERANCE.get(t.dtype, 0.0) for t in self._tensors(want)), default=0.0)
        found = (_compare(w, h, close) for w, h in zip(want, have, strict=True))
        return next((difference for difference in found if difference), "")

    def _tensors(self, results: list[Any]) -> list[Tensor]:
        """All that went in or came out: the coarsest of them bounds the precision."""
        given = [x.base if isinstance(x, Input) else x for x in (*self.inputs, *results)]
        return [x for x in given if isinstance(x, Tensor)]

    def _run(self, place: str) -> tuple[list[Any], Exception | None]:
        leaves, arguments = [], []
        for given in self.inputs:
            if isinstance(given, Input):
                base, view = given.on(place, grad=given.base.dtype.is_floating_point)
                leaves.append(base)
                arguments.append(view)
            else:
                arguments.append(given)
        try:
            out = self.function(*arguments)
            results = list(out) if isinstance(out, tuple | list) else [out]
            plain = [r.detach() if isinstance(r, Tensor) else r for r in results]
            used = [r for r in results if isinstance(r, Tensor) and r.requires_grad]
            gradients = [_gradient(r) for r in used]
            wanted = [leaf for leaf in leaves if leaf.requires_grad] if used else []
            grads = torch.autograd.grad(used, wanted, gradients, allow_unused=True) if used else ()
        except Exception as error:
            return [], error
        return [*plain, *grads], None


def _gradient(result: Tensor) -> Tensor:
    """Weights of a size like 1, another for each element, equal on both sides."""
    weights = torch.arange(result.numel(), dtype=torch.float64).remainder(7) / 4 - 0.6
    return weights.to(result.dtype).view(result.shape).to(result.device)


def _compare(want: Any, have: Any, close: float) -> str:
    if not isinstance(want, Tensor) or not isinstance(have, Tensor):
        return "" if want == have else f"{have!r}, not {want!r}"
    if have.device.type != NAME:
        return f"the result is on {have.device}"
    for what in ("dtype", "shape"):
        if getattr(want, what) != getattr(have, what):
            return f"{what} {getattr(have, what)}, not {getattr(want, what)}"
    if want.numel() and want.stride() != have.stride():
        return f"strides {have.stride()}, not {want.stride()}"
    exact = 0.0 if not want.dtype.is_floating_point else close
    try:
        torch.testing.assert_close(have.cpu(), want, rtol=exact, atol=exact, equal_nan=True)
    except AssertionError as error:
        return str(error).replace("\n", " ")
    return ""


# --- the table ----------------------------------------------------------------------------------

UNARY = {
    "neg": ALL, "abs": (*FLOATS, *INTEGERS[:3]), "sign": ALL, "relu": ALL, "square": ALL,
    "exp": ALL, "log": ALL, "log1p": WIDE, "expm1": WIDE, "sqrt": ALL, "rsqrt": ALL,
    "reciprocal": ALL, "sin": ALL, "cos": WIDE, "tanh": ALL, "erf": WIDE, "sigmoid": ALL,
    "floor": ALL, "ceil": FLOATS, "round": FLOATS, "trunc": FLOATS, "isnan": ALL,
    "logical_not": ALL, "bitwise_not": INTEGERS,
}  # fmt: skip
BINARY = {
    "add": ALL, "sub": ALL, "mul": ALL, "div": ALL, "pow": FLOATS + INTEGERS[:3],
    "maximum": ALL, "minimum": ALL, "eq": ALL, "ne": ALL, "lt": ALL, "le": ALL, "gt": ALL,
    "ge": ALL, "logical_and": ALL, "logical_or": WIDE + INTEGERS, "logical_xor": INTEGERS,
    "bitwise_and": INTEGERS, "bitwise_or": INTEGERS, "bitwise_xor": INTEGERS,
    "fmod": ALL, "remainder": ALL, "atan2": WIDE, "hypot": WIDE, "floor_divide": ALL,
}  # fmt: skip
ACTIVATIONS: dict[str, Function] = {
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu tanh": lambda x: F.gelu(x, approximate="tanh"),
    "leaky_relu": F.leaky_relu,
    "elu": F.elu,
    "softplus": F.softplus,
    "hardswish": F.hardswish,
    "hardtanh": F.hardtanh,
    "logsigmoid": F.logsigmoid,
    "threshold": lambda x: F.threshold(x, 0.5, 0.1),
    "clamp": lambda x: x.clamp(-1, 1),
    "clamp min": lambda x: x.clamp_min(0.5),
    "softmax": lambda x: F.softmax(x, -1),
    "softmax 0": lambda x: F.softmax(x, 0),
    "log_softmax": lambda x: F.log_softmax(x, -1),
    "softmax in float": lambda x: F.softmax(x, -1, dtype=torch.float32),
}
REDUCTIONS: dict[str, Function] = {
    "sum": lambda x: x.sum(),
    "sum of a dimension": lambda x: x.sum(0),
    "sum kept": lambda x: x.sum(-1, keepdim=True),
    "sum as float64": lambda x: x.sum(dtype=torch.float64),
    "mean": lambda x: x.mean(),
    "mean of a dimension": lambda x: x.mean(-1),
    "prod": lambda x: x.prod(),
    "prod of a dimension": lambda x: x.prod(0),
    "amax": lambda x: x.amax(-1),
    "amin": lambda x: x.amin(0),
    "max": lambda x: x.max(),
    "min": lambda x: x.min(),
    "max of a dimension": lambda x: x.max(-1),
    "min of a dimension": lambda x: x.min(0),
    "any": lambda x: x.any(),
    "all of a dimension": lambda x: x.all(0),
    "argmax": lambda x: x.argmax(),
    "argmin of a dimension": lambda x: x.argmin(-1),
    "var": lambda x: x.var(-1),
    "std": lambda x: x.std(),
    "norm": lambda x: x.norm(),
    "logsumexp": lambda x: x.logsumexp(-1),
    "cumsum": lambda x: x.cumsum(0),
    "sort": lambda x: x.sort(-1, stable=True),
    "topk": lambda x: x.topk(1, -1),
    "nonzero": lambda x: (x > 1).nonzero(),
    "count_nonzero": lambda x: x.count_nonzero(),
    "unique": lambda x: x.unique(),
}
SHAPING: dict[str, Function] = {
    "cat": lambda x: torch.cat([x, x], -1),
    "stack": lambda x: torch.stack([x, x]),
    "flip": lambda x: x.flip(0),
    "roll": lambda x: x.roll(1, 0),
    "tril": lambda x: x.tril(),
    "pad": lambda x: F.pad(x, (1, 2)),
    "repeat": lambda x: x.repeat(2, *(1,) * (x.dim() - 1)),
    "clone": lambda x: x.clone(),
    "contiguous": lambda x: x.contiguous(),
    "to float": lambda x: x.to(torch.float32),
    "to int": lambda x: x.to(torch.int32),
    "masked_fill": lambda x: x.masked_fill(x > 1, 1),
    "masked_select": lambda x: x.masked_select(x > 1),
    "where": lambda x: torch.where(x > 1, x, -1.5),
    "index_select": lambda x: x.index_select(0, torch.arange(x.shape[0], device=x.device).flip(0)),
    "index": lambda x: x[torch.arange(x.shape[0], device=x.device).flip(0)],
    "mask": lambda x: x[x > 1],
    "gather": lambda x: x.gather(0, torch.zeros_like(x, dtype=torch.int64)),
    "scatter_add": lambda x: x.scatter_add(0, torch.zeros_like(x, dtype=torch.int64), x),
    "ones_like": torch.ones_like,
    "unbind": lambda x: x.unbind(0),
    "reshape": lambda x: x.reshape(-1),
    "diagonal": lambda x: x.diagonal(),
    "unfold": lambda x: x.unfold(0, 2, 1),
}


def _pointwise() -> Iterator[Case]:
    for name, dtypes in UNARY.items():
        function = getattr(torch, name)
        for dtype in dtypes:
            for layout in LAYOUTS:
                yield _case(name, function, tensor(dtype, layout))
                in_place = getattr(torch, name + "_", None) or getattr(Tensor, name + "_", None)
                if in_place and layout != "expanded":
                    yield _case(f"{name}_", _cloned(in_place), tensor(dtype, layout))
    for name, function in ACTIVATIONS.items():
        for dtype in FLOATS:
            for layout in LAYOUTS:
                yield _case(name, function, tensor(dtype, layout))


def _binary() -> Iterator[Case]:
    for name, dtypes in BINARY.items():
        function = getattr(torch, name)
        for dtype in dtypes:
            for layout in LAYOUTS:
                x = tensor(dtype, layout)
                yield _case(name, function, x, tensor(dtype, layout, seed=1))
                yield _case(name, function, x, 2)
                yield _case(name, function, x, 1.5)
                yield _case(f"{name} by a CPU number", function, x, torch.tensor(2))
            yield _case(name, function, tensor(dtype, "transposed"), tensor(dtype, "sliced", 1))
            yield _case(f"{name} over a row", function, tensor(dtype), dense(4, dtype=dtype))
            yield _case(f"{name} over a column", function, dense(3, 1, dtype=dtype), tensor(dtype))
            for other in (torch.float32, torch.float64, torch.int32):
                yield _case(f"{name} with", function, tensor(dtype), tensor(other, "sliced", 1))
                yield _case(f"{name} with 0-dim", function, tensor(dtype), dense(dtype=other))
            if in_place := getattr(Tensor, name + "_", None):
                for layout in ("contiguous", "transposed", "sliced", "zero-dim"):
                    x = tensor(dtype, layout)
                    yield _case(f"{name}_", _cloned(in_place), x, tensor(dtype, layout, seed=1))
                    yield _case(f"{name}_", _cloned(in_place), x, 2)
            yield _case(f"{name} out=", _into(function), tensor(dtype), tensor(dtype, seed=1))
    for dtype in FLOATS:
        x, y, z = tensor(dtype), tensor(dtype, "transposed", 1), tensor(dtype, "sliced", 2)
        yield _case("addcmul", lambda a, b, c: torch.addcmul(a, b, c, value=0.5), x, y, z)
        yield _case("addcdiv", lambda a, b, c: torch.addcdiv(a, b, c, value=0.5), x, y, z)
        yield _case("lerp", torch.lerp, x, y, z)
        yield _case("lerp by a number", lambda a, b: torch.lerp(a, b, 0.3), x, y)
        yield _case("where", lambda a, b: torch.where(a > b, a, b), x, y)
        yield _case("add alpha", lambda a, b: torch.add(a, b, alpha=2), x, y)
        yield _case("rsub", lambda a: 1 - a, y)
        yield _case("div floor", lambda a, b: torch.div(a, b, rounding_mode="floor"), x, y)


def _reductions() -> Iterator[Case]:
    for name, function in REDUCTIONS.items():
        for dtype in ALL:
            for layout in LAYOUTS:
                yield _case(name, function, tensor(dtype, layout))


def _shaping() -> Iterator[Case]:
    for name, function in SHAPING.items():
        for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.bool):
            for layout in LAYOUTS:
                yield _case(name, function, tensor(dtype, layout))
    for start, end, step in ((0, 5, 1), (1, 4, 0.5), (5, 0, -2)):
        yield _case("arange", lambda x, a, b, c: torch.arange(a, b, c, device=x.device),
                    dense(1), start, end, step)  # fmt: skip
    for name in ("zeros", "ones", "eye"):
        factory = getattr(torch, name)
        yield _case(name, lambda x, f=factory: f(3, device=x.device), dense(1))
    yield _case("linspace", lambda x: torch.linspace(0, 1, 7, device=x.device), dense(1))
    yield _case("full", lambda x: torch.full((2, 3), 7, device=x.device), dense(1))


def _products() -> Iterator[Case]:
    for dtype in (*FLOATS, torch.int64):
        for left in MATRIX:
            for right in MATRIX:
                x, y = tensor(dtype, left), tensor(dtype, right, 1)
                yield _case("mm", lambda a, b: a.mm(b.t()), x, y)
                yield _case("addmm", lambda a, b: torch.addmm(a, a, b.t()[:, [0, 1, 2, 0]]), x, y)
                yield _case("linear", lambda a, b: F.linear(a, b, b[:, 0]), x, y)
            yield _case("mv", lambda a: a.mv(a[0]), tensor(dtype, left))
        x, y = dense(2, 3, 4, dtype=dtype), dense(2, 4, 5, dtype=dtype, seed=1)
        yield _case("bmm", torch.bmm, x, y)
        yield _case("matmul", lambda a, b: a @ b[0], x, y)
        yield _case("einsum", lambda a, b: torch.einsum("bij,bjk->ik", a, b), x, y)
        yield _case("baddbmm", lambda a, b: torch.baddbmm(b[:, :3], a, b), x, y)
        yield _case("dot", lambda a: a.dot(a), dense(7, dtype=dtype))
        yield _case("mm of none", lambda a: a.t().mm(a), dense(0, 4, dtype=dtype))


def _networks() -> Iterator[Case]:
    for dtype in WIDE:
        image, kernel = dense(2, 3, 8, 8, dtype=dtype), dense(4, 3, 3, 3, dtype=dtype, seed=1)
        bias = dense(4, dtype=dtype, seed=2)
        last = Input(values((2, 8, 8, 3), dtype, 0), lambda x: x.permute(0, 3, 1, 2))
        yield _case("group_norm", lambda a: F.group_norm(a, 3), image)
        for title, x in (("", image), (" channels last", last)):
            yield _case("conv2d" + title, F.conv2d, x, kernel, bias)
            strided = lambda a, w, b: F.conv2d(a, w, b, stride=2, padding=1)  # noqa: E731
            yield _case("conv2d strided" + title, strided, x, kernel, bias)
            yield _case("max_pool2d" + title, lambda a: F.max_pool2d(a, 2), x)
            yield _case("avg_pool2d" + title, lambda a: F.avg_pool2d(a, 3, 2, 1), x)
            yield _case("adaptive_avg_pool2d" + title, lambda a: F.adaptive_avg_pool2d(a, 2), x)
            yield _case(
                "batch_norm" + title, lambda a: F.batch_norm(a, None, None, training=True), x
            )
            yield _case("interpolate" + title, lambda a: F.interpolate(a, scale_factor=2), x)
        yield _case("conv1d", F.conv1d, dense(2, 3, 9, dtype=dtype), dense(4, 3, 3, dtype=dtype))
        yield _case("conv2d in groups", lambda a, w: F.conv2d(a, w, groups=3), image,
                    dense(6, 1, 3, 3, dtype=dtype))  # fmt: skip
        yield _case("conv_transpose2d", F.conv_transpose2d, image, dense(3, 2, 3, 3, dtype=dtype))
        x = dense(4, 6, dtype=dtype)
        yield _case(
            "layer_norm", lambda a, w: F.layer_norm(a, (6,), w, w), x, dense(6, dtype=dtype)
        )
        yield _case("layer_norm transposed", lambda a, w: F.layer_norm(a.t(), (4,), w, w), x,
                    dense(4, dtype=dtype))  # fmt: skip
        classes = indices(0, 5, 2, 1)
        yield _case("cross_entropy", F.cross_entropy, x, classes)
        yield _case("nll_loss", lambda a, t: F.nll_loss(a.log_softmax(1), t), x, classes)
        yield _case("nll_loss sum", lambda a, t: F.nll_loss(a, t, reduction="sum"), x, classes)
        yield _case("mse_loss", F.mse_loss, x, dense(4, 6, dtype=dtype, seed=1))
        yield _case("l1_loss", F.l1_loss, x, dense(4, 6, dtype=dtype, seed=1))
        yield _case("bce", lambda a, b: F.binary_cross_entropy_with_logits(a, b.sigmoid()), x,
                    dense(4, 6, dtype=dtype, seed=1))  # fmt: skip
        yield _case(
            "embedding", lambda w, i: F.embedding(i, w), x, indices(0, 3, 3, 1, shape=(2, 2))
        )
        yield _case("attention", lambda a: F.scaled_dot_product_attention(a, a, a),
                    dense(1, 2, 4, 8, dtype=dtype))  # fmt: skip
        yield _case("inverse", lambda a: torch.linalg.inv(a @ a.t() + a.new_ones(4).diag()), x)
        yield _case("svd values", torch.linalg.svdvals, x)
        yield _case("fft", lambda a: torch.fft.rfft(a).abs(), x)


FAMILIES: dict[str, Callable[[], Iterator[Case]]] = {
    "pointwise": _pointwise,
    "binary": _binary,
    "reductions": _reductions,
    "shaping": _shaping,
    "products": _products,
    "networks": _networks,
}


def _case(name: str, function: Function, *inputs: Any) -> Case:
    def words(x: Any) -> str:
        if not isinstance(x, Input):
            return repr(x)
        view = x.view(x.base)
        return f"{str(x.base.dtype)[6:]}{list(view.shape)}/{view.stride()}"

    return Case(f"{name}({', '.join(map(words, inputs))})", function, inputs)


def _cloned(function: Function) -> Function:
    """An in-place operator, on a copy with the strides of its first argument; gives the copy."""

    def run(x: Tensor, *rest: Any) -> Tensor:
        wide = torch.zeros(x.numel() * 3 + 3, dtype=x.dtype, device=x.device)
        stride = [3 * s for s in torch.empty_like(x).stride()]
        copy = wide.as_strided(x.shape, stride, 1)
        with torch.no_grad():
            copy.copy_(x)
            returned = function(copy, *(r.detach() if isinstance(r, Tensor) else r for r in rest))
        assert returned is copy
        return wide

    return run


def _into(function: Function) -> Function:
    """An out= call into every second element, and into a tensor that has to grow."""

    def run(*inputs: Tensor) -> list[Tensor]:
        plain = [x.detach() for x in inputs]
        like = function(*plain)
        wide = torch.zeros(like.shape[0], like.shape[1] * 2, dtype=like.dtype, device=like.device)
        assert function(*plain, out=wide[:, ::2]).data_ptr() == wide.data_ptr()
        grown = torch.empty(0, dtype=like.dtype, device=like.device)
        assert function(*plain, out=grown) is grown
        return [wide, grown]

    return run


def differences(family: str) -> tuple[int, list[str]]:
    """How many cases were run, and those that differ, with what."""
    warnings.simplefilter("ignore")
    count, found = 0, []
    for case in FAMILIES[family]():
        count += 1
        if difference := case.differs():
            found.append(f"{case.title}: {difference[:300]}")
    return count, found
