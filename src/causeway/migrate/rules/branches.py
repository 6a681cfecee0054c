"""The branches of a program that tells devices apart: `if … == "cuda": … elif … == "mps": …`."""

from __future__ import annotations

import ast
import re

from causeway.migrate.module import VENDORS, Module
from causeway.migrate.names import FUNCTIONS, ancestors

_TORCHS = re.compile(r"(mps|xpu|mtia)(:\d+)?")


def for_each_vendor(node: ast.AST) -> bool:
    """Whether a question is one of several that ask for the devices of vendors, one after another:
    its branch is CUDA's, and stays.
    """
    return any(name.partition(":")[0] in VENDORS for name in _others(node))


def no_other(module: Module, node: ast.AST) -> str:
    """What follows `x == accelerator.type` where that must be true on no CPU: `!= "cpu"`, and on no
    device that has a branch of its own: `not in ("cpu", "mps")`.
    """
    quote = module.quote_for(node)
    named = {match.group(1) for name in _others(node) if (match := _TORCHS.fullmatch(name))}
    if not named:
        return f" != {quote}cpu{quote}"
    listed = ", ".join(f"{quote}{name}{quote}" for name in ("cpu", *sorted(named)))
    return f" not in ({listed})"


def _others(node: ast.AST) -> set[str]:
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
