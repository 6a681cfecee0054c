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
    """Report the hints for a module. Runs after the rules: it looks at nodes that they have done."""
    if not re.search(r"\btorch\b", module.source.text):
        return
    hints = [
        hint
        for hint in HINTS
        if module.settings.wants(hint.rule.code)
        and not (hint.unless and re.search(hint.unless, module.source.text))
    ]
    found: set[str] = set()
    nodes = [*module.names.all(ast.Call), *module.names.all(ast.Attribute)]
    for node in sorted(nodes, key=lambda n: (n.lineno, n.col_offset, n.end_lineno or 0)):
        for hint in hints:
            if hint.once and hint.rule.code in found:
                continue
            if _fits(module, node, hint):
                found.add(hint.rule.code)
                place = node.func if isinstance(node, ast.Call) else node
                module.report(hint.rule, place, "portable", hint.message, api=_api(module, place),
                              category=hint.category)  # fmt: skip


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
    if isinstance(func, ast.Attribute) and func.attr in hint.methods:
        if module.resolve(func):  # a function of a module, such as np.double
            return False
        return func.attr not in looks.BARE or not (node.args or node.keywords)
    return bool(hint.calls) and module.resolve(func) in hint.calls
