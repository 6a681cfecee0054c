"""Results of many operators: what rounding may add up to between two runs of a program.

No bound of a single operator holds there, so the measure is the size of the difference against the
size of the values, with a tolerance by dtype and by how much lies between (`SPANS`). NaN and
infinity have places of their own here too, and integers are equal or not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from causeway.numerics.elements import Verdict, compare


@dataclass(frozen=True)
class Span:
    """What may differ by how much, relative to the size of the values. `reason` says why so far."""

    name: str
    floats: dict[torch.dtype, float]
    narrow: float  # of the 8-bit floats
    reason: str


SPANS: dict[str, Span] = {
    span.name: span
    for span in [
        Span(
            "kernel",
            {
                torch.float64: 1e-7,
                torch.float32: 1e-3,
                torch.float16: 2e-2,
                torch.bfloat16: 1e-1,
            },
            2.5e-1,
            "a fused kernel against its operators: sums in another order, and values that are not "
            "rounded between operators; of an element, against the RMS of all",
        ),
        Span(
            "run",
            {
                torch.float64: 1e-9,
                torch.float32: 1e-4,
                torch.float16: 2e-2,
                torch.bfloat16: 1e-1,
            },
            2.5e-1,
            "a value of a deep network after a few steps: RMS of the difference to the RMS; a "
            "wrong operator is further off, or does not matter",
        ),
        Span(
            "machines",
            {
                torch.float64: 1e-7,
                torch.float32: 1e-3,
                torch.float16: 2e-2,
                torch.bfloat16: 5e-2,
            },
            1.5e-1,
            "the same call on two machines, whose inputs differ by rounding already",
        ),
        Span(
            "series",
            {
                torch.float64: 1e-3,
                torch.float32: 1e-3,
                torch.float16: 1e-2,
                torch.bfloat16: 1e-2,
            },
            1e-2,
            "losses, norms of gradients and of parameters, times max(1, |number|): an optimizer "
            "that divides by a moment takes rounding for a sign",
        ),
    ]
}


def allowed(span: str, dtype: torch.dtype) -> float:
    """The tolerance of a span by dtype; 0 for what does not round. Complex numbers have that of
    their parts.
    """
    if not (dtype.is_floating_point or dtype.is_complex):
        return 0.0
    if dtype.is_complex:
        dtype = {torch.complex128: torch.float64, torch.complex64: torch.float32}.get(
            dtype, torch.float16
        )
    return SPANS[span].floats.get(dtype, SPANS[span].narrow)


@dataclass(frozen=True)
class Apart:
    """How far two tensors are apart: `size` relative to the values, infinite where more than the
    size is wrong; `why` says what.
    """

    size: float = 0.0
    why: str = ""


def apart(came: Tensor, reference: Tensor, *, mutual: bool = False) -> Apart:
    """RMS of the difference to the RMS of `reference`; where `mutual`, to the larger of the two.

    Both are on the host. Of integers and bools that differ the size is at least the share of wrong
    elements.
    """
    if (came.dtype, came.shape) != (reference.dtype, reference.shape):
        mine, theirs = (f"{str(t.dtype)[6:]}{list(t.shape)}" for t in (came, reference))
        return Apart(math.inf, f"{mine}, expected {theirs}")
    if came.layout != torch.strided or came.is_nested:
        came, reference = came.to_dense(), reference.to_dense()
    if not came.numel():
        return Apart()
    if not (came.is_floating_point() or came.is_complex()):
        if torch.equal(came, reference):
            return Apart()
        wrong = int((came != reference).sum())
        size = _ratio(came.double(), reference.double(), mutual)
        words = f"{wrong} of {came.numel()} elements differ"
        return Apart(max(size, wrong / came.numel()), words)
    if came.is_complex():
        came, reference = (torch.view_as_real(t.resolve_conj()) for t in (came, reference))
    a, b = came.double(), reference.double()
    odd = ~(a.isfinite() & b.isfinite())
    wrong_places = odd & ~((a == b) | (a.isnan() & b.isnan()))
    if bool(wrong_places.any()):
        first = tuple(wrong_places.nonzero()[0].tolist())
        return Apart(
            math.inf,
            f"NaN or infinity at {int(wrong_places.sum())} other places, the first at "
            f"{list(first)}: {float(a[first]):.6g}, expected {float(b[first]):.6g}",
        )
    a, b = torch.where(odd, 0.0, a), torch.where(odd, 0.0, b)
    return Apart(_ratio(a, b, mutual))


def _ratio(a: Tensor, b: Tensor, mutual: bool) -> float:
    difference = float((a - b).norm())
    if not difference:
        return 0.0
    scale = max(float(a.norm()), float(b.norm())) if mutual else float(b.norm())
    # Values that cancel to nothing but rounding are as good as zero.
    return difference / max(scale, 1e-30 * math.sqrt(a.numel()))


def near(came: Tensor, reference: Tensor, span: str) -> tuple[Verdict, float]:
    """The verdict of each element by a span's tolerance, of its own size and of the RMS of all;
    and that RMS. Both are on the host; strides do not count.
    """
    tolerance = allowed(span, came.dtype)
    if not tolerance or came.dtype != reference.dtype or came.shape != reference.shape:
        return compare(came, reference, strides=False), 0.0
    parts = torch.view_as_real(reference.resolve_conj()) if came.is_complex() else reference
    wide = parts.double()
    finite = wide.isfinite()
    size = float(wide[finite].square().mean().sqrt()) if bool(finite.any()) else 1.0
    least = tolerance * max(size, 1e-30)
    return compare(came, reference, strides=False, tolerance=(tolerance, least)), size


def number_apart(x: float, y: float) -> float:
    """|x - y| / max(1, |x|); infinite where only one is NaN or infinite."""
    if math.isnan(x) and math.isnan(y):
        return 0.0
    if not (math.isfinite(x) and math.isfinite(y)):
        return 0.0 if x == y else math.inf
    return abs(x - y) / max(1.0, abs(x))
