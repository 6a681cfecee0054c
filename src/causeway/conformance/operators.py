"""Each operator that the vendor offers, against the CPU.

A case is a call in one form (functional, in-place, out=) with one variation. It is run on the CPU,
in float64 where that changes only rounding, and on the device between guards; compared are values,
dtype, shape, strides, what was left alone, and by the ledger that the vendor's kernel served it.
"""

from __future__ import annotations

import contextlib
import functools
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import zip_longest
from typing import Any, TypeVar

import torch
from torch import Tensor

from causeway import code, numerics
from causeway.conformance import variations
from causeway.conformance.direct import Declined, Direct
from causeway.conformance.dtypes import is_stored
from causeway.conformance.families import Family, family
from causeway.conformance.given import Given
from causeway.conformance.harvest import (
    HarvestedCall,
    harvest,
    map_tensors,
    sweep,
    tensors_in,
    want,
)
from causeway.conformance.known import Known
from causeway.conformance.placement import Placement, dirty_cache, poisoned
from causeway.conformance.randoms import random_cases
from causeway.conformance.reference import (
    DENSE,
    Case,
    Inputs,
    Reference,
    References,
    Wrong,
    WrongValues,
    beside,
    call,
    copies,
    judge,
    overlaps,
    written,
)
from causeway.conformance.table import TableError
from causeway.device.properties import get_device_properties
from causeway.errors import UnsupportedDtypeError
from causeway.numerics import Refused
from causeway.observe.arguments import overload
from causeway.state import state
from causeway.vendor import Settings

# Rungs on which the kernel that is examined runs: the vendor's, or Causeway's own.
OURS, PORTABLE = ("native", "derived"), ("portable",)
Made = TypeVar("Made")
LOWER = ("native", "derived", "decomposed", "portable", "host")
VARIED = 2  # calls of an operator and dtype that are varied
ON_A_STREAM = "on a stream"
ALONE = "alone"  # no rung: the kernel without the core, which does not call it
TOLD = 5  # failures of an operator and dtype that are told in full


@dataclass
class Failure:
    case: str
    form: str
    variation: str
    call: str
    why: str


@dataclass
class Cell:
    """An operator with a dtype. Calls that another rung served count as declined, and those whose
    values differ as the vendor documents as known.
    """

    offered: bool = True
    rungs: dict[str, int] = field(default_factory=dict)
    passed: int = 0
    failed: int = 0
    declined: int = 0
    known: int = 0
    failures: list[Failure] = field(default_factory=list)
    differences: list[Failure] = field(default_factory=list)  # some of those that are known
    worst: float = 0.0  # the largest error, as a share of what is allowed


@dataclass
class Result:
    """What came of an operator. `ratio`: time of a call against that of the host rung."""

    operator: str
    needs: int
    rule: str
    forms: list[str]
    cells: dict[str, Cell] = field(default_factory=dict)
    ratio: float | None = None
    broken: str = ""
    ours: tuple[str, ...] = OURS

    @property
    def tested(self) -> bool:
        """Whether the vendor's kernel served at least one case."""
        return any(
            cell.rungs.get(rung, 0)
            for cell in self.cells.values()
            for rung in (*self.ours, ALONE)
            if cell.offered
        )

    @property
    def failed(self) -> bool:
        return any(cell.failed for cell in self.cells.values())

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"tested": self.tested}


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


# --- the device -----------------------------------------------------------------------------------


class Runner:
    """Runs cases of one operator on the device."""

    def __init__(self, device: torch.device, ours: tuple[str, ...] = OURS) -> None:
        self.device = device
        self.flushes = code.flushes(device)
        self.ours = ours
        self._counts: dict[tuple[str, str], int] = {}
        self.rung()

    def rung(self, form: str = "", family: Family | None = None) -> str:
        """The rung that served `form` since the last question, or "". Where torch makes a form of
        another of the family (relu.out of relu), that one's.
        """
        from causeway import _C

        counts: dict[tuple[str, str], int] = {}
        for operator, rung, _, calls, *_ in _C.ledger_read():
            counts[operator, rung] = counts.get((operator, rung), 0) + calls
        before, self._counts = self._counts, counts
        new = [key for key, n in counts.items() if n > before.get(key, 0)]
        served = [rung for operator, rung in new if operator == form]
        if not served and family is not None:
            names = {name for _, name in family.forms}
            served = [rung for operator, rung in new if operator in names]
        # One call, one rung; were there several, the least of them is what counts.
        order = [*self.ours, *(rung for rung in LOWER if rung not in self.ours)]
        return max(served, key=order.index) if served else ""

    def run(self, case: Case, reference: Reference) -> tuple[str, float]:
        """The rung that served the case, and its largest error as a share of the bound."""
        placement = Placement(self.device)
        originals = copies(case.inputs)
        roles = iter(range(1000))
        inputs = map_tensors(originals, lambda t: placement.put(t, f"input {next(roles)}"))
        outs: list[Tensor] | None = None
        for changed in beside(case.form, originals):
            placement.writes(changed)
        if case.kind == "in-place":
            # What is written without being a result, GradScaler's count of steps, does not grow.
            for changed, becomes in zip_longest(written(case.form, originals), reference.results):
                grows = becomes is not None and changed.shape != becomes.shape  # addbmm_
                placement.writes(changed, becomes.numel() if grows else 0)
        elif case.kind == "out":
            outs = []
            for k in range(len(overload(case.form)._schema.returns)):
                like = reference.results[k].to(reference.dtype(k))
                given = self._output(case, like, originals, k)
                outs.append(placement.put(given, f"output {k}"))
                placement.writes(given)
        else:
            dirty_cache(self.device)
        torch.accelerator.synchronize(self.device)
        self.rung()
        try:
            results = call(case.form, inputs, outs)
            torch.accelerator.synchronize(self.device)
        except UnsupportedDtypeError:
            raise
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            words = str(error).splitlines()[0]
            if case.kind == "out" and words == self._words_of_cpu(case, reference, originals):
                return "host", 0.0  # which refuses as ever
            raise Wrong(f"raised {type(error).__name__}: {words}") from error
        rung = self.rung(case.form, case.family)
        if rung == "host" and numerics.base_name(case.family.reference) in DENSE:
            return rung, 0.0  # the CPU's kernel again
        worst = judge(results, reference, strides=outs is None, flushes=self.flushes)
        if outs is not None:
            for given, result in zip(outs, results, strict=False):
                if given.data_ptr() != result.data_ptr():
                    raise Wrong("the result is not the tensor that was given as out")
        if words := placement.damage():
            raise Wrong(words)
        return rung, worst

    def _words_of_cpu(self, case: Case, reference: Reference, originals: Inputs) -> str | None:
        """What the CPU says to such outputs, where it refuses them: its reference had none."""
        outs = [
            self._output(case, result.to(reference.dtype(k)), originals, k)
            for k, result in enumerate(reference.results)
        ]
        try:
            call(case.form, copies(case.inputs), outs)
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            return str(error).splitlines()[0]
        return None

    def _output(self, case: Case, like: Tensor, originals: Inputs, k: int) -> Tensor:
        if case.out == "input" and k == 0:
            return next(tensors_in(originals))
        shape, dense = tuple(like.shape), list(like.stride())
        if case.out == "sliced":
            return poisoned(shape, tuple(3 * s for s in dense), like.dtype)
        if case.out == "transposed" and like.ndim >= 2:
            back = like.transpose(-1, -2).contiguous().transpose(-1, -2)
            return poisoned(shape, back.stride(), like.dtype)
        if case.out == "channels last" and like.ndim >= 3:
            return poisoned(shape, variations.images(like).stride(), like.dtype)
        return poisoned(shape, tuple(dense), like.dtype)

    def run_on_stream(self, case: Case, reference: Reference) -> tuple[str, float]:
        """The call right behind much other work on a stream of its own, nothing waiting for it."""
        there = map_tensors(copies(case.inputs), lambda t: t.to(self.device))
        late = map_tensors(
            copies(case.inputs),
            lambda t: poisoned(tuple(t.shape), t.contiguous().stride(), t.dtype).to(self.device),
        )
        big = torch.zeros(1 << 22, device=self.device)
        other = torch.zeros_like(big)
        torch.accelerator.synchronize(self.device)
        stream = torch.Stream(self.device)
        self.rung()
        try:
            with stream:
                for _ in range(3):
                    other.copy_(big)
                for a, b in zip(tensors_in(late), tensors_in(there), strict=True):
                    a.copy_(b)
                results = call(case.form, late)
                found = [t.cpu() for t in results]
            torch.accelerator.synchronize(self.device)
        except UnsupportedDtypeError:
            raise
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            raise Wrong(f"raised {type(error).__name__}: {str(error).splitlines()[0]}") from error
        worst = judge(found, reference, strides=False, flushes=self.flushes)
        return self.rung(case.form, case.family), worst


# --- cases ----------------------------------------------------------------------------------------


def cases(
    family: Family, dtype: torch.dtype, calls: list[HarvestedCall], *, varied: bool = True,
    served: Callable[[str], bool] | None = None,
) -> Iterator[Case]:  # fmt: skip
    """All cases of an operator and dtype; `varied`: not only the calls as they are.

    Calls whose source is `served` are varied before others: the kernel declines what it has no
    options for. Without it all are, since another run may have varied any of them.
    """

    def each(at: HarvestedCall, variation: str, inputs: Inputs) -> Iterator[Case]:
        for kind, form in family.forms:
            twice = variation == "same tensor twice"
            if kind == "in-place":
                if twice and not variations.pointwise(family):
                    continue  # undefined where an element reads more than itself
                if overlaps(next(tensors_in(inputs))):
                    continue  # undefined where two elements are one
            yield Case(family, dtype, kind, form, at.source, variation, inputs,
                       tolerance=at.tolerance)  # fmt: skip

    for at in calls:
        yield from each(at, "as it is", at.inputs)
        if any(t.numel() > 1 for t in tensors_in(at.inputs)):
            for kind, form in family.forms:
                if kind == "functional":
                    yield Case(family, dtype, kind, form, at.source, ON_A_STREAM, at.inputs,
                               tolerance=at.tolerance)  # fmt: skip
    if not varied:
        return
    worthy = sorted(calls, key=_worth, reverse=True)
    if served is not None:
        worthy.sort(key=lambda at: not served(at.source))
    ranks: set[tuple[int, ...]] = set()
    for number, at in enumerate(worthy[:VARIED] if served else worthy):
        rank = tuple(t.ndim for t in tensors_in(at.inputs))
        anew = rank not in ranks or served is None
        ranks.add(rank)
        for name, inputs in _tried(variations.variations(family, at.inputs, dtype, layouts=anew)):
            yield from each(at, name, inputs)
        if number == 0 or served is None:
            for name, inputs in _tried(variations.huge(family, at.inputs, dtype)):
                yield from each(at, name, inputs)
        for kind, form in family.forms:
            if kind != "out":
                continue
            layouts = ["sliced", "transposed"]
            if variations.pointwise(family):
                layouts.append("input")  # dropped where the result has another dtype or shape
            for out in layouts:
                yield Case(family, dtype, kind, form, at.source, f"out {out}", at.inputs, out)
    for group in [worthy] if served else [[at] for at in worthy]:
        found = variations.many_dims(family, [at.inputs for at in group], dtype)
        for k, name, inputs in _tried(found):
            yield from each(group[k], name, inputs)
            if " " in name:
                continue
            for kind, form in family.forms:
                if kind == "out":
                    out = "channels last"
                    yield Case(family, dtype, kind, form, group[k].source, f"{name}, out {out}",
                               inputs, out)  # fmt: skip


def _tried(found: Iterator[Made]) -> Iterator[Made]:
    """The variations up to the first that cannot even be made."""
    try:
        yield from found
    except (RuntimeError, IndexError):
        return


def _worth(at: HarvestedCall) -> tuple[int, int]:
    """Calls with several dimensions and some elements are worth varying."""
    tensors = list(tensors_in(at.inputs))
    if not tensors:
        return 0, 0
    first = tensors[0]
    small = 2 <= first.numel() <= 4096
    return (min(first.ndim, 3) if small else 0), min(len(tensors), 3)


# --- an operator ----------------------------------------------------------------------------------


class Examiner:
    """Examines operators one after another; `tell` is called with each case before it is run."""

    def __init__(
        self, device: torch.device, offered: dict[str, dict[str, Any]],
        dtypes: list[torch.dtype], tell: Callable[[str], None] = lambda text: None,
        given: Given | None = None, ours: tuple[str, ...] = OURS, known: Sequence[Known] = (),
    ) -> None:  # fmt: skip
        self.given = given  # calls of a user's program, in place of torch's samples
        self.known = {(each.op, each.variation) for each in known}
        self.ours = ours
        self.device = device
        self.offered = offered
        self.dtypes = dtypes
        self.tell = tell
        self.families = {name: family(name, frozenset(offered)) for name in offered}
        self.runner = Runner(device, ours)
        self.references = References()
        want(self.families.values())
        self._direct: Direct | None = None

    def direct(self) -> Direct:
        if self._direct is None:
            assert state.library is not None
            self._direct = Direct(state.library, Settings(state.vendor or ""))
        return self._direct

    def examine(
        self, name: str, dtype: re.Pattern[str] | None = None, case: str | None = None
    ) -> Result:
        """All cases of operator `name`, or those of a dtype, or the one with an ID."""
        found = self.families[name]
        info = self.offered[name]
        forms = [form for _, form in found.forms]
        result = Result(name, info["needs"], numerics.rule_of(name), forms, ours=self.ours)
        best: Case | None = None
        for each in self.dtypes:
            if dtype and not dtype.fullmatch(dtype_name(each)):
                continue
            offered = each in info["dtypes"]
            cell = Cell(offered)
            if found.random and self.given is None:
                drawn = offered and not is_stored(each)
                for title, test in random_cases(found, each, self.device) if drawn else ():
                    self._count(cell, case, title, found, each, test)
            else:
                last = self._examine_dtype(cell, found, each, case)
                if offered and last and (best is None or each == torch.float32):
                    best = last
            # Offered with all dtypes of the device, and of some torch's CPU has no kernel.
            asked = offered and not is_stored(each)
            if cell.passed or cell.failed or cell.declined or cell.known or asked:
                result.cells[dtype_name(each)] = cell
        if self.ours == OURS and not result.tested and not result.failed:
            self._alone(result, found, dtype, case)
        if best is not None and case is None:
            result.ratio = self._time(best)
        return result

    def _examine_dtype(
        self, cell: Cell, found: Family, dtype: torch.dtype, only: str | None
    ) -> Case | None:
        if self.given is not None:
            calls = self.given.calls(found, dtype)
        else:
            calls = harvest(found, dtype)
            if not calls and dtype == torch.float32 and cell.offered:
                calls = sweep(found)
        best: Case | None = None
        streamed = False
        served: set[str] = set()  # sources of calls that the kernel took
        asked = served.__contains__ if only is None else None
        for each in cases(found, dtype, calls, varied=self.given is None, served=asked):
            late = each.variation == ON_A_STREAM
            if (only is not None and each.id != only) or (late and (streamed or not cell.offered)):
                continue
            if not cell.offered and (cell.passed or cell.failed or cell.declined):
                break  # which rung serves it is all there is to know
            self.tell(f"{each.id} {each.title} {each.variation}")  # the CPU may crash too
            try:
                reference = self.references.of(each)
            except Refused:
                continue
            run = self.runner.run_on_stream if late else self.runner.run
            streamed = streamed or late
            if self._run(cell, each, functools.partial(run, each, reference)):
                served.add(each.source)
            if each.kind == "functional" and (best is None or each.variation == "huge"):
                best = each
        return best

    def _alone(
        self, result: Result, found: Family, dtype: re.Pattern[str] | None, only: str | None
    ) -> None:
        """The kernel without the core, where no case of the others reached it."""
        direct = self.direct()
        for each in self.dtypes:
            cell = result.cells.get(dtype_name(each), Cell())
            if (dtype and not dtype.fullmatch(dtype_name(each))) or not cell.offered:
                continue
            kind, form = "functional", found.reference
            given = self.given
            calls = harvest(found, each) if given is None else given.calls(found, each)
            served = (lambda source: True) if only is None else None
            for first in cases(found, each, calls, varied=given is None, served=served):
                if (first.kind, first.form, first.out) not in (
                    (kind, form, "plain"),
                    ("out", found.offered, "plain"),
                ) or first.variation == ON_A_STREAM:
                    continue
                variation = f"{first.variation}, {ALONE}"
                one = Case(**{**vars(first), "kind": "functional", "variation": variation})
                if (only is None or one.id == only) and self._takes(found, one):
                    self.tell(f"{one.id} {one.title} {variation}")
                    with contextlib.suppress(Refused):
                        self._run(cell, one, functools.partial(self._run_alone, direct, one))
            if cell.passed or cell.failed:
                result.cells[dtype_name(each)] = cell

    def _takes(self, found: Family, case: Case) -> bool:
        dtypes = self.offered[found.offered]["dtypes"]
        if any(True for _ in beside(found.reference, case.inputs)):
            return False  # what is given to the kernel alone has no place for it
        return all(t.dtype in dtypes for t in tensors_in(case.inputs))

    def _run_alone(self, direct: Direct, case: Case) -> tuple[str, float]:
        reference = self.references.of(case)
        needs = self.offered[case.family.offered]["needs"]
        try:
            results, damage = direct.run(
                case.family, needs, copies(case.inputs), reference.wanted()
            )
        except Declined:
            return "", 0.0
        except TableError as error:
            raise Wrong(str(error)) from error
        worst = judge(results, reference, strides=False, flushes=self.runner.flushes)
        if damage:
            raise Wrong(damage)
        return ALONE, worst

    def _count(
        self, cell: Cell, only: str | None, title: str, found: Family, dtype: torch.dtype,
        test: Callable[[], None],
    ) -> None:  # fmt: skip
        kind, form = found.forms[0]
        each = Case(found, dtype, kind, form, "random", title, ())
        if only is not None and each.id != only:
            return

        def run() -> tuple[str, float]:
            self.runner.rung()
            try:
                test()
            except AssertionError as error:
                raise Wrong(str(error)) from error
            return self.runner.rung(form), 0.0

        self.tell(f"{each.id} {title}")
        self._run(cell, each, run)

    def _run(self, cell: Cell, case: Case, run: Callable[[], tuple[str, float]]) -> bool:
        """Count a case; whether the kernel that is examined took it."""
        try:
            try:
                rung, worst = run()
            except UnsupportedDtypeError as why:
                if not self._lacks(case):
                    raise Wrong(f"raised {type(why).__name__}: {why}") from why
                rung, worst = "", 0.0  # refused in so many words, as a chip without the dtype does
        except Wrong as why:
            said = (case.family.offered, case.variation.removesuffix(f", {ALONE}")) in self.known
            as_said = said and isinstance(why, WrongValues)
            cell.known += as_said
            cell.failed += not as_said
            told = cell.differences if as_said else cell.failures
            if len(told) < TOLD:
                told.append(Failure(case.id, case.kind, case.variation, case.title, str(why)))
            return True
        if rung:
            cell.rungs[rung] = cell.rungs.get(rung, 0) + 1
        if rung in (*self.ours, ALONE):
            cell.passed += 1
            cell.worst = max(cell.worst, worst)
            return True
        cell.declined += 1
        return False

    def _lacks(self, case: Case) -> bool:
        """Whether the call asks for a dtype that the chip does not have."""
        has = get_device_properties(self.runner.device).dtypes
        asked = {t.dtype for t in tensors_in(case.inputs)}
        asked |= {value for value in case.inputs if isinstance(value, torch.dtype)}
        return not asked <= has

    def _time(self, case: Case) -> float | None:
        """Time of the call against that of the host rung; None where one of the two fails."""
        from causeway import _C

        there = map_tensors(copies(case.inputs), lambda t: t.to(self.device))

        def best() -> float:
            times = []
            for _ in range(5):
                torch.accelerator.synchronize(self.device)
                start = time.perf_counter()
                call(case.form, there)
                torch.accelerator.synchronize(self.device)
                times.append(time.perf_counter() - start)
            return min(times[1:])

        try:
            ours = best()
            _C.set_forced([case.form])
            return round(ours / best(), 3)
        except RuntimeError:
            return None
        finally:
            _C.set_forced([])
