"""The branches of a program that tells devices apart: `if … == "cuda": … elif … == "mps": …`."""

from __future__ import annotations

import ast
import re

from causeway.migrate import knowledge, vendors
from causeway.migrate.chains import compared_beside
from causeway.migrate.module import Module
from causeway.migrate.names import FUNCTIONS, all_arguments, ancestors, statement
from causeway.migrate.rule import Rule
from causeway.migrate.source import Edit

_TORCHS = re.compile(r"(mps|xpu|mtia)(:\d+)?")


def for_each_vendor(node: ast.AST) -> bool:
    """Whether a question is one of several that ask for the devices of vendors, one after another:
    its branch is CUDA's, and stays.
    """
    return any(name.partition(":")[0] in vendors.DEVICES for name in compared_beside(node))


def beside_vendor(node: ast.AST) -> bool:
    """Whether a name is what is left once another vendor's was asked for: `"npu" if device.type ==
    "npu" else "cuda"`.
    """
    child = node
    for up in (u for _, u in ancestors(node)):
        if not isinstance(up, ast.IfExp):
            return False
        asked = {n.value for n in ast.walk(up.test) if isinstance(n, ast.Constant)}
        taken = getattr(up.body, "value", "")
        if up.orelse is child and taken in vendors.DEVICES and taken in asked:
            return True
        child = up
    return False


def stated(module: Module, node: ast.AST) -> bool:
    """Whether code states where a tensor is that it put on the device itself: `y = f(x.cuda())`,
    `assert y.is_cuda`. Where there is no accelerator that is the CPU.
    """
    holder: ast.AST = node.up  # type: ignore[attr-defined]
    while isinstance(holder, ast.BoolOp) and isinstance(holder.op, ast.And):
        holder = holder.up  # type: ignore[attr-defined]
    if isinstance(holder, ast.Call):
        if getattr(holder.func, "attr", "") != "assertTrue" or node not in holder.args[:1]:
            return False
    elif not isinstance(holder, ast.Assert):
        return False
    function = next((up for _, up in ancestors(node) if isinstance(up, FUNCTIONS)), None)
    owner = _owner(node)
    held = module.names.holder(owner.id, owner.scope) if owner is not None else None  # type: ignore[attr-defined]
    if function is None or owner is None or held is None or held.node is not function:
        return False
    if owner.id in {arg.arg for arg in all_arguments(function.args)}:
        return False
    here = module.source.start(statement(node))
    return any(
        module.source.start(n) < here and (
            getattr(n.func, "attr", "") == "cuda"
            or any(str(getattr(given, "value", "")).partition(":")[0] == "cuda"
                   for given in (*n.args, *(k.value for k in n.keywords)))
        )
        for n in ast.walk(function) if isinstance(n, ast.Call)
    )  # fmt: skip


def _owner(node: ast.AST) -> ast.Name | None:
    """The name whose device is asked for: `y` of `y.device.type == "cuda"`."""
    inner: ast.AST | None = node.left if isinstance(node, ast.Compare) else node
    while isinstance(inner, ast.Attribute | ast.Subscript):
        inner = inner.value
    return inner if isinstance(inner, ast.Name) else None


def stays_without_device(module: Module, rule: Rule, node: ast.AST) -> bool:
    """Report and leave a comparison that only counts where there is no device: a program that was
    asked for "cuda" goes on with the CPU, or ends. The accelerator's name is "cpu" there, and a Mac
    does not serve who asks for "cuda".
    """
    asked = None if module.vendor else module.unavailable(node)
    if asked is None:
        return False
    if any(isinstance(up, ast.BoolOp) and module.within(asked, up) for _, up in ancestors(node)):
        module.kept_questions.add(id(asked))
    module.report(rule, node, "portable", "it is asked where there is no device",
                  tip='Whoever asks for "cuda" there is answered as before.')  # fmt: skip
    return True


def no_other(module: Module, node: ast.AST) -> str:
    """What follows `x == accelerator.type` where that must be true on no CPU: `!= "cpu"`, and on no
    device that the module has a branch for: `not in ("cpu", "mps")`.
    """
    quote = module.quote_for(node)
    named = {
        match.group(1)
        for name in (*compared_beside(node), *module.compared_words)
        if (match := _TORCHS.fullmatch(name))
    }
    named |= _without_a_name(module, node)
    if not named:
        return f" != {quote}cpu{quote}"
    listed = ", ".join(f"{quote}{name}{quote}" for name in ("cpu", *sorted(named)))
    return f" not in ({listed})"


def _without_a_name(module: Module, node: ast.AST) -> set[str]:
    """The devices of torch whose modules lack what a comparison guards: they go on without it."""
    for child, up in ancestors(node):
        if isinstance(up, ast.If | ast.IfExp) and up.test is child:
            body = up.body if isinstance(up.body, list) else [up.body]
            return {
                device for part, name in module.fragile for device in knowledge.lacking(name)
                if _TORCHS.fullmatch(device) and any(module.within(part, b) for b in body)
            }  # fmt: skip
        if not isinstance(up, ast.BoolOp | ast.Compare | ast.Attribute):
            return set()
    return set()


def negated(module: Module, node: ast.Compare) -> list[Edit]:
    """Edits that make `not x == …` of `x != …`, for a chain that another comparison is added to."""
    source = module.source
    start, end = source.start(node), source.end(node)
    at = source.skip(source.end(node.left), also=b")")
    bare = module.parenthesised(node, "x") == "x" and not isinstance(node.up, ast.UnaryOp)  # type: ignore[attr-defined]
    edits = [Edit(start, start, "not " if bare else "(not "), Edit(at, at + 2, "==")]
    return edits if bare else [*edits, Edit(end, end, ")")]
