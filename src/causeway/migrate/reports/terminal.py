"""A summary for the terminal: what was done, what is left to do and where."""

from __future__ import annotations

from typing import TYPE_CHECKING

from causeway.migrate.finding import Result
from causeway.migrate.reports import catalogue, figures

if TYPE_CHECKING:
    from rich.console import Console

_STYLES = {"changed": "green", "portable": "cyan", "manual": "yellow", "unsupported": "red"}
_ROWS = 15


def show(result: Result, console: Console) -> None:
    """Print the totals by rule, the files with most to do by hand, and how many hints there are."""
    from rich.markup import escape
    from rich.table import Table

    numbers = figures.of_result(result)
    findings = result.findings()
    rules = figures.by(findings, lambda f: f.rule)
    if rules:
        table = Table(box=None, padding=(0, 2, 0, 0))
        table.add_column("rule", no_wrap=True)
        table.add_column("", overflow="ellipsis", no_wrap=True, ratio=1)
        for kind, short in figures.SHORT.items():
            table.add_column(short, justify="right", style=_STYLES[kind], no_wrap=True)
        for code, kinds in list(rules.items())[:_ROWS]:
            table.add_row(code, escape(catalogue.describe(code)["title"]),
                          *(str(kinds[kind] or "") for kind in figures.SHORT))  # fmt: skip
        if len(rules) > _ROWS:
            rest = len(rules) - _ROWS
            table.add_row("", f"and {rest} more {'rule' if rest == 1 else 'rules'}")
        table.add_row("[bold]all[/]", "",
                      *(f"[bold]{numbers.kinds[kind]}[/]" for kind in figures.SHORT))  # fmt: skip
        console.print(table)
    todo = figures.by(
        (f for f in findings if f.kind in ("manual", "unsupported")), lambda f: f.file
    )
    if todo:
        table = Table("most to do by hand", "", box=None, padding=(0, 2, 0, 0))
        for path, kinds in list(todo.items())[:5]:
            table.add_row(escape(path), str(sum(kinds.values())))
        console.print(table)
    hints = sum(numbers.advice.values())
    if hints:
        console.print(f"{hints} {'hint' if hints == 1 else 'hints'} on precision and speed: see "
                      "--findings or a report", highlight=False, soft_wrap=True)  # fmt: skip
