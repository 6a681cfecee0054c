"""Two traces, call by call: where do two machines part?

Calls are matched (`align`), then what they left is compared by the best that both traces have: the
values, else their hash, else statistics. Rounding adds up along a program, so the measure is the
size of the difference against the size of the values, with a tolerance by dtype, and not the bound
of a single operator. Beside it stands how far the inputs differ already: a call whose inputs agree
and whose results do not is where the divergence arises.

Sums that cancel leave nothing but rounding, on both machines (the gradient of a bias before a batch
norm). Such a result may differ by what its terms are rounded by; what follows from it, and from
random numbers, is counted, and no divergence, unless it is ten times further apart than the noise
that it was made of.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from causeway import numerics
from causeway.observe.arguments import overload, tensors_in
from causeway.trace import align
from causeway.trace.reader import Trace
from causeway.trace.tensors import DTYPES, TensorRecord
from causeway.trace.trace import RecordedCall

WORST = 20  # rows of the table
RANDOM = "random"


@dataclass(frozen=True)
class Distance:
    """How far two tensors are apart: `size` relative to the values. `how` says what was compared:
    "values", "hash", "statistics", or "" where there was nothing to compare.
    """

    size: float = 0.0
    how: str = ""
    why: str = ""  # words, where more than the size is wrong
    allowed: float = math.inf
    noise: float = 0.0  # what rounding explains, relative to the values too

    @property
    def good(self) -> bool:
        return not self.why and (self.size <= self.allowed or self.size <= self.noise)


@dataclass
class MatchedCall:
    """A matched call: the worst of its outputs, and the worst of its inputs."""

    a: RecordedCall
    b: RecordedCall
    result: Distance
    inputs: Distance
    noise: bool = False  # beyond tolerance, but no more than the noise that it was made of

    @property
    def arises(self) -> bool:
        """Whether the inputs still agreed, or were apart a tenth of what the results are."""
        return not self.inputs.why and self.inputs.size <= self.result.size / 10

    def __str__(self) -> str:
        size = self.result.why or f"{self.result.size:.2g} apart ({self.result.how})"
        before = "not known" if not self.inputs.how else f"{self.inputs.size:.2g} apart"
        return f"{self.a} [{self.a.place}]: {size}; inputs {before}"

    def to_dict(self) -> dict[str, Any]:
        return {
            "operator": [self.a.operator, self.b.operator],
            "sequence": [self.a.sequence, self.b.sequence],
            "call": str(self.a),
            "module": self.a.module,
            "phase": self.a.phase,
            "step": self.a.step,
            "apart": _number(self.result.size),
            "allowed": _number(self.result.allowed),
            "compared": self.result.how,
            "why": self.result.why,
            "inputs_apart": _number(self.inputs.size) if self.inputs.how else None,
            "arises_here": self.arises,
        }


def _number(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)


@dataclass
class Difference:
    """What two traces differ in. `same` is False for any difference that counts."""

    a: Trace
    b: Trace
    rows: list[MatchedCall] = field(default_factory=list)
    only_a: list[RecordedCall] = field(default_factory=list)
    only_b: list[RecordedCall] = field(default_factory=list)
    split: list[tuple[list[RecordedCall], list[RecordedCall]]] = field(default_factory=list)
    random: int = 0
    unknown: int = 0  # matched, but neither values nor statistics were kept
    filled: int = 0

    @property
    def wrong(self) -> list[MatchedCall]:
        return [row for row in self.rows if not row.result.good and not row.noise]

    @property
    def first(self) -> MatchedCall | None:
        """The first call that is apart beyond its tolerance."""
        return next(iter(self.wrong), None)

    @property
    def origin(self) -> MatchedCall | None:
        """The first call that is apart beyond its tolerance while its inputs agreed."""
        return next((row for row in self.wrong if row.arises), None)

    @property
    def same(self) -> bool:
        return not (self.wrong or self.only_a or self.only_b)

    def worst(self) -> list[MatchedCall]:
        rows = [row for row in self.rows if (row.result.how or row.result.why) and not row.noise]

        def key(row: MatchedCall) -> tuple[bool, float]:
            allowed = max(row.result.allowed, row.result.noise)
            share = row.result.size / allowed if allowed else row.result.size
            return bool(row.result.why), share if math.isfinite(share) else 0.0

        return sorted(rows, key=key, reverse=True)[:WORST]

    def notes(self) -> list[str]:
        """What a reader must know beside the numbers."""
        said = [f"{t.folder}: {state}" for t in (self.a, self.b) if (state := t.state())]
        if self.random:
            said.append(
                f"{self.random} calls drew other random numbers on the other machine: what follows "
                "from them is not judged (evaluate, or switch dropout off)"
            )
        if self.unknown:
            said.append(f"{self.unknown} matched calls have no values or statistics to compare")
        if noise := sum(row.noise for row in self.rows):
            said.append(
                f"{noise} calls differ no more than what they were made of: random numbers, or "
                "sums that are nothing but rounding"
            )
        if self.filled:
            said.append(f"{self.filled} copies and fills are in one trace only")
        split = Counter(f"{_names(ours)} against {_names(theirs)}" for ours, theirs in self.split)
        for words, times in split.items():
            said.append(f"split differently{f' ({times} times)' if times > 1 else ''}: {words}")
        return said

    def to_json(self) -> str:
        """Everything as JSON."""
        body = {
            "same": self.same,
            "matched": len(self.rows),
            "first": self.first.to_dict() if self.first else None,
            "origin": self.origin.to_dict() if self.origin else None,
            "wrong": [row.to_dict() for row in self.wrong],
            "worst": [row.to_dict() for row in self.worst()],
            "only": {
                "a": [[c.sequence, str(c), c.place] for c in self.only_a],
                "b": [[c.sequence, str(c), c.place] for c in self.only_b],
            },
            "split": [[[str(c) for c in x], [str(c) for c in y]] for x, y in self.split],
            "notes": self.notes(),
        }
        return json.dumps(body, indent=1, allow_nan=False)


def _names(calls: Sequence[RecordedCall]) -> str:
    names = [c.operator.removeprefix("aten::") for c in calls[:6]]
    more = f" and {len(calls) - 6} more" if len(calls) > 6 else ""
    return ", ".join(names) + more


def compare(a: Trace, b: Trace, *, rtol: float | None = None) -> Difference:
    """Compare two traces. `rtol`: in place of the tolerances by dtype. Raises TraceError."""
    found = Difference(a, b)
    ours, theirs = align.unroll(a.calls), align.unroll(b.calls)
    matched = align.align(align.computing(ours, a), align.computing(theirs, b))
    found.split, found.only_a, found.only_b = matched.split, matched.only_a, matched.only_b
    found.filled = matched.filled
    partners = {id(one): other for one, other in matched.pairs}
    # Tensors of the first trace that came of nothing but rounding, and those that came at random.
    noise: set[object] = set()
    chance: set[object] = set()
    for one in ours:
        read = {_identity(r) for r in tensors_in(one.args, TensorRecord)}
        other = partners.get(id(one))
        random = _is_random(one.operator)
        noisy, chancy = bool(read & noise), bool(read & chance)
        if random:
            drawn_alike = other is not None and _alike(one, other)
            found.random += not drawn_alike
            chancy = chancy or not drawn_alike
        elif other is not None:
            row = _row(a, b, one, other, rtol)
            # Statistics of two draws may be alike, which says nothing about what follows.
            blind = chancy and row.result.how == "statistics" and not row.result.why
            row.noise = not row.result.good and (blind or ((noisy or chancy) and not row.arises))
            if not row.result.how and not row.result.why:
                found.unknown += 1
            found.rows.append(row)
            noisy = noisy or (row.result.size > row.result.allowed and row.result.good)
        left = [_identity(r) for r in align.outputs(one)]
        if noisy:
            noise.update(left)
        if chancy:
            chance.update(left)
    return found


def _alike(one: RecordedCall, other: RecordedCall) -> bool:
    """Whether two calls drew the same numbers: they have the same hash, or floats of exactly the
    same statistics. Those of a permutation say nothing.
    """
    pairs = list(zip(align.outputs(one), align.outputs(other), strict=False))
    if all(x.digest and y.digest for x, y in pairs):
        return all(x.digest == y.digest for x, y in pairs)
    floats = [(x, y) for x, y in pairs if DTYPES[x.dtype].is_floating_point]
    return bool(floats) and all(x.statistics == y.statistics for x, y in floats)


def _identity(record: TensorRecord) -> object:
    """The same for a tensor wherever it is seen, as long as nobody writes to it."""
    if record.statistics:
        return record.shape, *sorted(record.statistics.items())
    return record


def _floor(call: RecordedCall, schema: str, dtype: torch.dtype, numel: int) -> float:
    """How far an element of the result is off where all terms cancel: see numerics, with typical
    sizes in place of each term's.
    """
    if numerics.rule_of(call.operator) not in ("reduction", "matmul", "statistics"):
        return 0.0
    sizes, largest = [], 1
    for record in align.inputs(call, schema):
        known = record.statistics or {}
        if "norm" in known:
            sizes.append(known["norm"] / math.sqrt(max(known["count"], 1)))
            largest = max(largest, record.numel)
    sizes.sort(reverse=True)
    terms = max(1, largest // max(numel, 1))
    if not sizes or terms == 1 or not dtype.is_floating_point:
        return 0.0
    size = sizes[0] * max([1.0, *sizes[1:2]])
    return numerics.growth(terms) * numerics.unit(numerics.accumulator(dtype)) * terms * size


def _row(
    a: Trace, b: Trace, one: RecordedCall, other: RecordedCall, rtol: float | None
) -> MatchedCall:
    ours, theirs = align.outputs(one), align.outputs(other)
    if len(ours) != len(theirs):
        why = f"{len(ours)} results against {len(theirs)}"
        return MatchedCall(one, other, Distance(why=why), Distance())
    worst = Distance()
    for x, y in zip(ours, theirs, strict=True):
        floor = _floor(one, a.schemas[one.operator], DTYPES[x.dtype], x.numel)
        distance = _distance(a, b, x, y, rtol, floor)
        if not worst.how or (not distance.good, distance.size) > (not worst.good, worst.size):
            worst = distance
    before = Distance()
    inputs = [align.inputs(c, t.schemas[c.operator]) for t, c in ((a, one), (b, other))]
    if not worst.good and len(inputs[0]) == len(inputs[1]):
        for x, y in zip(*inputs, strict=True):
            distance = _distance(a, b, x, y, rtol)
            if distance.how and (not before.how or distance.size > before.size or distance.why):
                before = distance
    return MatchedCall(one, other, worst, before)


def _is_random(operator: str) -> bool:
    try:
        return torch.Tag.nondeterministic_seeded in overload(operator).tags
    except AttributeError:  # not of this torch
        return "dropout" in operator or "rand" in numerics.base_name(operator)


def _allowed(dtype: torch.dtype, rtol: float | None) -> float:
    usual = numerics.allowed("machines", dtype)
    return usual if rtol is None or not usual else rtol


def _distance(
    a: Trace, b: Trace, x: TensorRecord, y: TensorRecord, rtol: float | None, floor: float = 0.0
) -> Distance:
    found = _plain_distance(a, b, x, y, rtol)
    if floor and not found.good and x.statistics and "norm" in x.statistics:
        size = x.statistics["norm"] / math.sqrt(max(x.numel, 1))
        return replace(found, noise=floor / size if size else math.inf)
    return found


def _plain_distance(
    a: Trace, b: Trace, x: TensorRecord, y: TensorRecord, rtol: float | None
) -> Distance:
    allowed = _allowed(DTYPES[x.dtype], rtol)
    if (x.shape, x.dtype) != (y.shape, y.dtype):
        return Distance(math.inf, "shape and dtype", f"{x} against {y}", allowed)
    if x.digest is not None and x.digest == y.digest:
        return Distance(0.0, "hash", allowed=allowed)
    if a.has(x) and b.has(y):
        return _of_values(a.values(x), b.values(y), allowed)
    if x.statistics and y.statistics:
        found = of_statistics(x.statistics, y.statistics, allowed)
        if x.digest and y.digest and not found.size and not found.why and allowed == 0.0:
            return Distance(math.inf, "hash", "other values, of the same statistics", allowed)
        return found
    return Distance(allowed=allowed)


def _of_values(x: torch.Tensor, y: torch.Tensor, allowed: float) -> Distance:
    found = numerics.apart(x, y, mutual=True)
    beyond = found.why if math.isinf(found.size) else ""
    return Distance(found.size, "values", beyond, allowed)


def of_statistics(x: Mapping[str, float], y: Mapping[str, float], allowed: float) -> Distance:
    for name in ("count", "nan", "inf", "-inf"):
        if x.get(name, 0) != y.get(name, 0):
            why = f"{x.get(name, 0)} {name} against {y.get(name, 0)}"
            return Distance(math.inf, "statistics", why, allowed)
    count = max(x.get("count", 1), 1)
    if "true" in x:
        return Distance(abs(x["true"] - y.get("true", 0)) / count, "statistics", allowed=allowed)
    sizes = [abs(z.get(name, 0.0)) for z in (x, y) for name in ("min", "max")]
    scale = max(sizes, default=0.0)
    if "norm" in x and "norm" in y:
        scale = max(x["norm"], y["norm"]) / math.sqrt(count)
    apart = 0.0
    for name in ("min", "max", "mean", "std"):
        # One element that moved, as a share of all: what a norm over the values would give.
        weight = 1 / math.sqrt(count) if name in ("min", "max") else 1.0
        apart = max(apart, weight * abs(x.get(name, 0.0) - y.get(name, 0.0)))
    return Distance(apart / scale if scale else 0.0, "statistics", allowed=allowed)
