"""What `causeway profile` says, as a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from causeway.ops.ledger import size
from causeway.pages.page import (
    Bar,
    Bars,
    Block,
    Cell,
    Code,
    Number,
    Page,
    Part,
    Section,
    Share,
    Table,
    Text,
    Tone,
)

if TYPE_CHECKING:
    from causeway.profile.report import ProfileReport, ProfileRow

# A table: its title, the list of the report, its columns, and the one that the bar is for.
TABLES = (
    (
        "Operators",
        "operators",
        ("calls", "kernels", "device ms", "host ms", "waited ms"),
        "device ms",
    ),
    ("Kernels", "kernels", ("kernels", "device ms"), "device ms"),
    ("Gaps: what the host did while the device waited", "gaps", ("calls", "host ms"), "host ms"),
    ("Rungs", "rungs", ("calls", "kernels", "device ms", "host ms", "waited ms"), "host ms"),
    ("On the host rung", "fallbacks", ("calls", "host ms", "waited ms"), "host ms"),
    ("Copies", "copies", ("calls", "bytes", "device ms", "host ms"), "bytes"),
)


def page(report: ProfileReport) -> Page:
    """The page of a report."""
    blocks: list[Block] = []
    for device in report.devices:
        busy, idle = device.busy_ms, max(0.0, device.span_ms - device.busy_ms)
        parts = (
            Part("busy", busy, "native", f"{busy:.1f} ms"),
            Part("idle", idle, "quiet", f"{idle:.1f} ms, {device.gaps} gaps"),
        )
        blocks.append(Bars([Bar(device.name, parts)]))
    if not report.devices:
        blocks.append(Text("No work was put on a device."))
    for title, name, columns, by in TABLES:
        rows: list[ProfileRow] = getattr(report, name)
        if rows:
            blocks.append(Section(title, [_table(rows, columns, by)]))
    return Page("Profile", blocks, about=[("traced", f"{report.window_ms:.1f} ms")])


def _table(rows: list[ProfileRow], columns: tuple[str, ...], by: str) -> Table:
    total = sum(_value(row, by) for row in rows)
    tone: Tone = "host" if by == "host ms" else "native"
    lines: list[list[Cell]] = [
        [
            Code(row.name),
            *(Number(_value(row, column), _shown(row, column)) for column in columns),
            Share(_value(row, by) / total if total else 0.0, tone=tone),
        ]
        for row in rows
    ]
    return Table(["", *columns, f"of {by}"], lines)


def _value(row: ProfileRow, column: str) -> float:
    return float(getattr(row, column.replace(" ", "_")))


def _shown(row: ProfileRow, column: str) -> str:
    value = _value(row, column)
    if column == "bytes":
        return size(row.bytes)
    return (f"{value:.3f}" if column.endswith(" ms") else f"{value:.0f}") if value else "-"
