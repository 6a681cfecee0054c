"""Operators by torch_npu on the stand-ins, each compared with the CPU.

    python sweep.py [name]

prints what differs and ends with 1 if something does. A line each: the name and what is computed of
x and y, floats of shape [4, 6]; p, between 0.1 and 0.9; n, whole numbers; b, booleans.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
import torch_npu  # noqa: F401
from torch import Tensor
from torch.nn import functional

# fmt: off
POINTWISE = [
    "abs", "acos", "asin", "atan", "ceil", "cos", "cosh", "erf", "erfc", "erfinv", "exp", "exp2",
    "expm1", "floor", "frac", "isfinite", "isinf", "isnan", "log", "log10", "log1p", "log2",
    "logical_not", "neg", "reciprocal", "relu", "round", "rsqrt", "sigmoid", "sign", "sin",
    "sinc", "sinh", "sqrt", "square", "tan", "tanh", "trunc",
]
PAIRS = [
    "add", "sub", "mul", "div", "atan2", "eq", "ne", "gt", "ge", "lt", "le", "maximum",
    "minimum", "pow", "fmod", "remainder", "floor_divide", "logical_and", "logical_or",
    "logical_xor",
]
NUMBERS = [
    "add", "sub", "mul", "div", "eq", "ne", "gt", "ge", "lt", "le", "pow", "fmod", "remainder",
    "floor_divide",
]
ACTIVATIONS = [
    "celu", "elu", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "logsigmoid", "mish",
    "relu", "selu", "sigmoid", "silu", "softplus", "softshrink", "hardshrink", "tanh",
]
# fmt: on


def of_p(name: str) -> Callable:
    function = getattr(torch, name)
    return lambda v: function(v.p)


def of_p_and_q(name: str) -> Callable:
    function = getattr(torch, name)
    return lambda v: function(v.p, v.q)


def by_two(name: str) -> Callable:
    function = getattr(torch, name)
    return lambda v: function(v.x, 2)


def with_gradient(name: str) -> Callable:
    function = getattr(functional, name)
    return lambda v: gradient(function, v.x)


OPERATORS: dict[str, Callable] = {
    **{name: of_p(name) for name in POINTWISE},
    **{name: of_p_and_q(name) for name in PAIRS},
    **{f"{name} by a number": by_two(name) for name in NUMBERS},
    **{f"{name} gradient": with_gradient(name) for name in ACTIVATIONS},
    # aclnnGelu has the formula with tanh, which torch_npu takes for both.
    "gelu": lambda v: gradient(lambda t: functional.gelu(t, approximate="tanh"), v.x),
    "abs of whole": lambda v: v.n.abs(),
    "bitwise": lambda v: (v.n & 3) + (v.n | 4) + (v.n ^ v.n.T.reshape(4, 6)) + ~v.n,
    "floor_divide of whole": lambda v: v.n // 3 + v.n % 4,
    "true division of whole": lambda v: v.n / 4,
    "broadcast": lambda v: v.x[:, :1] * v.y[0] + v.x.T.reshape(4, 6),
    "where": lambda v: torch.where(v.b, v.x, v.y),
    "masked_fill": lambda v: v.x.masked_fill(v.b, -1),
    "clamp": lambda v: v.x.clamp(-0.5, 0.5) + v.x.clamp(min=0) + v.x.clamp(max=0),
    "lerp": lambda v: torch.lerp(v.x, v.y, 0.3) + torch.lerp(v.x, v.y, v.p),
    "addcmul": lambda v: (
        torch.addcmul(v.x, v.y, v.p, value=2) + torch.addcdiv(v.x, v.y, v.p, value=3)
    ),
    "casts": lambda v: v.x.half().float() + v.x.bfloat16().float() + (v.x * 9).int() + v.b,
    "sum": lambda v: [v.x.sum(), v.x.sum(1), v.x.sum((0, 1), keepdim=True), v.n.sum(), v.b.sum(0)],
    "mean": lambda v: [v.x.mean(), v.x.mean(0, keepdim=True)],
    "prod": lambda v: [v.p.prod(), v.p.prod(1)],
    "extremes": lambda v: [v.x.max(), v.x.min(), v.x.amax(0), v.x.amin(1), v.n.max()],
    "max and where": lambda v: [*v.x.max(1), *v.x.min(0), v.x.argmax(), v.x.argmin(1)],
    "any and all": lambda v: [v.b.any(), v.b.all(), v.b.any(1), v.b.all(0)],
    "spread": lambda v: [v.x.var(), v.x.std(1), v.x.var(0, correction=0), *torch.var_mean(v.x, 1)],
    "norm": lambda v: [v.x.norm(), v.x.norm(1, 1), torch.linalg.vector_norm(v.x, 3, 0)],
    "logsumexp": lambda v: v.x.logsumexp(1),
    "cumsum": lambda v: [
        v.x.cumsum(1),
        v.n.cumsum(0),
        v.p.cumprod(1),
        *v.x.cummax(1),
        *v.x.cummin(0),
    ],
    "softmax": lambda v: [
        v.x.softmax(0),
        v.x.log_softmax(1),
        gradient(lambda t: t.softmax(1).square(), v.x),
    ],
    "sort": lambda v: [
        *v.x.sort(1),
        *v.x.sort(0, descending=True),
        v.x.argsort(1),
        *v.x.topk(3, 1),
    ],
    "matmul": lambda v: [
        v.x @ v.y.T,
        v.x @ v.y[0],
        torch.addmm(v.x[:, :4], v.x, v.y.T, beta=2, alpha=3),
    ],
    "bmm": lambda v: [torch.bmm(v.z, v.z.mT), torch.baddbmm(v.z @ v.z.mT, v.z, v.z.mT)],
    "outer": lambda v: [torch.outer(v.x[0], v.y[0]), torch.dot(v.x[0], v.y[0])],
    "views": lambda v: [
        v.x.T.contiguous(),
        v.x[:, ::2] + 1,
        v.x.flip(1),
        v.x.roll(2, 1),
        v.x.repeat(2, 3),
    ],
    "cat": lambda v: [torch.cat([v.x, v.y], 1), torch.stack([v.x, v.y], 1), *v.x.split([2, 4], 1)],
    "pad": lambda v: functional.pad(v.x, (1, 2, 0, 1), value=3),
    "triangles": lambda v: [v.x.tril(1), v.x.triu(-1)],
    "steps": lambda v: [
        torch.arange(1, 9, 2, device=v.x.device),
        torch.linspace(0, 1, 7, device=v.x.device),
    ],
    "eye": lambda v: torch.eye(3, 5, device=v.x.device),
    "index": lambda v: [
        v.x[v.i],
        v.x[:, v.i],
        v.x[v.i, v.i],
        v.x.index_select(1, v.i),
        v.x.take(v.i),
    ],
    "gather": lambda v: v.x.gather(1, v.i.expand(4, 3)),
    "put": lambda v: v.x.clone().index_put((v.i,), v.y[:3], accumulate=True),
    "scatter": lambda v: [
        v.x.scatter(1, v.i.expand(4, 3), v.y),
        v.x.scatter_add(1, v.i.expand(4, 3), v.y),
    ],
    "scatter a number": lambda v: v.x.scatter(1, v.i.expand(4, 3), 7.0),
    "index_add": lambda v: v.x.index_add(0, v.i, v.y[:3], alpha=2),
    "masks": lambda v: [v.x[v.b], v.b.nonzero(), v.x.masked_select(v.b)],
    "one_hot": lambda v: functional.one_hot(v.i, 5),
    "embedding": lambda v: gradient(
        lambda t: functional.embedding(v.i, t, padding_idx=0).square(), v.x
    ),
    "layer_norm": lambda v: gradient(
        lambda t: functional.layer_norm(t, (6,), v.y[0], v.y[1]).square(), v.x
    ),
    "group_norm": lambda v: gradient(
        lambda t: functional.group_norm(t, 2, v.x[:, 0], v.y[:, 0]).square(), v.image
    ),
    "batch_norm": lambda v: gradient(
        lambda t: functional.batch_norm(t, None, None, training=True) ** 3, v.image
    ),
    "convolutions": lambda v: [gradient(f, v.image) for f in convolutions(v)],
    "weights of a convolution": lambda v: [
        gradient(lambda w: functional.conv2d(v.image, w, padding=1).square(), v.weight),
        gradient(lambda w: functional.conv_transpose2d(v.image, w, stride=2).square(), v.weight),
    ],
    "conv1d": lambda v: functional.conv1d(v.image[:, :, 0], v.weight[..., 0], padding=1),
    "max_pool2d": lambda v: gradient(lambda t: functional.max_pool2d(t, 3, 2, 1).square(), v.image),
    "avg_pool2d": lambda v: gradient(lambda t: functional.avg_pool2d(t, 2, 1, 1).square(), v.image),
    "adaptive_avg_pool2d": lambda v: gradient(
        lambda t: functional.adaptive_avg_pool2d(t, (3, 2)).square(), v.image
    ),
    "interpolate": lambda v: gradient(
        lambda t: functional.interpolate(t, scale_factor=2).square(), v.image
    ),
    "losses": lambda v: [
        gradient(lambda t, f=f: f(t, v.y), v.x)
        for f in (functional.mse_loss, functional.l1_loss, functional.smooth_l1_loss)
    ],
    "binary losses": lambda v: [
        gradient(lambda t: functional.binary_cross_entropy(t, v.q), v.p),
        gradient(lambda t: functional.binary_cross_entropy_with_logits(t, v.q), v.x),
    ],
    "cross_entropy": lambda v: [
        gradient(lambda t, how=how: functional.cross_entropy(t, v.i4, reduction=how), v.x)
        for how in ("mean", "sum", "none")
    ],
}


class Values:
    """The same inputs on each device."""

    def __init__(self, device: str):
        torch.manual_seed(1)
        self.x, self.y = torch.randn(4, 6), torch.randn(4, 6)
        self.p, self.q = torch.rand(4, 6) * 0.8 + 0.1, torch.rand(4, 6) * 0.8 + 0.1
        self.z = torch.randn(2, 3, 5)
        self.n = torch.randint(-9, 9, (4, 6))
        self.b = torch.rand(4, 6) > 0.5
        self.i, self.i4 = torch.tensor([2, 0, 1]), torch.tensor([1, 5, 0, 2])
        self.image, self.weight = torch.randn(2, 4, 7, 6), torch.randn(4, 4, 3, 3)
        for name, tensor in vars(self).items():
            setattr(self, name, tensor.to(device))


def convolutions(v: Values) -> list[Callable]:
    w = v.weight
    return [
        lambda t: functional.conv2d(t, w, v.x[:, 0], stride=2, padding=1).square(),
        lambda t: functional.conv2d(t, w[:, :2], groups=2, dilation=2, padding=2).square(),
        lambda t: functional.conv2d(t, w[:, :1], groups=4, padding=1).square(),
        lambda t: functional.conv_transpose2d(t, w, stride=2, padding=1, output_padding=1).square(),
    ]


def gradient(function: Callable, x: Tensor) -> list[Tensor]:
    """The result and its gradient."""
    x = x.clone().requires_grad_()
    y = function(x)
    (slope,) = torch.autograd.grad(y.sum(), x)
    return [y.detach(), slope]


def flat(result: Any) -> list[Tensor]:
    if isinstance(result, Tensor):
        return [result.cpu()]
    return [tensor for each in result for tensor in flat(each)]


def pairs(here: object, there: object) -> list[tuple[Tensor, Tensor]]:
    return list(zip(flat(here), flat(there), strict=True))


def main(only: str = "") -> int:
    here, there = Values("cpu"), Values("npu")
    wrong = []
    for name, operator in OPERATORS.items():
        if only and name != only:
            continue
        try:
            for expected, own in pairs(operator(here), operator(there)):
                torch.testing.assert_close(own, expected, rtol=1e-4, atol=1e-4)
        except (RuntimeError, AssertionError, TypeError) as error:
            lines = [line for line in str(error).splitlines() if line.strip()]
            wrong.append(f"{name}: {' '.join(lines[:4])[:300]}")
    print(
        "\n".join(
            [*wrong, f"{len(OPERATORS) - len(wrong)} of {len(OPERATORS)} operators are the CPU's"]
        )
    )
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
