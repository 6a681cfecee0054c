"""Kernels that take neighbours at once on CPUs, where a call is not along the last dimension:
softmax, unfold and fold, shuffles of pixels, rows put by an index. Compared with the CPU's.

python tests/portable/columns.py   # prints what differs, and how many results were compared
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

DEVICE = torch._C._get_privateuse1_backend_name()
Case = tuple[str, Callable[..., Tensor], list[Tensor], float]


def made(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    return (torch.randn(shape) * 3).to(dtype)


def softmax() -> Iterator[Case]:
    shapes = (
        ((3, 100, 70), 1),
        ((3, 100, 7), 1),
        ((5, 9, 8), 0),
        ((2, 19, 3, 40), 1),
        ((300, 65), 0),
    )
    shapes += ((7, 100), 1), ((3, 4100), 1)  # halves: in a row of float32, and one that is too long
    dtypes = (torch.float32, 1e-5), (torch.float16, 2e-2), (torch.float64, 1e-11)
    for (shape, dim), (dtype, near) in itertools.product(shapes, dtypes):
        x, grad = made(shape, dtype), made(shape, dtype)
        x[0].view(-1)[3] = -float("inf")
        for f in (torch.softmax, torch.log_softmax):

            def backward(
                x: Tensor, grad: Tensor, f: Callable[..., Tensor] = f, d: int = dim
            ) -> Tensor:
                x.requires_grad_()
                return torch.autograd.grad(f(x, d), x, grad)[0]

            what = f"{f.__name__} of {shape} along {dim}, {dtype}"
            yield what, lambda x, f=f, d=dim: f(x, d), [x], near
            yield f"gradient of {what}", backward, [x, grad], 4 * near
    x = made((9, 40), torch.float32)
    x[:, 6], x[2, 5] = -float("inf"), float("nan")
    yield "no largest", lambda x: x.softmax(0), [x], 1e-5


def windows() -> Iterator[Case]:
    sizes = (7, 9), (16, 300), (20, 13)
    for k, d, p, s in itertools.product((1, 2, 3, (2, 5)), (1, 2, 3), (0, 1, 3), (1, 2, 3)):
        for h, w in sizes:
            x = made((2, 3, h, w), torch.float32)
            try:
                parts = F.unfold(x, k, d, p, s)
            except RuntimeError:
                continue  # a window larger than the image
            how = (k, d, p, s)
            what = f"{h} x {w} by {how}"
            yield f"unfold {what}", lambda x, how=how: F.unfold(x, *how), [x], 0
            fold = lambda x, to=(h, w), how=how: F.fold(x, to, *how)  # noqa: E731
            yield f"fold {what}", fold, [torch.randn_like(parts)], 1e-5


def shuffles() -> Iterator[Case]:
    dtypes = torch.float32, torch.float16, torch.int8, torch.complex64, torch.bool, torch.float64
    for r, dtype in itertools.product((1, 2, 3, 5), dtypes):
        x = made((2, 3, 2 * r * r, 5, 7), dtype)
        yield f"shuffle by {r}, {dtype}", lambda x, r=r: F.pixel_shuffle(x, r), [x], 0
        wide = F.pixel_shuffle(x, r)
        yield f"and back by {r}, {dtype}", lambda x, r=r: F.pixel_unshuffle(x, r), [wide], 0


def rows() -> Iterator[Case]:
    shapes = (
        ((50, 70), 0),
        ((50, 9), 0),
        ((50, 300), 0),
        ((5, 40, 33), 1),
        ((50, 7), 0),
        ((30, 90), 1),
    )
    for (shape, dim), dtype in itertools.product(
        shapes, (torch.float32, torch.float64, torch.int64)
    ):
        x, index = made(shape, dtype), torch.randint(0, shape[dim], (37,))
        source = made(tuple(37 if d == dim else n for d, n in enumerate(shape)), dtype)
        once = torch.randperm(shape[dim])[:30]
        all_ = index.view([37 if d == dim else 1 for d in range(len(shape))])
        what = f"of {shape} along {dim}, {dtype}"

        def add(x: Tensor, i: Tensor, s: Tensor, d: int = dim) -> Tensor:
            return x.index_add(d, i, s, alpha=2)

        def put(x: Tensor, i: Tensor, s: Tensor, d: int = dim) -> Tensor:
            return x.index_copy(d, i, s.narrow(d, 0, 30))

        def scatter(x: Tensor, i: Tensor, s: Tensor, d: int = dim) -> Tensor:
            return x.scatter_add(d, i.expand(s.shape), s)

        def largest(x: Tensor, i: Tensor, s: Tensor, d: int = dim) -> Tensor:
            return x.scatter_reduce(d, i.expand(s.shape), s, "amax")

        yield f"index_add {what}", add, [x, index, source], 1e-5
        yield f"index_copy {what}", put, [x, once, source], 0
        yield f"index_fill {what}", lambda x, i, d=dim: x.index_fill(d, i, 1), [x, once], 0
        yield f"scatter_add {what}", scatter, [x, all_, source], 1e-5
        yield f"scatter_reduce {what}", largest, [x, all_, source], 0

    # More of them than one item is given.
    x, source = made((50, 9), torch.float32), made((20000, 9), torch.float32)
    index = torch.randint(0, 50, (20000,))
    yield "index_add of many", lambda x, i, s: x.index_add(0, i, s), [x, index, source], 1e-3


def main() -> None:
    torch.manual_seed(0)
    calls = 0
    for name, f, given, near in itertools.chain(softmax(), windows(), shuffles(), rows()):
        want = f(*(t.clone() for t in given))
        got = f(*(t.to(DEVICE) for t in given)).cpu()
        same = torch.allclose(want, got, rtol=near, atol=near, equal_nan=True)
        if not same or want.stride() != got.stride():
            print(name, want.stride(), got.stride())
        calls += 1
    wrong = torch.zeros(50, 70, device=DEVICE)
    try:
        wrong.index_add_(0, torch.tensor([3, 50], device=DEVICE), torch.ones(2, 70, device=DEVICE))
        torch.accelerator.synchronize()
        print("an index out of range was not found")
    except IndexError as error:
        if "index 50 is out of range" not in str(error):
            print(error)
    print("results", calls)


if __name__ == "__main__":
    main()
