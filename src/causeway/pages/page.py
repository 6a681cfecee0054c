"""One self-contained HTML file out of building blocks.

    page = Page("Coverage of train.py", [
        Verdict("9 of 10 operators run on the chip", "good"),
        Figures([Figure("98.2 %", "of calls on the chip")]),
        Bars([Bar("calls", [Part("native", 120, "native"), Part("host", 2, "host")])]),
        Table(["operator", "calls"], [[Code("aten::mm"), 12]]),
    ])
    page.write("coverage.html")

A block is data; page.html.jinja says how it looks, page.css and page.js go into the file. Nothing
is loaded from elsewhere and no text is trusted: everything is escaped, links lead to known schemes
only, and a content security policy names the page's own style and script by their hashes, so that
nothing else could run even if it got in.
"""

from __future__ import annotations

import base64
import difflib
import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from causeway import atomic

if TYPE_CHECKING:
    import jinja2

# What a colour means. The rungs of the ladder have colours of their own; "missing" is no rung.
Tone = Literal[
    "plain", "good", "fair", "warn", "bad", "quiet",
    "native", "derived", "alone", "decomposed", "portable", "host", "missing",
]  # fmt: skip

_SCHEMES = frozenset({"", "http", "https", "file", "vscode"})


# --- cells of a table -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Number:
    """Sorted by `value`, shown as `text` or as the number itself; None is an empty cell."""

    value: float | None
    text: str = ""


@dataclass(frozen=True)
class Share:
    """A part of a whole, 0 to 1, with a small bar."""

    value: float
    text: str = ""  # else the percentage
    tone: Tone = "plain"


@dataclass(frozen=True)
class Code:
    """Monospaced; with `href`, a link."""

    text: str
    href: str = ""


@dataclass(frozen=True)
class Link:
    """A link; one to another scheme than http, https, file or vscode is shown as text only."""

    text: str
    href: str


@dataclass(frozen=True)
class Badge:
    """A word on a colour; `pale` for what matters less; `hint` appears under the pointer."""

    text: str
    tone: Tone = "plain"
    pale: bool = False
    hint: str = ""


Simple = str | int | float | Number | Share | Code | Link | Badge | None
Cell = Simple | Sequence[Simple]  # several, one after the other


@dataclass(frozen=True)
class Column:
    """A title; `hint` appears under the pointer; a `wide` column takes the room that is left."""

    title: str
    hint: str = ""
    wide: bool = False


# --- blocks ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Text:
    """A paragraph: strings and cells, in a line."""

    parts: Cell


@dataclass(frozen=True)
class Verdict:
    """The one sentence to read, on a colour."""

    text: str
    tone: Tone = "plain"
    detail: str = ""


@dataclass(frozen=True)
class Figure:
    """A number in large type and what it counts."""

    value: str
    label: str
    tone: Tone = "plain"
    detail: str = ""


@dataclass(frozen=True)
class Figures:
    figures: Sequence[Figure]


@dataclass(frozen=True)
class Part:
    """A part of a stacked bar; `text` is its size for people."""

    label: str
    value: float
    tone: Tone = "plain"
    text: str = ""


@dataclass(frozen=True)
class Bar:
    """Parts of one whole. Parts of size 0 are left out."""

    title: str
    parts: Sequence[Part]


@dataclass(frozen=True)
class Bars:
    """Stacked bars below each other, as inline SVG, with one legend."""

    bars: Sequence[Bar]


@dataclass(frozen=True)
class Table:
    """Columns sort at a click; above `search_from` rows there is a box that searches all columns.

    Raises ValueError where a row has not as many cells as there are columns.
    """

    columns: Sequence[str | Column]
    rows: Sequence[Sequence[Cell]]
    caption: str = ""
    search_from: int = 6
    empty: str = "none"  # said where there are no rows

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"a row of {len(row)} cells in a table of {len(self.columns)}")


@dataclass(frozen=True)
class Pre:
    """Text as it is, monospaced."""

    text: str


@dataclass(frozen=True)
class Listing:
    """Lines of a source file, with numbers and anchors, `marks` coloured and said why beside them.

    `Listing.href(name, line)` is the link to a line. Lines far from a mark are left out.
    """

    name: str
    source: str
    marks: dict[int, tuple[Tone, str]] = field(default_factory=dict)
    context: int = 3

    @staticmethod
    def anchor(name: str, line: int) -> str:
        digest = hashlib.sha256(name.encode("utf-8", "backslashreplace")).hexdigest()[:10]
        return f"L{digest}-{line}"

    @staticmethod
    def href(name: str, line: int) -> str:
        return f"#{Listing.anchor(name, line)}"

    @property
    def lines(self) -> list[dict[str, Any]]:
        """number, text, anchor, tone and why; a gap has the number 0."""
        all_lines = self.source.removesuffix("\n").split("\n")
        shown = {
            n
            for mark in self.marks
            for n in range(mark - self.context, mark + self.context + 1)
            if 1 <= n <= len(all_lines)
        }
        found: list[dict[str, Any]] = []
        before = 0
        for n in sorted(shown):
            if n != before + 1:
                found.append({"number": 0})
            tone, why = self.marks.get(n, ("", ""))
            anchor = self.anchor(self.name, n) if n in self.marks else ""
            found.append(
                {"number": n, "text": all_lines[n - 1], "anchor": anchor, "tone": tone, "why": why}
            )
            before = n
        return found


@dataclass(frozen=True)
class Diff:
    """Two texts side by side: lines that differ, with `context` lines around them."""

    before: str
    after: str
    titles: tuple[str, str] = ("before", "after")
    context: int = 3

    @property
    def rows(self) -> list[dict[str, Any]]:
        """kind (same, change, removed, added, gap) and a side each: number and pieces (text,
        whether it differs).
        """
        return list(_diff_rows(self.before.splitlines(), self.after.splitlines(), self.context))


@dataclass(frozen=True)
class Section:
    """A title and blocks; one that can be folded is `open` at first or not.

    Sections of a page make its table of contents; sections in sections do not.
    """

    title: str
    blocks: Sequence[Block]
    open: bool = True
    foldable: bool = False
    note: str = ""  # beside the title: a count
    anchor: str = ""

    @property
    def id(self) -> str:
        return self.anchor or "s-" + re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")


Block = Text | Verdict | Figures | Bars | Table | Pre | Listing | Diff | Section


# --- the page -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Page:
    """A report. `about` are facts below the title; `data`, if given, is what the page was made
    from, and its reader can save it as JSON.
    """

    title: str
    blocks: Sequence[Block]
    subtitle: str = ""
    about: Sequence[tuple[str, str]] = ()
    data: Any = None
    footer: str = ""

    def to_html(self) -> str:
        """The whole file."""
        css, js = _asset("page.css"), _asset("page.js")
        return _environment().get_template("page.html.jinja").render(
            page=self,
            css=css,
            js=js,
            css_hash=_digest(css),
            js_hash=_digest(js),
            data=None if self.data is None else _script_json(self.data),
        )  # fmt: skip

    def write(self, path: str | Path) -> None:
        """Write the file all at once. Raises OSError where it cannot."""
        atomic.write(path, self.to_html())


@cache
def _asset(name: str) -> str:
    return (Path(__file__).parent / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _script_json(data: Any) -> str:
    """JSON that no parser of HTML can take for the end of its element."""
    text = json.dumps(data, ensure_ascii=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@cache
def _environment() -> jinja2.Environment:
    import jinja2
    from markupsafe import Markup

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["kind"] = lambda block: type(block).__name__.lower()
    environment.filters["cells"] = _cells
    environment.filters["href"] = _href
    environment.filters["sort_key"] = _sort_key
    environment.filters["number"] = _number
    environment.filters["percent"] = _percent
    environment.filters["column"] = lambda c: c if isinstance(c, Column) else Column(c)
    environment.filters["right"] = _is_right
    environment.filters["legend"] = _legend
    environment.filters["spans"] = _spans
    # Our own files, and JSON that was made fit; nothing else is ever marked as safe.
    environment.filters["own"] = Markup
    return environment


def _cells(cell: Any) -> list[Any]:
    """A cell's pieces; plain values as what they stand for."""
    pieces = list(cell) if isinstance(cell, list | tuple) else [cell]
    return [
        Number(piece) if isinstance(piece, int | float) and not isinstance(piece, bool) else piece
        for piece in pieces
        if piece is not None
    ]


def _href(target: str) -> str:
    """`target` where it is safe to follow, else ""."""
    # Browsers drop control characters and white space before they look at the scheme.
    bare = re.sub(r"[\x00-\x20]", "", target)
    match = re.match(r"([a-zA-Z][a-zA-Z0-9+.-]*):", bare)
    return target if (match.group(1).lower() if match else "") in _SCHEMES else ""


_SORTED_BY = 120  # letters; the cell itself has them all


def _sort_key(cell: Any) -> str:
    """What a column is sorted by: a number's value, else the text."""
    pieces = _cells(cell)
    if pieces and isinstance(pieces[0], Number | Share):
        value = pieces[0].value
        return "" if value is None or value != value else repr(float(value))
    text = " ".join(p if isinstance(p, str) else str(p.text) for p in pieces[:3])
    return text[:_SORTED_BY]


def _is_right(cell: Any) -> bool:
    pieces = _cells(cell)
    return bool(pieces) and isinstance(pieces[0], Number)


def _number(value: float | None) -> str:
    if value is None:
        return ""
    if value == int(value) if abs(value) < 1e15 else False:
        return f"{int(value):,}".replace(",", "\u2009")
    return f"{value:.3g}"


def _percent(share: float) -> str:
    if 0 < share < 0.001:
        return "< 0.1 %"
    return f"{100 * share:.1f} %" if share < 0.9995 or share == 1 else "99.9 %"


def _legend(bars: Bars) -> list[Part]:
    """One part of each label, in the order they came."""
    return list(
        {part.label: part for bar in bars.bars for part in bar.parts if part.value}.values()
    )


def _spans(bar: Bar) -> list[dict[str, Any]]:
    """Where each part lies, in thousandths of the bar; what is there at all is at least 4 wide."""
    parts = [part for part in bar.parts if part.value > 0]
    total = sum(part.value for part in parts)
    widths = [max(4.0, 1000 * part.value / total) for part in parts]
    scale = 1000 / sum(widths) if widths else 1
    spans, x = [], 0.0
    for part, width in zip(parts, widths, strict=True):
        share = part.value / total
        text = part.text or _number(part.value)
        words = f"{part.label}: {text} ({_percent(share)})"
        spans.append({"part": part, "x": round(x, 2), "width": round(width * scale, 2),
                      "share": share, "words": words})  # fmt: skip
        x += width * scale
    return spans


def _diff_rows(before: list[str], after: list[str], context: int) -> Any:
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    end = 0
    for group in matcher.get_grouped_opcodes(context):
        if group[0][1] > end:
            yield {"kind": "gap", "count": group[0][1] - end}
        end = group[-1][2]
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                for i, j in zip(range(i1, i2), range(j1, j2), strict=True):
                    yield _row("same", i, [(before[i], False)], j, [(after[j], False)])
                continue
            for k, m in _paired(before[i1:i2], after[j1:j2]):
                if k is not None and m is not None:
                    left, right = _within(before[i1 + k], after[j1 + m])
                    yield _row("change", i1 + k, left, j1 + m, right)
                elif k is not None:
                    yield _row("removed", i1 + k, [(before[i1 + k], False)], None, [])
                elif m is not None:
                    yield _row("added", None, [], j1 + m, [(after[j1 + m], False)])
    if end and end < len(before):
        yield {"kind": "gap", "count": len(before) - end}


def _paired(a: list[str], b: list[str]) -> list[tuple[int | None, int | None]]:
    """Which lines of a change are the same line, changed: the most alike, in order."""
    if len(a) * len(b) > 900:  # comparing costs the product
        n = max(len(a), len(b))
        return [(k if k < len(a) else None, k if k < len(b) else None) for k in range(n)]
    words = [[re.findall(r"\w+|[^\w\s]", line)[:60] for line in lines] for lines in (a, b)]
    alike = [[difflib.SequenceMatcher(None, x, y).ratio() for y in words[1]] for x in words[0]]
    # best[k][m]: what the lines from k and m on have in common at most.
    best = [[0.0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for k in reversed(range(len(a))):
        for m in reversed(range(len(b))):
            pair = alike[k][m] + best[k + 1][m + 1] if alike[k][m] > 0.35 else 0.0
            best[k][m] = max(best[k + 1][m], best[k][m + 1], pair)
    pairs: list[tuple[int | None, int | None]] = []
    k = m = 0
    while k < len(a) or m < len(b):
        if k < len(a) and m < len(b) and best[k][m] not in (best[k + 1][m], best[k][m + 1]):
            pairs.append((k, m))
            k, m = k + 1, m + 1
        elif k < len(a) and (m == len(b) or best[k][m] == best[k + 1][m]):
            pairs.append((k, None))
            k += 1
        else:
            pairs.append((None, m))
            m += 1
    return pairs


def _row(kind: str, i: int | None, left: Any, j: int | None, right: Any) -> dict[str, Any]:
    return {
        "kind": kind,
        "left": {"number": "" if i is None else i + 1, "pieces": left},
        "right": {"number": "" if j is None else j + 1, "pieces": right},
    }


Pieces = list[tuple[str, bool]]


def _within(a: str, b: str) -> tuple[Pieces, Pieces]:
    """Both lines in pieces, with those that differ marked; by words, for letters mislead."""
    words_a, words_b = (re.findall(r"\w+|\s+|[^\w\s]", line) for line in (a, b))
    if len(words_a) + len(words_b) > 600:  # a line of data: comparing costs the square
        return [(a, True)], [(b, True)]
    matcher = difflib.SequenceMatcher(None, words_a, words_b, autojunk=False)
    left: Pieces = []
    right: Pieces = []
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        if i1 < i2:
            left.append(("".join(words_a[i1:i2]), tag != "equal"))
        if j1 < j2:
            right.append(("".join(words_b[j1:j2]), tag != "equal"))
    return left, right
