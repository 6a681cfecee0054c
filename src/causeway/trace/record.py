"""Recording: the calls of a program are written to a trace as they happen."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

from causeway.errors import ConfigError
from causeway.numerics import base_name
from causeway.observe import dispatch, observe
from causeway.observe.arguments import map_tensors, tensors_in, written_by
from causeway.observe.dispatch import Via
from causeway.observe.selection import Names, Window, rank, world_size
from causeway.trace import align, tensors
from causeway.trace.tensors import TensorRecord
from causeway.trace.trace import RecordedCall, Writer

Keep = Literal["none", "statistics", "hash", "full"]
KEEP: tuple[Keep, ...] = ("none", "statistics", "hash", "full")  # each has what those before have
FRAMES = 12  # of the stack that are kept


@dataclass
class Options:
    """What is recorded. `keep` holds for all calls, `full` names operators whose values are kept
    all, in the steps of `full_steps` where it is given.
    """

    ops: str | Sequence[str] = ".*"
    steps: tuple[int, int] | None = None
    ranks: Sequence[int] | None = None
    keep: Keep = "statistics"
    full: str | Sequence[str] = ()
    full_steps: tuple[int, int] | None = None
    nested: bool = False  # calls inside of others too
    stacks: bool = False
    budget: int = 1 << 30
    via: Via = "auto"

    def __post_init__(self) -> None:
        if self.keep not in KEEP:
            raise ConfigError(f"keep is {self.keep!r}: expected one of {', '.join(KEEP)}")
        if self.full_steps is not None and not self.full:
            self.full = ".*"


class Recorder(observe.Observer):
    """Writes what it sees to a trace."""

    def __init__(self, writer: Writer, options: Options) -> None:
        self.operators = options.ops
        self.writer = writer
        self.options = options
        self.window = Window(options.steps, options.ranks)
        self._full_steps = Window(options.full_steps)
        self._full = Names(options.full)
        self._numbers = itertools.count()

    def keep_of(self, name: str, step: int) -> Keep:
        """What is kept of the values of a call."""
        return "full" if self._full.has(name) and self._full_steps.has(step) else self.options.keep

    def before(self, call: Any) -> None:
        if call.depth and not self.options.nested:
            return
        step = call.step
        if not self.window.has(step) or not self.writer.mine:
            return
        number = next(self._numbers)
        storages: dict[int, int] = {}
        keep = self.keep_of(call.name, step)
        outs = {i for i, a in enumerate(call.op._schema.arguments) if a.is_out}

        def seen(t: torch.Tensor, i: int) -> TensorRecord:
            return look(t, "none" if i in outs else keep, storages, self.writer)

        args = [map_tensors(v, functools.partial(seen, i=i)) for i, v in enumerate(call.args)]
        record = RecordedCall(
            number,
            call.name,
            args,
            phase=call.phase,
            module=call.module,
            step=step,
            thread=call.thread,
            depth=call.depth,
        )
        if self.options.stacks:
            frames = call.stack[-FRAMES:]
            record.stack = tuple(f"{f.filename}:{f.lineno} {f.name}" for f in frames)
        call.notes[self] = record, keep, storages

    def after(self, call: Any) -> None:
        note = call.notes.pop(self, None)
        if note is None:
            return
        record, keep, storages = note
        record.rung, record.error = call.rung, call.error
        if not call.error:
            if align.UNWRITTEN.fullmatch(base_name(call.name)):
                keep = "none"
            elif keep == "statistics" and torch.Tag.nondeterministic_seeded in call.op.tags:
                keep = "hash"  # for `diff`, which asks whether two machines drew the same numbers
            outcome(record, call, lambda t: look(t, keep, storages, self.writer))
        self.writer.write(record, str(call.op._schema))


def look(t: torch.Tensor, keep: Keep, storages: dict[int, int], writer: Writer) -> TensorRecord:
    """The record of a tensor with as much of its values as is asked for."""
    record = tensors.describe(t, storages)
    if keep == "none" or not tensors.has_values(t):
        return record
    here = tensors.at_home(t, copy=keep == "full")
    record = replace(record, statistics=tensors.statistics(here))
    if keep == "statistics":
        return record
    record = replace(record, digest=tensors.digest(here))
    if keep == "hash":
        return record
    return replace(record, data=writer.keep(record, here))


def outcome(record: RecordedCall, call: Any, see: Callable[[torch.Tensor], TensorRecord]) -> None:
    """Fill in what a call left: its results, and what it changed beside them. `see` is asked once
    for each tensor.
    """
    found: dict[int, TensorRecord] = {}

    def seen(t: torch.Tensor) -> TensorRecord:
        if id(t) not in found:
            found[id(t)] = see(t)
        return found[id(t)]

    record.results = [map_tensors(value, seen) for value in call.results]
    results = {id(t) for t in tensors_in(call.results)}
    for i in written_by(call.op):
        # Most are what comes back.
        if not all(id(t) in results for t in tensors_in(call.args[i])):
            record.written[i] = map_tensors(call.args[i], seen)


def folder_of(path: str | Path) -> Path:
    """Where this process writes: in a folder of its rank, where there are several."""
    return Path(path) / f"rank{rank()}" if world_size() > 1 else Path(path)


@contextlib.contextmanager
def record(
    path: str | Path, options: Options | None = None, **given: Any
) -> Iterator[Writer | None]:
    """Write every call within to the trace `path`, a new folder; in a run of several processes to
    `path`/rank<n>.

    The options are the fields of `Options`: `ops`, `steps=(first, last)`, `ranks`,
    `keep="none"|"statistics"|"hash"|"full"`, `full="conv.*"` for operators whose values are kept
    whole, `full_steps`, `budget` in bytes, `via="auto"|"device"|"dispatch"`. Gives the writer, or
    None in a rank that was not asked for.
    """
    chosen = replace(options or Options(), **given)
    about = {
        "device": dispatch.our_device(),
        "accelerator": _accelerator(),
        "rank": rank(),
        "world_size": world_size(),
        "process": os.getpid(),
        "keep": chosen.keep,
        "via": chosen.via,
    }
    if chosen.ranks is not None and rank() not in chosen.ranks:
        yield None
        return
    writer = Writer(folder_of(path), about, chosen.budget)
    ended = "in order"
    try:
        with dispatch.watch(Recorder(writer, chosen), chosen.via):
            yield writer
    except SystemExit as error:
        ended = "in order" if not error.code else f"exit status {error.code}"
        raise
    except BaseException as error:
        ended = f"{type(error).__name__}: {error}"[:500]
        raise
    finally:
        writer.close(ended)


def _accelerator() -> str:
    found = torch.accelerator.current_accelerator()
    return found.type if found is not None else "cpu"
