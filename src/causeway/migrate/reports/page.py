"""One HTML page: totals, what needs a hand, every change side by side.

Made of causeway.pages' blocks, so all that it shows is escaped and nothing is loaded.
"""

from __future__ import annotations

import difflib
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
    Pre,
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
# A large page is slow to open. Above so many rows those that say the same are one; behind so many
# lines side by side only the lines that change are shown, one above the other.
_FOLD_FROM = 300
_SHOWN = 3
_DIFF_LINES = 2_500
_OPEN_DIFFS = 3


def write(result: Result, path: str | Path, more: Sequence[Section] = ()) -> None:
    """Write the page all at once. `more` are sections that come first. Raises OSError."""
    build(result, more).write(path)


def build(result: Result, more: Sequence[Section] = ()) -> Page:
    """The page as data."""
    numbers = figures.of_result(result)
    findings = result.findings()
    anchors = {file.path: f"file-{i}" for i, file in enumerate(_changed(result))}
    packages = figures.packages(findings)
    alone = [f for f in findings if not catalogue.package(f)]
    blocks: list[Block] = [
        Verdict(numbers.verdict, _tone(numbers)),
        Figures(_figures(numbers)),
        *([_bars(findings)] if numbers.places else []),
        *more,
        *([_packages(packages, anchors)] if packages else []),
        _list("Exists for CUDA only", [f for f in alone if f.kind == "unsupported"], anchors),
        _list("Needs a hand", [f for f in alone if f.kind == "manual"], anchors),
        _files(result, anchors),
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
            ("parts about CUDA itself", "converted" if settings.about_cuda else "left"),
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
    some = figures.urgent_first(f for f in findings if not f.is_advice)
    rows: list[list[Cell]] = [
        [
            _places(group, anchors),
            Badge(group[0].rule, "plain", True, catalogue.describe(group[0].rule)["title"]),
            _sources(group),
            group[0].message,
            group[0].tip,
        ]
        for group in _folded(some)
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
        note=str(len(some)),
    )  # fmt: skip


def _folded(findings: Sequence[Finding]) -> list[list[Finding]]:
    """One row a place, or where there are too many for a page one row for all that say the same."""
    if len(findings) <= _FOLD_FROM:
        return [[found] for found in findings]
    groups: dict[tuple[str, str, str], list[Finding]] = {}
    for found in findings:
        groups.setdefault((found.rule, found.message, found.tip), []).append(found)
    return list(groups.values())


def _places(findings: Sequence[Finding], anchors: dict[str, str]) -> Cell:
    """All places of a row: the lines of each file, which leads to its changes."""
    if len(findings) == 1:
        return _where(findings[0], anchors)
    lines: dict[str, list[str]] = {}
    for found in findings:
        lines.setdefault(found.file, []).append(str(found.line))
    return [
        Link(text, f"#{anchors[file]}") if file in anchors else text
        for file, numbers in lines.items()
        for text in (f"{file}:{','.join(numbers)}",)
    ]


def _sources(findings: Sequence[Finding]) -> Cell:
    """What stands at the places of a row, as far as it differs; a few of many."""
    found = list(dict.fromkeys(_short(f.before) for f in findings))
    more = [f"and {len(found) - _SHOWN} more"] if len(found) > _SHOWN else []
    return [*(Code(text) for text in found[:_SHOWN]), *more]


def _packages(packages: Sequence[figures.Package], anchors: dict[str, str]) -> Section:
    """One row a package."""
    rows: list[list[Cell]] = [
        [Code(p.name), Badge(SHORT[p.kind], TONES[p.kind]), len(p.places), p.tip,
         _places(p.places, anchors)]
        for p in packages
    ]  # fmt: skip
    columns: list[str | Column] = ["package", "", "places", "what to do", "where"]
    return Section("Packages for CUDA", [Table(columns, rows)], foldable=True, note=str(len(rows)))


def _files(result: Result, anchors: dict[str, str]) -> Section:
    rows: list[list[Cell]] = []
    for file in sorted(result.files, key=lambda f: f.path):
        numbers = figures.count([file])
        if not numbers.places and file.status in ("unchanged", "skipped"):
            continue
        name: Cell = Code(file.path)
        if file.path in anchors:
            name = Link(file.path, f"#{anchors[file.path]}")
        rows.append(
            [
                name,
                [Badge(file.status, _STATUS[file.status]), file.reason],
                *(numbers.kinds[kind] for kind in SHORT),
                ""
                if numbers.share is None
                else Share(numbers.share)
                if len(result.files) <= _FOLD_FROM
                else f"{100 * numbers.share:.0f} %",
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
            _places(group, anchors),
            group[0].category,
            Badge(group[0].rule, "plain", True),
            _sources(group),
            group[0].tip,
        ]
        for group in _folded(some)
    ]
    columns: list[str | Column] = [
        "where", "about", "rule", "source",
        "hint",
    ]  # fmt: skip
    text = Text("Hints that hold on any accelerator; no code was changed for them.")
    return [Section("Precision and speed", [text, Table(columns, rows)], foldable=True, open=False,
                    note=str(len(some)))]  # fmt: skip


def _changed(result: Result) -> list[FileResult]:
    return sorted((f for f in result.files if f.changed), key=lambda f: f.path)


def _diffs(result: Result, anchors: dict[str, str]) -> list[Section]:
    sections: list[Block] = []
    lines = 0
    files = _changed(result)
    for file in files:
        changes = sum(f.kind == "changed" for f in file.findings)
        diff: Block = Diff(file.before, file.after, (file.path, "converted"))
        lines += min(file.lines, 8 * changes + 20)
        if lines > _DIFF_LINES:
            diff = Pre(_lines_changed(file))
        sections.append(
            Section(
                file.path,
                [diff],
                foldable=True,
                open=len(files) <= _OPEN_DIFFS,
                anchor=anchors[file.path],
                note=f"{changes} change" + "s" * (changes != 1),
            )
        )
    if not sections:
        return []
    return [Section("Changes", sections, note=str(len(files)))]


def _lines_changed(file: FileResult) -> str:
    """The lines of a file that change, with their numbers; the shortest form that has all."""
    before, after = file.before.splitlines(), file.after.splitlines()
    found: list[str] = []
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    for tag, i, j, k, m in matcher.get_opcodes():
        if tag != "equal":
            found += [f"{n + 1} - {before[n]}" for n in range(i, j)]
            found += [f"{n + 1} + {after[n]}" for n in range(k, m)]
    return "\n".join(found)


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 80 else line[:79] + "…"
