"""How products cut their work, and in which order memory is read, measured on the device: what
`causeway tune` does at once.

A program measures in passing too (see docs/tune.md). Here the same products are asked for again and
again until each class of shapes has its cut, which goes to the file that the next process reads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from causeway import config
from causeway.errors import CausewayError

if TYPE_CHECKING:
    import torch

DTYPES = {"float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64"}
MOST_CALLS = 400  # of one product; each cut needs six


@dataclass(frozen=True)
class Choice:
    """What a class of products, or a loop over memory, takes: `gain` is its speed, as a factor of
    the built-in cut's.
    """

    device: int
    name: str
    """Dtype, use and shapes: "f32 mm many". Of loops: elements, long rows, rows."""
    cut: str
    gain: float
    source: str
    """kept (by an earlier process), measured (by this one), or under way."""


def choices(device: int) -> list[Choice]:
    """What is known of the device's products; nothing where there is no compiler (code.v1)."""
    from causeway import _C

    return [
        Choice(device, t["name"], t["cut"], round(t["gain"], 3), t["source"])
        for t in _C.tuned(device)
    ]


def measure(
    device: int, dtypes: Sequence[str] = ("float32", "bfloat16"), *, again: bool = False
) -> Iterator[Choice]:
    """Measure every class of products of `dtypes` that is not known yet, one after the other, and
    the loops over memory.

    With `again` what an earlier process kept counts as not known; say so before the device's first
    product. Yields each choice as it is made. Raises CausewayError where products have nothing to
    choose: no compiler, another kernel of the vendor's, or tuning switched off.
    """
    import torch

    import causeway
    from causeway import _C
    from causeway.state import state

    if unknown := sorted(set(dtypes) - set(DTYPES)):
        raise CausewayError(f"{unknown[0]!r} is none of {', '.join(DTYPES)}")
    if len(_C.cuts(device, False)) < 2:
        raise CausewayError(
            f"{state.device}:{device} has nothing to tune: the vendor has no compiler (code.v1), "
            "or groups of its items have too little memory for more than one cut"
        )
    where = torch.device(state.device or "cpu", device)
    settled: set[str] = set()
    with config.using(tune="again" if again else "now"), causeway.policy("allow"), torch.no_grad():
        units = _C.code_units(device)
        products = (_products(getattr(torch, dtype), where, units) for dtype in dtypes)
        for call in chain(*products, _loops(where)):
            for _ in range(MOST_CALLS):
                call()
                known = {c.name: c for c in choices(device) if c.cut}
                new = set(known) - settled
                if all(c.cut for c in choices(device)):
                    break
            settled |= new
            yield from (known[name] for name in sorted(new))
    if not settled:
        raise CausewayError(
            f"no product of {where} was served by Causeway's own kernels, so there is nothing to "
            "tune: `causeway.ledger()` says who serves mm"
        )


def _products(
    dtype: torch.dtype, where: torch.device, units: int
) -> Iterator[Callable[[], object]]:
    """One product for each class: thin ones, then squares of the result, fewer than the device has
    units, some for each, many for each.
    """
    import torch
    import torch.nn.functional as F

    few = 64 * max(1, math.isqrt(units - 1)) if units > 1 else 0
    some = 64 * max(math.isqrt(3 * units), math.isqrt(units) + 1)
    many = max(1024, 64 * math.isqrt(16 * units))

    def randn(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, dtype=dtype).to(where)

    sizes = [(16, 2048, 1024), (2048, 16, 1024), (some, some, 1024), (many, many, 1024)]
    if few:
        sizes.insert(2, (few, few, 4096))
    for m, n, k in sizes:
        a, b = randn(m, k), randn(n, k)
        yield partial(torch.mm, a, b.t())
    for m, n, k in sizes[-2:]:
        a, b = randn(4, m // 2, k // 4), randn(4, k // 4, n // 2)
        yield partial(torch.bmm, a, b)
    x, w = randn(4, 64, 56, 56), randn(64, 64, 3, 3)
    yield partial(F.conv2d, x, w, padding=1)

    def gradient() -> object:
        return torch.ops.aten.convolution_backward(
            x, x, w, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [False, True, False]
        )

    yield gradient


def _loops(where: torch.device) -> Iterator[Callable[[], object]]:
    """One call for each of the loops that read what no cache holds."""
    import torch

    x = torch.ones(16 << 20).to(where)
    yield partial(torch.mul, x, 3.0, out=torch.empty_like(x))
    yield x.sum
    yield partial(torch.sum, x.view(-1, 1024), 1)
