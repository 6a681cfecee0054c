"""Cases of what has rows, for devices whose items run in parallel: lengths about the edges of teams
and of groups, few rows and many, rows that lie beside each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F

Case = tuple[str, Callable[..., Any], tuple[Any, ...]]
Make = Callable[..., torch.Tensor]
Grads = Callable[[Callable[..., Any]], Callable[..., Any]]

LENGTHS = (1, 31, 32, 33, 1000, 1024, 1025, 70000)
INF, NAN = float("inf"), float("nan")


def few(randn: Make, grads: Grads) -> Iterator[Case]:
    """One of each family, short rows and long ones."""
    yield "rows softmax", grads(lambda x: x.softmax(1)), (randn(40, 33),)
    yield "rows log_softmax down", lambda x: x.log_softmax(0), (randn(5000, 3),)
    yield "rows sum", lambda x: (x.sum(1), x.amax(0)), (randn(70, 300),)
    yield "rows sum of all", lambda x: x.sum(), (randn(9, 7001),)
    last = randn(5, 3072)
    last[0, -1] = 9  # the last item of a team has it
    yield "rows argmax", lambda x: x.argmax(1), (last,)
    yield "rows layer_norm", grads(lambda x, w: F.layer_norm(x, (130,), w)), (
        randn(70, 130), randn(130, seed=1),
    )  # fmt: skip
    yield "rows group_norm", lambda x: F.group_norm(x, 2), (randn(2, 4, 5, 5),)
    yield "rows batch_norm", lambda x: F.batch_norm(x, None, None, training=True), (
        randn(3, 4, 9, 31),
    )  # fmt: skip
    yield "rows topk", lambda x: x.topk(3), (randn(20, 300),)
    yield "rows cumsum", lambda x: x.cumsum(1), (randn(7, 1100),)
    target = torch.arange(300) % 5
    yield "rows nll_loss", lambda x: F.nll_loss(x, target.to(x.device)), (randn(300, 5),)
    yield "rows attention", lambda *a: F.scaled_dot_product_attention(*a, is_causal=True), (
        randn(1, 2, 37, 20), randn(1, 2, 41, 20, seed=1), randn(1, 2, 41, 20, seed=2),
    )  # fmt: skip


def every(randn: Make, grads: Grads) -> Iterator[Case]:
    yield from few(randn, grads)
    for n in LENGTHS:
        x = randn(3, n)
        if n > 5:
            x[1, n // 2] = NAN
            x[2, 1 : n // 3] = -INF
        many = randn(700 if n < 2000 else 2, n, seed=1)
        for name, t in (("few", x), ("many", many)):
            yield f"softmax {name} {n}", lambda v: (v.softmax(1), v.log_softmax(1)), (t,)
            yield f"sum {name} {n}", lambda v: (v.sum(1) / v.shape[1] ** 0.5, v.amin(1)), (t,)
            yield f"max {name} {n}", lambda v: (*v.max(1), v.argmin(1)), (t,)
        yield (
            f"softmax down {n}",
            lambda v: (v.softmax(0), v.log_softmax(0)),
            (x.t().contiguous(),),
        )
        yield (
            f"softmax gradient {n}",
            grads(lambda v: v.softmax(1) * v.shape[1] ** 0.5),
            (many,),
        )
        yield f"sum down {n}", lambda v: (v.amax(0), v.mean(0), *v.max(0)), (x.t().contiguous(),)
        yield f"cumsum {n}", lambda v: v.cumsum(1) / v.shape[1] ** 0.5, (many,)
        for k in (1, 5, 64):
            if k <= n and n > 1:
                yield f"topk {k} of {n}", lambda v, k=k: (v.topk(k)[0], v.topk(k, largest=False)), (
                    (torch.arange(many.numel()) * 7919 % many.numel()).float().reshape(many.shape),
                )  # fmt: skip
        if n > 1:
            yield f"layer_norm {n}", lambda v, n=n: F.layer_norm(v, (n,)), (many + 3,)
            yield f"layer_norm gradient {n}", grads(
                lambda v, w, n=n: F.layer_norm(v, (n,), w) / 10
            ), (many[:50], randn(n, seed=2))  # fmt: skip
            yield f"rms_norm {n}", lambda v, n=n: F.rms_norm(v, (n,)), (many,)
    for dtype in (torch.float64, torch.float16, torch.bfloat16):
        x, w = randn(300, 41, dtype=dtype), randn(41, dtype=dtype, seed=1)
        yield f"rows {dtype}", lambda v: (v.softmax(1), v.log_softmax(0), v.sum(0) / 17), (x,)
        yield f"maxima {dtype}", lambda v: (*v.max(1), v.argmin(0), v.amax()), (x,)
        yield f"norms {dtype}", lambda v, w: F.layer_norm(v, (41,), w), (x, w)
    for dtype in (torch.int64, torch.int32, torch.uint8, torch.bool):
        x = (randn(300, 41) * 3).abs().to(dtype)
        yield f"rows {dtype}", lambda v: (v.sum(1), v.sum(0), v.any(1), v.all(0), v.amax(1)), (x,)
    x = randn(4, 5, 6, 7, 8)
    yield "rows of many dimensions", lambda v: (
        v.permute(3, 1, 0, 4, 2).sum((0, 2)), v.amax((0, 2, 4)), v.argmax(2), v.sum((1, 3)),
    ), (x,)  # fmt: skip
    yield "first of equal ones", lambda v: (v.argmax(1), v.argmin(0), v.argmax()), (
        torch.arange(3 * 90000).remainder(7).reshape(3, 90000)[:, :80001],
    )  # fmt: skip
    x = randn(4, 900)
    x[0, 7] = x[1, 800] = NAN
    yield "topk with NaN", lambda v: (v.topk(4)[0], v.topk(4, largest=False)[0]), (x,)
    yield "topk down", lambda v: v.topk(3, 1), (randn(5, 400, 3, 2),)
    x[2, :5], x[3] = INF, -INF
    yield "log sums", lambda v: v.logcumsumexp(1), (x,)
    yield "products", lambda v: v.cumprod(1), (1 + randn(5, 3000) / 300,)
    yield "sums of integers", lambda v: v.cumsum(1), (torch.arange(3600).reshape(9, 400) % 7,)
    yield "variances", lambda v: (v.var(1), v.std(0), *torch.var_mean(v)), (randn(70, 300) + 3,)
    yield "products with vectors", lambda a, b: (torch.mv(a, b), torch.dot(b, b) / 300), (
        randn(70, 300), randn(300, seed=1),
    )  # fmt: skip
    # Sums of float32 in float32: an item adds up thousands, and what that loses must not be seen.
    yield "2^24 equal ones", lambda v: (v.sum() * 1e-3, v.mean()), (torch.full((2**24,), 0.1),)
    yield "2^22 in a row", lambda v: v.softmax(0) * 2**22, (torch.zeros(2**22),)
    for shape in ((2, 6, 5, 7), (2, 4, 60, 50)):
        x, w, b = randn(*shape), randn(shape[1], seed=1), randn(shape[1], seed=2)
        yield f"group_norm {shape}", grads(lambda v, s, t: F.group_norm(v, 2, s, t) / 10), (x, w, b)
        yield f"batch_norm {shape}", grads(
            lambda v, s, t: F.batch_norm(v, None, None, s, t, training=True) / 10
        ), (x, w, b)  # fmt: skip
    yield "batch_norm of many rows", grads(
        lambda v: F.batch_norm(v, None, None, training=True) / 10
    ), (randn(3000, 40),)  # fmt: skip
    for n in (5, 300, 40000):
        y, w = torch.arange(n) * 7 % 9, randn(9, seed=3).abs()
        y[1] = -100
        for reduction in ("mean", "sum", "none"):
            scale = n if reduction == "sum" else 1
            yield f"nll_loss {n} {reduction}", grads(
                lambda v, r=reduction, y=y, w=w, s=scale: (
                    F.nll_loss(v, y.to(v.device), w.to(v.device), reduction=r) / s
                )
            ), (randn(n, 9),)  # fmt: skip
    attention = F.scaled_dot_product_attention
    for queries, keys, depth, causal in (
        (130, 130, 40, True), (33, 65, 200, False), (1, 70, 64, False), (65, 31, 16, True),
    ):  # fmt: skip
        yield (
            f"attention {queries} {keys} {depth}",
            grads(lambda *a, c=causal: attention(*a, is_causal=c)),
            (
                randn(1, 2, queries, depth),
                randn(1, 2, keys, depth, seed=1),
                randn(1, 2, keys, depth, seed=2),
            ),
        )
    mask = randn(40, 50, seed=3) > -1
    mask[3] = False
    yield "attention of nothing", attention, (
        randn(1, 2, 40, 16), randn(1, 2, 50, 16, seed=1), randn(1, 2, 50, 16, seed=2), mask,
    )  # fmt: skip
