"""The sums of a trace: operators by time on the device, gaps in which the device waits for the
host, what each rung of the ladder costs, copies.
"""

from __future__ import annotations

import bisect
import json
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from causeway.ops.ledger import RUNGS, size
from causeway.profile.trace import Event, Trace, covered, gaps

if TYPE_CHECKING:
    from rich.console import Console

NO_OPERATOR = "(no operator)"
PYTHON = "Python, between operators"
WAITS = frozenset({"stream_sync", "event_sync", "sync"})  # entries in which the host waits


@dataclass
class ProfileRow:
    """One line of a table; times in milliseconds."""

    name: str
    calls: int = 0
    kernels: int = 0
    device_ms: float = 0.0
    host_ms: float = 0.0  # worked, without waits for the device
    waited_ms: float = 0.0
    bytes: int = 0


@dataclass
class Device:
    """One device between its first and its last work."""

    name: str
    span_ms: float
    busy_ms: float
    gaps: int


@dataclass
class ProfileReport:
    """What `causeway profile` says. Each list has the dearest first."""

    window_ms: float  # from the first event to the last
    devices: list[Device] = field(default_factory=list)
    operators: list[ProfileRow] = field(default_factory=list)
    kernels: list[ProfileRow] = field(default_factory=list)
    gaps: list[ProfileRow] = field(default_factory=list)  # by what the host did meanwhile
    rungs: list[ProfileRow] = field(default_factory=list)
    fallbacks: list[ProfileRow] = field(default_factory=list)  # operators on the host rung
    copies: list[ProfileRow] = field(default_factory=list)

    def to_json(self) -> str:
        """All of it; times in milliseconds."""
        return json.dumps(asdict(self), indent=1) + "\n"

    def to_html(self) -> str:
        """A page that needs nothing else."""
        from causeway.profile.page import page

        return page(self).to_html()


def report(trace: Trace) -> ProfileReport:
    """Sum up a trace."""
    everything = [*trace.operators, *trace.runtime, *trace.device]
    first = min(e.start for e in everything)
    found = ProfileReport((max(e.end for e in everything) - first) / 1000)
    _sum_operators(trace, found)
    _sum_rungs(trace, found)
    _sum_copies(trace, found)
    _sum_gaps(trace, found)
    for rows in (found.operators, found.kernels, found.fallbacks, found.copies, found.gaps):
        rows.sort(key=lambda r: (-r.device_ms, -r.host_ms, r.name))
    return found


def _row(rows: dict[str, ProfileRow], name: str) -> ProfileRow:
    return rows.setdefault(name, ProfileRow(name))


def _sum_operators(trace: Trace, found: ProfileReport) -> None:
    operators: dict[str, ProfileRow] = {}
    kernels: dict[str, ProfileRow] = {}
    by_number = trace.by_operation()
    waits = [e for e in trace.runtime if e.name in WAITS]
    for event, own, waited in _self_times(trace.operators, waits):
        _add_call(_row(operators, event.name), own, waited)
    for work in trace.device:
        cause = by_number.get(work.operation) if work.operation is not None else None
        row = _row(operators, cause.name if cause else NO_OPERATOR)
        kernel = _row(kernels, work.name)
        for r in (row, kernel):
            r.kernels += 1
            r.device_ms += work.length / 1000
            r.bytes += work.bytes
    found.operators = list(operators.values())
    found.kernels = list(kernels.values())


def _add_call(row: ProfileRow, own: float, waited: float) -> None:
    row.calls += 1
    row.host_ms += own / 1000
    row.waited_ms += waited / 1000


def _self_times(events: list[Event], waits: list[Event]) -> list[tuple[Event, float, float]]:
    """Each event, the microseconds in which neither another of `events` nor a wait ran within it on
    its thread, and those of the waits directly within it.
    """
    result: list[list[Any]] = []
    stacks: dict[tuple[int, int], list[list[Any]]] = {}
    chosen = {id(event) for event in events}
    both = {id(event): event for event in (*events, *waits)}.values()
    for event in sorted(both, key=lambda e: (e.start, -e.length)):
        stack = stacks.setdefault((event.process, event.track), [])
        while stack and stack[-1][0].end <= event.start:
            stack.pop()
        is_wait = id(event) not in chosen
        if stack:
            within = min(event.end, stack[-1][0].end) - event.start
            stack[-1][1] -= within
            stack[-1][2] += within if is_wait else 0.0
        if not is_wait:
            entry = [event, event.length, 0.0]
            stack.append(entry)
            result.append(entry)
    return [(event, max(own, 0.0), waited) for event, own, waited in result]


def _sum_rungs(trace: Trace, found: ProfileReport) -> None:
    rungs: dict[str, ProfileRow] = {}
    fallbacks: dict[str, ProfileRow] = {}
    waits = [e for e in trace.runtime if e.name in WAITS]
    for event, own, waited in _self_times([e for e in trace.runtime if e.rung], waits):
        _add_call(_row(rungs, event.rung), own, waited)
        if event.rung == "host":
            _add_call(_row(fallbacks, event.operator), own, waited)
    for work in trace.device:
        if work.rung:
            row = _row(rungs, work.rung)
            row.kernels += 1
            row.device_ms += work.length / 1000
    found.rungs = [rungs[name] for name in RUNGS if name in rungs]
    found.fallbacks = list(fallbacks.values())


def _sum_copies(trace: Trace, found: ProfileReport) -> None:
    rows: dict[str, ProfileRow] = {}
    for work in trace.device:
        if work.kind == "gpu_memcpy":
            row = _row(rows, work.name)
            row.calls += 1
            row.device_ms += work.length / 1000
            row.bytes += work.bytes
    for event in trace.runtime:
        if event.name.startswith("Memcpy"):
            row = _row(rows, event.name)
            row.calls += 1
            row.host_ms += event.length / 1000
            row.bytes += event.bytes
    found.copies = list(rows.values())


def _sum_gaps(trace: Trace, found: ProfileReport) -> None:
    host = sorted([*trace.operators, *trace.runtime], key=lambda e: (e.start, -e.length))
    activity = _Activity(host)
    causes: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for device in sorted({e.process for e in trace.device}):
        work = [e for e in trace.device if e.process == device]
        number = 0
        for start, end, _ in gaps(work):
            number += 1
            parts = activity.during(start, end)
            causes.update(parts)
            counts[max(parts, key=lambda name: parts[name])] += 1
        name = trace.device_names.get(device) or f"device {device}"
        span = max(e.end for e in work) - work[0].start
        found.devices.append(Device(name, span / 1000, covered(work) / 1000, number))
    found.gaps = [
        ProfileRow(n, calls=counts[n], host_ms=t / 1000) for n, t in causes.items() if t > 0
    ]


class _Activity:
    """What the host did at a time: the innermost event of the thread that did most."""

    def __init__(self, events: list[Event]) -> None:
        # Change points of each thread: from `times[i]` on, `names[i]` is innermost.
        self.threads: list[tuple[list[float], list[str]]] = []
        by_thread: dict[tuple[int, int], list[Event]] = {}
        for event in events:
            by_thread.setdefault((event.process, event.track), []).append(event)
        for mine in by_thread.values():
            self.threads.append(_innermost(mine))

    def during(self, start: float, end: float) -> dict[str, float]:
        """Microseconds of [start, end) by name, of the thread that is busiest then."""
        best: dict[str, float] = {}
        for times, names in self.threads:
            parts: dict[str, float] = {}
            i = bisect.bisect_right(times, start) - 1
            at = start
            while at < end:
                until = min(end, times[i + 1] if i + 1 < len(times) else end)
                name = names[i] if i >= 0 else PYTHON
                parts[name] = parts.get(name, 0.0) + until - at
                at = until
                i += 1
            if not best or parts.get(PYTHON, 0.0) < best.get(PYTHON, 0.0):
                best = parts
        return best or {PYTHON: end - start}


def _innermost(events: list[Event]) -> tuple[list[float], list[str]]:
    times: list[float] = []
    names: list[str] = []
    stack: list[Event] = []

    def change(at: float) -> None:
        times.append(at)
        names.append(stack[-1].name if stack else PYTHON)

    for event in events:
        while stack and stack[-1].end <= event.start:
            at = stack.pop().end
            change(at)
        stack.append(event)
        change(event.start)
    while stack:
        at = stack.pop().end
        change(at)
    return times, names


# --- for people ---------------------------------------------------------------------------------


def show(found: ProfileReport, console: Console, top: int = 10) -> None:
    """Print the tables."""
    from rich.markup import escape
    from rich.table import Table

    def table(title: str, rows: list[ProfileRow], *columns: str) -> None:
        if not rows:
            return
        t = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
        t.add_column("", no_wrap=True, max_width=52)
        for column in columns:
            t.add_column(column, justify="right", no_wrap=True)
        for row in rows[:top]:
            t.add_row(escape(row.name), *(_cell(row, column) for column in columns))
        console.print(t)
        if len(rows) > top:
            console.print(f"and {len(rows) - top} more", style="dim")
        console.print()

    console.print(f"traced {found.window_ms:.1f} ms", highlight=False)
    for d in found.devices:
        part = d.busy_ms / d.span_ms if d.span_ms else 0.0
        console.print(
            escape(f"{d.name}: busy {d.busy_ms:.1f} of {d.span_ms:.1f} ms ({part:.0%}), ")
            + f"{d.gaps} gaps",
            highlight=False,
        )
    if not found.devices:
        console.print("no work was put on a device", highlight=False)
    console.print()
    table("operators", found.operators, "calls", "kernels", "device ms", "host ms", "waited ms")
    table("gaps: the device waits for", found.gaps, "calls", "host ms")
    table("rungs", found.rungs, "calls", "kernels", "device ms", "host ms", "waited ms")
    table("on the host rung", found.fallbacks, "calls", "host ms", "waited ms")
    table("copies", found.copies, "calls", "bytes", "device ms", "host ms", "GB/s")


def _cell(row: ProfileRow, column: str) -> str:
    match column:
        case "calls" | "kernels":
            number = getattr(row, column)
            return str(number) if number else "-"
        case "bytes":
            return size(row.bytes)
        case "GB/s":
            ms = row.device_ms or row.host_ms
            return f"{row.bytes / ms / 1e6:.1f}" if ms else "-"
        case _:
            ms = getattr(row, column.replace(" ", "_"))
            return f"{ms:.2f}" if ms else "-"
