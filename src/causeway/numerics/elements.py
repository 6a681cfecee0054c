"""One operator's result against its reference, element by element: nothing wrong is let pass.

A result is right where each element agrees with the reference; no share of wrong elements is
allowed. The reference is the CPU's result, and beside it, for floats below float64, the same
operator in float64: an element that agrees with either is right, since the CPU rounds too. How
close is close follows from `rules`, or from a tolerance that somebody gave.

NaN and infinity have places of their own and count as elements; -0 equals 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from causeway.numerics.rules import RULES, ToleranceRule, accumulator, growth, unit


@dataclass(frozen=True)
class Verdict:
    """What a comparison found. `why` is "" where the result is right."""

    why: str = ""
    rule: str = "exact"
    wrong: int = 0
    elements: int = 0
    first: tuple[int, ...] | None = None  # index of the first wrong element
    came: str = ""  # that element, or the property that differs
    expected: str = ""
    max_abs: float = 0.0  # over all finite elements, right or wrong
    max_rel: float = 0.0
    max_ulp: float = 0.0
    worst: float = 0.0  # the largest error, as a share of what is allowed
    diff1: float = (
        0.0  # mean relative error: sum |a - b| / sum |b|, over finite elements as all of these
    )
    diff2: float = 0.0  # RMS ratio: sqrt(sum (a - b)^2 / sum b^2)
    cosine: float = 1.0  # of the angle between the two as vectors

    @property
    def good(self) -> bool:
        return not self.why

    def __str__(self) -> str:
        if self.good:
            return f"right: {self.elements} elements, at most {self.max_ulp:.3g} ulp off"
        if self.first is None:
            return f"{self.why}: expected {self.expected}, came {self.came}"
        return (
            f"{self.why}: {self.wrong} of {self.elements} elements, the first at "
            f"{list(self.first)}: expected {self.expected}, came {self.came}; at most "
            f"{self.max_abs:.3g} off, {self.max_ulp:.3g} ulp ({RULES[self.rule].name})"
        )


def compare(
    came: Tensor,
    reference: Tensor,
    *,
    rule: str = "exact",
    exact: Tensor | None = None,
    terms: int = 1,
    magnitude: Tensor | None = None,
    strides: bool = True,
    tolerance: tuple[float, float] | None = None,
    flushes: bool = False,
) -> Verdict:
    """Whether `came` is `reference`, the CPU's result; all are CPU tensors.

    `exact` is the result in float64, `terms` the number of terms of an element, `magnitude` the sum
    of their absolute values (where it is None: |exact|, and for statistics its largest element).
    `strides`: whether the layout counts. `tolerance` is (rtol, atol) in place of the rule's bound:
    |came - right| <= atol + rtol * |right|, where right is `exact`, or else `reference`.
    `flushes`: the chip says that its arithmetic may take subnormal numbers of float32 for 0, so
    each term, and the result, may have lost one. What is only moved or compared may not.
    """
    form = same_form(came, reference, rule, strides=strides)
    if not form.good:
        return form
    if came.numel() == 0:
        return Verdict(rule=rule)
    if came.dtype.is_complex:
        parts = [torch.view_as_real(t.resolve_conj()) for t in (came, reference)]
        exact = None if exact is None else torch.view_as_real(exact.resolve_conj())
        if magnitude is not None:
            magnitude = magnitude.abs().unsqueeze(-1)
        return compare(
            *parts, rule=rule, exact=exact, terms=terms, magnitude=magnitude, strides=False,
            tolerance=tolerance, flushes=flushes,
        )  # fmt: skip
    if not came.dtype.is_floating_point:
        return verdict(came, reference, came == reference, "exact", reference)
    dtype = came.dtype
    if dtype.itemsize == 1:  # the 8-bit floats cannot be compared as they are
        came, reference = came.float(), reference.float()
    if tolerance is not None:
        best = reference.double() if exact is None else exact.double()
        right = _within(came, best, tolerance[1] + tolerance[0] * best.abs())
        if exact is not None:
            right |= _overflows(came, exact, dtype)
        return verdict(came, reference, right, rule, best)
    if rule == "exact":
        return verdict(came, reference, _equal(came, reference), rule, reference)
    # Against float64 the bound is one error wide; between two rounded results it is two.
    best = reference.double() if exact is None else exact.double()
    bound = _bound(dtype, best, RULES[rule], terms, magnitude)
    if flushes and dtype in (torch.float32, torch.bfloat16):  # both have float32's exponents
        bound = bound + (1 + terms) * torch.finfo(torch.float32).smallest_normal
    wide = bound * (2 if exact is None else 1)
    right = _within(came, reference, wide)
    if exact is not None and exact.shape == came.shape:
        right |= _within(came, exact.double(), bound)
        right |= _overflows(came, exact, dtype)
    error = torch.minimum(*((came.double() - t.double()).abs().nan_to_num(0.0, 0.0, 0.0)
                            for t in (reference, best)))  # fmt: skip
    worst = float((error / wide).clamp(max=1).max())
    return replace(verdict(came, reference, right, rule, best), worst=worst)


def same_form(
    came: Tensor, reference: Tensor, rule: str = "exact", *, strides: bool = True
) -> Verdict:
    """Whether dtype, shape and, if they count, strides are the reference's."""
    for what, a, b in (
        ("dtype", came.dtype, reference.dtype),
        ("shape", list(came.shape), list(reference.shape)),
    ):
        if a != b:
            return Verdict(f"wrong {what}", rule, came=str(a), expected=str(b))
    if strides and steps(came) != steps(reference):
        was, should = list(came.stride()), list(reference.stride())
        return Verdict("wrong strides", rule, came=str(was), expected=str(should))
    return Verdict(rule=rule, elements=came.numel())


def steps(t: Tensor) -> list[int]:
    """Strides that mean something: those of dimensions with more than one element."""
    if t.numel() == 0:
        return []
    return [s for n, s in zip(t.shape, t.stride(), strict=True) if n > 1]


def _equal(a: Tensor, b: Tensor) -> Tensor:
    return (a == b) | (a.isnan() & b.isnan())


def _overflows(came: Tensor, exact: Tensor, dtype: torch.dtype) -> Tensor:
    """Where a result is infinite because `exact` is beyond its dtype: float64 goes on."""
    there = exact.to(dtype).to(came.dtype)
    return there.isinf() & (came == there)


def _bound(
    dtype: torch.dtype, best: Tensor, rule: ToleranceRule, terms: int, magnitude: Tensor | None
) -> Tensor:
    size = best.abs().nan_to_num(0.0, 0.0, 0.0)
    scale = size
    if magnitude is not None:
        scale = torch.maximum(size, magnitude.double().abs().nan_to_num(0.0, 0.0, 0.0))
    elif rule.name in ("statistics", "deviation"):
        scale = size.max().expand_as(size)
    wide = unit(accumulator(dtype))
    adds = growth(terms) + (4 if rule.grows else 0)
    if rule.name == "smooth":
        adds = rule.ulps
    # The result may be subnormal: its spacing is then fixed.
    least = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
    if rule.roots:
        least = max(least, math.sqrt(torch.finfo(accumulator(dtype)).smallest_normal))
    bound = rule.ulps * unit(dtype) * size + least
    return bound + adds * wide * scale if rule.grows else bound


def _within(came: Tensor, other: Tensor, bound: Tensor) -> Tensor:
    finite = came.isfinite() & other.isfinite()
    difference = (came.double() - other.double()).abs()
    return torch.where(finite, difference <= bound, _equal(came.double(), other.double()))


def verdict(came: Tensor, reference: Tensor, right: Tensor, rule: str, best: Tensor) -> Verdict:
    """The verdict where `right` says which elements are, and errors are against `best`."""
    n = came.numel()
    max_abs = max_rel = max_ulp = diff1 = diff2 = 0.0
    cosine = 1.0
    if came.dtype != torch.bool:
        a, b = came.double(), best.double()
        both = a.isfinite() & b.isfinite()
        difference = torch.where(both, (a - b).abs(), 0.0)
        max_abs = difference.max().item()
        size = b.abs()
        max_rel = torch.where(both & (size > 0), difference / size, 0.0).max().item()
        if came.dtype.is_floating_point:
            max_ulp = torch.where(both, difference / spacing(b, came.dtype), 0.0).max().item()
        diff1, diff2, cosine = _distances(a, b, both, difference)
    if bool(right.all()):
        return Verdict(
            "", rule, 0, n, None, "", "", max_abs, max_rel, max_ulp, 0.0, diff1, diff2, cosine
        )
    first = tuple((~right).nonzero()[0].tolist())
    return Verdict(
        "wrong values",
        rule,
        int((~right).sum()),
        n,
        first,
        repr(came[first].item()),
        repr(reference[first].item()),
        max_abs,
        max_rel,
        max_ulp,
        0.0,
        diff1,
        diff2,
        cosine,
    )


def _distances(
    a: Tensor, b: Tensor, both: Tensor, difference: Tensor
) -> tuple[float, float, float]:
    """diff1, diff2 and cosine of two tensors in float64. 0, 0, 1 where they are the same; infinity
    for a ratio to nothing.
    """
    if not bool(difference.any()):
        return 0.0, 0.0, 1.0
    a, b = (torch.where(both, t, 0.0).flatten() for t in (a, b))
    # Scaled, so that squares neither overflow nor vanish.
    scale = max(a.abs().max().item(), b.abs().max().item()) or 1.0
    a, b, difference = a / scale, b / scale, difference.flatten() / scale
    size, square = b.abs().sum().item(), b.dot(b).item()
    error = difference.dot(difference).item()
    diff1 = difference.sum().item() / size if size else math.inf
    diff2 = math.sqrt(error / square) if square else math.inf
    lengths = math.sqrt(square * a.dot(a).item())
    return diff1, diff2, a.dot(b).item() / lengths if lengths else 0.0


def spacing(x: Tensor, dtype: torch.dtype) -> Tensor:
    """The distance between numbers of `dtype` around `x`, an ulp: J.-M. Muller, On the definition
    of ulp(x), INRIA RR-5504 (2005). Below the normal numbers it is that of the smallest.
    """
    info = torch.finfo(dtype)
    _, exponent = torch.frexp(x.double().abs().clamp(min=info.smallest_normal))
    return torch.ldexp(torch.full_like(x, info.eps, dtype=torch.float64), exponent - 1)
