"""Other devices beside a question about CUDA: what their branches set, or is asked with it."""

from __future__ import annotations

import ast
import re

from causeway.migrate import vendors
from causeway.migrate.module import Module
from causeway.migrate.names import (
    ancestors,
    called,
    statement,
)
from causeway.migrate.rules.labels import DEVICES

_OTHERS = "|".join((*vendors.TORCHS, *vendors.ASKED))
_OTHER = re.compile(
    rf"\b(?:{_OTHERS})\.is_available\(|\bis_(?:torch_)?(?:{_OTHERS})_available\("
    rf"|\b(?:\w+_)?(?:{_OTHERS})_AVAILABLE\b",
    re.I,
)
_BRANCH = re.compile(r"\b(backends\.mps|mps|xpu)\.is_available\(\)")


def other_settings(module: Module, call: ast.AST) -> list[str]:
    """The devices of torch, as `backends.mps`, that the branches behind a question set up in a way
    of their own: `self.half = True`, and `elif torch.backends.mps.is_available(): self.half =
    False`. They keep their branch.
    """
    node = statement(call)
    if not isinstance(node, ast.If) or not any(n is call for n in ast.walk(node.test)):
        return []
    own, found, first = _settings(node.body), [], node.test
    while len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If):
        node = node.orelse[0]
        asked = _BRANCH.search(module.text(node.test))
        theirs = _settings(node.body)
        if asked and (
            any(own.get(name, value) != value for name, value in theirs.items())
            or _has_switch(node.test, first)
        ):
            found.append("backends.mps" if "mps" in asked[1] else "xpu")
    return found


def _has_switch(test: ast.expr, first: ast.expr) -> bool:
    """Whether the program has a switch of its own for a device, which the first branch does not
    have: `elif torch.backends.mps.is_available() and ALLOW_MPS`.
    """
    known = {ast.dump(n) for n in ast.walk(first)}
    terms = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else []
    return any(
        isinstance(term, ast.Name | ast.Attribute) and ast.dump(term) not in known for term in terms
    )


def _settings(body: list[ast.stmt]) -> dict[str, str]:
    """What a branch sets by constants and types, less the device itself."""
    return {
        ast.dump(stmt.targets[0]): ast.dump(stmt.value)
        for stmt in body
        if isinstance(stmt, ast.Assign) and len(stmt.targets) == 1
        and isinstance(stmt.value, ast.Constant | ast.Attribute | ast.Name)
        and not DEVICES.fullmatch(str(getattr(stmt.value, "value", "")))
    }  # fmt: skip


def asks_another(module: Module, call: ast.AST) -> bool:
    """Whether the same condition asks for another vendor's device where there is no CUDA:
    `not torch.cuda.is_available() and torch.backends.mps.is_available()`, or by other terms:
    `torch.cuda.is_available() or (is_torch_xpu_available() and new_enough)`.
    """
    for child, up in ancestors(call):
        if isinstance(up, ast.stmt):
            return False
        if not isinstance(up, ast.BoolOp):
            continue
        denied = isinstance(child, ast.UnaryOp) and isinstance(child.op, ast.Not)
        for value in up.values:
            if value is child or not _OTHER.search(module.text(value)):
                continue
            positive = not (isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.Not))
            if isinstance(up.op, ast.And) and denied and positive:
                return True
            if isinstance(up.op, ast.Or) and not denied and isinstance(value, ast.BoolOp):
                return True
    return False


_VENDORS_OWN = re.compile(rf"(?:^|_)(?:{_OTHERS})(?:_|$)")
_CUDAS_OWN = re.compile(r"(?:^|_)(?:cuda|nvidia)(?:_|$)")


def is_for_each(module: Module, node: ast.If) -> bool:
    """Whether each branch calls a function with a vendor's name: `log_cuda_info(torch)`, and
    `elif torch.xpu.is_available(): log_xpu_info(torch)`.
    """
    own, other = _called(module, node.body), node.orelse
    if not any(map(_CUDAS_OWN.search, own)):
        return False
    return any(map(_VENDORS_OWN.search, _called(module, other)))


def _called(module: Module, body: list[ast.stmt]) -> set[str]:
    """The names of functions that a branch calls and torch does not have."""
    return {
        called(n)
        for part in body for n in ast.walk(part)
        if isinstance(n, ast.Call) and not module.resolve(n.func).startswith("torch.")
    }  # fmt: skip
