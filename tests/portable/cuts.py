"""Every cut of a device gives the same bits, and the CPU's result within tolerance.

`python cuts.py DTYPE [PRODUCT..] [DTYPE ..]`: prints a line for each product that differs, then
"cuts N of M products". A dtype without products: all of them. The last five are the loops that read
memory in the order that was measured.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F

from causeway import _C

DEVICE = torch.accelerator.current_accelerator()
Product = tuple[str, Callable[..., torch.Tensor], tuple[torch.Tensor, ...]]


def randn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def gradient(x: torch.Tensor, w: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    return torch.ops.aten.convolution_backward(
        g, x, w, None, [2, 1], [1, 2], [1, 2], False, [0, 0], 2, [False, True, False]
    )[1]


def products() -> Iterator[Product]:
    """Sides that no tile divides, each order of strides, a deep k, what is not finite; large ones,
    of which items take pieces as they get done.
    """
    yield "one", torch.mm, (randn(1, 1), randn(1, 1))
    yield "edges", torch.mm, (randn(37, 67), randn(67, 75))
    yield "transposed", lambda a, b: torch.mm(a.t(), b.t()), (randn(67, 37), randn(35, 67))
    for name, m, n in (("narrow", 130, 70), ("wide", 70, 130)):
        yield f"{name} transposed", lambda a, b: torch.mm(a, b.t()), (randn(m, 83), randn(n, 83))
    yield "turned", lambda a, b: torch.mm(a.t(), b), (randn(83, 70), randn(83, 130))
    yield "large", torch.mm, (randn(300, 250), randn(250, 460))
    yield "strided", lambda a, b: torch.mm(a[::2, ::3], b[::3, ::2]), (randn(40, 60), randn(60, 70))
    yield "deep", torch.mm, (randn(9, 2500) / 50, randn(2500, 19))
    yield "added", lambda c, a, b: torch.addmm(c, a, b, beta=0.3, alpha=-1.7), (
        randn(33), randn(70, 130), randn(130, 33),
    )  # fmt: skip
    yield "batch", torch.bmm, (randn(3, 33, 40), randn(3, 40, 18))
    wild = randn(20, 40)
    wild[3, 5], wild[7, 39], wild[19, 0] = float("inf"), float("nan"), -0.0
    yield "wild", torch.mm, (wild, randn(40, 33))
    x, w = randn(3, 6, 11, 9), randn(10, 3, 3, 2)
    conv = lambda x, w: F.conv2d(x, w, None, (2, 1), (1, 2), (1, 2), 2)  # noqa: E731
    yield "convolution", conv, (x, w)
    yield "gradient", gradient, (x, w, torch.empty_like(conv(x, w)).copy_(randn(3, 10, 6, 11)))
    # So few that the batch is shared out: into how many shares is not the cut's to say.
    yield "gradient of few channels", lambda x, g: torch.ops.aten.convolution_backward(
        g, x, g.new_empty(20, 3, 3, 3), None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1,
        [False, True, False],
    )[1], (randn(4, 3, 9, 9), randn(4, 20, 9, 9))  # fmt: skip
    yield "large convolution", lambda x, w: F.conv2d(x, w, None, 1, 1), (
        randn(2, 33, 29, 30), randn(67, 33, 3, 3),
    )  # fmt: skip
    yield "transposed convolution", lambda x, w: F.conv_transpose2d(x, w, None, 2, 1), (
        randn(2, 5, 7, 8), randn(5, 9, 3, 3),
    )  # fmt: skip
    large = randn((16 << 20) + 333)
    yield "sum", torch.sum, (large,)
    yield "sum of some", lambda x: x[77:].unflatten(0, (4, -1)).sum(1), (large[: (16 << 20) + 77],)
    yield "largest", torch.amax, (large,)
    yield "sum of rows", lambda x: x.view(-1, 523).sum(1), (large[: 32077 * 523],)
    yield "elements", lambda x: x * 0.37, (large,)


def bits(x: torch.Tensor) -> bytes:
    return x.cpu().reshape(-1).view(torch.uint8).numpy().tobytes()


def check(name: str, what: str, f: Callable[..., torch.Tensor], args: tuple[torch.Tensor, ...]):
    """Print how the results of all cuts differ from the first one's, and that from the CPU's."""
    dtype = getattr(torch, name)
    cuts = _C.cuts(0, dtype == torch.float64)
    args = tuple(a.to(dtype) for a in args)
    there = tuple(a.to(DEVICE) for a in args)
    results = []
    for cut in range(len(cuts)):
        _C.force_cut(cut)
        results.append(f(*there))
    _C.force_cut(-1)
    for cut, result in zip(cuts, results, strict=True):
        if bits(result) != bits(results[0]):
            print(f"{what} {name}: {cut} gives other bits")
    right = f(*(a.double() for a in args))
    rtol = {2: 2e-2, 4: 1e-4, 8: 1e-9}[dtype.itemsize]
    atol = rtol * right.nan_to_num(0, 0, 0).abs().max().item()
    if not torch.allclose(results[0].cpu().double(), right, rtol, atol, equal_nan=True):
        print(f"{what} {name}: not as on the CPU")


def main(words: list[str]) -> None:
    groups: list[tuple[str, list[str]]] = []
    for word in words:
        if hasattr(torch, word) and isinstance(getattr(torch, word), torch.dtype):
            groups.append((word, []))
        else:
            groups[-1][1].append(word)
    count = 0
    for dtype, names in groups:
        for what, f, args in products():
            if not names or what in names:
                check(dtype, what, f, args)
                count += 1
    print(f"cuts {len(_C.cuts(0, False))} of {count} products")


if __name__ == "__main__":
    main(sys.argv[1:])
