"""Recorded calls once more, on any device, against what was recorded and against the CPU.

A call whose inputs were kept whole is run on them and compared with the results of the trace. Any
other is run on numbers distributed as the recorded statistics say, and compared with the CPU here.
What is right follows from `numerics`, with the operator in float64 beside it: so where a result
differs, it is said which of the two machines is off.

Only operators of aten are run, and none that opens a file: a trace may come from anybody. Arguments
are checked, sizes limited; still, a trace of somebody whom you do not trust is best run where a
crash of torch does no harm.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from causeway import numerics
from causeway.comparison import reference
from causeway.comparison.snapshot import Snapshot, flat
from causeway.errors import ConfigError, TraceError
from causeway.observe.arguments import map_tensors, tensors_in
from causeway.observe.selection import Names
from causeway.trace import values
from causeway.trace.align import UNWRITTEN, outputs
from causeway.trace.diff import of_statistics
from causeway.trace.reader import Trace
from causeway.trace.tensors import DTYPES, Memory, TensorRecord, digest, generate
from causeway.trace.trace import RecordedCall

State = Literal["agrees", "differs", "ran", "not run"]
LIMIT = 4 << 30  # bytes of a call's tensors
FORBIDDEN = {"from_file"}  # opens what its argument names
STATISTICS = 1e-3  # that statistics may differ


@dataclass
class Replayed:
    """What came of a call. "ran": there was nothing to compare with, and `why` says so."""

    call: RecordedCall
    state: State
    inputs: Literal["recorded", "generated", ""] = ""
    against: str = ""
    why: str = ""
    times: int = 1  # equal calls of the trace, run once

    def __str__(self) -> str:
        how = f" ({self.inputs} inputs, against {self.against})" if self.against else ""
        return f"{self.call} [{self.call.place}]: {self.state}{how}: {self.why}"

    def to_dict(self) -> dict[str, Any]:
        return {
            "sequence": self.call.sequence,
            "operator": self.call.operator,
            "call": str(self.call),
            "place": self.call.place,
            "state": self.state,
            "inputs": self.inputs,
            "against": self.against,
            "why": self.why,
            "times": self.times,
        }


@dataclass
class Replay:
    """All calls of a trace that were asked for."""

    trace: Trace
    device: str
    calls: list[Replayed] = field(default_factory=list)

    @property
    def counts(self) -> Counter[str]:
        return Counter(dict.fromkeys(("agrees", "differs", "ran", "not run"), 0)) + Counter(
            one.state for one in self.calls
        )

    @property
    def wrong(self) -> list[Replayed]:
        return [one for one in self.calls if one.state == "differs"]

    def to_json(self) -> str:
        return json.dumps(
            {
                "trace": str(self.trace.folder),
                "device": self.device,
                "counts": dict(self.counts),
                "note": self.trace.state(),
                "calls": [one.to_dict() for one in self.calls],
            },
            indent=1,
        )


class NotRun(Exception):
    """A call cannot be run here, with the reason."""


def replay(
    trace: Trace, device: str | torch.device = "cpu", *, ops: str | Sequence[str] = ".*",
    limit: int = LIMIT, tell: Callable[[Replayed], None] = lambda one: None,
) -> Replay:  # fmt: skip
    """Run the calls of a trace again, each kind once; nested calls are left to the outer ones.

    Raises TraceError for a damaged trace, ConfigError for a device that is not here.
    """
    try:
        where = torch.device(device)
        torch.empty(0, device=where)
    except RuntimeError as error:
        raise ConfigError(f"device {str(device)!r}: {str(error).splitlines()[0]}") from None
    names = Names(ops)
    found = Replay(trace, str(where))
    seen: dict[str, Replayed] = {}
    for call in trace.calls:
        if call.depth or not names.has(call.operator):
            continue
        key = _key(call)
        if key in seen:
            seen[key].times += 1
            continue
        try:
            one = Runner(trace, where, call, limit).run()
        except NotRun as why:
            one = Replayed(call, "not run", why=str(why))
        seen[key] = one
        found.calls.append(one)
        tell(one)
    return found


def _key(call: RecordedCall) -> str:
    """The same for calls that give the same: where nothing was kept, those of one signature."""
    kept = [r.digest for r in tensors_in([call.args, call.results], TensorRecord)]
    return f"{call} {kept} {bool(call.error)}"


class Runner:
    """Runs one call."""

    def __init__(self, trace: Trace, device: torch.device, call: RecordedCall, limit: int) -> None:
        self.trace, self.device, self.call, self.limit = trace, device, call, limit

    def run(self) -> Replayed:
        call = self.call
        if call.error:
            raise NotRun(f"it raised when it was recorded: {call.error[:200]}")
        self.shape = _shape_of(call)
        schema = self.shape.op._schema
        self.outs = [bool(a.is_out) for a in schema.arguments]
        read = [v for v, out in zip(call.args, self.outs, strict=True) if not out]
        records = list(tensors_in(read, TensorRecord))
        self.recorded = all(self.trace.has(r) for r in records)
        inputs: Literal["recorded", "generated"] = "recorded" if self.recorded else "generated"
        here = self._arguments(torch.device("cpu"))
        _check_size(call, self.shape.op, here, self.limit)
        taken = Snapshot(tuple(here), self.shape.writes)
        there = here if self.device.type == "cpu" else self._arguments(self.device)
        came = list(tensors_in(self._call(there)))
        if UNWRITTEN.fullmatch(numerics.base_name(call.operator)):
            return Replayed(call, "ran", inputs, why="it makes memory that nobody has written")
        if self.shape.random:
            return Replayed(call, "ran", inputs, why="it draws random numbers")
        state, against, why = self._judge(taken, came)
        return Replayed(call, state, inputs, against, why)

    def _arguments(self, device: torch.device) -> list[Any]:
        made: dict[int, Tensor] = {}
        memory = Memory(device, self._values, self.limit)
        outs = [v for v, out in zip(self.call.args, self.outs, strict=True) if out]
        self._given = {id(r) for r in tensors_in(outs, TensorRecord)}
        self._numbers = {id(r): k for k, r in
                         enumerate(tensors_in(self.call.args, TensorRecord))}  # fmt: skip

        def make(record: TensorRecord) -> Tensor:
            if id(record) not in made:
                made[id(record)] = memory.make(record)
            return made[id(record)]

        def plain(value: Any) -> Any:
            if isinstance(value, values.Device):
                return device
            if isinstance(value, values.Generator):
                return None
            if isinstance(value, values.Opaque):
                raise NotRun(f"an argument is a {value.type}, which a trace cannot hold")
            if isinstance(value, list):
                return [plain(v) for v in value]
            return value

        try:
            memory.plan(tensors_in(self.call.args, TensorRecord))
        except TraceError as error:
            raise NotRun(str(error)) from None
        return [plain(map_tensors(v, make, TensorRecord)) for v in self.call.args]

    def _values(self, record: TensorRecord) -> Tensor | None:
        if id(record) in self._given:  # it may be the memory of an input
            return None
        if self.trace.has(record):
            return self.trace.values(record)
        return generate(record, self.call.sequence % (1 << 32) * 64 + self._numbers[id(record)])

    def _call(self, args: list[Any]) -> list[Any]:
        schema = self.shape.op._schema.arguments
        plain = [v for v, a in zip(args, schema, strict=True) if not a.kwarg_only]
        named = {a.name: v for v, a in zip(args, schema, strict=True) if a.kwarg_only}
        try:
            found = self.shape.op(*plain, **named)
            results = list(found) if isinstance(found, (tuple, list)) else [found]
            return [*results, *(args[k] for k in self.shape.unreturned)]
        except (RuntimeError, IndexError, ValueError, TypeError) as error:
            raise NotRun(
                f"it raises on {self.device}: {str(error).splitlines()[0][:200]}"
            ) from None

    def _judge(self, taken: Snapshot, came: list[Tensor]) -> tuple[State, str, str]:
        call = self.call
        wanted = outputs(call)
        if len(came) != len(wanted):
            return "differs", "the trace", f"{len(came)} results, recorded were {len(wanted)}"
        for k, (t, r) in enumerate(zip(came, wanted, strict=True)):
            if (tuple(t.shape), t.dtype) != (r.shape, DTYPES[r.dtype]):
                return "differs", "the trace", f"result {k} is {values.show(t)}, recorded was {r}"
        self._reference(taken)
        if self.recorded and all(self.trace.has(r) for r in wanted):
            should = [self.trace.values(r) for r in wanted]
            if (bad := self._compare(came, should, alone=True)) is None:
                return "agrees", "recorded values", "within the operator's bound"
            return "differs", "recorded values", bad + self._blame(came, should)
        if self.recorded and any(r.digest or r.statistics for r in wanted):
            return self._by_summary(came, wanted)
        if self.best is None:
            return "ran", "", f"nothing to compare with: {self.refused}"
        if self.device.type == "cpu":
            return "ran", "", "the inputs are generated, and this is the CPU itself"
        if (bad := self._compare(came, self.best)) is None:
            return "agrees", "the CPU", "within the operator's bound"
        return "differs", "the CPU", bad

    def _reference(self, taken: Snapshot) -> None:
        """The CPU's results, those in float64 and what bounds need."""
        self.best = self.exact = self.magnitude = None
        self.terms, self.refused = 1, ""
        name = self.call.operator
        try:
            outcome = reference.run(name, taken)
        except numerics.Refused as why:
            self.refused = f"the CPU has no such call: {why}"
            return
        self.best = list(tensors_in(outcome.values()))
        floats = any(t.is_floating_point() or t.is_complex() for t in self.best)
        self.terms = reference.terms(name, taken, self.best)
        if numerics.rule_of(name) == "exact" or not floats:
            return
        exact = reference.exact(name, taken, outcome.values())
        if exact is not None:
            # One for each result that is there: an output mask switches some off.
            there = [isinstance(t, Tensor) for t in flat(outcome.values())]
            self.exact = list(itertools.compress(flat(exact), there))
            size = reference.magnitude(name, taken, outcome.values(), exact)
            self.magnitude = None if size is None else list(itertools.compress(size, there))

    def _compare(
        self, came: list[Tensor], should: list[Tensor], *, alone: bool = False
    ) -> str | None:
        """What is wrong with results, or None. `alone`: float64 does not excuse what differs from
        `should`.
        """
        for k, (ours, right) in enumerate(zip(came, should, strict=True)):
            best = self.exact and len(self.exact) == len(came) and not alone
            exact = self.exact[k] if self.exact and best else None
            sizes = self.magnitude if self.magnitude and len(self.magnitude) == len(came) else None
            verdict = numerics.compare(
                ours.detach().cpu(),
                right.detach(),
                rule=numerics.rule_of(self.call.operator),
                exact=exact,
                terms=self.terms,
                magnitude=sizes[k] if sizes else None,
                strides=False,
            )
            if not verdict.good:
                return f"result {k}: {verdict}" if len(came) > 1 else str(verdict)
        return None

    def _blame(self, came: list[Tensor], recorded: list[Tensor]) -> str:
        """Which of the two is off, by the CPU here."""
        if self.best is None:
            return ""
        theirs = self._compare(recorded, self.best) is None
        if self.device.type == "cpu":
            return "" if theirs else "; the recorded result is off"
        ours = self._compare(came, self.best) is None
        if ours and not theirs:
            return f"; {self.device} agrees with the CPU here: the recorded result is off"
        if theirs and not ours:
            return f"; the recorded result agrees with the CPU here: {self.device} is off"
        return "; neither agrees with the CPU here" if not ours else ""

    def _by_summary(self, came: list[Tensor], wanted: list[TensorRecord]) -> tuple[State, str, str]:
        from causeway.trace import tensors

        worst = 0.0
        for k, (t, r) in enumerate(zip(came, wanted, strict=True)):
            here = tensors.at_home(t, copy=False)
            if r.digest is not None and digest(here) == r.digest:
                continue
            if r.statistics is None:
                return "ran", "", f"nothing was kept of result {k}"
            found = of_statistics(r.statistics, tensors.statistics(here), STATISTICS)
            if not found.good:
                words = found.why or f"{found.size:.2g} apart"
                return "differs", "recorded statistics", f"result {k}: {words}"
            worst = max(worst, found.size)
        return "agrees", "recorded statistics", f"at most {worst:.2g} apart"


def _shape_of(call: RecordedCall) -> reference.Shape:
    """What this torch says about the operator. Raises NotRun where it has none such."""
    namespace, _, name = call.operator.partition("::")
    if namespace != "aten":
        raise NotRun(f"operators of {namespace!r} are not run, only those of aten")
    if name.split(".")[0] in FORBIDDEN:
        raise NotRun("it opens a file that the trace names")
    try:
        shape = reference.shape_of(call.operator)
    except AttributeError:
        raise NotRun(f"torch {torch.__version__} has no such operator") from None
    wanted = len(shape.op._schema.arguments)
    if wanted != len(call.args):
        raise NotRun(
            f"torch {torch.__version__} has it with {wanted} arguments, the trace with "
            f"{len(call.args)}"
        )
    return shape


def _check_size(call: RecordedCall, op: Any, args: list[Any], limit: int) -> None:
    """Refuse a call whose results would not fit, where torch can tell without computing."""

    def as_meta(t: Tensor) -> Tensor:
        return torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="meta")

    none = next(tensors_in(args), None) is None

    def plain(value: Any, name: str) -> Any:
        device = isinstance(value, torch.device) or (none and name == "device" and value is None)
        return torch.device("meta") if device else value

    try:
        schema = op._schema.arguments
        given = [plain(map_tensors(v, as_meta), a.name) for v, a in zip(args, schema, strict=True)]
        named = {a.name: v for v, a in zip(given, schema, strict=True) if a.kwarg_only}
        found = op(*(v for v, a in zip(given, schema, strict=True) if not a.kwarg_only), **named)
    except Exception:  # a meta function in Python asserts, or has to see the values
        return
    size = sum(t.numel() * t.element_size() for t in tensors_in([found]))
    if size > limit:
        raise NotRun(f"its results take {size} bytes, more than the limit of {limit}")
