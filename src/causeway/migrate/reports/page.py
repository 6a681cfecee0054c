"""One HTML page: totals, what needs a hand, every change side by side.

Made of causeway.pages' blocks, so all that it shows is escaped and nothing is loaded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import causeway
from causeway.migrate.finding import FileResult, Finding, Kind, Result
from causeway.migrate.reports import catalogue, figures
from causeway.migrate.reports.figures import SHORT, WORDS
from causeway.pages.page import (
    Badge,
    Bar,
    Bars,
    Block,
    Cell,
    Code,
    Column,
    Diff,
    Figure,
    Figures,
    Link,
    Page,
    Part,
    Section,
    Share,
    Table,
    Text,
    Tone,
    Verdict,
)

TONES: dict[Kind, Tone] = {
    "changed": "good",
    "portable": "derived",
    "manual": "warn",
    "unsupported": "bad",
}
_STATUS: dict[str, Tone] = {
    "converted": "good",
    "unchanged": "quiet",
    "unparsable": "bad",
    "skipped": "quiet",
}
# A page of more lines than this is slow to open; the rest is in the files themselves.
_DIFF_LINES = 40_000
_OPEN_DIFFS = 3


def write(result: Result, path: str | Path, more: Sequence[Section] = ()) -> None:
    """Write the page all at once. `more` are sections that come first. Raises OSError."""
    build(result, more).write(path)


def build(result: Result, more: Sequence[Section] = ()) -> Page:
    """The page as data."""
    numbers = figures.of_result(result)
    findings = result.findings()
    anchors = {file.path: f"file-{i}" for i, file in enumerate(_changed(result))}
    blocks: list[Block] = [
        Verdict(numbers.verdict, _tone(numbers)),
        Figures(_figures(numbers)),
        *([_bars(findings)] if numbers.places else []),
        *more,
        _files(result, anchors),
        _list("Needs a hand", [f for f in findings if f.kind == "manual"], anchors),
        _list("Exists for CUDA only", [f for f in findings if f.kind == "unsupported"], anchors),
        _list(
            "Left, for it is portable",
            [f for f in findings if f.kind == "portable"],
            anchors,
            open_=False,
        ),
        _rules(findings),
        *_advice(findings, anchors),
        *_diffs(result, anchors),
    ]
    settings = result.settings
    target = "any device" if settings.target == "portable" else settings.target
    return Page(
        "Migration",
        blocks,
        subtitle=result.root,
        about=[
            ("written for", target),
            ("unsafe rules", "applied" if settings.unsafe else "reported only"),
            ("files", f"{numbers.files}, {numbers.lines} lines"),
            ("causeway", causeway.__version__),
        ],
    )


def _tone(numbers: figures.Figures) -> Tone:
    if numbers.kinds["unsupported"] or numbers.statuses["unparsable"]:
        return "warn"
    return "fair" if numbers.open else "good"


def _figures(numbers: figures.Figures) -> list[Figure]:
    found = [Figure(str(numbers.kinds[kind]), words, TONES[kind]) for kind, words in WORDS.items()]
    found.append(
        Figure(
            str(numbers.statuses["converted"]),
            "files change",
            detail=f"of {numbers.files}",
        )
    )
    if numbers.statuses["unparsable"]:
        found.append(Figure(str(numbers.statuses["unparsable"]), "files not read", "bad"))
    if sum(numbers.advice.values()):
        found.append(Figure(str(sum(numbers.advice.values())), "hints on precision and speed"))
    return found


def _bars(findings: Iterable[Finding]) -> Bars:
    findings = list(findings)
    bars = []
    for title, some in [("all places", findings), *_groups(findings)]:
        counts = figures.by(some, lambda _: "")
        if counts:
            parts = [Part(SHORT[kind], counts[""][kind], TONES[kind]) for kind in SHORT]
            bars.append(Bar(title, parts))
    return Bars(bars)


def _groups(findings: Sequence[Finding]) -> list[tuple[str, list[Finding]]]:
    groups: dict[str, list[Finding]] = {}
    for found in findings:
        groups.setdefault(catalogue.group(found), []).append(found)
    return sorted(groups.items(), key=lambda item: -len(item[1])) if len(groups) > 1 else []


def _where(found: Finding, anchors: dict[str, str]) -> Cell:
    anchor = anchors.get(found.file)
    place = f"{found.file}:{found.line}"
    return Link(place, f"#{anchor}") if anchor else Code(place)


def _list(
    title: str, findings: Sequence[Finding], anchors: dict[str, str], *, open_: bool = True
) -> Section:
    some = [f for f in findings if not f.is_advice]
    rows: list[list[Cell]] = [
        [
            _where(f, anchors),
            Badge(f.rule, "plain", True, catalogue.describe(f.rule)["title"]),
            Code(_short(f.before)),
            f.message,
            f.tip,
        ]
        for f in some
    ]
    columns: list[str | Column] = [
        "where",
        "rule",
        "source",
        "what",
        "what to do",
    ]
    return Section(
        title, [Table(columns, rows, empty="nothing")], foldable=True, open=open_,
        note=str(len(rows)),
    )  # fmt: skip


def _files(result: Result, anchors: dict[str, str]) -> Section:
    rows: list[list[Cell]] = []
    for file in sorted(result.files, key=lambda f: f.path):
        if not file.findings and file.status in ("unchanged", "skipped"):
            continue
        numbers = figures.count([file])
        name: Cell = Code(file.path)
        if file.path in anchors:
            name = Link(file.path, f"#{anchors[file.path]}")
        rows.append(
            [
                name,
                [Badge(file.status, _STATUS[file.status]), file.reason],
                *(numbers.kinds[kind] for kind in SHORT),
                "" if numbers.share is None else Share(numbers.share),
            ]
        )
    columns: list[str | Column] = [
        Column("file", wide=True), "status", *(Column(SHORT[k], WORDS[k]) for k in SHORT), "done",
    ]  # fmt: skip
    quiet = len(result.files) - len(rows)
    note = f"{len(rows)}, and {quiet} without anything of CUDA" if quiet else str(len(rows))
    return Section("Files", [Table(columns, rows, empty="no files")], note=note, foldable=True)


def _rules(findings: Sequence[Finding]) -> Section:
    rows: list[list[Cell]] = []
    for code, kinds in figures.by(findings, lambda f: f.rule).items():
        about = catalogue.describe(code)
        rows.append([Code(code), about["title"], *(kinds[kind] for kind in SHORT), about["why"]])
    columns: list[str | Column] = [
        "rule", "title", *SHORT.values(), "why"
    ]  # fmt: skip
    return Section("Rules", [Table(columns, rows, empty="none")], foldable=True, open=False,
                   note=str(len(rows)))  # fmt: skip


def _advice(findings: Sequence[Finding], anchors: dict[str, str]) -> list[Section]:
    some = [f for f in findings if f.is_advice]
    if not some:
        return []
    rows: list[list[Cell]] = [
        [
            _where(f, anchors),
            f.category,
            Badge(f.rule, "plain", True),
            Code(_short(f.before)),
            f.tip,
        ]
        for f in some
    ]
    columns: list[str | Column] = [
        "where", "about", "rule", "source",
        "hint",
    ]  # fmt: skip
    text = Text("Hints that hold on any accelerator; no code was changed for them.")
    return [Section("Precision and speed", [text, Table(columns, rows)], foldable=True, open=False,
                    note=str(len(rows)))]  # fmt: skip


def _changed(result: Result) -> list[FileResult]:
    return sorted((f for f in result.files if f.changed), key=lambda f: f.path)


def _diffs(result: Result, anchors: dict[str, str]) -> list[Section]:
    sections: list[Block] = []
    lines = left_out = 0
    files = _changed(result)
    for file in files:
        changes = sum(f.kind == "changed" for f in file.findings)
        diff = Diff(file.before, file.after, (file.path, "converted"))
        size = min(file.lines, 8 * changes + 20)
        if lines + size > _DIFF_LINES:
            left_out += 1
            continue
        lines += size
        sections.append(
            Section(
                file.path,
                [diff],
                foldable=True,
                open=len(files) <= _OPEN_DIFFS,
                anchor=anchors[file.path],
                note=f"{changes} changes",
            )
        )
    if left_out:
        sections.insert(0, Text(f"{left_out} more files change than a page can show."))
    if not sections:
        return []
    return [Section("Changes", sections, note=str(len(files)))]


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 80 else line[:79] + "…"
