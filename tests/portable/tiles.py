"""Operands that lie across the rows of a result, as in copies of transposes: pointwise kernels of
CPUs read them in tiles. Each call is compared with the CPU's.

python tests/portable/tiles.py   # prints what differs, and how many calls were made
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

DEVICE = torch._C._get_privateuse1_backend_name()
# A tile is 64 wide, and a line of memory high: 8 to 64 elements. Some fill none, one, and parts.
SIZES = (7, 8, 9, 15, 16, 17, 63, 64, 65, 130)
DTYPES = (
    *(torch.float32, torch.float64, torch.float16, torch.bfloat16),
    *(torch.int64, torch.int32, torch.int8, torch.uint8, torch.bool),
)


def made(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    if dtype.is_floating_point:
        return torch.randn(shape).to(dtype)
    return torch.randint(0, 2 if dtype == torch.bool else 100, shape).to(dtype)


def matrices() -> Iterator[tuple[str, Callable[..., Tensor], list[Tensor]]]:
    """Two dimensions, of all sizes; then each dtype."""
    sizes = [(n, m) for n, m in itertools.product(SIZES, SIZES) if (n + m) % 3 == 0]
    for n, m in sizes:
        a, b = made((n, m), torch.float32), made((m, n), torch.float32)
        yield f"transpose {n} x {m}", lambda a: a.t().contiguous(), [a]
        yield f"add of a transpose {n} x {m}", lambda a, b: torch.add(b, a.t(), alpha=2), [a, b]
    for dtype in DTYPES:
        a, b = made((70, 37), dtype), made((37, 70), dtype)
        yield f"transpose of {dtype}", lambda a: a.t().contiguous(), [a]
        yield f"into {dtype}", lambda a, b: torch.zeros_like(a).copy_(b.t()), [a, b]
        for other in (torch.float32, torch.uint8):
            yield f"{dtype} as {other}", lambda a, o=other: a.t().to(o).contiguous(), [a]
        yield f"choice of {dtype}", lambda a, b: torch.where(b.t() > 0, a, b.t()), [a, b]
    a, b = made((90, 40), torch.float32), made((40, 90), torch.float32)
    mask = made((40, 90), torch.bool)
    yield "both across", lambda a, b: torch.mul(a.t(), (2 * a).t()) + b, [a, b]
    yield "another dtype across", lambda a, b, mask: a.masked_fill(mask.t(), 3.0), [a, b, mask]
    yield "in place", lambda a, b: a.mul_(b.t()), [a, b]
    yield "with a number", lambda a, b: torch.pow(b.t(), 2), [a, b]
    yield "a row for all", lambda a, b: b + a.t() * b[:1], [a, b]
    yield "a column for all", lambda a, b: b + a.t() * b[:, :1], [a, b]
    yield "a slice", lambda a, b: a.t()[3:37, 5:75] + b[3:37, 5:75], [a, b]
    yield "every second", lambda a, b: a.t()[:, ::2] * b[:, ::2], [a, b]
    yield "into a slice", lambda a, b: [b, b[:, 1:81].copy_(a[:80].t())][0], [a, b]


def more_dimensions() -> Iterator[tuple[str, Callable[..., Tensor], list[Tensor]]]:
    rng = random.Random(3)
    for _ in range(60):
        rank = rng.choice((3, 4, 5))
        shape = tuple(rng.choice((1, 2, 3, 8, 11, 17, 33)) for _ in range(rank))
        order = rng.sample(range(rank), rank)
        a = made(shape, torch.float32)
        b = made(tuple(shape[d] for d in order), torch.float32)
        yield f"{shape} by {order}", lambda a, b, o=order: a.permute(o).contiguous(), [a, b]
        yield f"sum, {shape} by {order}", lambda a, b, o=order: b - a.permute(o), [a, b]
    image = made((3, 21, 19, 18), torch.float32)
    last = torch.channels_last
    yield "channels last", lambda x: x.contiguous(memory_format=last), [image]
    yield "channels first", lambda x: x.contiguous(memory_format=last).contiguous(), [image]


def main() -> None:
    torch.manual_seed(0)
    calls = 0
    for name, f, given in itertools.chain(matrices(), more_dimensions()):
        want = f(*(t.clone() for t in given))
        got = f(*(t.to(DEVICE) for t in given)).cpu()
        same = torch.equal(want, got) or torch.allclose(want, got, rtol=1e-6, atol=1e-6)
        if not same or want.stride() != got.stride():
            print(name, want.stride(), got.stride())
        calls += 1
    zero = made((40, 30), torch.int32).to(DEVICE)
    zero[17, 29] = 0
    try:
        torch.floor_divide(made((30, 40), torch.int32).to(DEVICE), zero.t())
        torch.accelerator.synchronize()
        print("a zero was not found")
    except RuntimeError as error:
        if "ZeroDivisionError" not in str(error):
            print(error)
    print("calls", calls)


if __name__ == "__main__":
    main()
