"""Where a program chooses its devices by a variable: CUDA_VISIBLE_DEVICES, or another system's.

A driver reads it once, when it is first asked for a device. A tree that sets it when its modules
are imported already, in a function as a rule, must not ask for a device at an import.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from pathlib import Path

from causeway.migrate.source import tree_of

_NAME = re.compile(r"[A-Z_]*VISIBLE_DEVICES\Z")
_WORTH = re.compile(rb"VISIBLE_DEVICES")
_SETTERS = {"setdefault", "update", "pop"}
_SIMPLE = (ast.Assign, ast.Expr, ast.If)
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def late_in_files(files: Iterable[Path]) -> bool:
    """Whether a module of a tree sets it late. Nothing is run."""
    files = list(files)
    own = frozenset(n for path in files for n in (path.stem, path.parent.name))
    for path in files:
        tree = tree_of(path, _WORTH.search)
        if tree is not None and late(tree, own):
            return True
    return False


def late(tree: ast.Module, own: frozenset[str] = frozenset()) -> bool:
    """Whether a module sets it at run time, or when modules of its own tree (`own`: their names)
    may have been imported, or below where the line that names the device would stand.
    """
    imported = torch = defines = False
    for stmt in tree.body:
        at_import = set(_at_import(stmt))
        if any(sets(node) for node in ast.walk(stmt) if node not in at_import):
            return True
        if any(map(sets, at_import)) and (
            imported or (torch and (defines or not isinstance(stmt, _SIMPLE)))
        ):
            return True
        for node in at_import:
            if isinstance(node, ast.Import | ast.ImportFrom):
                heads = _heads(node)
                imported = imported or "" in heads or not heads.isdisjoint(own - {"torch"})
                torch = torch or "torch" in heads
        defines = defines or isinstance(stmt, (*_DEFINITIONS, ast.For, ast.While))
        defines = defines or (isinstance(stmt, ast.Assign) and any(map(_is_device, at_import)))
    return False


def sets_at_import(stmt: ast.stmt) -> bool:
    """Whether a simple statement of a module sets it when the module is imported."""
    return isinstance(stmt, _SIMPLE) and any(map(sets, _at_import(stmt)))


def sets(node: ast.AST) -> bool:
    """Whether a node sets or removes it in the program's own environment:
    `os.environ["CUDA_VISIBLE_DEVICES"] = …`, `os.environ.update(…)`, `os.putenv(…)`.
    """
    if isinstance(node, ast.Subscript):
        stored = isinstance(node.ctx, ast.Store | ast.Del)
        return stored and _ends(node.value, "environ") and _names(node.slice)
    if isinstance(node, ast.AugAssign):
        return _ends(node.target, "environ") and any(map(_names, ast.walk(node.value)))
    if not isinstance(node, ast.Call):
        return False
    func = node.func
    if _ends(func, "putenv") or _ends(func, "unsetenv"):
        return any(map(_names, node.args))
    if not isinstance(func, ast.Attribute) or func.attr not in _SETTERS:
        return False
    given = (n for a in (*node.args, *node.keywords) for n in ast.walk(a))
    return _ends(func.value, "environ") and any(map(_names, given))


def _names(node: ast.AST) -> bool:
    if isinstance(node, ast.keyword):
        return bool(_NAME.match(node.arg or ""))
    value = node.value if isinstance(node, ast.Constant) else None
    return isinstance(value, str) and bool(_NAME.match(value))


def _is_device(node: ast.AST) -> bool:
    """Whether it is the name of a device, which a conversion asks for."""
    value = node.value if isinstance(node, ast.Constant) else None
    return isinstance(value, str) and value.partition(":")[0] == "cuda"


def _ends(node: ast.AST, name: str) -> bool:
    return getattr(node, "attr", getattr(node, "id", "")) == name


def _heads(node: ast.Import | ast.ImportFrom) -> set[str]:
    """The packages that a statement imports from; "" for its own."""
    if isinstance(node, ast.Import):
        return {alias.name.partition(".")[0] for alias in node.names}
    return {"" if node.level else (node.module or "").partition(".")[0]}


def _at_import(stmt: ast.stmt) -> Iterable[ast.AST]:
    """What runs of a statement when its module is imported: no body of a function, and nothing
    under `if __name__ == "__main__":`.
    """
    work: list[ast.AST] = [stmt]
    while work:
        node = work.pop()
        yield node
        if isinstance(node, ast.If) and "__name__" in ast.dump(node.test):
            work += node.orelse
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            work += node.decorator_list
        elif not isinstance(node, ast.Lambda):
            work += ast.iter_child_nodes(node)
