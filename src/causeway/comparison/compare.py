"""Compare operators of the device with the CPU while a program runs.

    with causeway.compare(ops="add.*|mm", steps=(10, 20)) as c:
        train()
    print(c.table())

Each selected call also runs on the CPU, on images of its arguments taken before it (snapshot), and
its results, the arguments that it may write and those that it may not are compared (judge). It
holds for forward, backward and optimizers, on every rung and every thread. A failure is told at
once, with where it happened and a script that shows it again (repro).
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import torch
from torch import Tensor

from causeway import code
from causeway.comparison import judge, randomness, repro
from causeway.comparison import reference as cpu
from causeway.comparison.findings import Failure, Findings, FindingsRow, describe, plain
from causeway.comparison.snapshot import Built, Snapshot, Uncopied, flat
from causeway.errors import CausewayError
from causeway.numerics import Refused, Verdict, tolerances
from causeway.observe import observe

OnFailure = Literal["print", "raise", "quiet"]


class CompareError(CausewayError):
    """An operator's result is wrong, where compare was asked to raise."""


@dataclass
class _Taken:
    """What `before` keeps for `after`."""

    row: FindingsRow
    snapshot: Snapshot
    tolerance: tolerances.Tolerance
    generator: torch.Generator | None = None
    state: Tensor | None = None


class Compare(observe.Observer):
    """A comparison that is under way or over. Made by `compare`."""

    def __init__(
        self, ops: str | Sequence[str] = ".*", *, every: int = 1,
        steps: tuple[int, int] | None = None, rtol: float | None = None,
        atol: float | None = None, reference: judge.Mode = "auto",
        random: Literal["replay", "distribution"] = "replay", folder: str | Path | None = None,
        on_failure: OnFailure = "print", most_failures: int = 1000, modules: int = 3,
    ) -> None:  # fmt: skip
        for name, value, allowed in (
            ("reference", reference, ("auto", "float64", "same")),
            ("random", random, ("replay", "distribution")),
            ("on_failure", on_failure, ("print", "raise", "quiet")),
        ):
            if value not in allowed:
                raise ValueError(f"{name} is {value!r}; expected one of {', '.join(allowed)}")
        if every < 1:
            raise ValueError(f"every is {every}; expected 1 or more")
        if steps is not None and not (len(steps) == 2 and 1 <= steps[0] <= steps[1]):
            raise ValueError(f"steps is {steps!r}; expected (first, last), the first step is 1")
        self.operators = ops
        self.every, self.steps, self.random = every, steps, random
        self.limits = judge.Limits(reference, rtol, atol)
        self.folder = Path(folder) if folder is not None else None
        self.on_failure, self.most_failures = on_failure, most_failures
        self.failures: list[Failure] = []
        self.modules = modules  # that a row names
        self.dropped = 0  # failures beyond `most_failures`, which rows count all the same
        self.selects: Callable[[observe.ObservedCall], bool] | None = None
        self._lock = threading.RLock()
        self._rows: dict[tuple[str, str], FindingsRow] = {}
        self._counts: dict[str, int] = {}
        self._draws: dict[tuple[str, str], randomness.Draws] = {}
        self._told: set[tuple[str, str, str]] = set()

    def __enter__(self) -> Compare:
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
        observe.add(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        observe.remove(self)

    # --- results ------------------------------------------------------------------------------

    @property
    def rows(self) -> list[FindingsRow]:
        """A row for each operator and signature, in the order of their first calls."""
        with self._lock:
            return list(self._rows.values())

    def findings(self) -> Findings:
        with self._lock:
            return Findings(self.rows, list(self.failures))

    def table(self, most: int | None = None) -> str:
        """For people: rows that failed, then those that are most off; `most` of the others."""
        return self.findings().table(most)

    def to_json(self) -> str:
        """{"version", "rows", "failures"}."""
        return self.findings().to_json()

    def first_divergence(self) -> Failure | None:
        """The earliest call that was wrong on right inputs: where the numbers first went wrong.

        `causeway.first_divergence` compares whole runs where operators alone tell nothing.
        """
        with self._lock:
            return min(self.failures, key=lambda f: f.sequence, default=None)

    # --- the observer ---------------------------------------------------------------------------

    def before(self, call: observe.ObservedCall) -> None:
        if self.steps is not None and not self.steps[0] <= call.step <= self.steps[1]:
            return
        if self.selects is not None and not self.selects(call):
            return
        name = call.name
        with self._lock:
            count = self._counts[name] = self._counts.get(name, 0) + 1
        if (count - 1) % self.every:
            return
        row = self._row(name, call)
        tolerance = tolerances.of(name)
        if not tolerance.compare:
            self._skip(row, tolerance.reason)
            return
        try:
            shape = cpu.shape_of(name)
            snapshot = Snapshot(call.args, shape.writes, numbers=not shape.view)
            taken = _Taken(row, snapshot, tolerance)
            if shape.random:
                index = _device_of(call.args)
                taken.generator = cpu.generator_of(name, call.args, index)
                taken.state = taken.generator.get_state()
        except Uncopied as why:
            self._skip(row, str(why))
            return
        except Exception as error:  # the comparison's own limits must not end the program
            self._skip(row, f"its arguments could not be copied ({_words(error)})")
            return
        call.notes[self] = taken

    def after(self, call: observe.ObservedCall) -> None:
        taken = call.notes.pop(self, None)
        if taken is None:
            return
        with self._lock:
            taken.row.rungs[call.rung] = taken.row.rungs.get(call.rung, 0) + 1
        try:
            self._compare(call, taken)
        except CompareError:
            raise
        except Uncopied as why:
            self._skip(taken.row, str(why))
        except Exception as error:
            self._skip(taken.row, f"the comparison failed ({_words(error)})")

    def _row(self, name: str, call: observe.ObservedCall) -> FindingsRow:
        signature = describe(call.args)
        with self._lock:
            row = self._rows.get((name, signature))
            if row is None:
                row = self._rows[name, signature] = FindingsRow(name, signature)
            row.calls += 1
            phase = call.phase
            row.phases[phase] = row.phases.get(phase, 0) + 1
            if (
                len(row.modules) < self.modules
                and (module := call.module)
                and module not in row.modules
            ):
                row.modules.append(module)
        return row

    def _skip(self, row: FindingsRow, reason: str) -> None:
        with self._lock:
            row.not_compared[reason] = row.not_compared.get(reason, 0) + 1

    # --- one call -------------------------------------------------------------------------------

    def _compare(self, call: observe.ObservedCall, taken: _Taken) -> None:
        name, row, shape = call.name, taken.row, cpu.shape_of(call.name)
        generator = None
        if taken.state is not None and not call.error:
            if self.random == "replay" and call.rung in ("host", "core"):
                generator = cpu.host_generator(taken.state)
            else:
                self._random(call, taken)
                return
        try:
            outcome = cpu.run(name, taken.snapshot, generator=generator)
        except Refused as why:
            if call.error:
                self._right(row, "both raise")
            else:
                self._without(call, taken, str(why))
            return
        if call.error:
            line = call.error.strip().split("\n")[0][:200]
            self._skip(row, f"the device raised, the CPU did not: {line}")
            return
        came = (*call.results, *(call.args[k] for k in shape.unreturned))
        results = Snapshot(came, copy=False, numbers=not shape.view)
        built = results.build(writable=False)
        one = judge.Judge(
            name, taken.snapshot, outcome, taken.tolerance, self.limits,
            flushes=code.flushes(_device_of(call.args)),
        )  # fmt: skip
        if shape.view:
            one.tolerance = tolerances.Tolerance(values=False)
        names = [f"result {k}" for k in range(len(call.results))] if len(call.results) != 1 else [
            "the result"]  # fmt: skip
        arguments = shape.op._schema.arguments
        names += [f"argument {arguments[k].name}" for k in shape.unreturned]
        good, how = self._values(call, taken, one, names, built, outcome)
        declared = [r.alias_info is not None for r in shape.op._schema.returns]
        wrong = judge.aliasing(results, taken.snapshot, outcome, declared)
        if wrong is not None:
            verdict = Verdict("wrong aliasing", came=wrong[1], expected="what the CPU does")
            self._fail(call, taken, "aliasing", names[wrong[0]], verdict, how)
            good = False
        if taken.tolerance.inputs and not shape.view:
            good &= self._inputs(call, taken, how)
        if good:
            self._right(row, "replay" if generator is not None else how)

    def _values(
        self, call: observe.ObservedCall, taken: _Taken, one: judge.Judge, names: list[str],
        built: Built, outcome: cpu.Outcome,
    ) -> tuple[bool, str]:  # fmt: skip
        k, good, how = 0, True, "same"
        some = taken.tolerance.results
        for place, (title, ours, theirs) in enumerate(
            zip(names, built.values, outcome.values(), strict=True)
        ):
            if some is not None and some <= place < len(outcome.results):
                continue
            left, right = list(flat([ours])), list(flat([theirs]))
            if len(left) != len(right):
                verdict = Verdict("wrong number of tensors", came=str(len(left)),
                                  expected=str(len(right)))  # fmt: skip
                self._fail(call, taken, "values", title, verdict, how)
                return False, how
            for n, (a, b) in enumerate(zip(left, right, strict=True)):
                what = f"{title}[{n}]" if isinstance(ours, list) else title
                if isinstance(a, Tensor) and isinstance(b, Tensor):
                    judged = one.tensor(k, a, b)
                elif isinstance(a, Tensor) != isinstance(b, Tensor):
                    judged = judge.Judged(
                        Verdict("present or not", came=_kind(a), expected=_kind(b))
                    )
                else:
                    judged = one.number(k, a, b)
                k += 1
                how = judged.how if judged.how != "same" else how
                with self._lock:
                    taken.row.add(judged.verdict)
                if not judged.verdict.good:
                    self._fail(call, taken, judged.kind, what, judged.verdict, judged.how)
                    good = False
        return good, how

    def _inputs(self, call: observe.ObservedCall, taken: _Taken, how: str) -> bool:
        damage = taken.snapshot.damage()
        if damage is None:
            return True
        words, index = damage
        argument = cpu.shape_of(call.name).op._schema.arguments[index].name
        verdict = Verdict("an input changed", came=words, expected="left as it was")
        self._fail(call, taken, "input", f"argument {argument}", verdict, how)
        return False

    def _without(self, call: observe.ObservedCall, taken: _Taken, why: str) -> None:
        """The CPU has no answer; whether inputs were left alone can still be told."""
        reason = f"the CPU does not take the call ({why})"
        self._skip(taken.row, reason)
        if taken.tolerance.inputs and not cpu.shape_of(call.name).view:
            self._inputs(call, taken, "none")

    def _random(self, call: observe.ObservedCall, taken: _Taken) -> None:
        row = taken.row
        assert taken.generator is not None
        assert taken.state is not None
        shape = cpu.shape_of(call.name)
        came = (*call.results, *(call.args[k] for k in shape.unreturned))
        values = list(Snapshot(came, copy=False).build(writable=False).values)
        with self._lock:
            draws = self._draws.setdefault((row.operator, row.signature), randomness.Draws())
            verdict = draws.check(
                call.name, taken.snapshot, values, taken.state, taken.generator.get_state(),
                call.sequence,
            )  # fmt: skip
        if verdict.why.startswith("cannot be drawn"):
            self._skip(row, verdict.why)
        elif not verdict.good:
            self._fail(call, taken, "random", "the numbers", verdict, "distribution")
        elif not taken.tolerance.inputs or self._inputs(call, taken, "distribution"):
            self._right(row, "distribution")

    def _right(self, row: FindingsRow, how: str) -> None:
        with self._lock:
            row.compared += 1
            row.references[how] = row.references.get(how, 0) + 1

    def _fail(
        self,
        call: observe.ObservedCall,
        taken: _Taken,
        kind: str,
        what: str,
        verdict: Verdict,
        how: str,
    ) -> None:
        row = taken.row
        stack = tuple(f"{f.filename}:{f.lineno} in {f.name}" for f in call.stack)
        failure = Failure(
            row.operator, row.signature, kind, what, verdict, call.sequence, call.step, call.phase,
            call.module, call.node, call.rung, how, stack,
        )  # fmt: skip
        key = (row.operator, row.signature, kind)
        with self._lock:
            row.failed += 1
            row.compared += 1
            first = key not in self._told
            self._told.add(key)
        if first and self.folder is not None:
            failure = repro.save(failure, taken.snapshot, taken.state, self.folder)
        with self._lock:
            if len(self.failures) < self.most_failures:
                self.failures.append(failure)
            else:
                self.dropped += 1
            if self.folder is not None:
                with (self.folder / "failures.jsonl").open("a", encoding="utf-8") as out:
                    out.write(json.dumps(plain(failure.to_dict())) + "\n")
        if self.on_failure == "raise":
            raise CompareError(str(failure))
        if self.on_failure == "print" and first:
            user = next((s for s in reversed(stack) if not _is_torchs(s)), "")
            at = f"\n    at {user}" if user else ""
            script = f"\n    shown again by: python {failure.repro}/script.py" * bool(failure.repro)
            print(f"causeway compare: {failure}{at}{script}", file=sys.stderr, flush=True)


def compare(
    ops: str | Sequence[str] = ".*", *, every: int = 1, steps: tuple[int, int] | None = None,
    rtol: float | None = None, atol: float | None = None, reference: judge.Mode = "auto",
    random: Literal["replay", "distribution"] = "replay", folder: str | Path | None = None,
    on_failure: OnFailure = "print",
) -> Compare:  # fmt: skip
    """Compare operators of the device with the CPU: `with causeway.compare("mm|add.*") as c: ...`

    `ops`: names or regular expressions; `every`: each n-th call of an operator; `steps`: (first,
    last) of training, counted from 1; `rtol` and `atol` replace the tolerances by dtype and class
    of operator: |came - reference| <= atol + rtol * |reference|. `reference`: "same" dtypes on the
    CPU, "float64", or "auto": float64 for 16-bit floats and where "same" does not agree. `random`:
    "replay" the same numbers where the host rung drew them, or compare distributions only.
    `folder`: where failures.jsonl and scripts that show each failure again are written.
    `on_failure`: "print" the first of each signature to stderr, "raise" CompareError in the
    operator's caller, or be "quiet". Slow: every operator runs twice and waits for the device after
    it. Raises ConfigError where `ops` names no operator.
    """
    return Compare(
        ops, every=every, steps=steps, rtol=rtol, atol=atol, reference=reference, random=random,
        folder=folder, on_failure=on_failure,
    )  # fmt: skip


def _device_of(args: tuple[Any, ...]) -> int:
    for value in flat(args):
        if isinstance(value, Tensor) and value.device.type not in ("cpu", "meta"):
            return value.device.index
    for value in flat(args):
        if isinstance(value, torch.device) and value.type != "cpu" and value.index is not None:
            return value.index
    return torch.accelerator.current_device_index()


def _kind(value: Any) -> str:
    return "a tensor" if isinstance(value, Tensor) else repr(value)


def _words(error: Exception) -> str:
    return (
        f"{type(error).__name__}: {str(error).strip().splitlines()[0][:200] if str(error) else ''}"
    )


_TORCH = os.path.dirname(torch.__file__)


def _is_torchs(line: str) -> bool:
    return line.startswith(_TORCH)
