"""Hints on precision and speed, for code that moves to another accelerator.

They hold wherever the code runs, change nothing, and are counted apart from what concerns CUDA.
`table.py` has them as data; `run` looks at one module.
"""

from __future__ import annotations

import ast
import re

from causeway.migrate.advice import looks
from causeway.migrate.advice.table import HINTS, RULES, Hint, concerns
from causeway.migrate.module import Module

__all__ = ["RULES", "concerns", "run"]


def run(module: Module) -> None:
    """Report the hints for a module. Runs after the rules, for it looks at what they have done."""
    if "torch" not in module.source.text:
        return
    wanted: dict[str, bool] = {}  # by code, asked at the first place that a hint may fit
    nodes: list[ast.Call | ast.Attribute] = [*module.names.all(ast.Call)]
    nodes += module.names.all(ast.Attribute)
    found = [(node, hints) for node in nodes if (hints := _BY_WORD.get(_word(node)))]
    found.sort(key=lambda at: (at[0].lineno, at[0].col_offset, at[0].end_lineno or 0))
    for node, hints in found:
        for hint in hints:
            code = hint.rule.code
            if wanted.get(code) is False or not _fits(module, node, hint):
                continue
            if code not in wanted:
                wanted[code] = _is_wanted(module, hint)
            if wanted[code]:
                place = node.func if isinstance(node, ast.Call) else node
                module.report(hint.rule, place, "portable", hint.message, api=_api(module, place),
                              category=hint.category)  # fmt: skip
                wanted[code] = not hint.once


def _is_wanted(module: Module, hint: Hint) -> bool:
    """Whether a hint is selected, and the module as a whole is one that it is for."""
    text = module.source.text
    if not module.settings.wants(hint.rule.code) or not re.search(hint.needs, text):
        return False
    return not (hint.unless and re.search(hint.unless, text))


def _by_word() -> dict[str, list[Hint]]:
    found: dict[str, list[Hint]] = {}
    for hint in HINTS:
        for word in (*hint.looked_for(), *looks.WORDS.get(hint.rule.code, ())):
            if hint not in found.setdefault(word, []):
                found[word].append(hint)
    return found


def _word(node: ast.Call | ast.Attribute) -> str:
    """What a node is found by: the last part of its name; "eps" for a call with that keyword."""
    if isinstance(node, ast.Attribute):
        return node.attr
    for keyword in node.keywords:
        if keyword.arg == "eps":
            return "eps"
    return getattr(node.func, "attr", "") or getattr(node.func, "id", "")


_BY_WORD = _by_word()


def _api(module: Module, node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return module.resolve(node) or node.attr
    return module.resolve(node)


def _fits(module: Module, node: ast.Call | ast.Attribute, hint: Hint) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr in {n.rpartition(".")[2] for n in hint.names} and (
            module.resolve(node) in hint.names
        )
    alone = looks.ALONE.get(hint.rule.code)
    if alone is not None:
        return alone(module, node)
    if not _is_called(module, node, hint):
        return False
    if any(k.arg is None or k.arg in hint.without for k in node.keywords) and hint.without:
        return False  # given, or hidden in **options
    if hint.inside == "loop" and next(looks.around(node), None) is None:
        return False
    if hint.inside == "training" and not looks.in_training(node):
        return False
    also = looks.ALSO.get(hint.rule.code)
    return also is None or also(module, node)


def _is_called(module: Module, node: ast.Call, hint: Hint) -> bool:
    func = node.func
    meaning = module.resolve(func)
    if meaning:  # a function of a module, so no method: np.double is another double
        return meaning in hint.calls
    if not isinstance(func, ast.Attribute) or func.attr not in hint.methods:
        return False
    return func.attr not in looks.BARE or not (node.args or node.keywords)
