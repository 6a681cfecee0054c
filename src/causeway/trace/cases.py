"""Recorded calls as cases of the conformance suite: the shapes, strides, dtypes and numbers of a
user's model, for the vendor to test its kernels with.

A file of cases is one JSON document. It holds no tensor, only what is known of their values, so it
is small, says little about the user's data, and gives the same inputs each time.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from causeway import atomic
from causeway.errors import TraceError
from causeway.observe.arguments import map_tensors, tensors_in
from causeway.trace import values
from causeway.trace.reader import document, operator_name
from causeway.trace.tensors import DTYPES, Memory, TensorRecord, generate
from causeway.trace.trace import RecordedCall, program

FORMAT, VERSION = "causeway-cases", 1
LARGEST = 1 << 30  # bytes of a case's tensors
FILE = 1 << 28  # bytes of a file of cases


@dataclass(frozen=True)
class Case:
    """One kind of call: an operator and all arguments, `times` in the program, first at `place`."""

    operator: str
    args: list[Any]
    times: int = 1
    place: str = ""

    @property
    def title(self) -> str:
        return f"{self.place}, {self.times} times" if self.times > 1 else self.place

    @property
    def dtype(self) -> torch.dtype:
        """The dtype that the case is about: of the first float, else of the first tensor."""
        found = [DTYPES[r.dtype] for r in tensors_in(self.args, TensorRecord)]
        found += [v for v in self.args if isinstance(v, torch.dtype)]
        floats = [d for d in found if d.is_floating_point or d.is_complex]
        return (floats or found or [torch.get_default_dtype()])[0]

    def inputs(self, schema: Any) -> tuple[Any, ...]:
        """The inputs in the schema's order, outputs left out. Raises TraceError where they cannot
        be made.
        """
        if len(schema.arguments) != len(self.args):
            raise TraceError(f"{self.operator} has {len(schema.arguments)} arguments in this torch")
        given = [v for v, a in zip(self.args, schema.arguments, strict=True) if not a.is_out]
        records = list(tensors_in(given, TensorRecord))
        seeds = {id(r): k for k, r in enumerate(records)}
        memory = Memory(torch.device("cpu"), lambda r: generate(r, 2718 + seeds[id(r)]), LARGEST)
        memory.plan(records)
        found = [map_tensors(v, memory.make, TensorRecord) for v in given]
        return tuple(map(_plain, found))


def _plain(value: Any) -> Any:
    if isinstance(value, values.Device):
        return None
    if isinstance(value, values.Generator):
        return None
    if isinstance(value, values.Opaque):
        raise TraceError(f"an argument is a {value.type}, which a case cannot hold")
    return [_plain(v) for v in value] if isinstance(value, list) else value


def cases_of(calls: Iterable[RecordedCall]) -> list[Case]:
    """One case for each kind of call, the most frequent first."""
    found: dict[str, Case] = {}
    for call in calls:
        if call.depth or call.error:
            continue
        args = map_tensors(call.args, _without_values, TensorRecord)
        key = str(replace(call, args=args))
        if key in found:
            found[key] = replace(found[key], times=found[key].times + 1)
        else:
            found[key] = Case(call.operator, args, 1, call.place)
    return sorted(found.values(), key=lambda case: -case.times)


def _without_values(record: TensorRecord) -> TensorRecord:
    return replace(record, data=None, digest=None, device="")


def write(path: str | Path, cases: list[Case], source: str) -> None:
    """Write a file of cases, whole or not at all."""
    body = {"format": FORMAT, "version": VERSION, "source": source, "made": program()["created"]}
    body["cases"] = [
        {"operator": c.operator, "times": c.times, "place": c.place, "args": values.to_json(c.args)}
        for c in cases
    ]
    atomic.write(path, json.dumps(body))


def read(path: str | Path) -> list[Case]:
    """The cases of a file. Raises TraceError with the place of what is wrong."""
    body = document(Path(path).resolve(), FILE)
    if body.get("format") != FORMAT:
        raise TraceError(f"{path}: no file of cases (`causeway cases TRACE` makes one)")
    if body.get("version") != VERSION:
        version = str(body.get("version"))[:20]
        raise TraceError(f"{path}: version {version}; this Causeway reads version {VERSION}")
    if not isinstance(body.get("cases"), list):
        raise TraceError(f"{path}: 'cases' is no list")
    found = []
    for number, one in enumerate(body["cases"], 1):
        try:
            found.append(_case(one))
        except ValueError as error:
            raise TraceError(f"{path} case {number}: {error}") from None
    return found


def _case(one: Any) -> Case:
    if not isinstance(one, dict) or set(one) - {"operator", "times", "place", "args"}:
        raise ValueError("not an object with operator, times, place and args")
    times, place, args = one.get("times", 1), one.get("place", ""), one.get("args")
    if type(times) is not int or times < 1 or not isinstance(place, str):
        raise ValueError("'times' is no number, or 'place' no text")
    if not isinstance(args, list):
        raise ValueError("'args' is no list")
    return Case(operator_name(one.get("operator")), values.from_json(args), times, place[:200])
