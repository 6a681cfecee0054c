"""Changes to a text by place: what is not named in one stays as it is, byte for byte.

A converter reads a text with a parser that knows where things are, and calls `change` and `say`.
Nothing is written back by a serializer: comments, quotes, indentation and line ends survive because
nobody touches them.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from causeway.migrate.files import rules
from causeway.migrate.files.targets import Target, target
from causeway.migrate.finding import Category, FileInput, FileResult, Finding, Kind, Status
from causeway.migrate.settings import Settings

_KEEP = re.compile(r"(?:#|//|;|<!--)\s*causeway:\s*keep\b")
Span = tuple[int, int]


class NotReadableError(ValueError):
    """A file that is not in the language its name says; `place` is where that shows."""

    def __init__(self, message: str, place: int | None = None) -> None:
        super().__init__(message)
        self.place = place


@dataclass(frozen=True)
class Note:
    """A finding at `start` to `end` of the text; `new` is what stands there then, if other."""

    rule: str
    kind: Kind
    start: int
    end: int
    message: str
    tip: str
    new: str | None = None
    api: str = ""
    safe: bool = True
    category: Category = "api"


@dataclass
class Draft:
    """A text that is being changed."""

    text: str
    settings: Settings = field(default_factory=Settings)
    notes: list[Note] = field(default_factory=list)
    path: str = ""
    options: Mapping[str, frozenset[str]] = field(default_factory=dict)  # as FileInput has them
    flags: frozenset[str] = frozenset()
    for_cuda: bool = False

    def __post_init__(self) -> None:
        self._lines = [0, *(found.end() for found in re.finditer(r"\n", self.text))]
        self._kept = {self.line(found.start()) for found in _KEEP.finditer(self.text)}

    @property
    def target(self) -> Target | None:
        """The vendor whose names are written; None where the text is to run on any device."""
        return target(self.settings.target)

    def line(self, place: int) -> int:
        """The line of a place, from 1."""
        return bisect.bisect_right(self._lines, place)

    def column(self, place: int) -> int:
        """The column of a place, from 1."""
        return place - self._lines[self.line(place) - 1] + 1

    def change(
        self, rule: str, span: Span, new: str, message: str, tip: str = "", *, api: str = ""
    ) -> None:
        """Put `new` in the place of `span`, unless the line says `# causeway: keep`."""
        if self.text[slice(*span)] != new:
            self._add(Note(rule, "changed", *span, message, tip, new, api))

    def change_unsafely(
        self, rule: str, span: Span, new: str, message: str, tip: str, *, api: str = ""
    ) -> None:
        """The same where --unsafe was asked for; else say what it would do."""
        if self.settings.unsafe:
            self._add(Note(rule, "changed", *span, message, tip, new, api, safe=False))
        else:
            tip = f"{tip} `--unsafe` writes {new!r} here."
            self._add(Note(rule, "manual", *span, message, tip, None, api, safe=False))

    def say(
        self,
        rule: str,
        kind: Kind,
        span: Span,
        message: str,
        tip: str = "",
        *,
        api: str = "",
        category: Category = "api",
    ) -> None:
        """Report what is at `span` and leave it, unless the line says `# causeway: keep`."""
        self._add(Note(rule, kind, *span, message, tip, None, api, category=category))

    def _add(self, note: Note) -> None:
        if self.line(note.start) in self._kept or not self.settings.wants(note.rule):
            return
        # The same place is reached twice by an alias of YAML, or by two readings of a word.
        if not any(
            (note.rule, note.start, note.end) == (other.rule, other.start, other.end)
            or (note.new is not None and other.new is not None
                and note.start < other.end and other.start < note.end)
            for other in self.notes
        ):  # fmt: skip
            self.notes.append(note)

    @property
    def after(self) -> str:
        """The text with all changes."""
        pieces, place = [], 0
        for note in sorted(self.notes, key=lambda n: n.start):
            if note.new is not None:
                pieces += [self.text[place : note.start], note.new]
                place = note.end
        return "".join([*pieces, self.text[place:]])

    def findings(self, path: str) -> list[Finding]:
        """The notes as findings in the file `path`."""
        return [self._finding(path, note) for note in sorted(self.notes, key=lambda n: n.start)]

    def _finding(self, path: str, note: Note) -> Finding:
        rule = rules.RULES[note.rule]
        return Finding(
            file=path,
            line=self.line(note.start),
            column=self.column(note.start),
            end_line=self.line(max(note.start, note.end - 1)),
            end_column=self.column(max(note.start, note.end - 1)) + 1,
            rule=note.rule,
            kind=note.kind,
            message=note.message,
            tip=note.tip or rule.by_hand,
            severity="info" if note.kind in ("changed", "portable") else rule.severity,
            safe=note.safe,
            before=self.text[note.start : note.end],
            after=note.new or "",
            api=note.api,
            category=note.category,
        )


def run(file: FileInput, settings: Settings, convert: Callable[[Draft], None]) -> FileResult:
    """Decode a file, let `convert` fill a Draft of it, and give the result.

    A byte order mark and the ends of lines stay. A file that is no UTF-8, or for which `convert`
    raises NotReadableError, comes back as it was.
    """
    try:
        text = file.data.decode("utf-8")
    except UnicodeDecodeError as error:
        return FileResult(file.path, "unparsable", f"not UTF-8: {error.reason} at {error.start}")
    # Parsers differ in what they make of a byte order mark, so they do not see it.
    mark = "\ufeff" if text.startswith("\ufeff") else ""
    draft = Draft(text.removeprefix(mark), settings, path=file.path, options=file.options,
                  flags=file.flags, for_cuda=file.for_cuda)  # fmt: skip
    try:
        convert(draft)
    except NotReadableError as error:
        where = "" if error.place is None else f"line {draft.line(error.place)}: "
        return FileResult(file.path, "unparsable", f"{where}{error}", text, text)
    after = mark + draft.after
    status: Status = "unchanged" if after == text else "converted"
    return FileResult(file.path, status, "", text, after, findings=draft.findings(file.path))
