"""Branches of an `if … elif …` that are the same once one system's names are CUDA's."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from causeway.migrate.module import Module
from causeway.migrate.source import Source
from causeway.migrate.systems.back import Piece, between

Range = tuple[int, int]


@dataclass
class Joined:
    """The pieces with one branch in place of two; the questions that went; where both stand."""

    pieces: list[Piece]
    nodes: list[ast.expr] = field(default_factory=list)
    places: list[Range] = field(default_factory=list)
    tests: list[Range] = field(default_factory=list)  # of the questions that stay

    def holds(self, place: int) -> bool:
        """Whether a place is in one of the branches that were joined."""
        return any(low <= place < high for low, high in self.places)


@dataclass(frozen=True)
class _Link:
    """One question of a chain, and what it decides on."""

    node: ast.If | ast.IfExp
    test: Range
    body: Range


def joined(module: Module, pieces: list[Piece], stay: frozenset[int]) -> Joined:
    """One branch for each two that do the same, but not where one of `stay` would be asked."""
    out = Joined(list(pieces))
    heads: list[ast.If | ast.IfExp] = [*module.names.all(ast.If), *module.names.all(ast.IfExp)]
    for head in heads:
        links = _links(module, head)
        for link in links:
            if not _own(pieces, link.test):
                continue
            others = (
                o for o in links
                if not _own(pieces, o.test) and o.test[0] not in stay
                and _same(module, pieces, link, o)
            )  # fmt: skip
            other = next(others, None)
            if other is not None and _cut(module, out, links, link):
                out.nodes.append(link.node.test)
                out.tests.append(other.test)
                out.places += [link.test, link.body, other.test, other.body]
    return out


def _own(pieces: list[Piece], place: Range) -> bool:
    return any(p.loan and place[0] <= p.start < place[1] for p in pieces)


def _same(module: Module, pieces: list[Piece], one: _Link, other: _Link) -> bool:
    return all(
        _text(module.source, pieces, a) == _text(module.source, pieces, b)
        for a, b in ((one.test, other.test), (one.body, other.body))
    )


def _text(source: Source, pieces: list[Piece], place: Range) -> str:
    """What stands at a place once the pieces are there."""
    low, high = place
    inside = [Piece(p.start - low, p.end - low, p.text) for p in pieces if low <= p.start < high]
    return between(Source(source.slice(low, high)), inside)


def _links(module: Module, head: ast.If | ast.IfExp) -> list[_Link]:
    """The chain that begins with `head`; none where it is a later part of one."""
    up = head.up  # type: ignore[union-attr]
    if type(up) is type(head) and (up.orelse is head or up.orelse == [head]):
        return []
    source, found = module.source, []
    node: ast.If | ast.IfExp | None = head
    while node is not None:
        first, last = (node.body[0], node.body[-1]) if isinstance(node, ast.If) else (
            node.body, node.body,
        )  # fmt: skip
        test = source.start(node.test), source.end(node.test)
        found.append(_Link(node, test, (source.start(first), source.end(last))))
        rest = node.orelse[0] if isinstance(node, ast.If) and len(node.orelse) == 1 else node.orelse
        following = rest if isinstance(rest, type(node)) else None
        if isinstance(following, ast.If) and not _is_elif(source, following):
            following = None
        node = following
    return found


def _is_elif(source: Source, node: ast.If) -> bool:
    start = source.start(node)
    return source.slice(start, start + 4) == "elif"


def _cut(module: Module, out: Joined, links: list[_Link], link: _Link) -> bool:
    """Take one branch of a chain out."""
    source, node = module.source, link.node
    at = links.index(link)
    if isinstance(node, ast.IfExp):
        rest = node.orelse
        return _take(out, (source.start(node), source.start(rest)), "") and _take(
            out, (source.end(rest), source.end(node)), ""
        )
    if at:
        low, high = source.line_start(source.start(node)), source.line_end(link.body[1])
        high += len(source.newline) if high < len(source.data) else 0
        return _take(out, (low, high), "")
    if len(links) == 1:
        return False
    following = links[1]
    return _take(out, (source.start(node), following.test[0]), "if ")


def _take(out: Joined, place: Range, text: str) -> bool:
    low, high = place
    if low < high:
        out.pieces = [p for p in out.pieces if not low <= p.start < high]
        out.pieces.append(Piece(low, high, text))
    return True
