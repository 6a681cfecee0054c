"""The overflow watch: which operator made the first infinity or NaN, in forward or backward.

Each result is added up, which is not finite where an element is not; only then one looks closer.
An operator "made" them where it has NaN and its inputs had none, or infinity and its inputs were
all finite; else it only passed them on. The call, with its inputs as they were, is written as a
trace that `causeway replay` runs again.

Left out: what happens inside of an operator (a decomposition may use infinity), memory that nobody
has written yet, and results that an autocast or a GradScaler expects to overflow: those are
reported like any other.
"""

from __future__ import annotations

import contextlib
import math
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch

import causeway
from causeway import config
from causeway.errors import NonFiniteError
from causeway.numerics import base_name
from causeway.observe import observe
from causeway.observe.arguments import map_tensors, tensors_in, written_by
from causeway.trace import align, tensors
from causeway.trace.tensors import TensorRecord
from causeway.trace.trace import RecordedCall, Writer

Tensor = torch.Tensor
_NOT_THE_USERS = (*torch.__path__, *causeway.__path__)  # files of frames that tell nothing
Action = Literal["warn", "raise"] | Callable[["Found"], None]


@dataclass
class Found:
    """A call with results that are not finite. `made`: its inputs were better."""

    made: bool
    operator: str
    call: RecordedCall
    nan: int
    inf: int
    rung: str
    stack: list[str] = field(default_factory=list)
    folder: Path | None = None  # the trace with its inputs

    def __str__(self) -> str:
        counts = [f"{n} {word}" for n, word in ((self.nan, "NaN"), (self.inf, "Inf")) if n]
        how = "made" if self.made else "has from its inputs"
        text = f"{self.operator} {how} {' and '.join(counts)}: {self.call} [{self.call.place}]"
        text += f", served by {self.rung}"
        if self.stack:
            text += f", called at {self.stack[-1]}"
        if self.folder is not None:
            text += f"; its inputs: causeway replay {self.folder}"
        return text


class Watch(observe.Observer):
    """Finds the first operator that made a non-finite number (`found`), and the first that had one
    at all (`first`). Looks no more once it has the former.
    """

    def __init__(
        self, action: Action = "warn", *, ops: str | Sequence[str] = ".*",
        save: str | Path | None = "", stop: bool = True,
    ) -> None:  # fmt: skip
        self.operators = ops
        self.action = action
        self.save = save
        self.stop = stop
        self.found: Found | None = None
        self.first: Found | None = None
        self.calls = 0  # that were checked
        self._lock = threading.Lock()

    def before(self, call: Any) -> None:
        if call.depth or (self.stop and self.found):
            return
        kept: dict[int, Any] = {}
        if written := [call.args[i] for i in written_by(call.op)]:
            # What is changed in place is gone afterwards, and so is what shares its memory.
            memory = {_memory(t) for t in tensors_in(written)}
            schema = call.op._schema.arguments
            for i, value in enumerate(call.args):
                if not schema[i].is_out and any(_memory(t) in memory for t in tensors_in(value)):
                    kept[i] = map_tensors(value, _copy)
        call.notes[self] = kept

    def after(self, call: Any) -> None:
        kept = call.notes.pop(self, None)
        if kept is None or call.error or align.NOTHING.fullmatch(base_name(call.name)):
            return
        changed = [call.args[i] for i in written_by(call.op)]
        left = {id(t): t for t in tensors_in([call.results, changed])}
        results = [t for t in left.values() if _floats(t)]
        self.calls += 1
        if not any(_suspect(t) for t in results):
            return
        nan, inf = _count(results)
        if not nan and not inf:  # the sum alone overflowed
            return
        schema = call.op._schema.arguments
        args = [
            kept.get(i, None if schema[i].is_out else value) for i, value in enumerate(call.args)
        ]
        had_nan, had_inf = _count([t for t in tensors_in(args) if _floats(t)])
        for value in args:
            if isinstance(value, float) and not math.isfinite(value):
                had_nan, had_inf = had_nan + math.isnan(value), had_inf + math.isinf(value)
        made = bool(nan and not had_nan) or not (had_nan or had_inf)
        with self._lock:
            if (made and self.found) or (not made and self.first):
                return
            found = self._describe(call, args, made, nan, inf)
            self.first = self.first or found
            if made:
                self.found = found
        if made or nan:  # infinity that was there before is often a mask
            self._act(found)

    def _describe(self, call: Any, args: list[Any], made: bool, nan: int, inf: int) -> Found:
        storages: dict[int, int] = {}
        record = RecordedCall(
            0,
            call.name,
            map_tensors([*map(_none_to_out, args, call.args)],
                        lambda t: tensors.describe(t, storages)),
            rung=call.rung,
            phase=call.phase,
            module=call.module,
            step=call.step,
            thread=call.thread,
        )  # fmt: skip
        found = Found(made, call.name, record, nan, inf, call.rung)
        found.stack = [
            f"{f.filename}:{f.lineno} in {f.name}"
            for f in call.stack
            if not f.filename.startswith(_NOT_THE_USERS)
        ]
        if self.save is not None and (made or nan):
            found.folder = self._save(call, args, record)
        return found

    def _save(self, call: Any, args: list[Any], record: RecordedCall) -> Path:
        from causeway.trace.record import look, outcome

        folder = Path(self.save or tempfile.mkdtemp(prefix="causeway-overflow-"))
        while folder.exists() and any(folder.iterdir()):
            folder = folder.with_name(f"{folder.name}-1")
        writer = Writer(folder, {"keep": "full", "why": "overflow"})
        storages: dict[int, int] = {}
        outs = [a.is_out for a in call.op._schema.arguments]

        def whole(t: Tensor) -> TensorRecord:
            return look(t, "full", storages, writer)

        def plain(t: Tensor) -> TensorRecord:
            return look(t, "none", storages, writer)

        record.args = [
            map_tensors(given, plain) if out else map_tensors(value, whole)
            for value, given, out in zip(args, call.args, outs, strict=True)
        ]
        outcome(record, call, whole)
        writer.write(record, str(call.op._schema))
        writer.close()
        return folder

    def _act(self, found: Found) -> None:
        if callable(self.action):
            self.action(found)
        elif self.action == "raise":
            raise NonFiniteError(str(found))
        else:
            warnings.warn(f"causeway: {found}", stacklevel=2)


def _none_to_out(value: Any, given: Any) -> Any:
    return given if value is None else value


def _memory(t: Tensor) -> int:
    return t.untyped_storage()._cdata if tensors.has_values(t) else 0


def _copy(t: Tensor) -> Tensor:
    return t.detach().clone() if tensors.has_values(t) and _floats(t) else t


def _floats(t: Tensor) -> bool:
    return (t.is_floating_point() or t.is_complex()) and tensors.has_values(t) and t.numel() > 0


def _suspect(t: Tensor) -> bool:
    """Whether the sum is not finite: it is not, where an element is not."""
    if t.dtype.itemsize == 1:
        t = t.float()
    total = t.detach().sum().item()
    return not math.isfinite(abs(total))


def _count(found: list[Tensor]) -> tuple[int, int]:
    nan = inf = 0
    for t in found:
        here = tensors.at_home(t, copy=False)
        here = torch.view_as_real(here) if here.is_complex() else here
        here = here.float() if here.dtype.itemsize == 1 else here
        nan += int(here.isnan().sum())
        inf += int(here.isinf().sum())
    return nan, inf


@contextlib.contextmanager
def overflow(
    action: Action = "warn", *, ops: str | Sequence[str] = ".*", save: str | Path | None = "",
    via: Literal["auto", "device", "dispatch"] = "auto",
) -> Iterator[Watch]:  # fmt: skip
    """Watch for infinity and NaN: `with causeway.overflow() as w: ...; print(w.found)`.

    `action`: "warn", "raise" (NonFiniteError, from the operator's call), or a function that gets a
    `Found`. `save`: the folder for the call and its inputs; "" a temporary one, None nowhere.
    Without an operator that made any, `w.first` has the first that had some: they came in with the
    data, or are a mask.
    """
    from causeway.observe import dispatch

    watch = Watch(action, ops=ops, save=save)
    with dispatch.watch(watch, via):
        yield watch


_running: Watch | None = None


def apply() -> None:
    """Make what runs be what the settings say."""
    global _running
    action = config.get("overflow")
    former, _running = _running, None
    if former is not None:
        observe.remove(former)
    if action != "off":
        _running = Watch(action, save=config.get("overflow_save"))
        observe.add(_running)


def running() -> Watch | None:
    """What the settings have looking on, if anything."""
    return _running
