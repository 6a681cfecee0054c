"""CW123: branches for Apple's and Intel's devices behind the accelerator's."""

from __future__ import annotations

import ast

from causeway.migrate.module import Module
from causeway.migrate.rule import Rule
from causeway.migrate.source import Edit

RULE = Rule(
    code="CW123",
    name="dead-branch",
    title="A branch that is never taken",
    why="torch.accelerator is Apple's or Intel's device too: behind its branch, one that asks for "
    "MPS or XPU is dead.",
    by_hand="Take the branch out; `--fold-branches` does.",
    before="import torch\n\nif torch.accelerator.is_available():\n    n = 1\n"
    "elif torch.backends.mps.is_available():\n    n = 2\nelse:\n    n = 3\n",
    after="import torch\n\nif torch.accelerator.is_available():\n    n = 1\n"
    "elif torch.backends.mps.is_available():\n    n = 2\nelse:\n    n = 3\n",
    severity="info",
)
_OTHERS = {
    "torch.backends.mps.is_available", "torch.mps.is_available", "torch.xpu.is_available",
}  # fmt: skip


def run(module: Module) -> None:
    """Runs behind the rule that converts the question: only then the branch is dead."""
    if module.vendor:
        return
    nodes: list[ast.If | ast.IfExp] = [
        *module.names.all(ast.If), *module.names.all(ast.IfExp)
    ]  # fmt: skip
    for node in nodes:
        if module.asks(node.test) and _converted(module, node.test):
            _behind(module, node)


def _converted(module: Module, test: ast.expr) -> bool:
    if isinstance(test, ast.Call) and module.resolve(test.func) == "torch.accelerator.is_available":
        return True
    place = module.source.start(test), module.source.end(test)
    return any(
        d.kind == "changed" and (d.start, d.end) == place
        # A question that leaves a device out leaves it to its own branch.
        and not any(" and not " in edit.text for edit in d.edits)
        for d in module.drafts
    )  # fmt: skip


def _behind(module: Module, node: ast.If | ast.IfExp) -> None:
    source = module.source
    while True:
        if isinstance(node, ast.IfExp):
            other: ast.AST | None = node.orelse
        else:
            other = node.orelse[0] if len(node.orelse) == 1 else None
        if not isinstance(other, ast.If | ast.IfExp) or type(other) is not type(node):
            return
        if _asks_others(module, other.test):
            elif_ = isinstance(other, ast.IfExp) or source.slice(
                source.start(other), source.start(other) + 4
            ) == "elif"  # fmt: skip
            if module.settings.fold_branches and elif_:
                _fold(module, other)
            else:
                module.report(RULE, other.test, "portable",
                              "never true here: the accelerator's branch comes first",
                              tip=RULE.by_hand)  # fmt: skip
        node = other


def _asks_others(module: Module, test: ast.expr) -> bool:
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return any(_asks_others(module, value) for value in test.values)
    return isinstance(test, ast.Call) and module.resolve(test.func) in _OTHERS


def _fold(module: Module, node: ast.If | ast.IfExp) -> None:
    source = module.source
    if isinstance(node, ast.IfExp):
        start, end = source.start(node), source.start(node.orelse)
        if source.slice(source.end(node.test), end).strip() != "else":
            return  # parentheses or a comment
    else:
        start = _with_comments(module, source.line_start(source.start(node)))
        end = source.line_end(source.end(node.body[-1]))
        end += len(source.newline) if end < len(source.data) else 0
    module.drop(start, end)
    where = node.test if isinstance(node, ast.IfExp) else node.body[0]
    module.change(RULE, where, [Edit(start, end, "")], "the branch was never taken",
                  tip="The accelerator's branch takes this device too.")  # fmt: skip


def _with_comments(module: Module, start: int) -> int:
    """Where the comments right above an `elif` start that are as far in as it is."""
    source = module.source
    indent = source.slice(start, source.skip(start)).replace(source.newline, "")
    while start > 0:
        above = source.line_start(start - 1)
        line = source.slice(above, start)
        if not line.startswith(indent + "#"):
            break
        start = above
    return start
