"""The numbers of a conversion, counted once for all reports.

Advice on precision and speed is not about CUDA, so it is counted for itself: a page that called it
"portable" would praise the code for things that have nothing to do with the move.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from causeway.migrate.finding import KINDS, FileResult, Finding, Kind, Result
from causeway.migrate.reports import catalogue

WORDS: dict[Kind, str] = {
    "changed": "changed",
    "portable": "left, for it is portable",
    "manual": "needs a hand",
    "unsupported": "exists for CUDA only",
}
SHORT: dict[Kind, str] = {
    "changed": "changed",
    "portable": "portable",
    "manual": "by hand",
    "unsupported": "CUDA only",
}


@dataclass
class Figures:
    """`kinds` counts places that concern CUDA; `statuses` files; `share` is the part of the places
    that are done, changed or portable, None where there are none.
    """

    files: int = 0
    lines: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)
    advice: Counter[str] = field(default_factory=Counter)
    operators: int = 0

    @property
    def places(self) -> int:
        return sum(self.kinds.values())

    @property
    def done(self) -> int:
        return self.kinds["changed"] + self.kinds["portable"]

    @property
    def open(self) -> int:
        return self.kinds["manual"] + self.kinds["unsupported"]

    @property
    def share(self) -> float | None:
        return self.done / self.places if self.places else None

    @property
    def verdict(self) -> str:
        """One sentence."""
        if not self.places:
            return f"Nothing in {_count(self.files, 'file')} concerns CUDA."
        words = f"{self.done} of {_count(self.places, 'place')} that name CUDA are done"
        hand, alone = self.kinds["manual"], self.kinds["unsupported"]
        if alone:
            words += f"; {alone} {'exists' if alone == 1 else 'exist'} for CUDA only"
        if hand:
            words += f"; {hand} {'needs' if hand == 1 else 'need'} a hand"
        broken = self.statuses["unparsable"]
        if broken:
            words += f"; {_count(broken, 'file')} could not be read"
        return f"{words}."


def count(files: Iterable[FileResult], *, lines: int = 0, of: int = 0) -> Figures:
    """Count findings of `files`; `lines` and `of`, if given, are those of all files read."""
    figures = Figures(lines=lines)
    for file in files:
        figures.files += 1
        figures.statuses[file.status] += 1
        for found in file.findings:
            if found.is_advice:
                figures.advice[found.category] += 1
            else:
                figures.kinds[found.kind] += 1
                figures.operators += found.category == "operator"
    figures.files = max(figures.files, of)
    return figures


def of_result(result: Result) -> Figures:
    """The figures of a whole run."""
    return count(result.files, lines=result.lines)


def by(findings: Iterable[Finding], key: Callable[[Finding], str]) -> dict[str, Counter[str]]:
    """Counts of kinds for each value of `key`, the most frequent first; without advice."""
    found: dict[str, Counter[str]] = {}
    for finding in findings:
        if not finding.is_advice:
            found.setdefault(key(finding), Counter())[finding.kind] += 1
    return dict(sorted(found.items(), key=lambda item: (-sum(item[1].values()), item[0])))


@dataclass
class Package:
    """A package for CUDA that a tree needs: one, however often it is named."""

    name: str
    kind: Kind
    tip: str
    places: list[Finding] = field(default_factory=list)


def packages(findings: Iterable[Finding]) -> list[Package]:
    """The packages for CUDA that stay, those that stop a program first."""
    found: dict[str, Package] = {}
    for finding in findings:
        name = catalogue.package(finding)
        if not name:
            continue
        package = found.setdefault(name, Package(name, finding.kind, finding.tip))
        package.places.append(finding)
        if finding.kind == "unsupported":
            package.kind = finding.kind
    return sorted(found.values(), key=lambda p: (p.kind != "unsupported", -len(p.places), p.name))


_SEVERITIES = ("error", "warning", "info")


def urgent_first(findings: Iterable[Finding]) -> list[Finding]:
    """What stops a program before what is to be looked at before what is to be known."""
    return sorted(findings, key=lambda f: (_SEVERITIES.index(f.severity), f))


def to_dict(figures: Figures) -> dict[str, object]:
    """The figures as plain data, each kind and status present."""
    return {
        "verdict": figures.verdict,
        "files": figures.files,
        "lines": figures.lines,
        "places": figures.places,
        "done": figures.done,
        "open": figures.open,
        "share_done": None if figures.share is None else round(figures.share, 4),
        "kinds": {kind: figures.kinds[kind] for kind in KINDS},
        "files_by_status": {
            status: figures.statuses[status]
            for status in ("converted", "unchanged", "unparsable", "skipped")
        },
        "advice": {name: figures.advice[name] for name in ("precision", "performance")},
        "operators": figures.operators,
    }


def _count(n: int, one: str) -> str:
    return f"{n} {one if n == 1 else one + 's'}"
