"""A Chrome trace of torch.profiler, read and checked: what the host did, what the device did.

Only what the report needs is kept. Every value is looked at before it is used: a file that is no
such trace is refused with the reason, and nothing in it is ever run.
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from causeway.errors import CausewayError

OPERATORS = ("cpu_op",)
RANGES = ("user_annotation",)
DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
RUNTIME = (
    "privateuse1_runtime",
    "privateuse1_driver",
    "cuda_runtime",
    "cuda_driver",
    "xpu_runtime",
    "xpu_driver",
)
_MOST_BYTES = 4 << 30


class TraceError(CausewayError):
    """A file that is no trace of torch.profiler, or a damaged one."""


@dataclass(slots=True)
class Event:
    """A span of time, in microseconds. `process` and `track` are a thread of the host, or a device
    and its stream; `operation` is torch's number of the operator that caused it.
    """

    kind: str
    name: str
    process: int
    track: int
    start: float
    length: float
    operation: int | None = None
    bytes: int = 0
    rung: str = ""
    operator: str = ""

    @property
    def end(self) -> float:
        return self.start + self.length


@dataclass
class Trace:
    """Events by what they are, each list in order of start."""

    operators: list[Event] = field(default_factory=list)
    ranges: list[Event] = field(default_factory=list)
    runtime: list[Event] = field(default_factory=list)
    device: list[Event] = field(default_factory=list)
    device_names: dict[int, str] = field(default_factory=dict)

    def by_operation(self) -> dict[int, Event]:
        """The operator of each number."""
        return {e.operation: e for e in self.operators if e.operation is not None}


def read(path: str | Path) -> Trace:
    """Read a trace, `.json` or `.json.gz`. Raises TraceError with the reason where it is none."""
    path = Path(path)
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            text = file.read(_MOST_BYTES + 1)
        if len(text) > _MOST_BYTES:
            raise TraceError(f"{path} has more than {_MOST_BYTES >> 30} GiB; trace fewer steps")
        data = json.loads(text)
    except (OSError, EOFError) as error:
        raise TraceError(f"{path} cannot be read: {error}") from None
    except (ValueError, RecursionError) as error:
        raise TraceError(f"{path} is no trace: it is not JSON ({error})") from None
    return parse(data, str(path))


def parse(data: Any, where: str = "the trace") -> Trace:
    """The trace in a decoded JSON file."""
    events = data.get("traceEvents") if isinstance(data, dict) else data
    if not isinstance(events, list):
        raise TraceError(f"{where} is no trace of torch.profiler: it has no list traceEvents")
    trace = Trace()
    places = {
        **dict.fromkeys(OPERATORS, trace.operators),
        **dict.fromkeys(RANGES, trace.ranges),
        **dict.fromkeys(RUNTIME, trace.runtime),
        **dict.fromkeys(DEVICE, trace.device),
    }
    for number, entry in enumerate(events):
        if not isinstance(entry, dict):
            raise TraceError(f"{where}: entry {number} of traceEvents is no object")
        if entry.get("ph") == "M" and entry.get("name") == "process_name":
            _name(trace, entry)
        place = places.get(entry["cat"]) if isinstance(entry.get("cat"), str) else None
        if place is None or entry.get("ph") != "X":
            continue
        try:
            place.append(_event(entry))
        except (KeyError, TypeError, ValueError) as error:
            raise TraceError(
                f"{where}: entry {number} of traceEvents is damaged "
                f"({type(error).__name__}: {error})"
            ) from None
    for place in places.values():
        place.sort(key=lambda e: (e.start, -e.length))
    if not trace.operators and not trace.device:
        raise TraceError(f"{where} has neither operators nor work of a device")
    return trace


def _name(trace: Trace, entry: dict[str, Any]) -> None:
    arguments = entry.get("args")
    if isinstance(entry.get("pid"), int) and isinstance(arguments, dict):
        trace.device_names[entry["pid"]] = str(arguments.get("name", ""))


def _event(entry: dict[str, Any]) -> Event:
    arguments = entry.get("args", {})
    if not isinstance(arguments, dict):
        raise ValueError("args is no object")
    operation = arguments.get("External id")
    size = arguments.get("bytes", 0)
    return Event(
        kind=entry["cat"],
        name=str(entry["name"]),
        process=_whole(entry["pid"]),
        track=_whole(entry["tid"]),
        start=_time(entry["ts"]),
        length=_time(entry["dur"]),
        operation=operation if isinstance(operation, int) else None,
        bytes=size if isinstance(size, int) and size >= 0 else 0,
        rung=str(arguments.get("rung", "")),
        operator=str(arguments.get("operator", "")),
    )


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(f"{value!r} is no number of a process or thread")
    return int(value)


def _time(value: Any) -> float:
    number = float(value)
    if isinstance(value, bool) or not math.isfinite(number) or number < 0:
        raise ValueError(f"{value!r} is no time")
    return number


def gaps(events: list[Event]) -> Iterator[tuple[float, float, Event]]:
    """Times in which none of `events`, sorted by start, runs, each with the event that ends it."""
    end = None
    for event in events:
        if end is not None and event.start > end:
            yield end, event.start, event
        end = event.end if end is None else max(end, event.end)


def covered(events: list[Event]) -> float:
    """Microseconds in which at least one of `events`, sorted by start, runs."""
    if not events:
        return 0.0
    idle = sum(end - start for start, end, _ in gaps(events))
    return max(e.end for e in events) - events[0].start - idle
