"""CW114: the question whether there is a device."""

from __future__ import annotations

import ast

from causeway.migrate import knowledge
from causeway.migrate.module import Module, Use
from causeway.migrate.names import ancestors
from causeway.migrate.rule import Rule
from causeway.migrate.rules import table
from causeway.migrate.rules.kernels import builds_for_cuda

RULE = Rule(
    code="CW114",
    name="is-available",
    title="Whether there is a device",
    why="torch.cuda.is_available() is False on every other accelerator, and the program runs on "
    "the CPU.",
    by_hand="`torch.accelerator.is_available()`. Where it decides on code that is for CUDA alone, "
    "leave it.",
    before='import torch\n\ndevice = "cuda" if torch.cuda.is_available() else "cpu"\n',
    after="import torch\n\ndevice = torch.accelerator.current_accelerator().type if "
    'torch.accelerator.is_available() else "cpu"\n',
)


def run(module: Module) -> None:
    """Runs after the others: a question that decides on code which stays CUDA's stays too."""
    for use in module.uses("torch.cuda.is_available"):
        api = knowledge.find(use.api)
        if api is None:
            continue
        if _decides_on_cuda(module, use):
            module.report(
                RULE, use.node, "portable", "it decides on code that is for CUDA alone",
                tip="It is False on other devices, so that code is left out there.", api=use.api,
            )  # fmt: skip
        else:
            table.apply(module, RULE, use, api)


def _after(node: ast.If) -> list[ast.AST]:
    """What runs only where `if not available: return` did not return: the statements behind it."""
    found: list[ast.AST] = [*node.orelse]
    if not isinstance(node.body[-1], ast.Return | ast.Raise | ast.Continue):
        return found
    for name in ("body", "orelse", "finalbody"):
        block = getattr(node.up, name, None)  # type: ignore[attr-defined]
        if isinstance(block, list) and node in block:
            found += block[block.index(node) + 1 :]
    return found


def _decides_on_cuda(module: Module, use: Use) -> bool:
    start, end = module.source.start, module.source.end
    edited = [(e.start, e.end) for e in module.edits]
    child: ast.AST
    negated = False
    for child, up in ancestors(use.node):
        region: list[ast.AST] = []
        if isinstance(up, ast.UnaryOp) and isinstance(up.op, ast.Not):
            negated = not negated
        elif negated and isinstance(up, ast.BoolOp) and isinstance(up.op, ast.Or):
            region = [v for v in up.values if v is not child]
        elif negated and isinstance(up, ast.If) and up.test is child:
            region = _after(up)
        elif negated:
            return False
        elif isinstance(up, ast.BoolOp) and isinstance(up.op, ast.And):
            region = [v for v in up.values if v is not child]
        elif isinstance(up, ast.IfExp) and up.test is child:
            region = [up.body]
        elif isinstance(up, ast.If) and up.test is child:
            region = list(up.body)
        elif isinstance(up, ast.FunctionDef):
            return False
        if any(builds_for_cuda(node) for node in region):
            return True
        for node in region:
            low, high = start(node), end(node)
            if any(low <= start(b) < high for b in module.breaking):
                body = [(start(n), end(n)) for n in region]
                whole = isinstance(up, ast.If)
                if not whole or not any(a <= s < b for s, _ in edited for a, b in body):
                    return True
        if isinstance(up, ast.stmt):
            return False
    return False
