"""What replay and diff found, as tables for people."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from causeway.trace.diff import Difference, MatchedCall
from causeway.trace.replay import Replay

SHOWN = 20


def _line(console: Console, text: str, style: str = "") -> None:
    console.print(escape(text), style=style, highlight=False, soft_wrap=True)


def replay(found: Replay, console: Console) -> None:
    """Each call that differs or was not run, and how many agree."""
    for one in found.wrong:
        _line(console, str(one), "bold red")
    reasons: dict[str, list[str]] = {}
    for one in found.calls:
        if one.state == "not run" or (one.state == "ran" and one.why):
            reasons.setdefault(f"{one.state}: {one.why}", []).append(one.call.operator)
    for why, names in reasons.items():
        unique = sorted({name.removeprefix("aten::") for name in names})
        more = f" and {len(unique) - SHOWN} more" if len(unique) > SHOWN else ""
        _line(console, f"{why} ({', '.join(unique[:SHOWN])}{more})", "yellow")
    if state := found.trace.state():
        _line(console, state, "yellow")
    total = sum(one.times for one in found.calls)
    generated = sum(one.inputs == "generated" for one in found.calls)
    counts = ", ".join(f"{n} {state}" for state, n in found.counts.items())
    how = f", {generated} with generated inputs" if generated else ""
    style = "bold red" if found.wrong else "bold green"
    _line(
        console,
        f"on {found.device}: {len(found.calls)} different calls of {total}: {counts}{how}",
        style,
    )


def difference(found: Difference, console: Console, rank: str = "") -> None:
    """The first divergence, the worst calls, and what could not be compared."""
    if rank:
        _line(console, rank, "bold")
    for note in found.notes():
        _line(console, note, "yellow")
    for title, only in (("only in the first", found.only_a), ("only in the second", found.only_b)):
        for call in only[:SHOWN]:
            _line(console, f"{title}: {call} [{call.place}]", "red")
        if len(only) > SHOWN:
            _line(console, f"{title}: {len(only) - SHOWN} more", "red")
    worst = [row for row in found.worst() if row.result.size or row.result.why]
    if worst:
        table = Table(box=None, padding=(0, 2, 0, 0))
        for column in ("step", "phase", "module", "operator", "apart", "allowed", "inputs", "by"):
            table.add_column(column, overflow="fold")
        for row in worst:
            style = None if row.result.good else "red"
            table.add_row(*map(escape, _cells(row)), style=style)
        console.print(table)
    if (first := found.first) is not None:
        _line(console, f"first divergence: {first}", "bold red")
        if (origin := found.origin) is not None and origin is not first:
            _line(console, f"first with inputs that agree: {origin}", "bold red")
    words = f"{len(found.rows)} calls matched, {len(found.wrong)} beyond tolerance"
    if noise := sum(row.noise for row in found.rows):
        words += f", {noise} not judged"
    if found.unknown == len(found.rows):
        words += ", and nothing was kept to compare numbers by"
    missing = len(found.only_a) + len(found.only_b)
    if missing:
        words += f", {missing} in one trace only"
    _line(console, f"{'the same' if found.same else 'different'}: {words}",
          "bold green" if found.same else "bold red")  # fmt: skip


def _cells(row: MatchedCall) -> list[str]:
    apart = row.result.why or f"{row.result.size:.2g}"
    return [
        str(row.a.step),
        row.a.phase,
        row.a.module,
        row.a.operator.removeprefix("aten::"),
        apart,
        f"{row.result.allowed:.2g}",
        f"{row.inputs.size:.2g}" if row.inputs.how else "",
        row.result.how,
    ]
