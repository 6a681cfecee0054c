"""A summary for the terminal: what was done, what is left to do and where."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from causeway.migrate.finding import Kind, Result
from causeway.migrate.reports import catalogue, figures

if TYPE_CHECKING:
    from rich.console import Console

_STYLES = {
    "changed": "green",
    "portable": "cyan",
    "manual": "yellow",
    "unsupported": "red",
}
_OPEN: tuple[Kind, ...] = ("unsupported", "manual")
_ROWS = 15
_LEAST = 12  # columns of a text that may be cut


def show(result: Result, console: Console) -> None:
    """Print the packages for CUDA, the totals by rule, the files with most that is left to do, and
    how many hints there are. What stops a program comes first. Codes and numbers are never cut.
    """
    numbers = figures.of_result(result)
    _packages(result, console)
    _rules(result, numbers, console)
    _files(result, console)
    hints = sum(numbers.advice.values())
    if hints:
        console.print(f"{hints} {'hint' if hints == 1 else 'hints'} on precision and speed: see "
                      "--findings or a report", highlight=False, soft_wrap=True)  # fmt: skip


def _rules(result: Result, numbers: figures.Figures, console: Console) -> None:
    rules = figures.by(result.findings(), lambda f: f.rule)
    if not rules:
        return
    order = sorted(rules, key=lambda code: [-rules[code][kind] for kind in _OPEN])
    rows = [
        (code, catalogue.describe(code)["title"],
         *(str(rules[code][kind] or "") for kind in figures.SHORT))
        for code in order[:_ROWS]
    ]  # fmt: skip
    none = [""] * len(figures.SHORT)
    if len(rules) > _ROWS:
        rest = len(rules) - _ROWS
        rows.append(("", f"and {rest} more {'rule' if rest == 1 else 'rules'}", *none))
    rows.append(("all", "", *(str(numbers.kinds[kind]) for kind in figures.SHORT)))
    _print(console, ("rule", "", *figures.SHORT.values()), rows)


def _packages(result: Result, console: Console) -> None:
    packages = figures.packages(result.findings())
    if not packages:
        return
    rows = [
        (p.name, p.tip.removeprefix("Alternative: "), str(len(p.places))) for p in packages[:_ROWS]
    ]
    if len(packages) > _ROWS:
        rows.append(("", f"and {len(packages) - _ROWS} more packages", ""))
    _print(console, ("for CUDA", "in its place", "places"), rows)


def _files(result: Result, console: Console) -> None:
    left = figures.by((f for f in result.findings() if f.kind in _OPEN), lambda f: f.file)
    if not left:
        return
    order = sorted(left, key=lambda path: [-left[path][kind] for kind in _OPEN])
    rows = [
        ("", path, *(str(left[path][kind] or "") for kind in _OPEN)) for path in order[:5]
    ]  # fmt: skip
    _print(console, ("", "most left to do in", *(figures.SHORT[kind] for kind in _OPEN)), rows)


def _print(console: Console, titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table without borders. The first column and the numbers are whole; the second has the room
    that is left, and ends in "…" where that is too little.
    """
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0))
    widths = [max(len(row[i]) for row in (titles, *rows)) for i in range(len(titles))]
    room = console.width - sum(widths) + widths[1] - 2 * len(widths)
    styles: dict[str, str] = {short: _STYLES[kind] for kind, short in figures.SHORT.items()}
    for i, title in enumerate(titles):
        right = i > 1
        table.add_column(
            title, justify="right" if right else "left", style=styles.get(title, ""), no_wrap=True,
            max_width=max(room, _LEAST) if i == 1 else None, overflow="ellipsis",
        )  # fmt: skip
    for row in rows:
        bold = "bold" if row[0] == "all" else ""
        table.add_row(*(Text(cell, style=bold) for cell in row))
    console.print(table, soft_wrap=room < _LEAST)
