"""Whether the outcome of a call is the reference's: numbers, shapes, dtypes, strides and aliasing.

The same bits are right at once. Else the CPU's result with the same dtypes decides within twice the
bound; where it does not agree, or for 16-bit floats, the operator is run in float64, and an element
is right if it agrees with either (see numerics).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from causeway import numerics
from causeway.comparison import reference as cpu
from causeway.comparison.snapshot import Dense, Snapshot, flat, same_bits
from causeway.numerics import Misplaced, Verdict
from causeway.numerics.tolerances import Tolerance
from causeway.ops import facts

Mode = Literal["auto", "float64", "same"]


@dataclass(frozen=True)
class Limits:
    """What the user asked for, for all operators."""

    reference: Mode = "auto"
    rtol: float | None = None
    atol: float | None = None


@dataclass
class Judged:
    """The verdict of one value; `how` says what it was held against."""

    verdict: Verdict
    kind: str = "values"  # of what is wrong: values, aliasing, raised
    how: str = "same"


class Judge:
    """Judges one call. `same`: the CPU's outcome; `taken`: the arguments as they were."""

    def __init__(
        self, name: str, taken: Snapshot, same: cpu.Outcome | None, tolerance: Tolerance,
        limits: Limits, *, flushes: bool = False,
    ) -> None:  # fmt: skip
        self.name, self.taken, self.same = name, taken, same
        self.tolerance, self.limits, self.flushes = tolerance, limits, flushes
        self.rule = tolerance.rule or numerics.rule_of(facts.own_names().get(name, name))
        self._exact: list[Any] | None = None
        self._magnitude: list[Any] | None = None
        self._asked = False
        self._meta: list[Any] | None = None
        self._terms = 0

    def number(self, k: int, came: Any, should: Any) -> Judged:
        """Of a value that is no tensor."""
        if isinstance(came, complex) or isinstance(should, complex):
            equal = repr(came) == repr(should)
        else:
            equal = came == should or (came != came and should != should)
        if equal or not self.tolerance.values:
            return Judged(Verdict(elements=1))
        verdict = Verdict("wrong value", "exact", 1, 1, None, repr(came), repr(should))
        return Judged(verdict)

    def tensor(self, k: int, came: Tensor, should: Tensor) -> Judged:
        """Of the k-th tensor of the outcome, both on the host."""
        if came.layout != should.layout or came.is_nested != should.is_nested:
            return Judged(
                Verdict("wrong layout", came=str(came.layout), expected=str(should.layout))
            )
        if came.layout != torch.strided or came.is_nested or came.is_quantized:
            return self._parts(k, came, should)
        came, should = _plain(came), _plain(should)
        strides = came.stride() == should.stride()
        strict = self.limits.reference == "float64" and self.rule != "exact"
        if came.dtype == should.dtype and came.shape == should.shape and strides:
            same = not self.tolerance.values or (not strict and same_bits(came, should))
            if same:
                return Judged(Verdict(rule=self.rule, elements=came.numel()))
        if came.dtype != should.dtype or not strides:
            # torch's kernels for the CPU differ from its meta functions in places; both are right.
            meta = self._meta_of(k)
            if meta is not None and meta.shape == came.shape:
                if meta.dtype == came.dtype != should.dtype:
                    should = should.to(came.dtype)
                strides = strides or meta.stride() == came.stride()
        if not self.tolerance.values:
            return Judged(numerics.same_form(came, should, strides=not strides))
        if k == self.tolerance.places:
            alike = (came.dtype, came.shape) == (should.dtype, should.shape)
            if alike and self._points(came):
                return Judged(Verdict(rule=self.rule, elements=came.numel()), how="places")
        if self.tolerance.magnitudes:
            came, should = came.abs(), should.abs()
        return self._numbers(k, came, should, strides)

    def _numbers(self, k: int, came: Tensor, should: Tensor, strides: bool) -> Judged:
        rtol, atol = self._given()
        mode = self.limits.reference
        floats = came.is_floating_point() or came.is_complex()
        if rtol is not None or atol is not None:
            best = self._best(k, came) if mode != "same" and floats else None
            verdict = numerics.compare(
                came, should, rule="statistics", exact=best, strides=not strides,
                tolerance=(rtol or 0.0, atol or 0.0),
            )  # fmt: skip
            return Judged(verdict, how="same" if best is None else "float64")
        half = floats and came.dtype.itemsize <= 2
        if mode == "same" or not floats or self.rule == "exact" or not (half or mode == "float64"):
            verdict = numerics.compare(
                came, should, rule=self.rule, terms=self._count(), strides=not strides,
                flushes=self.flushes,
            )  # fmt: skip
            ends = verdict.good or verdict.first is None or self.rule == "exact"
            if ends or mode == "same" or not floats:
                return Judged(verdict)
        exact, size = self._best(k, came), self._size(k, came)
        if exact is None:
            if mode == "float64":
                why = "cannot be compared: the CPU has no such result in float64"
                return Judged(Verdict(why, came="the result", expected="a reference"))
            return Judged(
                numerics.compare(
                    came,
                    should,
                    rule=self.rule,
                    terms=self._count(),
                    strides=not strides,
                    flushes=self.flushes,
                )
            )
        if mode == "float64":
            should = exact.to(should.dtype)
        verdict = numerics.compare(
            came, should, rule=self.rule, exact=exact, terms=self._count(), magnitude=size,
            strides=not strides, flushes=self.flushes,
        )  # fmt: skip
        return Judged(verdict, how="float64")

    def _given(self) -> tuple[float | None, float | None]:
        if self.limits.rtol is not None or self.limits.atol is not None:
            return self.limits.rtol, self.limits.atol
        return self.tolerance.rtol, self.tolerance.atol

    def _count(self) -> int:
        if not self._terms:
            results = self.same.values() if self.same else []
            self._terms = cpu.terms(self.name, self.taken, results)
        return self._terms

    def _ask(self) -> None:
        if self._asked:
            return
        self._asked = True
        like = self.same.values() if self.same is not None else []
        nested = cpu.exact(self.name, self.taken, like)
        if nested is not None:
            self._exact = list(flat(nested))
            self._magnitude = cpu.magnitude(self.name, self.taken, like, nested)

    def _best(self, k: int, came: Tensor) -> Tensor | None:
        self._ask()
        best = self._exact[k] if self._exact and k < len(self._exact) else None
        if not isinstance(best, Tensor) or best.shape != came.shape:
            return None
        best = _plain(best)
        if came.is_complex() != best.is_complex():
            return None
        return best.abs() if self.tolerance.magnitudes else best

    def _size(self, k: int, came: Tensor) -> Tensor | None:
        self._ask()
        size = self._magnitude[k] if self._magnitude and k < len(self._magnitude) else None
        return size if isinstance(size, Tensor) and size.shape == came.shape else None

    def _meta_of(self, k: int) -> Tensor | None:
        if self._meta is None:
            self._meta = cpu.meta(self.name, self.taken)
        found = self._meta[k] if k < len(self._meta) else None
        return found if isinstance(found, Tensor) else None

    def _points(self, places: Tensor) -> bool:
        """Whether what `places` point at is the CPU's result 0."""
        assert self.same is not None
        built = self.taken.build(writable=False).values
        arguments = cpu.shape_of(self.name).op._schema.arguments
        named = dict(zip([a.name for a in arguments], built, strict=True))
        source, dim = built[0], named.get("dim", -1)
        first = next(iter(flat(self.same.values())))
        if named.get("stable") is True:
            return False
        if not isinstance(source, Tensor) or not isinstance(first, Tensor) or source.ndim == 0:
            return False
        if places.numel() == 0:
            return True
        try:
            found = numerics.standing(source, places, dim)
        except Misplaced:
            return False
        a, b = _plain(found.reshape(first.shape)), _plain(first)
        return same_bits(a.contiguous(), b.contiguous())

    def _parts(self, k: int, came: Tensor, should: Tensor) -> Judged:
        """Sparse, nested and quantized tensors, by the dense tensors that they are made of."""
        if not self.tolerance.values:
            return Judged(Verdict())
        if came.shape != should.shape if not came.is_nested else came.dim() != should.dim():
            return Judged(
                Verdict("wrong shape", came=str(list(came.shape)), expected=str(list(should.shape)))
            )
        ours, theirs = _parts(came), _parts(should)
        if len(ours) != len(theirs):
            return Judged(
                Verdict("wrong number of parts", came=str(len(ours)), expected=str(len(theirs)))
            )
        worst = Judged(Verdict(rule=self.rule))
        for a, b in zip(ours, theirs, strict=True):
            if same_bits(_plain(a).contiguous(), _plain(b).contiguous()) and a.dtype == b.dtype:
                verdict = Verdict(rule=self.rule, elements=a.numel())
            else:
                verdict = numerics.compare(
                    _plain(a), _plain(b), rule=self.rule, terms=self._count(), strides=False,
                    flushes=self.flushes,
                )  # fmt: skip
            if not verdict.good:
                return Judged(verdict)
            worst = Judged(
                replace(verdict, elements=worst.verdict.elements + verdict.elements)
                if verdict.max_abs >= worst.verdict.max_abs else worst.verdict
            )  # fmt: skip
        return worst


def aliasing(
    results: Snapshot, taken: Snapshot, outcome: cpu.Outcome, declared: list[bool]
) -> tuple[int, str] | None:
    """(index of the result, words) of the first result that shares memory otherwise than on the
    CPU.
    """
    for k, (spec, should) in enumerate(zip(results.spec, outcome.results, strict=False)):
        for ours, theirs in zip(flat(spec), flat(should), strict=False):
            if not isinstance(ours, Dense) or not isinstance(theirs, Tensor):
                continue
            if theirs.layout != torch.strided or theirs.numel() == 0 or theirs.is_quantized:
                continue
            here = ours.key if ours.key in taken.pieces else None
            there = outcome.built.origin.get(theirs.untyped_storage()._cdata)
            if here is not None and there is None:
                return k, "shares memory with an argument"
            if here is None and there is not None and declared[k]:
                return k, "does not share memory with the argument that it is a view of"
            if here is not None and there is not None and here != there:
                return k, "shares memory with another argument than it should"
            if here is not None and declared[k] and ours.dtype == theirs.dtype:
                piece = taken.pieces[here]
                offset = ours.offset - piece.begin // ours.dtype.itemsize
                base = outcome.built.start(here) // ours.dtype.itemsize
                if theirs.storage_offset() - base != offset:
                    right = ours.offset - offset + theirs.storage_offset() - base
                    return k, f"starts at element {ours.offset} of its storage, not at {right}"
    return None


def _plain(t: Tensor) -> Tensor:
    return t.detach().resolve_conj().resolve_neg()


def _parts(t: Tensor) -> list[Tensor]:
    if t.is_nested:
        return list(t.unbind())
    if t.is_quantized:
        return [t.int_repr()]
    if t.layout == torch.sparse_coo:
        t = t.coalesce()
        return [t._indices(), t._values()]
    if t.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [t.crow_indices(), t.col_indices(), t.values()]
    if t.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [t.ccol_indices(), t.row_indices(), t.values()]
    return [t.to_dense()]
