"""The report of a verification, on a terminal and as a page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from causeway.migrate.reports.page import build as migration
from causeway.pages.page import (
    Badge,
    Block,
    Cell,
    Code,
    Figure,
    Figures,
    Number,
    Page,
    Pre,
    Section,
    Table,
    Text,
    Verdict,
)
from causeway.verify.report import Script, VerificationReport

if TYPE_CHECKING:
    from rich.console import Console

    from causeway.migrate.finding import Result


def show(report: VerificationReport, console: Console) -> None:
    """Print a line for each script, and what did not run on the chip."""
    from rich.markup import escape
    from rich.table import Table as RichTable

    table = RichTable(
        "script",
        "converted",
        "runs",
        "same numbers",
        "worst",
        "allowed",
        box=None,
        padding=(0, 2, 0, 0),
    )
    for s in report.scripts:
        converted = "redirected" if s.converted is None else _yes(s.converted)
        style = "green" if s.good else "red"
        row = (
            escape(s.script),
            converted,
            _yes(s.runs),
            _yes(s.same),
            "" if s.worst is None else f"{s.worst:.1e}",
            f"{s.tolerance:.0e}",
        )
        table.add_row(*row, style=style)
    console.print(table)
    for s in report.scripts:
        lead = f"{s.script}: " if len(report.scripts) > 1 else ""
        console.print(escape(lead + s.verdict()), highlight=False, soft_wrap=True)
        host = [f for f in s.fallbacks if f["rung"] == "host"]
        if host:
            names = ", ".join(f["operator"].removeprefix("aten::") for f in host[:6])
            calls = sum(f["calls"] for f in host)
            console.print(
                escape(f"{lead}{len(host)} operators ran on the host ({calls} calls): {names}"
                       + (", ..." if len(host) > 6 else "")),
                highlight=False, soft_wrap=True,
            )  # fmt: skip
        if s.operators is not None:
            rows = s.operators["rows"]
            compared = sum(row["compared"] for row in rows)
            wrong = len(s.operators["failures"])
            console.print(
                f"{escape(lead)}operator by operator: {compared} calls compared, {wrong} wrong",
                highlight=False,
            )
        if s.operators_error:
            console.print(
                escape(f"{lead}operator by operator it failed: {_last(s.operators_error)}"),
                highlight=False, soft_wrap=True,
            )  # fmt: skip


def _yes(value: bool | None) -> str:
    return "not known" if value is None else "yes" if value else "no"


def _last(text: str) -> str:
    return text.strip().splitlines()[-1] if text.strip() else ""


def page(report: VerificationReport, conversions: Sequence[Result] = ()) -> Page:
    """The page of a report. `conversions` follow it: what was changed to make the scripts run."""
    good = sum(script.good for script in report.scripts)
    total = len(report.scripts)
    blocks: list[Block] = [
        Verdict(
            f"{good} of {total} scripts compute the CPU's numbers on the device",
            "good" if report.good else "bad",
        ),
        Figures(
            [
                Figure(str(sum(s.converted is True for s in report.scripts)), "converted"),
                Figure(str(sum(s.runs for s in report.scripts)), "run"),
                Figure(str(sum(s.same is True for s in report.scripts)), "same numbers"),
            ]
        ),
        Table(
            ["script", "converted", "runs", "same numbers", "steps", "what was found"],
            [
                [
                    Code(s.script),
                    Badge("redirected") if s.converted is None else _badge(s.converted),
                    _badge(s.runs),
                    _badge(s.same),
                    s.steps[1],
                    s.verdict(),
                ]
                for s in report.scripts
            ],
        ),
    ]
    blocks += [Section(s.script, _script(s), foldable=total > 1) for s in report.scripts]
    for result in conversions:
        title = f"What was converted in {result.root}"
        blocks.append(Section(title, migration(result).blocks, foldable=True, open=False))
    about = report.about
    facts = [
        ("device", str(about["device"])),
        ("Causeway", str(about["causeway"])),
        ("torch", str(about["torch"])),
        ("steps", str(about["steps"])),
    ]
    return Page("Verification", blocks, about=facts, data=report.to_dict())


def _badge(value: bool | None) -> Badge:
    if value is None:
        return Badge("not known", "quiet")
    return Badge("yes", "good") if value else Badge("no", "bad")


def _script(s: Script) -> list[Block]:
    blocks: list[Block] = [Text([s.verdict()])]
    for error in (s.reference_error, s.error, s.operators_error):
        if error:
            blocks.append(Pre(error))
    if s.series:
        blocks.append(
            Table(
                ["numbers", "compared", "same", "largest difference", "first difference"],
                [
                    [
                        x.name,
                        x.compared,
                        _badge(x.same) if x.compared else "",
                        Number(x.worst, f"{x.worst:.2e}") if x.compared else "",
                        x.first,
                    ]
                    for x in s.series
                ],
                caption="Losses are what backward() is called on; gradients and parameters are "
                "norms before and after each step; outputs are norms of what modules return. "
                f"Allowed is a difference of {s.tolerance:.0e}.",
            )
        )
    if s.losses:
        rows: list[list[Cell]] = [
            [i + 1, a, b, Number(abs(a - b))] for i, (a, b) in enumerate(s.losses)
        ]
        blocks.append(Table(["backward", "on the CPU", "on the device", "difference"], rows))
    if s.fallbacks:
        rows_: list[list[Cell]] = [
            [Code(f["operator"]), f["rung"], f["calls"], f["bytes"]] for f in s.fallbacks
        ]
        blocks.append(
            Table(["not on the chip", "rung", "calls", "bytes copied"], rows_, caption="Fallbacks")
        )
    if s.operators is not None:
        blocks.append(
            Table(
                ["operator", "signature", "calls", "compared", "wrong", "largest difference"],
                [
                    [
                        Code(row["operator"]),
                        row["signature"],
                        row["calls"],
                        row["compared"],
                        row["failed"],
                        Number(float(row["max_abs"])),
                    ]
                    for row in s.operators["rows"]
                ],
                caption="Each operator, forward and backward, against the CPU's on the same inputs",
            )
        )
    if s.places:
        blocks.append(
            Table(
                ["redirected", "place", "calls"],
                [[Code(p["api"]), f"{p['file']}:{p['line']}", p["calls"]] for p in s.places],
            )
        )
    return blocks
