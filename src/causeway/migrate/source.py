"""A Python file as text with exact ranges: decoding, offsets of syntax nodes, edits.

Why ranges and not a concrete syntax tree: a file is changed only where an edit says so, thus
comments, layout and line ends are kept by construction; the parser is the one that will run the
file; and CPython's parser with its byte offsets is many times faster than a round trip through a
tree that keeps whitespace. Offsets count bytes of UTF-8, as `ast` does.
"""

from __future__ import annotations

import ast
import codecs
import io
import re
import tokenize
import warnings
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_NEWLINE = re.compile(rb"\r\n|\r|\n")
_STRING = re.compile(r"""([A-Za-z]*)('{3}|"{3}|'|")""")


class Undecodable(ValueError):
    """The bytes are not in the encoding that the file declares."""


def tree_of(path: Path, worth: Callable[[bytes], object]) -> ast.Module | None:
    """The syntax tree of a file whose bytes are `worth` it; None of others, and where the file does
    not parse or cannot be read, which is reported where it is converted.
    """
    try:
        data = path.read_bytes()
        if not worth(data):
            return None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes are the author's
            return ast.parse(data)
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None


def decode(data: bytes) -> tuple[str, str]:
    """Text and encoding of a Python file, by its byte order mark or coding line. Line ends stay.

    The mark is kept as U+FEFF's encoding: "utf-8-sig" writes it again.
    """
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        text = data.decode(encoding)
    except (SyntaxError, UnicodeDecodeError, LookupError) as error:
        raise Undecodable(str(error)) from None
    # Byte for byte the same, or an edit would change what it does not name.
    if encode(text, encoding) != data:
        raise Undecodable(f"its bytes do not survive a round trip through {encoding}")
    return text, encoding


def encode(text: str, encoding: str) -> bytes:
    """The bytes of a text that `decode` gave."""
    return text.encode(codecs.lookup(encoding).name if encoding != "utf-8-sig" else encoding)


@dataclass(frozen=True, order=True)
class Edit:
    """Replace the bytes `start` to `end` by `text`. Equal starts keep the order of making."""

    start: int
    end: int
    text: str


class Source:
    """The text of a file, by offsets."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.data = text.encode()
        self.starts = [0, *(m.end() for m in _NEWLINE.finditer(self.data))]
        first = _NEWLINE.search(self.data)
        self.newline = first.group().decode() if first else "\n"

    def start(self, node: ast.AST) -> int:
        """Offset of a node's first byte."""
        return self.starts[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined, no-any-return]

    def end(self, node: ast.AST) -> int:
        """Offset after a node's last byte."""
        return self.starts[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined, no-any-return]

    def segment(self, node: ast.AST) -> str:
        """The text of a node."""
        return self.slice(self.start(node), self.end(node))

    def slice(self, start: int, end: int) -> str:
        """The text between two offsets."""
        return self.data[start:end].decode(errors="replace")

    def place(self, offset: int) -> tuple[int, int]:
        """Line and column of an offset, both from 1, columns in characters."""
        line = bisect_right(self.starts, offset)
        return line, len(self.slice(self.starts[line - 1], offset)) + 1

    def line_start(self, offset: int) -> int:
        """Offset at which the line of `offset` starts."""
        return self.starts[bisect_right(self.starts, offset) - 1]

    def line_end(self, offset: int) -> int:
        """Offset of the end of the line of `offset`, before its newline."""
        found = _NEWLINE.search(self.data, offset)
        return found.start() if found else len(self.data)

    def skip(self, offset: int, also: bytes = b"") -> int:
        """The first offset from `offset` on that is no space, comment, line end, or byte of
        `also`.
        """
        data, size = self.data, len(self.data)
        blank = b" \t\f\r\n\\" + also
        while offset < size:
            if data[offset] in blank:
                offset += 1
            elif data[offset] == 35:  # '#'
                offset = self.line_end(offset)
            else:
                break
        return offset

    def open_paren(self, call: ast.Call) -> int:
        """Offset of the parenthesis that opens a call's arguments."""
        return self.skip(self.end(call.func), also=b")")

    def comments(self, start: int, end: int) -> list[str]:
        """The comments between two offsets that lie between tokens of one statement."""
        found = []
        for line in self.slice(start, end).splitlines():
            try:
                tokens = list(tokenize.generate_tokens(io.StringIO(line).readline))
            except (tokenize.TokenError, IndentationError, SyntaxError):
                tokens = []
            inside = [t.string for t in tokens if t.type == tokenize.COMMENT]
            if not inside and "#" in line:  # an open bracket ends the tokens early
                inside = [line[line.index("#") :]]
            found += inside
        return found

    def string_parts(self, node: ast.AST) -> tuple[str, str, str] | None:
        """Prefix, quote and raw content of a literal that is one token; None for several."""
        text = self.segment(node)
        opening = _STRING.match(text)
        if not opening:
            return None
        prefix, quote = opening.groups()
        content = text[opening.end() :]
        if len(content) < len(quote) or not content.endswith(quote):
            return None
        content = content[: -len(quote)]
        if quote in content.replace("\\" + quote[0], ""):
            return None
        return prefix, quote, content


def apply(source: Source, edits: list[Edit]) -> str:
    """The text with all edits applied. They must not overlap; insertions at one place keep their
    order.
    """
    pieces: list[bytes] = []
    at = 0
    for edit in sorted(edits, key=lambda e: (e.start, e.end)):
        assert edit.start >= at, f"edits overlap at {edit}"
        pieces += [source.data[at : edit.start], edit.text.encode()]
        at = edit.end
    return b"".join([*pieces, source.data[at:]]).decode()
