"""Random graphs, compiled on the device against eager on the CPU: results and gradients.

python tests/compile/random_graphs.py 0 50 [--dynamic]     # seeds from 0 to 49; says which differ

A graph is some twenty operators over tensors of few shapes, odd ones among them. What is compared
with is computed in float64, so that only a wrong number differs, and no other order of a sum.
"""

from __future__ import annotations

import argparse
import random
import sys
import warnings
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

SIZES = (1, 2, 3, 7, 16, 33, 70, 130, 520)
MOST = 40_000  # elements of a tensor
Step = Callable[[list[Tensor]], Tensor]  # of the last eight tensors, the next

UNARY: list[Callable[[Tensor], Tensor]] = [
    torch.sin, torch.relu, torch.tanh, torch.sigmoid, torch.abs, torch.neg, torch.square,
    functional.gelu, functional.silu, functional.softplus, functional.leaky_relu,
    lambda x: torch.exp(-x.abs()), lambda x: torch.sqrt(x.abs() + 1), lambda x: 1 / (x.abs() + 1),
    lambda x: torch.log1p(x.abs()), lambda x: x.clamp(-0.5, 0.75), torch.erf, torch.floor,
    lambda x: torch.atan2(x, x.abs() + 1), lambda x: x.flip(-1), lambda x: x.roll(1, -1),
    lambda x: functional.pad(x, (1, 2)), lambda x: x[..., ::2], lambda x: x[..., 1:],
    lambda x: x * torch.arange(x.shape[-1], device=x.device).to(x.dtype) / x.shape[-1],
    lambda x: x.transpose(0, -1), lambda x: x.contiguous().flatten(), lambda x: x.unsqueeze(0),
    lambda x: torch.where(x > 0, x, x * 0.1), lambda x: x.masked_fill(x < -1, 0.5), torch.cos,
]  # fmt: skip
REDUCE: list[Callable[[Tensor, int, bool], Tensor]] = [
    lambda x, d, k: x.sum(d, k), lambda x, d, k: x.mean(d, k), lambda x, d, k: x.amax(d, k),
    lambda x, d, k: x.amin(d, k), lambda x, d, k: x.var(d, correction=0, keepdim=k),
    lambda x, d, k: x.logsumexp(d, k), lambda x, d, k: (x * 0.5).norm(dim=d, keepdim=k),
    lambda x, d, k: x.softmax(d), lambda x, d, k: x.log_softmax(d), lambda x, d, k: x.cumsum(d) / 8,
    lambda x, d, k: x.max(d, k).values, lambda x, d, k: (x > 0).sum(d, k).to(x.dtype),
    lambda x, d, k: x.argmax(d, k).to(x.dtype) * 0.01, lambda x, d, k: x.tanh().prod(d, k),
    lambda x, d, k: functional.layer_norm(x, x.shape[-1:]), lambda x, d, k: x.std(d, correction=0),
    lambda x, d, k: (x > 0).any(d, k).to(x.dtype),
]  # fmt: skip
BINARY: list[Callable[[Tensor, Tensor], Tensor]] = [
    torch.add, torch.mul, torch.sub, torch.maximum, torch.minimum,
    lambda a, b: a / (b.abs() + 1), lambda a, b: torch.where(a > b, a, b * 0.5),
    lambda a, b: torch.lerp(a, b, 0.3), torch.hypot, lambda a, b: a * (a > b),
]  # fmt: skip


def unary(draw: random.Random, n: int) -> Step:
    f, i = draw.choice(UNARY), draw.randrange(n)
    return lambda pool: f(pool[i])


def reduced(draw: random.Random, n: int) -> Step:
    f, i, dim, keep = (
        draw.choice(REDUCE),
        draw.randrange(n),
        draw.randrange(12),
        draw.random() < 0.5,
    )
    return lambda pool: f(pool[i], dim % pool[i].dim(), keep)


def binary(draw: random.Random, n: int) -> Step:
    f, i, j = draw.choice(BINARY), draw.randrange(n), draw.randrange(n)
    return lambda pool: f(pool[i], pool[j])


def joined(draw: random.Random, n: int) -> Step:
    i, j = draw.randrange(n), draw.randrange(n)
    return lambda pool: torch.cat([pool[i], pool[j]], -1)


def product(draw: random.Random, n: int) -> Step:
    i = draw.randrange(n)
    return lambda pool: pool[i] @ pool[i].transpose(-1, -2) / pool[i].shape[-1]


def picked(draw: random.Random, n: int) -> Step:
    i, places = draw.randrange(n), [draw.randrange(100) for _ in range(draw.choice((1, 3, 5)))]

    def step(pool: list[Tensor]) -> Tensor:
        x = pool[i]
        return x[torch.tensor(places, device=x.device) % x.shape[0]]

    return step


OPERATORS = [*[unary] * 5, *[reduced] * 4, *[binary] * 4, joined, product, picked]


def inputs(seed: int) -> list[Tensor]:
    """What a graph begins with, in float64 on the CPU."""
    draw, made = random.Random(seed), torch.Generator().manual_seed(seed)
    a, b, c = (draw.choice(SIZES) for _ in range(3))
    shapes = [(a, b), (b,), (draw.choice((1, 2, 5)), a, b), (a, 1), (c, b)]
    return [torch.randn(shape, generator=made, dtype=torch.float64) for shape in shapes]


def graph(seed: int, operators: int = 20) -> Callable[..., list[Tensor]]:
    """The function of a seed, of the operators that torch takes and that do not grow too large."""
    draw, pool = random.Random(seed + 1), inputs(seed)
    steps: list[Step] = []
    for _ in range(operators):
        step = draw.choice(OPERATORS)(draw, len(pool))
        try:
            found = step(pool)
        except (RuntimeError, IndexError):
            continue
        if 0 < found.numel() <= MOST and 0 < found.dim() <= 4:
            steps.append(step)
            pool = [*pool[-7:], found]

    def run(*given: Tensor) -> list[Tensor]:
        made = list(given)
        for step in steps:
            made = [*made[-7:], step(made)]
        return made[-3:]

    return run


def results(f: Callable[..., list[Tensor]], given: list[Tensor]) -> list[Tensor]:
    """What a graph returns, and the gradients of what it was given."""
    leaves = [t.detach().clone().requires_grad_() for t in given]
    found = f(*leaves)
    total = sum((t * t.shape[-1] ** -0.5).sum() for t in found if t.requires_grad)
    grads = torch.autograd.grad(total, leaves, allow_unused=True) if torch.is_tensor(total) else ()
    return [t.detach().cpu().double() for t in (*found, *grads) if t is not None]


def difference(seed: int, device: str, dynamic: bool | None = None) -> str | None:
    """What is wrong with a graph, compiled: a result that is not float64's, where eager's is."""
    torch._dynamo.reset()
    f, given = graph(seed), inputs(seed)
    there = [t.float().to(device) for t in given]
    expected, eager = results(f, given), results(f, there)
    got = results(torch.compile(f, dynamic=dynamic), there)
    if len(got) != len(expected):
        return f"{len(got)} results, not {len(expected)}"
    for number, (mine, eagers, true) in enumerate(zip(got, eager, expected, strict=True)):
        if mine.shape != true.shape:
            return f"result {number} has shape {tuple(mine.shape)}, not {tuple(true.shape)}"
        undefined = mine.isnan() & eagers.isnan()  # in float32: float64 may have a number there
        mine, eagers, true = (t.masked_fill(undefined, 0) for t in (mine, eagers, true))
        scale = true.abs().clamp(min=1)
        off, eagers_off = (((t - true).abs() / scale).max() for t in (mine, eagers))
        if not off <= max(1e-3, 4 * eagers_off):
            return f"result {number} is off by {off:.2g}, eager's by {eagers_off:.2g}"
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("first", type=int)
    parser.add_argument("last", type=int)
    parser.add_argument("--dynamic", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    device = torch.accelerator.current_accelerator()
    assert device is not None, "there is no device"
    differ = 0
    for seed in range(options.first, options.last):
        try:
            wrong = difference(seed, device.type, options.dynamic or None)
        except Exception as error:  # goes on with the next
            wrong = f"{type(error).__name__}: {str(error)[:300]}"
        if wrong:
            differ += 1
            print(f"{seed}: {wrong}", flush=True)
    print(f"{options.last - options.first} graphs, {differ} differ")
    return int(differ > 0)


if __name__ == "__main__":
    sys.exit(main())
