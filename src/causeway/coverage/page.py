"""The answer as a page: the verdict, bars by rung, what is missing, every operator, the sources."""

from __future__ import annotations

import linecache
from collections import Counter, defaultdict
from pathlib import Path

from causeway.coverage.model import ON_CHIP, PHASES, RUNGS, Coverage, CoverageRow
from causeway.coverage.record import Source
from causeway.ops.ledger import size
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
    Listing,
    Number,
    Page,
    Part,
    Section,
    Share,
    Simple,
    Table,
    Text,
    Tone,
    Verdict,
)

TONES: dict[str, Tone] = {
    "native": "native", "derived": "derived", "decomposed": "decomposed",
    "portable": "portable", "host": "host", "error": "missing",
}  # fmt: skip


def page(coverage: Coverage) -> Page:
    """The page of an answer."""
    listings = _listings(coverage)
    linked = {(listing.name, line) for listing in listings for line in listing.marks}
    blocks: list[Block] = [_verdict(coverage), Figures(_figures(coverage)), Bars(_bars(coverage))]
    blocks += [Text(note) for note in coverage.notes]
    if coverage.failure:
        blocks.append(_failure(coverage))
    if coverage.missing:
        blocks.append(
            Section("Missing", [_missing(coverage, linked)], note=str(len(coverage.missing)))
        )
    if coverage.narrowed:
        blocks.append(Section("Dtypes that the chip lacks", [_narrowed(coverage, linked)]))
    if coverage.rows:
        words = (
            "Time is an estimate that ranks, no prediction: the longer of bytes and operations, "
            f"for {coverage.machine.words}."
        )
        table = _operators(coverage, linked)
        blocks.append(Section("Operators", [Text(words), table], note=str(len(coverage.rows))))
    if listings:
        blocks.append(Section("Sources", listings, foldable=True, note=str(len(listings))))
    vendor = coverage.vendor
    about = [
        ("chip", f"{vendor['name']} {vendor['version']} ({vendor['device']})"),
        ("dtypes", ", ".join(vendor["dtypes"])),
        ("run", "dry: nothing large was computed" if coverage.dry else "computed on the CPU"),
        ("Causeway", coverage.versions[0]),
        ("torch", coverage.versions[1]),
    ]
    name = Path(coverage.target).name
    return Page(f"Coverage of {name}", blocks, about=about, data=coverage.to_dict())


def _verdict(coverage: Coverage) -> Verdict:
    bad = coverage.failure is not None or not coverage.rows
    tone: Tone = "bad" if bad else "warn" if coverage.missing or coverage.narrowed else "good"
    return Verdict(coverage.verdict, tone)


def _figures(coverage: Coverage) -> list[Figure]:
    operators = {row.operator for row in coverage.rows}
    missing = {row.operator for row in coverage.missing}
    figures = [
        Figure(f"{100 * coverage.on_chip:.1f} %", "of calls on the chip",
               "good" if coverage.on_chip > 0.999 else "warn"),
        Figure(str(len(operators)), "operators"),
        Figure(str(len(missing)), "of them missing", "bad" if missing else "good"),
        Figure(f"{int(coverage.total('calls')):,}".replace(",", "\u2009"), "calls"),
        Figure(size(int(coverage.total("bytes"))), "read and written"),
        Figure(size(coverage.peak_bytes), "of device memory at most"),
    ]  # fmt: skip
    if coverage.lacking:
        figures.append(Figure(", ".join(coverage.lacking), "not on the chip", "bad"))
    return figures


def _bars(coverage: Coverage) -> list[Bar]:
    def bar(title: str, of: str, phase: str = "") -> Bar:
        sums: Counter[str] = Counter()
        for row in coverage.rows:
            sums[row.rung] += row.phases[phase] if phase else getattr(row, of)
        return Bar(title, [Part(r, sums[r], TONES[r]) for r in RUNGS if sums[r]])

    bars = [bar("calls", "calls"), bar("bytes", "bytes"), bar("time, estimated", "seconds")]
    phases = [p for p in PHASES if any(row.phases[p] for row in coverage.rows)]
    if len(phases) > 1:
        bars += [bar(f"calls, {phase}", "calls", phase) for phase in phases]
    return bars


def _failure(coverage: Coverage) -> Section:
    failure = coverage.failure or {}
    where = f"{failure.get('file')}, line {failure.get('line')}" if failure.get("file") else ""
    return Section(
        "The program ended", [Verdict(str(failure.get("message")), "bad", where)]
    )  # fmt: skip


def _rung(row: CoverageRow) -> Badge:
    return Badge(row.rung, TONES[row.rung], hint=row.reason)


def _dtypes(coverage: Coverage, row: CoverageRow) -> Cell:
    has = coverage.vendor["dtypes"]
    return [Badge(dtype, "plain" if dtype in has else "bad") for dtype in row.dtypes]


def _places(row: CoverageRow, linked: set[tuple[str, int]], most: int = 3) -> Cell:
    cells: list[Simple] = [
        _place(source, linked) for source, _ in row.sources.most_common(most) if source[0]
    ]
    if len(row.sources) > most:
        cells.append(f"and {len(row.sources) - most} more")
    return cells


def _place(source: Source, linked: set[tuple[str, int]]) -> Code:
    file, line, _ = source
    href = Listing.href(file, line) if (file, line) in linked else ""
    return Code(f"{Path(file).name}:{line}", href)


def _missing(coverage: Coverage, linked: set[tuple[str, int]]) -> Table:
    rows: list[list[Cell]] = [
        [
            Code(row.operator),
            row.reason,
            row.calls,
            Share(coverage.share(row, "calls"), tone="host"),
            Share(coverage.share(row, "bytes"), tone="host"),
            Share(coverage.share(row, "seconds"), tone="host"),
            _dtypes(coverage, row),
            _places(row, linked),
        ]
        for row in coverage.missing
    ]
    columns: list[str | Column] = [
        "operator", Column("why", wide=True), "calls", "of calls", "of bytes",
        Column("of time", "estimated"), "dtypes", "called at",
    ]  # fmt: skip
    return Table(columns, rows, "What the chip does not serve, by estimated time")


def _narrowed(coverage: Coverage, linked: set[tuple[str, int]]) -> Table:
    rows: list[list[Cell]] = [
        [Badge(n.dtype, "bad"), Badge(n.stored), n.count, _place(n.source, linked), _line(n.source)]
        for n in coverage.narrowed
    ]
    words = (
        "Tensors of these dtypes are refused on the chip, unless CAUSEWAY_DTYPES=narrow: then they "
        "are stored as the next narrower one, as they were here"
    )
    columns: list[str | Column] = [
        "dtype",
        "stored as",
        "tensors",
        "made at",
        Column("source", wide=True),
    ]
    return Table(columns, rows, words)


def _line(source: Source) -> Code:
    return Code(linecache.getline(source[0], source[1]).strip())


def _operators(coverage: Coverage, linked: set[tuple[str, int]]) -> Table:
    rows: list[list[Cell]] = []
    for row in coverage.rows:
        shapes = [Code(text) for text, _ in row.signatures.most_common(2)]
        if len(row.signatures) > 2:
            shapes.append(Code(f"and {len(row.signatures) - 2} more"))
        rows.append(
            [
                Code(row.operator),
                _rung(row),
                row.calls,
                [Badge(f"{phase} {row.phases[phase]}", pale=True)
                 for phase in PHASES if row.phases[phase]],
                Number(row.bytes, size(row.bytes)),
                Share(coverage.share(row, "seconds"), tone=TONES[row.rung]),
                _dtypes(coverage, row),
                shapes,
                _places(row, linked, 2),
            ]
        )  # fmt: skip
    columns: list[str | Column] = [
        "operator", Column("rung", "which rung of the ladder serves it"), "calls", "phase", "bytes",
        Column("of time", "estimated"), "dtypes", Column("arguments", wide=True), "called at",
    ]  # fmt: skip
    return Table(columns, rows, "Every operator that reached the chip, by estimated time")


def _listings(coverage: Coverage) -> list[Listing]:
    """The files of calls that are missing or narrowed, with these lines marked; else of all."""
    marks: dict[str, dict[int, tuple[Tone, str]]] = defaultdict(dict)
    served: dict[tuple[str, int], set[str]] = defaultdict(set)
    for row in coverage.rows:
        for file, line, _ in row.sources:
            served[file, line].add(row.rung)
    for (file, line), rungs in served.items():
        worst = max(rungs, key=RUNGS.index)
        if worst in ON_CHIP:
            marks[file][line] = (TONES[worst], "")
    for row in reversed(coverage.missing):
        for file, line, _ in row.sources:
            before = marks[file].get(line, ("plain", ""))[1]
            words = ", ".join(filter(None, [row.operator.removeprefix("aten::"), before]))
            marks[file][line] = (TONES[row.rung], words)
    for narrowed in coverage.narrowed:
        file, line, _ = narrowed.source
        words = marks[file].get(line, ("plain", ""))[1]
        marks[file][line] = ("missing", ", ".join(filter(None, [f"no {narrowed.dtype}", words])))
    found = []
    for file in sorted(marks, key=lambda name: -len(marks[name])):
        source = "".join(linecache.getlines(file)) if file else ""
        if source:
            found.append(Listing(file, source, dict(marks[file])))
    return found[:40]
