"""Where redirected calls are made, and how often.

A call is filed under the code object and the instruction that made it, which costs two attribute
reads; the line is looked up when somebody asks. Frames of torch and of Causeway are passed over, so
`model.cuda()` is one place, not a line in torch/nn. Calls that a compiler traces are not counted.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, dataclass
from itertools import islice
from types import CodeType, FrameType
from typing import Any

from torch.compiler import is_compiling

from causeway.untraced import untraced

_INSIDE = ("torch.", "causeway.", "importlib.")
# By the code's address: hashing a code object reads all of it. `_codes` keeps it alive.
_counts: dict[tuple[str, int, int], int] = {}
_codes: dict[int, CodeType] = {}


@dataclass(frozen=True)
class Place:
    """Calls of one name of CUDA's that one place in a program made."""

    api: str
    file: str
    line: int
    calls: int
    to: str  # what served it


def inside(frame: FrameType) -> bool:
    """Whether the code of `frame` is torch's or Causeway's own."""
    name: str = frame.f_globals.get("__name__", "")
    return name.startswith(_INSIDE) or name == "torch"


def note(api: str, depth: int = 2) -> None:
    """Count a call of `api`; `depth` frames up is who called."""
    if is_compiling():
        return
    frame: FrameType | None = sys._getframe(depth)
    while frame is not None and inside(frame):
        frame = frame.f_back
    if frame is None:  # the call came from C++, in a thread of its own
        note_elsewhere(api)
    else:
        count(api, frame)


def note_elsewhere(api: str) -> None:
    """Count a call of `api` that no line of Python in this process made."""
    _counts[api, 0, 0] = _counts.get((api, 0, 0), 0) + 1


def count(api: str, frame: FrameType) -> None:
    """Count a call of `api` that `frame` makes now."""
    code = frame.f_code
    key = (api, id(code), frame.f_lasti)
    try:
        _counts[key] += 1
    except KeyError:
        _codes[id(code)] = code
        _counts[key] = 1


for _helper in (inside, note, note_elsewhere, count):
    untraced(_helper)  # type: ignore[arg-type]


def clear() -> None:
    """Forget all counts."""
    _counts.clear()
    _codes.clear()


def _line(code: CodeType, instruction: int) -> int:
    """The line of an instruction, which is counted in bytes."""
    position = next(islice(code.co_positions(), instruction // 2, None), None)
    return (position and position[0]) or code.co_firstlineno


def read(to: dict[str, str]) -> list[Place]:
    """All places, by file and line. `to` says what serves each name."""
    merged: dict[tuple[str, str, int], int] = {}
    for (api, address, instruction), calls in list(_counts.items()):
        code = _codes.get(address)
        if code is None:
            key = (api, "", 0)
        else:
            key = (api, _absolute(code.co_filename), _line(code, instruction))
        merged[key] = merged.get(key, 0) + calls
    ordered = sorted(merged.items(), key=lambda item: (item[0][1], item[0][2], item[0][0]))
    return [Place(api, file, line, n, to.get(api, "")) for (api, file, line), n in ordered]


def _absolute(file: str) -> str:
    return file if file.startswith("<") else os.path.abspath(file)


class RedirectionReport:
    """What was redirected: `places`, and `unfixed`, the references that could not be replaced."""

    def __init__(
        self, target: str, places: list[Place], unfixed: list[str], processes: int = 1
    ) -> None:
        self.target = target
        self.places = places
        self.unfixed = unfixed
        self.processes = processes

    def to_dict(self) -> dict[str, Any]:
        """{target, processes, places: [{api, file, line, calls, to}], unfixed: [text]}"""
        return {
            "target": self.target,
            "processes": self.processes,
            "places": [asdict(place) for place in self.places],
            "unfixed": self.unfixed,
        }

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> RedirectionReport:
        """The report that `to_dict` gave."""
        places = [Place(**row) for row in found["places"]]
        return cls(found["target"], places, list(found["unfixed"]), found.get("processes", 1))

    def merged(self, other: RedirectionReport) -> RedirectionReport:
        """This report and that of another process of the same program, as one."""
        calls: dict[tuple[str, int, str, str], int] = {}
        for p in (*self.places, *other.places):
            key = (p.file, p.line, p.api, p.to)
            calls[key] = calls.get(key, 0) + p.calls
        places = [
            Place(api, file, line, n, to) for (file, line, api, to), n in sorted(calls.items())
        ]
        unfixed = sorted({*self.unfixed, *other.unfixed})
        return RedirectionReport(
            self.target or other.target, places, unfixed, self.processes + other.processes
        )

    def to_json(self) -> str:
        """The report as JSON, for `causeway migrate` and for other tools."""
        return json.dumps(self.to_dict(), indent=1)

    def by_api(self) -> dict[str, int]:
        """Calls of each name."""
        calls: dict[str, int] = {}
        for place in self.places:
            calls[place.api] = calls.get(place.api, 0) + place.calls
        return calls

    def __str__(self) -> str:
        """A table: calls, name, what served it, place."""
        if not self.places:
            return "nothing was redirected"
        here = os.getcwd() + os.sep
        rows = [("calls", "name", "served by", "place")]
        rows += [
            (str(p.calls), p.api, p.to, f"{p.file.removeprefix(here)}:{p.line}")
            for p in self.places
        ]
        widths = [max(len(row[i]) for row in rows) for i in range(3)]
        lines = [
            f"{n:>{widths[0]}}  {api:<{widths[1]}}  {to:<{widths[2]}}  {place}"
            for n, api, to, place in rows
        ]
        lines += [f"not replaced: {text}" for text in self.unfixed]
        return "\n".join(lines)
