"""The questions of an `if … elif …`, and what they compare with. Pure syntax: no rule is asked."""

from __future__ import annotations

import ast

from causeway.migrate.names import FUNCTIONS, ancestors


def compared_beside(node: ast.AST) -> set[str]:
    """The words that the other questions of an `if … elif …` compare with, and those that the same
    function compares the same expression with.
    """
    found: set[str] = set()
    for child, up in ancestors(node):
        if isinstance(up, ast.If | ast.IfExp) and up.test is child:
            tests = _tests(up)
            found |= {_word(n) for test in tests if test is not child for n in ast.walk(test)}
        if isinstance(up, FUNCTIONS):
            return found | _compared(up, node)
    return found


def _compared(function: ast.AST, node: ast.AST) -> set[str]:
    if not isinstance(node, ast.Compare):
        return set()
    asked = ast.dump(node.left)
    return {
        _word(other.comparators[0])
        for other in ast.walk(function)
        if isinstance(other, ast.Compare) and other is not node and ast.dump(other.left) == asked
    }


def _tests(node: ast.If | ast.IfExp) -> list[ast.expr]:
    def within(other: ast.AST | None) -> ast.If | ast.IfExp | None:
        """The question whose "else" is `node` alone."""
        if isinstance(other, ast.If | ast.IfExp) and type(other) is type(node):
            return other if _orelse(other) == [node] else None
        return None

    while (outer := within(getattr(node, "up", None))) is not None:
        node = outer
    found, here = [], node
    while True:
        found.append(here.test)
        rest = _orelse(here)
        if len(rest) != 1 or not isinstance(rest[0], type(node)):
            return found
        here = rest[0]


def _orelse(node: ast.If | ast.IfExp) -> list[ast.AST]:
    return [node.orelse] if isinstance(node, ast.IfExp) else [*node.orelse]


def _word(node: ast.AST) -> str:
    """`"mps"`, and `x.is_mps`, `torch.backends.mps.is_available()`."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.Attribute):
        return node.attr.removeprefix("is_")
    return ""
