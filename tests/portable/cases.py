"""Runs operators by Causeway's own kernels on the device of this process, against the CPU.

`python cases.py few|all|rows|rows-all|teams`: prints a line for each case that differs, then
"cases N". No call may go to the host (policy "error"), and each case must have been served by the
rung "portable".
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import cases_norms
import cases_rows
import torch
import torch.nn.functional as F

import causeway

DEVICE = torch.accelerator.current_accelerator()
Case = tuple[str, Callable[..., Any], tuple[Any, ...]]

special = torch.tensor(
    [0.0, -0.0, 1.5, -2.5, 3.0, float("inf"), -float("inf"), float("nan"), 1e-30]
)
floats = [torch.float32, torch.float16, torch.bfloat16, torch.float64]
unary = [
    "abs", "neg", "sqrt", "rsqrt", "exp", "log", "log1p", "expm1", "sin", "cos", "tanh",
    "erf", "floor", "ceil", "trunc", "round", "sign", "sigmoid", "reciprocal", "isnan",
    "isinf", "logical_not", "relu", "silu",
]  # fmt: skip
binary = [
    "add", "sub", "mul", "div", "maximum", "minimum", "eq", "ne", "lt", "le", "gt", "ge",
    "atan2", "pow", "logical_and",
]  # fmt: skip


def randn(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def past_caches(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    odd = x.view(-1)[3:-4]
    halves = x.new_empty(4 * x.numel(), dtype=torch.bfloat16)[5 : 5 + odd.numel() * 2]
    flags = (torch.cat([odd] * 4) > 0.5)[1:]
    return odd * 3, halves.copy_(odd.repeat(2)), flags, odd.clone().sub_(1)


def _clamp_by_nan(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """A limit that is NaN makes all NaN, of integers too."""
    nan, ints = float("nan"), torch.arange(5, device=x.device)
    limits: list[dict[str, float]] = [{"min": nan, "max": 0.7}, {"min": 0.7, "max": nan}]
    limits += [{"min": nan}, {"max": nan}]
    found = [t.clamp(**limit) for t in (x, ints) for limit in limits]
    return *found, F.hardtanh(x, nan, 1.0), *torch._foreach_clamp_max([x], nan)


def _put_into_strided(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """In place where the kernel wants dense memory: what it leaves alone is still there."""
    at, turned, every_second = (
        torch.tensor([0, 4, 7, 4], device=x.device),
        x.clone().t(),
        x.clone()[::2],
    )
    turned.put_(at, x.flatten()[:4], accumulate=True)
    every_second.put_(at, x.flatten()[4:8])
    return turned, every_second


def _limits_out_of_order(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return x.clamp(2.5, 0.5), torch.ops.aten.hardtanh(x, 2.5, 0.5), torch.polygamma(1, x)


def _shifted(x: torch.Tensor, by: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """As packed weights are read and written: operators of their own beside the bitwise ones."""
    kept = x.clone()
    kept >>= by
    kept <<= 2
    return x >> 4, x << 2, x.t() >> by.t(), x << by, kept, x >> 64, 100 >> by


def _into_given(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """out= beside running statistics, which has no meta kernel."""
    mean, var = x.new_zeros(3), x.new_ones(3)
    outs = [torch.empty_like(x), torch.empty_like(mean), torch.empty_like(var)]
    torch.ops.aten._native_batch_norm_legit.out(
        x, None, None, mean, var, True, 0.1, 1e-5,
        out=outs[0], save_mean=outs[1], save_invstd=outs[2],
    )  # fmt: skip
    return *outs, mean, var


def _gradients_as_the_cpus(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """By sizes whatever the scale says; a sixth in float32; of outputs above 0."""
    ones, zeros = torch.ones_like(x), torch.zeros_like(x)
    outputs = torch.tensor([[float("inf"), -1.0]], dtype=x.dtype, device=x.device)
    return (
        torch.ops.aten.upsample_nearest1d_backward(x[None], [x.shape[1]], [1, *x.shape], 0.25),
        (torch.ops.aten.hardsigmoid_backward(ones, zeros) - 1 / 6) * 1e9,
        torch.ops.aten._log_softmax_backward_data(ones[:1, :2], outputs, 1, x.dtype),
    )


def _norms_of_one_and_of_more(tiny: torch.Tensor) -> list[torch.Tensor]:
    norms = torch._foreach_norm([tiny, torch.arange(5.0, dtype=tiny.dtype).to(tiny.device), -tiny])
    return [norms[0] * 1e200, norms[1], norms[2] * 1e200]


def _pools(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> list[torch.Tensor]:
    """Rows of several vectors, taps outside, windows without one inside, NaN, integers; channels
    that are neighbours, and planes that are transposed.
    """
    bad = x.masked_fill(x > 1.5, float("nan")).masked_fill(x < -0.5, -float("inf"))
    found = []
    for given in (x, bad, bad.half(), (x * 9).nan_to_num().int(), (x * x).byte()):
        for window in ((3, 2, 1), (2,), ((2, 5), (3, 1), (1, 2), (1, 2)), (1, (1, 4))):
            found += F.max_pool2d(given, *window, return_indices=True)
    for given in (z, (z * 9).int(), z[0], z.half()):
        for laid in (given.movedim(-3, -1).contiguous().movedim(-1, -3), given.mT.contiguous().mT):
            found += F.max_pool2d(laid, (3, 2), 2, (1, 0), (1, 2), return_indices=True)
            found += F.max_pool3d(laid.unsqueeze(-3), (1, 3, 2), return_indices=True)
            if laid.is_floating_point():
                found += F.adaptive_max_pool2d(laid, (3, 2), return_indices=True)
    for empty in (((2, 1, 2), (3, 2, 4), (1, 0, 1), (2, 3, 3)), (3, 2, 1)):
        found += F.max_pool3d(y, *empty, return_indices=True)
        found += F.max_pool3d((y * 9).long(), *empty, return_indices=True)
    return found


def few() -> Iterator[Case]:
    """What each set-up runs: one of each family, views with offsets, broadcasting."""
    a, b = randn(5, 7), randn(5, 7, seed=1)
    yield "add", torch.add, (a, b)
    yield "interior pointers", lambda x, y: x[2:, 3:] * y[1:4, :4].exp(), (a, b)
    yield "broadcast", lambda x, y: x[:, None] + y.t()[None, :, 0], (a, b)
    yield "in place", lambda x: x.clone().mul_(3).add_(1).relu_(), (a,)
    yield "cast", lambda x: x.to(torch.bfloat16).t().contiguous().to(torch.int32), (a * 9,)
    yield "shifts", _shifted, ((a * 90).int(), (b * 3).abs().byte())
    yield "sum", lambda x: x.sum(0), (randn(70, 90),)
    yield "mean", lambda x: x.mean(1), (randn(70, 90),)
    yield "all of many", lambda x: x.sum(), (randn(300, 301),)
    yield "softmax", lambda x: x.softmax(1), (randn(9, 37),)
    yield "mm", torch.mm, (randn(19, 37), randn(37, 21, seed=1))
    yield "linear", F.linear, (randn(9, 40), randn(17, 40, seed=1), randn(17, seed=2))
    yield "conv", F.conv2d, (randn(2, 3, 9, 8), randn(5, 3, 3, 3, seed=1), randn(5, seed=2))
    yield "pool", lambda x: F.max_pool2d(x, 2, return_indices=True), (randn(2, 3, 9, 8),)
    yield "pools", _pools, (randn(2, 2, 9, 140), randn(1, 2, 8, 8, 2), randn(2, 70, 8, 6))
    yield "argmax", lambda x: x.argmax(1), (randn(9, 37),)
    # 32 MiB and more go past the caches of a CPU, from odd places too and in place.
    yield "large", past_caches, (randn(4096, 2051),)
    yield from cases_norms.few(randn, grads)


def every() -> Iterator[Case]:
    yield from few()
    for dtype in floats:
        x, y = randn(6, 11, dtype=dtype), randn(6, 11, dtype=dtype, seed=1)
        for name in unary:
            yield (
                f"{name} {dtype}",
                getattr(torch, name, None) or getattr(F, name),
                (x.abs() + 0.1,),
            )
            yield (
                f"{name} {dtype} special",
                getattr(torch, name, None) or getattr(F, name),
                (special.to(dtype),),
            )
        for name in binary:
            yield f"{name} {dtype}", getattr(torch, name), (x.abs() + 0.1, y)
            if name not in ("pow", "atan2"):
                yield f"{name} special", getattr(torch, name), (special, special.flip(0))
        yield f"mm {dtype}", torch.mm, (x, y.t())
        yield f"addmm {dtype}", torch.addmm, (randn(6, dtype=dtype), x, y.t())
        yield f"bmm {dtype}", torch.bmm, (randn(3, 5, 7, dtype=dtype), randn(3, 7, 9, dtype=dtype))
        yield f"sum {dtype}", lambda v: (v.sum(1), v.sum(), v.amax(0), v.prod(1)), (x,)
        yield f"log_softmax {dtype}", lambda v: (v.log_softmax(0), v.log_softmax(1)), (x,)
        yield f"gelu {dtype}", lambda v: (F.gelu(v), F.gelu(v, approximate="tanh")), (x,)
    for dtype in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool):
        x = (randn(6, 11) * 20).abs().to(dtype)
        y = (randn(6, 11, seed=1) * 20).abs().to(dtype)
        for name in ("add", "mul", "maximum", "eq", "lt", "logical_and", "bitwise_and"):
            yield f"{name} {dtype}", getattr(torch, name), (x, y)
        yield f"bitwise_not {dtype}", torch.bitwise_not, (x,)
        if dtype != torch.bool:
            yield f"shifts {dtype}", _shifted, (x - 20, (y % 9).to(dtype))
        yield f"sum {dtype}", lambda v: (v.sum(1), v.sum()), (x,)
        yield f"int and float {dtype}", lambda v, w: v * w + (v > 2.5), (x, randn(6, 11))
    yield "where", torch.where, (randn(6, 11) > 0, randn(6, 11), randn(11, seed=1))
    yield "masked_fill", lambda x: x.masked_fill(x > 0, 7.0), (randn(6, 11),)
    yield "clamp", lambda x: (x.clamp(-1, 1), x.clamp(min=0.5), x.clamp(max=0.5)), (special,)
    yield "clamp by NaN", _clamp_by_nan, (special,)
    yield "limits out of order", _limits_out_of_order, (special,)
    yield "put_ into strided", _put_into_strided, (randn(6, 11),)
    yield "into given", _into_given, (randn(4, 3, 5),)
    yield "gradients", _gradients_as_the_cpus, (randn(2, 5),)
    yield "gradients float64", _gradients_as_the_cpus, (randn(2, 5, dtype=torch.float64),)
    tiny = torch.full((1,), 1e-200, dtype=torch.float64)
    yield "norm of one", lambda x: torch.linalg.vector_norm(x, 6) * 1e200, (tiny,)
    yield "norms of one and of more", _norms_of_one_and_of_more, (tiny,)
    yield "gelu far out", lambda x: F.gelu(x * 50, approximate="tanh"), (special,)
    yield "lerp", lambda x, y: torch.lerp(x, y, 0.3), (randn(9), randn(9, seed=1))
    yield "addcdiv", lambda x, y: x.addcdiv(y, x.abs() + 1, value=0.5).addcmul(x, y), (
        randn(9), randn(9, seed=1),
    )  # fmt: skip
    yield "pow", lambda x: (x**2, x**3, x.abs() ** 0.5, 2**x), (randn(9),)
    yield "max", lambda x: (*x.max(0), *x.min(1), x.argmin()), (randn(6, 11),)
    yield "any", lambda x: ((x > 1).any(), (x > 1).all(1), (x > 9).any(0)), (randn(6, 11),)
    yield "strides", lambda x: x.permute(2, 0, 1).sum((0, 2)), (randn(4, 5, 6),)
    yield "column split", lambda x: x.sum(0), (randn(60000, 8),)
    # Past 16 pages a row is read at eight places; columns go 1024 abreast, four rows at once.
    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        long, wide = (randn(3, 83_001) * 9).to(dtype), (randn(23, 1100) * 9).to(dtype)
        yield f"long rows {dtype}", lambda v: (v[:, 5:].sum(1) / 300, v.amax(1)), (long,)
        yield f"wide columns {dtype}", lambda v: (v.sum(0) / 5, v.amax(0), v[:1].amin(0)), (wide,)
    yield "many rows", lambda x: (x.mean(1), x[:, 7:].amin(1)), (randn(8195, 1031),)
    channels = randn(17, 9, 83, 100)  # a result's rows lie between others'
    yield "channels", lambda x: (x.mean((0, 2, 3)), x.amax((0, 3)), x[:, 2:, :, 1:].sum((0, 3))), (
        channels,
    )  # fmt: skip
    yield "wide columns, two dimensions", lambda x: x.mean((0, 2)), (randn(5, 7, 3, 600),)
    yield "large k", torch.mm, (randn(9, 2500) / 50, randn(2500, 17, seed=1))
    for stride, padding, dilation, groups in ((2, 1, 1, 1), (1, 2, 2, 2), (3, 0, 1, 4)):
        yield (
            f"conv {stride} {padding} {dilation} {groups}",
            grads(
                lambda x, w, b, s=stride, p=padding, d=dilation, g=groups: F.conv2d(
                    x, w, b, s, p, d, g
                )
            ),
            (randn(2, 4, 13, 12), randn(8, 4 // groups, 3, 2, seed=1), randn(8, seed=2)),
        )
        yield (
            f"conv transposed {stride} {padding} {dilation} {groups}",
            grads(
                lambda x, w, b, s=stride, p=padding, d=dilation, g=groups: F.conv_transpose2d(
                    x, w, b, s, p, groups=g, dilation=d
                )
            ),
            (randn(2, 8, 7, 6), randn(8, 4 // groups, 3, 2, seed=1), randn(4, seed=2)),
        )
    for stride, dilation, width in ((1, 1, 37), (2, 1, 12), (3, 2, 21)):
        yield (
            f"conv of single channels {stride} {dilation} {width}",
            grads(lambda x, w, b, s=stride, d=dilation: F.conv2d(x, w, b, s, 2, d, 5)),
            (randn(3, 5, 11, width), randn(5, 1, 3, 4, seed=1), randn(5, seed=2)),
        )
    # Panels that a tap fills; several chunks of images; a stride beyond the kernel.
    for channels, result, side, stride in ((32, 40, 7, 1), (40, 70, 60, 1), (3, 20, 13, 5)):
        yield (
            f"conv {channels} {result} {side} {stride}",
            grads(lambda x, w, b, s=stride: F.conv2d(x, w, b, s, 1)),
            (
                randn(3, channels, side, side) / 50,
                randn(result, channels, 3, 3, seed=1) / 20,
                randn(result),
            ),
        )
    yield "conv1d", grads(F.conv1d), (randn(2, 3, 19), randn(5, 3, 4, seed=1), randn(5, seed=2))
    yield "pool", grads(lambda x: F.max_pool2d(x, 3, 2, 1)), (randn(2, 3, 11, 9),)
    target = torch.tensor([1, 0, -100, 3, 2, 3])
    for reduction in ("mean", "sum", "none"):
        yield (
            f"cross_entropy {reduction}",
            lambda x, r=reduction: grads(
                lambda v: F.cross_entropy(v, target.to(v.device), reduction=r)
            )(x),
            (randn(6, 5),),
        )
    for f in (torch.sigmoid, torch.tanh, F.relu, F.silu, F.gelu, F.leaky_relu, F.hardtanh):
        yield f"{f.__name__} gradient", grads(f), (randn(6, 11),)
    yield "softmax gradient", grads(lambda x: x.softmax(0)), (randn(6, 11),)
    yield "index", lambda x, i: (x[i], x[:, i[1:2]], x.index_select(0, i[:2])), (
        randn(9, 4), torch.tensor([3, 0, 8, 3, -2 % 9]),
    )  # fmt: skip
    yield (
        "embedding",
        grads(lambda w: F.embedding(torch.tensor([[1, 0], [3, 1]]).to(w.device), w)),
        (randn(5, 20),),
    )
    yield "cat", lambda x, y: (torch.cat([x, y], 0), torch.cat([x, y[:, :3]], 1)), (
        randn(4, 6), randn(4, 6, seed=1),
    )  # fmt: skip
    yield from cases_norms.every(randn, grads)
    yield from cases_rows.every(randn, grads)


def grads(f: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    """`f` and its gradients with respect to every argument."""

    def both(*args: torch.Tensor) -> Any:
        leaves = [a.detach().clone().requires_grad_() for a in args]
        result = f(*leaves)
        weight = (torch.arange(result.numel()).reshape(result.shape) % 7 - 3.0).to(result.device)
        return result.detach(), *torch.autograd.grad(result, leaves, weight)

    return both


def flat(value: Any) -> list[torch.Tensor]:
    return [value] if isinstance(value, torch.Tensor) else [t for v in value for t in flat(v)]


def main() -> None:
    sets = {
        "few": few,
        "all": every,
        # Under the model of a GPU, where 32 MiB take minutes.
        "teams": lambda: (case for case in every() if case[0] != "large"),
        "rows": lambda: cases_rows.few(randn, grads),
        "rows-all": lambda: cases_rows.every(randn, grads),
    }
    cases = list(sets[sys.argv[1]]())
    wrong = 0
    for name, f, args in cases:
        wanted = flat(f(*args))
        try:
            there = [a.to(DEVICE) if isinstance(a, torch.Tensor) else a for a in args]
            with causeway.ledger() as ledger, causeway.policy("error"):
                got = flat(f(*there))
            if not ledger.total(rung="portable"):
                raise AssertionError(f"no portable kernel: {ledger.table()}")
            for g, w in zip(got, wanted, strict=True):
                half = w.dtype in (torch.float16, torch.bfloat16)
                near = {"rtol": 2e-2, "atol": 2e-2} if half else {"rtol": 2e-5, "atol": 2e-5}
                torch.testing.assert_close(g.cpu(), w, equal_nan=True, **near)
        except (AssertionError, RuntimeError) as error:
            wrong += 1
            print(f"{name}: {type(error).__name__}: {' '.join(str(error).split())[:300]}")
    print("cases", len(cases), flush=True)
    sys.exit(wrong > 0 and "-" not in sys.argv)


if __name__ == "__main__":
    main()
