"""Both steps as one: the rules' edits of the text that `read.py` wrote, as edits of the original.

A piece is what the first step wrote. One that stands in for a name (`loan`) only counts where an
edit of the rules covers it: what they leave stays what the program wrote.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, replace

from causeway.compat import System
from causeway.migrate.module import Module
from causeway.migrate.source import Edit, Source


@dataclass(frozen=True, order=True)
class Piece:
    """`text` in place of the original's bytes `start` to `end`; `loan` as above."""

    start: int
    end: int
    text: str
    loan: bool = False


@dataclass(frozen=True)
class _Placed:
    """A piece, and where it is in the text between the steps."""

    piece: Piece
    low: int
    high: int


def between(source: Source, pieces: list[Piece]) -> str:
    """The text with all pieces, which the rules read."""
    data, at, out = source.data, 0, []
    for piece in sorted(pieces):
        assert piece.start >= at, f"pieces overlap at {piece}"
        out += [data[at : piece.start], piece.text.encode()]
        at = piece.end
    return b"".join([*out, data[at:]]).decode()


def join(module: Module, source: Source, pieces: list[Piece], systems: list[System]) -> list[Piece]:
    """Give `module`, which the rules have been through, the original text and edits of that; the
    loans that no edit covers.
    """
    placed, shift = [], 0
    for piece in sorted(pieces):
        size = len(piece.text.encode())
        placed.append(_Placed(piece, piece.start + shift, piece.start + shift + size))
        shift += size - (piece.end - piece.start)
    home = _Home(placed)
    edits, covered = [], set()
    for low, high, group in _groups(home, module.edits):
        inside = set().union(*(home.inside(edit) for edit in group))
        covered |= inside
        start, end = home.start(low), home.end(high)
        if low == high:
            end = start
        if inside:
            start = min(start, *(p.start for p in inside))
            end = max(end, *(p.end for p in inside))
        edits.append(Edit(start, end, _made(module.source.data, low, high, group)))
    left = [p for p in pieces if p.loan and p not in covered]
    edits += [Edit(p.start, p.end, p.text) for p in pieces if not p.loan and p not in covered]
    for i, draft in enumerate(module.drafts):
        moved = replace(draft, start=home.start(draft.start), end=home.end(draft.end))
        if home.touched(draft.start, draft.end):
            moved.message, moved.tip, moved.api = (
                respelled(part, systems) for part in (moved.message, moved.tip, moved.api)
            )
        module.drafts[i] = moved
    module.edits, module.source = edits, source
    return left


def _groups(home: _Home, edits: list[Edit]) -> list[tuple[int, int, list[Edit]]]:
    """Edits that reach into one piece, together, with what they cover when widened to all of it."""
    found: list[tuple[int, int, list[Edit]]] = []
    for edit in sorted(edits, key=lambda e: (e.start, e.end)):
        low, high = home.around(edit)
        if found and found[-1][1] > low:
            first = found.pop()
            found.append((first[0], max(first[1], high), [*first[2], edit]))
        else:
            found.append((low, high, [edit]))
    return found


def _made(data: bytes, low: int, high: int, edits: list[Edit]) -> str:
    pieces, at = [], low
    for edit in edits:
        pieces += [data[at : edit.start], edit.text.encode()]
        at = edit.end
    return b"".join([*pieces, data[at:high]]).decode()


class _Home:
    """Places of the text between, in the original."""

    def __init__(self, placed: list[_Placed]) -> None:
        self._placed = placed
        self._lows = [p.low for p in placed]

    def _at(self, place: int) -> list[_Placed]:
        """The pieces that a place is inside of, or at the edge of."""
        i = bisect_right(self._lows, place)
        found = []
        while i and (self._placed[i - 1].high >= place):
            i -= 1
            found.append(self._placed[i])
        return found[::-1]

    def _shifted(self, place: int) -> int:
        i = bisect_right(self._lows, place)
        return place - self._placed[i - 1].high + self._placed[i - 1].piece.end if i else place

    def start(self, place: int) -> int:
        """Where what starts at `place` starts: behind what was taken out there."""
        for p in reversed(self._at(place)):
            if p.low == p.high == place:
                return p.piece.end
            if p.low <= place < p.high:
                return p.piece.start
        return self._shifted(place)

    def end(self, place: int) -> int:
        """Where what ends at `place` ends: before what was taken out there."""
        for p in self._at(place):
            if p.low == p.high == place:
                return p.piece.start
            if p.low < place <= p.high:
                return p.piece.end
        i = bisect_right(self._lows, place - 1)
        return place - self._placed[i - 1].high + self._placed[i - 1].piece.end if i else place

    def around(self, edit: Edit) -> tuple[int, int]:
        """`edit` widened to whole pieces."""
        low, high = edit.start, edit.end
        for p in self._at(edit.start):
            if p.low < edit.start < p.high:
                low = p.low
        for p in self._at(edit.end):
            if p.low < edit.end < p.high:
                high = p.high
        return low, high

    def inside(self, edit: Edit) -> set[Piece]:
        """The pieces that an edit covers, or reaches into."""
        return {
            p.piece for p in self._placed
            if (p.low < edit.end and edit.start < p.high)
            or (p.low == p.high and edit.start < p.low < edit.end)
        }  # fmt: skip

    def touched(self, start: int, end: int) -> bool:
        return any(p.low < end and start < p.high for p in self._placed)


def respelled(text: str, systems: list[System]) -> str:
    """A sentence on CUDA's names, with the system's own."""
    system = systems[0]
    name = system.device
    if not name:
        return text
    text = re.sub(r"(?<=torch\.)cuda\b|(?<=\.is_)cuda\b|(?<=\.)cuda(?=\()", name, text)
    text = re.sub(r"(?<=[\"'`])cuda(?=[\"':`])", name, text)
    if system.backends:
        text = re.sub(r"\bnccl\b", system.backends[0], text)
        text = re.sub(r"\bNCCL\b", system.backends[0].upper(), text)
    return re.sub(r"\bCUDA\b", name.upper(), text)
