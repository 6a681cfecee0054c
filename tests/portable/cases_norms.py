"""Cases of norms, attention, pooling, upsampling, losses and convolutions of three dimensions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F

Case = tuple[str, Callable[..., Any], tuple[Any, ...]]
Make = Callable[..., torch.Tensor]
Grads = Callable[[Callable[..., Any]], Callable[..., Any]]

half = [torch.float16, torch.bfloat16]


def few(randn: Make, grads: Grads) -> Iterator[Case]:
    a = randn(6, 40)
    yield (
        "layer_norm",
        grads(lambda x, w, b: F.layer_norm(x, (40,), w, b)),
        (a, randn(40), randn(40)),
    )
    yield "attention", grads(F.scaled_dot_product_attention), (
        randn(1, 2, 9, 8), randn(1, 2, 70, 8, seed=1), randn(1, 2, 70, 8, seed=2),
    )  # fmt: skip


def every(randn: Make, grads: Grads) -> Iterator[Case]:
    for dtype in (torch.float32, torch.float64, *half):
        x, w, b = randn(3, 8, 5, 7, dtype=dtype), randn(8, seed=1), randn(8, seed=2)
        w, b = w.to(dtype), b.to(dtype)
        yield f"layer_norm {dtype}", grads(lambda v: F.layer_norm(v, (5, 7))), (x,)
        yield (
            f"group_norm {dtype}",
            grads(lambda v, s, t: F.group_norm(v, 2, s, t)),
            (x, w, b),
        )
        yield (
            f"batch_norm {dtype}",
            grads(lambda v, s, t: F.batch_norm(v, None, None, s, t, training=True)),
            (x, w, b),
        )
        yield f"batch_norm of rows {dtype}", grads(
            lambda v: F.batch_norm(v, None, None, training=True)
        ), (x[:, :, 0, 0],)  # fmt: skip
        yield (
            f"batch_norm evaluated {dtype}",
            lambda v, s, t: F.batch_norm(v, t, s.abs() + 0.1, s, t),
            (x, w, b),
        )
        q, k = randn(2, 3, 70, 16, dtype=dtype), randn(2, 3, 90, 16, dtype=dtype, seed=1)
        yield f"attention {dtype}", grads(F.scaled_dot_product_attention), (q, k, k * 2)
        for size in (2,) if dtype in half else (2, 3):  # the CPU has no others
            kind = f"{size}d {dtype}"
            plane = randn(2, 3, *([7] * size), dtype=dtype)
            pool = getattr(F, f"avg_pool{size}d")
            yield f"avg_pool{kind}", grads(lambda v, f=pool: f(v, 3, 2, 1)), (plane,)
            adaptive = getattr(F, f"adaptive_avg_pool{size}d")
            yield f"adaptive_avg_pool{kind}", grads(lambda v, f=adaptive: f(v, 3)), (plane,)
            pool = getattr(F, f"max_pool{size}d")
            yield f"max_pool{kind}", grads(lambda v, f=pool: f(v, 3, 2, 1)), (plane,)
            adaptive = getattr(F, f"adaptive_max_pool{size}d")
            yield f"adaptive_max_pool{kind}", grads(lambda v, f=adaptive: f(v, 3)), (plane,)
    x = randn(4, 6, 5)
    running = torch.zeros(6), torch.ones(6)
    yield (
        "running statistics",
        lambda v, m, s: (
            F.batch_norm(v, m := m.clone(), s := s.clone(), training=True, momentum=0.3), m, s
        ),
        (x, *running),
    )  # fmt: skip
    yield "far from 0", lambda v: F.layer_norm(v + 5, (5,)), (x,)
    yield (
        "channels last",
        grads(lambda v: F.batch_norm(v, None, None, training=True)),
        (randn(2, 4, 5, 6).to(memory_format=torch.channels_last),),
    )
    q, k, v = (
        randn(2, 4, 70, 24),
        randn(2, 4, 130, 24, seed=1),
        randn(2, 4, 130, 24, seed=2),
    )
    yield (
        "attention causal",
        grads(lambda *a: F.scaled_dot_product_attention(*a, is_causal=True)),
        (q, k, v),
    )
    yield (
        "attention of views",
        grads(
            lambda *a: F.scaled_dot_product_attention(*(t.transpose(1, 2) for t in a), scale=0.3)
        ),
        (randn(2, 9, 3, 8), randn(2, 11, 3, 8, seed=1), randn(2, 11, 3, 8, seed=2)),
    )
    yield (
        "attention masked",
        F.scaled_dot_product_attention,
        (q, k, v, randn(70, 130, seed=3) > -1),
    )
    yield (
        "attention biased",
        F.scaled_dot_product_attention,
        (q, k, v, randn(2, 1, 70, 130, seed=3)),
    )
    yield (
        "attention shared keys",
        grads(lambda *a: F.scaled_dot_product_attention(*a, enable_gqa=True)),
        (q, k[:, :2], v[:, :2]),
    )
    yield (
        "attention summed",
        grads(lambda *a: F.scaled_dot_product_attention(*a).sum()),
        (q, k, v),
    )
    for mode, sizes in (("linear", 1), ("bilinear", 2), ("trilinear", 3), ("bicubic", 2)):
        for aligned in (False, True):
            yield (
                f"{mode} {aligned}",
                grads(
                    lambda t, m=mode, a=aligned: F.interpolate(
                        t, scale_factor=1.7, mode=m, align_corners=a
                    )
                ),
                (randn(2, 2, *([5] * sizes)),),
            )
    for mode in ("nearest", "nearest-exact"):
        for sizes in (1, 2, 3):
            yield (
                f"{mode} {sizes}d",
                grads(lambda t, m=mode: F.interpolate(t, scale_factor=1.6, mode=m)),
                (randn(2, 2, *([5] * sizes)),),
            )
    yield (
        "bfloat16 bilinear",
        grads(lambda t: F.interpolate(t, size=(7, 3), mode="bilinear")),
        (randn(2, 2, 5, 5, dtype=torch.bfloat16),),
    )
    target = torch.randint(5, (2, 3, 4), generator=torch.Generator().manual_seed(3))
    for reduction in ("mean", "sum", "none"):
        yield (
            f"cross_entropy of images {reduction}",
            grads(lambda t, r=reduction: F.cross_entropy(t, target.to(t.device), reduction=r)),
            (randn(2, 5, 3, 4),),
        )
    many = torch.randint(7, (9000,), generator=torch.Generator().manual_seed(3))
    yield (
        "cross_entropy of many",
        grads(lambda t: F.cross_entropy(t, many.to(t.device), ignore_index=3)),
        (randn(9000, 7),),
    )
    for stride, padding, dilation, groups in ((1, 1, 1, 1), (2, 0, 1, 2), (1, 2, 2, 1)):
        yield (
            f"conv3d {stride} {padding} {dilation} {groups}",
            grads(
                lambda x, w, b, s=stride, p=padding, d=dilation, g=groups: F.conv3d(
                    x, w, b, s, p, d, g
                )
            ),
            (randn(2, 4, 5, 6, 7), randn(6, 4 // groups, 2, 3, 3, seed=1), randn(6, seed=2)),
        )
        yield (
            f"conv_transpose3d {stride} {padding} {dilation} {groups}",
            grads(
                lambda x, w, b, s=stride, p=padding, d=dilation, g=groups: F.conv_transpose3d(
                    x, w, b, s, p, groups=g, dilation=d
                )
            ),
            (randn(2, 4, 4, 5, 4), randn(4, 6 // groups, 2, 3, 3, seed=1), randn(6, seed=2)),
        )
    yield (
        "pixel_shuffle",
        lambda t: (F.pixel_shuffle(t, 2), F.pixel_unshuffle(t, 3), F.pixel_shuffle(t.int(), 2)),
        (randn(2, 8, 6, 3),),
    )
    yield "pixel_shuffle gradient", grads(lambda t: F.pixel_shuffle(t, 2)), (randn(1, 8, 2, 3),)
    for dtype in (torch.float32, torch.bfloat16):
        yield (
            f"unfold {dtype}",
            grads(lambda t: F.unfold(t, (3, 2), dilation=2, padding=(1, 2), stride=(2, 1))),
            (randn(2, 3, 8, 7, dtype=dtype),),
        )
