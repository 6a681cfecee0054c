"""Errors that kernels find while they run, on the device of this process: each must be raised where
the host next waits, once, with words that name it; and what is no error must not be.

A line for each that is not so, then "cases N".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F

import causeway

DEVICE = torch.accelerator.current_accelerator()
Case = tuple[str, Callable[[], object], str]


def ints(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int64, device=DEVICE)


def out_of_range(x: torch.Tensor) -> Iterator[Case]:
    """`x` has 5 rows of 7."""
    said = "index {} is out of range for a dimension of size {}"
    images = torch.randn(2, 3, 4, 4, device=DEVICE)
    yield "embedding", lambda: F.embedding(ints(1, -1), x), said.format(-1, 5)
    yield "index_select", lambda: x.index_select(1, ints(0, 7)), said.format(7, 7)
    yield "x[i]", lambda: x[ints(0, -6)], said.format(-6, 5)
    yield "x[i, j]", lambda: x[ints(0, 1), ints(2, -8)], said.format(-8, 7)
    yield "gather", lambda: x.gather(1, ints(7)[None]), said.format(7, 7)
    yield "take", lambda: x.take(ints(0, 35)), said.format(35, 35)
    yield "scatter", lambda: x.scatter(1, ints(7)[None], 1.0), said.format(7, 7)
    yield "scatter_add", lambda: x.scatter_add(1, ints(-1)[None], x), said.format(-1, 7)
    yield "index_add", lambda: x.index_add(0, ints(5), x[:1]), said.format(5, 5)
    yield "index_copy_", lambda: x.clone().index_copy_(0, ints(-6), x[:1]), said.format(-6, 5)
    yield "index_put", lambda: x.index_put((ints(5),), x[0]), said.format(5, 5)
    yield "accumulate", lambda: x.index_put((ints(5),), x[0], accumulate=True), said.format(5, 5)
    yield "large", lambda: x[ints(1 << 40)], said.format(1 << 40, 5)
    yield "cross_entropy", lambda: F.cross_entropy(x, ints(0, 1, 2, 3, 7)), said.format(7, 7)
    yield (
        "cross_entropy of images",
        lambda: F.cross_entropy(images, torch.full((2, 4, 4), 3, device=DEVICE)),
        said.format(3, 3),
    )
    frames = torch.randn(6, 2, 4, device=DEVICE).log_softmax(2)
    labels = ints(1, 2, 3, 4).view(2, 2)
    yield "ctc_loss", lambda: F.ctc_loss(frames, labels, [6, 6], [2, 2]), said.format(4, 4)


def others() -> Iterator[Case]:
    zero, chance = "an integer was divided by zero", "probabilities that are"
    a, b = ints(3, 4), ints(1, 0)
    yield "//", lambda: a // b, zero
    yield "%", lambda: a % b, zero
    yield "fmod", lambda: torch.fmod(a, b), zero
    for values in ([1.0, -1.0], [0.0, 0.0], [1.0, float("nan")], [1.0, float("inf")]):
        p = torch.tensor(values, device=DEVICE)
        for again in (False, True):
            yield (
                f"multinomial {values} {again}",
                lambda p=p, again=again: torch.multinomial(p, 2, replacement=again),
                chance,
            )


def no_errors(x: torch.Tensor) -> None:
    F.cross_entropy(x, ints(0, -100, 2, 3, 4))
    weight = x.clone().requires_grad_()
    F.embedding(ints(1, 0, 4), weight, padding_idx=0).sum().backward()
    _ = x[ints()], x[ints(-5, 4)], x[x > 0], x.topk(3), x.sort(1), ints(1, 2, 2).unique()
    _ = ints(3) // ints(-2), x // torch.zeros(7, device=DEVICE)
    for dtype in (torch.int32, torch.int64):  # where the CPU's kernels end the process
        least = torch.tensor([torch.iinfo(dtype).min], dtype=dtype, device=DEVICE)
        assert torch.equal(torch.div(least, -least.sign(), rounding_mode="trunc"), least)
        assert torch.equal(torch.div(least, least.sign(), rounding_mode="trunc"), least)
        assert torch.equal(torch.lcm(least, least.sign()), least)
        assert torch.equal(torch.lcm(least, ~least), least)
    torch.multinomial(torch.tensor([1.0, 0.0, 2.0], device=DEVICE), 2)
    x.gather(1, ints()[None])
    torch.accelerator.synchronize()


def main() -> None:
    x = torch.randn(5, 7, device=DEVICE)
    cases = [*out_of_range(x), *others()]
    waits: list[Callable[[Any], object]] = [
        lambda _: torch.accelerator.synchronize(),
        lambda _: torch.accelerator.current_stream().synchronize(),
        lambda result: result.sum().item(),
    ]
    with causeway.policy("error"):
        for k, (name, call, said) in enumerate(cases):
            try:
                waits[k % len(waits)](call())
                print(f"{name}: nothing was raised")
            except RuntimeError as error:
                kind = IndexError if said.startswith("index") else causeway.CausewayError
                if said not in str(error) or not isinstance(error, kind):
                    print(f"{name}: {type(error).__name__}: {error}")
            torch.accelerator.synchronize()  # raised once
        no_errors(x)
    print("cases", len(cases), flush=True)


if __name__ == "__main__":
    main()
