"""Where a value goes in its module: through choices, variables and what functions return.

Pure syntax, as in `names.py`: a name stands for all that is bound to it, whatever runs first. What
is handed to another function is not followed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from causeway.migrate.names import FUNCTIONS, Names, ancestors, called

_DEEP = 6  # variables and functions that a value is followed through
_SHOWS = re.compile(r"print|log|info|debug|warn|write|echo|message", re.I)


def loads(names: Names, target: ast.Name) -> Iterator[ast.Name]:
    """Where the variable is read that `target` sets or reads."""
    held = names.holder(target.id, target.scope)  # type: ignore[attr-defined]
    for name in names.loads.get(target.id, ()):
        if names.holder(name.id, name.scope) is held:  # type: ignore[attr-defined]
            yield name


def calls(names: Names, function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[ast.Call]:
    """The calls of a function of the module: `f()`, and of a method `self.f()` or `model.f()`."""
    method = isinstance(function.up, ast.ClassDef)  # type: ignore[union-attr]
    for call in names.all(ast.Call):
        func = call.func
        if isinstance(func, ast.Attribute):
            if method and func.attr == function.name:
                yield call
        elif called(call) == function.name and isinstance(func, ast.Name):
            found = (binding.node for binding in names.bindings(func))
            if not method and function in found:
                yield call


def arrivals(names: Names, node: ast.expr, depth: int = 0) -> Iterator[ast.expr]:
    """The expressions that have the value of `node` where nothing more is known of its way: an
    argument, an operand, a part of a text.
    """
    child: ast.AST = node
    for child, up in ancestors(node):
        chosen = isinstance(up, ast.IfExp) and child is not up.test
        if not (chosen or isinstance(up, ast.BoolOp) or _default(up, child)):
            break
    function = next((f for _, f in ancestors(node) if isinstance(f, FUNCTIONS)), None)
    targets: list[ast.expr] = []
    further: list[ast.expr] = []
    if isinstance(up, ast.Assign) and child is up.value:
        targets = up.targets
    elif isinstance(up, ast.AnnAssign | ast.NamedExpr) and child is up.value:
        targets = [up.target]
    elif isinstance(up, ast.Return) and function is not None:
        further = list(calls(names, function))
    if targets and all(isinstance(t, ast.Name) for t in targets):
        further = [load for t in targets for load in loads(names, t)]  # type: ignore[arg-type]
    if depth == _DEEP or not further:
        yield child  # type: ignore[misc]
        return
    for one in further:
        yield from arrivals(names, one, depth + 1)


def _default(up: ast.AST, child: ast.AST) -> bool:
    """Whether it is what a call gives where there is nothing else: `config.get("device", "cuda")`,
    `getattr(args, "device", "cuda")`.
    """
    return isinstance(up, ast.Call) and len(up.args) > 1 and up.args[-1] is child and (
        called(up) in ("get", "getattr")
    )  # fmt: skip


def shown_alone(names: Names, node: ast.expr) -> bool:
    """Whether a value is shown wherever it goes, and does nothing else."""
    found = list(arrivals(names, node))
    return bool(found) and all(map(_is_shown, found))


def _is_shown(node: ast.expr) -> bool:
    up = node.up  # type: ignore[attr-defined]
    if isinstance(up, ast.FormattedValue):
        text = up.up  # type: ignore[attr-defined]
        return text.values[0] is not up or len(text.values) == 1  # f"{device}:{rank}"
    if isinstance(up, ast.Call) and node is not up.func:
        return called(up) == "format" or _SHOWS.search(called(up)) is not None
    return isinstance(up, ast.BinOp) and isinstance(up.op, ast.Mod) and node is up.right
