"""Convolutions by Winograd's way on the device of this process, against float64 on the CPU.

`python winograd.py few|all|NAME`: prints a line for each case that is wrong, then "winograd N". A
forced cut makes any of them a product, which is how a case knows that the other way was taken.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F

from causeway import _C

DEVICE = torch.accelerator.current_accelerator()
MOST = 16 * 2.0**-24  # of the sum of what the products are in size
Case = tuple[str, Callable[..., torch.Tensor], tuple[torch.Tensor, ...]]


def randn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def sides(batch: int, before: int, after: int, h: int, w: int) -> tuple[torch.Tensor, ...]:
    return (
        randn(batch, before, h, w), randn(after, before, 3, 3, seed=1), randn(after, seed=2) * 20,
    )  # fmt: skip


def conv(padding: int | tuple[int, int] = 1) -> Callable[..., torch.Tensor]:
    return lambda x, w, b=None: F.conv2d(x, w, b, 1, padding)


def transposed(padding: int) -> Callable[..., torch.Tensor]:
    return lambda x, w, b=None: F.conv_transpose2d(x, w.transpose(0, 1).contiguous(), b, 1, padding)


def gradient(padding: int) -> Callable[..., torch.Tensor]:
    """With respect to the image, which `x` is the result's gradient of."""
    more = 2 - 2 * padding

    def call(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        image = x.new_empty(x.shape[0], w.shape[1], x.shape[2] + more, x.shape[3] + more)
        one, both = [1, 1], [padding, padding]
        return torch.ops.aten.convolution_backward(
            x, image, w, None, one, both, one, False, [0, 0], 1, [True, False, False]
        )[0]

    return call


def taken() -> Iterator[Case]:
    """Odd sides, each padding, few and many tiles, channels and results that no tile divides; the
    transformed side in one piece and in several; a tensor that begins inside of its memory.
    """
    x, w, b = sides(2, 33, 40, 13, 12)
    yield "padding of 1", conv(1), (x, w, b)
    yield "no padding, no bias", conv(0), (x[:, :, :, :11].contiguous(), w)
    yield "padding of 2 and 0", conv((2, 0)), (x, w, b)
    last = torch.channels_last
    yield "channels last", lambda x, w: conv()(x.contiguous(memory_format=last), w), (x, w)
    yield "from the middle", lambda x, w: conv()(x[1:], w), (randn(3, 33, 12, 13), w)
    yield "transposed", transposed(1), (x, w, b)
    yield "transposed without padding", transposed(0), (x, w)
    y, v = sides(2, 33, 40, 15, 16)[0], w.transpose(0, 1).contiguous()
    for padding in (0, 1, 3):
        yield f"gradient of padding {padding}", gradient(padding), (y, v)
    yield "one image", conv(), sides(1, 32, 32, 30, 31)
    yield "few tiles of many results", conv(), sides(2, 64, 134, 13, 12)
    yield "one row", conv((0, 1)), sides(3, 32, 34, 3, 100)
    yield "narrow", conv(), sides(40, 32, 32, 5, 1)


def large() -> Iterator[Case]:
    yield "many panels", conv(), sides(2, 64, 64, 56, 56)
    yield "several groups", conv(0), sides(1, 96, 150, 40, 41)
    yield "256 channels", conv(), sides(4, 256, 256, 14, 14)
    yield "512 channels", conv(), sides(4, 512, 512, 7, 7)


def left() -> Iterator[Case]:
    """What stays a product."""
    x, w, _ = sides(2, 64, 64, 14, 14)
    yield "stride", lambda x, w: F.conv2d(x, w, None, 2, 1), (x, w)
    yield "dilation", lambda x, w: F.conv2d(x, w, None, 1, 2, 2), (x, w)
    yield "groups", lambda x, w: F.conv2d(x, w, None, 1, 1, 1, 2), (x, w[:, :32].contiguous())
    yield "few tiles", conv(), (x[:1, :, :5, :5].contiguous(), w)
    yield "few channels", conv(), (x[:, :5].contiguous(), w[:, :5].contiguous())
    yield "float64", conv(), (x.double(), w.double())
    yield "bfloat16", conv(), (x.bfloat16(), w.bfloat16())
    yield "line", lambda x, w: F.conv1d(x.flatten(2), w[:, :, 0], None, 1, 1), (x, w)
    yield "depth", lambda x, w: F.conv3d(x, w[:, :, None], None, 1, (0, 1, 1)), (
        torch.stack([x, x], 2), w,
    )  # fmt: skip


def wild() -> Iterator[Case]:
    """NaN and infinity where few windows see them, sums beyond the largest number, and weights."""
    inf, nan = float("inf"), float("nan")
    x, w, b = sides(2, 33, 40, 13, 12)
    for value, at in (
        (inf, (0, 0)),
        (nan, (12, 11)),
        (-inf, (5, 6)),
        (nan, (6, 5)),
        (3e38, (0, 7)),
    ):
        y = x.clone()
        y[1, 3, at[0], at[1]] = value
        yield f"{value} at {at}", conv(1), (y, w, b)
    y = x.clone()
    y[0, 2, 4:6, 4:6] = torch.tensor([[inf, inf], [-inf, nan]])
    yield "several", conv(0), (y, w)
    yield "several, transposed", transposed(2), (y, w)
    # In a product each of these is finite; of 4 x 4 places the sum is not.
    y = x.clone()
    y[:, :, 2::4, 2::4] = 3e38
    yield "sums beyond the largest", conv(1), (y, w * 1e-3)
    for value in (inf, nan):
        v = w.clone()
        v[7, 3, 1, 2] = value
        yield f"weight of {value}", conv(0), (x, v, b)
    yield "bias of infinity", conv(0), (x, w, torch.where(torch.arange(40) == 3, inf, b))


def both(f: Callable[..., torch.Tensor], args: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    """As it comes, and as a product."""
    there = [a.to(DEVICE) for a in args]
    came = f(*there).cpu()
    _C.force_cut(0)
    product = f(*there).cpu()
    _C.force_cut(-1)
    return [came, product]


def check(what: str, f: Callable[..., torch.Tensor], args: tuple[torch.Tensor, ...]) -> None:
    came, product = both(f, args)
    right = f(*(a.double() for a in args))
    size = f(*(a.double().abs() for a in args))
    if torch.equal(came, product):
        print(f"{what}: was a product")
    error = ((came.double() - right).abs() / size).max().item()
    if not error <= MOST:
        print(f"{what}: {error:.2e} apart, {MOST:.2e} allowed")


def check_left(what: str, f: Callable[..., torch.Tensor], args: tuple[torch.Tensor, ...]) -> None:
    came, product = both(f, args)
    if not torch.equal(came, product):
        print(f"{what}: was no product")


def check_wild(what: str, f: Callable[..., torch.Tensor], args: tuple[torch.Tensor, ...]) -> None:
    came, product = both(f, args)
    odd = ~product.isfinite()
    if not torch.equal(odd, ~came.isfinite()):
        print(f"{what}: {int((odd != ~came.isfinite()).sum())} places are finite or not otherwise")
    elif not torch.equal(came[odd].nan_to_num(0.5), product[odd].nan_to_num(0.5)):
        print(f"{what}: infinities are others")
    if torch.equal(came.nan_to_num(0), product.nan_to_num(0)):
        print(f"{what}: was a product")
    right = f(*(a.double() for a in args))
    # As if each weight were a channel's largest, which is added to the others.
    x, w, *bias = (a.double().abs() for a in args)
    size = f(x, w.amax((2, 3), keepdim=True).expand_as(w), *bias)
    error = ((came.double() - right).abs() / size)[~odd].max().item()
    if not error <= MOST:
        print(f"{what}: {error:.2e} apart, {MOST:.2e} allowed")


def main(which: str) -> None:
    count = 0
    groups = [(taken, check), (left, check_left), (wild, check_wild)]
    if which == "all":
        groups.append((large, check))
    for cases, one in groups:
        for case in cases():
            if which in ("few", "all", case[0]):
                one(*case)
                count += 1
    print(f"winograd {count}")


if __name__ == "__main__":
    main(sys.argv[1])
