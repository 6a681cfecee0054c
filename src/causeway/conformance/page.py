"""The report of the suite as a page: what failed first, then every operator by dtypes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from causeway.pages.page import (
    Badge,
    Bar,
    Bars,
    Block,
    Cell,
    Code,
    Column,
    Figure,
    Figures,
    Number,
    Page,
    Part,
    Pre,
    Section,
    Table,
    Text,
    Tone,
    Verdict,
)

if TYPE_CHECKING:
    from causeway.conformance.report import ConformanceReport

_STATES: dict[str, Tone] = {
    "passed": "good", "failed": "bad", "skipped": "quiet", "not tested": "warn", "no case": "quiet",
    "native": "native", "derived": "derived", "alone": "alone",
    "decomposed": "decomposed", "portable": "portable", "host": "host",
}  # fmt: skip


def page(report: ConformanceReport) -> Page:
    """The page of a report."""
    found = report.to_dict()
    about, summary, operators = found["about"], found["summary"], found["operators"]
    blocks: list[Block] = [Verdict(found["verdict"], "good" if summary["good"] else "bad")]
    blocks.append(Figures(_figures(summary, bool(operators))))
    if operators:
        blocks.append(Bars([_bar(operators)]))
    for name, known in summary["operators_known"].items():
        words = f"{known['cases']} cases of {name} differ as documented. {' '.join(known['why'])}"
        blocks.append(Text(words))
    failed = [o for o in operators if o["state"] == "failed"]
    if failed:
        inner = [_failure(o) for o in failed]
        blocks.append(Section("Failures", inner, note=str(len(failed))))
    if found["checks"]:
        blocks.append(Section("The table", [_checks(found["checks"])]))
    if operators:
        blocks.append(Section("Operators by dtypes", [*_words(about, summary), _matrix(found)]))
    facts = [
        ("device", str(about["device"])),
        ("Causeway", str(about["causeway"])),
        ("torch", str(about["torch"])),
        ("date", str(about["date"])),
    ]
    title = f"Conformance of {about['vendor']} {about['version']}"
    return Page(title, blocks, about=facts, data=found)


def _figures(summary: dict[str, Any], operators: bool) -> list[Figure]:
    figures = []
    if summary["checks_passed"] or summary["checks_failed"]:
        figures += [
            Figure(str(summary["checks_passed"]), "checks of the table passed", "good"),
            Figure(str(summary["checks_failed"]), "checks failed", _bad(summary["checks_failed"])),
        ]
    if operators:
        figures += [
            Figure(str(summary["operators_passed"]), "operators passed", "good"),
            Figure(
                str(summary["operators_failed"]),
                "operators failed",
                _bad(summary["operators_failed"]),
            ),
            Figure(f"{summary['cases']:,}".replace(",", "\u2009"), "cases"),
        ]
    if summary["declined"]:
        count = f"{summary['declined']} of {summary['cases_offered']}"
        figures.append(Figure(count, "cases of dtypes offered declined", "warn"))
    if summary["coverage"] is not None:
        figures.append(Figure(f"{summary['coverage']:.1%}", "of the dtypes offered passed"))
    return figures


def _bad(count: int) -> Tone:
    return "bad" if count else "plain"


def _bar(operators: list[dict[str, Any]]) -> Bar:
    counts: dict[str, int] = {}
    for operator in operators:
        for cell in operator["cells"].values():
            if cell["offered"]:
                counts[cell["state"]] = counts.get(cell["state"], 0) + 1
    order = [state for state in _STATES if state in counts]
    return Bar(
        "dtypes offered", [Part(state, counts[state], _STATES[state]) for state in order]
    )  # fmt: skip


def _checks(checks: list[dict[str, Any]]) -> Table:
    rows: list[list[Cell]] = [
        [
            Badge(f"L{c['level']}"),
            c["asked"],
            Badge(c["state"], _STATES[c["state"]]),
            c["expected"],
            c["came"],
        ]
        for c in checks
    ]
    columns: list[str | Column] = ["level", Column("asked", wide=True), "state", "expected", "came"]
    return Table(columns, rows, "What the table of C functions was asked")


def _words(about: dict[str, Any], summary: dict[str, Any]) -> list[Block]:
    return [
        Text(
            f"Of {summary['operators_of_torch']} operators that torch has a kernel for, the vendor "
            f"offers {about['offered']}; all others run on the lower rungs of the ladder."
        ),
        Text(
            [
                "Each cell says which rung served the operator and how many cases passed.",
                Badge("native", "native"), "the kernel's own form;",
                Badge("derived", "derived"),
                "the kernel through another form, or with inputs prepared for it;",
                Badge("alone", "alone"),
                "the kernel without Causeway, which does not call it today;",
                Badge("host", "host", pale=True),
                "pale: the vendor does not offer the dtype, and a lower rung serves it. Time is "
                "that of a call against the host rung's: below 1 the chip is faster.",
            ]
        ),
    ]  # fmt: skip


def _matrix(found: dict[str, Any]) -> Table:
    dtypes = found["about"]["dtypes"]
    rows: list[list[Cell]] = []
    for operator in found["operators"]:
        name: list[Any] = [Code(operator["operator"])]
        if operator["state"] == "failed":
            name.append(Badge("failed", "bad"))
        elif operator["state"] == "not tested":
            name.append(Badge("offered, not tested", "warn"))
        if operator["known"]:
            name.append(Badge(f"{operator['known']} differ as documented", "warn"))
        if operator["declined"]:
            name.append(Badge(f"declined {operator['declined']} of {operator['asked']}", "warn"))
        ratio = operator.get("ratio")
        rows.append(
            [
                name,
                *(_cell(operator["cells"].get(dtype)) for dtype in dtypes),
                operator.get("rule", ""),
                Number(ratio),
            ]
        )
    columns: list[str | Column] = ["operator", *dtypes, "rule", "time"]
    return Table(columns, rows, "Operators that the vendor offers")


def _cell(cell: dict[str, Any] | None) -> Cell:
    if cell is None:
        return None
    state = cell["state"]
    if state == "failed":
        return Badge(f"{cell['failed']} of {cell['failed'] + cell['passed']} failed", "bad")
    if cell["offered"] and state != "not tested":
        return Badge(f"{state} {cell['passed'] or ''}".strip(), _STATES[state])
    return Badge(state, _STATES[state], pale=not cell["offered"])


def _failure(operator: dict[str, Any]) -> Section:
    blocks: list[Block] = [Text(operator["broken"])] if operator.get("broken") else []
    count = 0
    for dtype, cell in operator["cells"].items():
        for failure in cell["failures"]:
            blocks.append(
                Pre(
                    f"{dtype}   {failure['call']}   {failure['variation']}\n{failure['why']}\n"
                    f"{failure['repro']}"
                )
            )
        count += cell["failed"]
    name = operator["operator"]
    return Section(name, blocks, open=True, foldable=True, note=f"{count} cases")
