"""CW103: the attribute `.is_cuda`."""

from __future__ import annotations

import ast
import re

from causeway.migrate.module import Module
from causeway.migrate.rule import Rule
from causeway.migrate.rules.kernels import chooses_kernel
from causeway.migrate.source import Edit

RULE = Rule(
    code="CW103",
    name="is-cuda",
    title="Whether a tensor is on the device: .is_cuda",
    why="`.is_cuda` is False on every other accelerator.",
    by_hand='`x.device.type != "cpu"`, or compare with the device that is meant.',
    before="import torch\n\nx = torch.ones(2)\nif x.is_cuda:\n    y = not x.is_cuda\n",
    after="import torch\n\nx = torch.ones(2)\n"
    'if x.device.type != "cpu":\n    y = x.device.type == "cpu"\n',
)


def run(module: Module) -> None:
    for node in sorted(module.names.all(ast.Attribute), key=module.source.start):
        if node.attr != "is_cuda" or not isinstance(node.ctx, ast.Load):
            continue
        if _own(module, node):
            continue
        up = node.up  # type: ignore[attr-defined]
        end = module.source.end(node)
        if chooses_kernel(module, node):
            module.report(
                RULE, node, "manual", "it decides on a kernel that is for CUDA alone",
                tip="Leave it where another branch serves other devices; else write that branch "
                "with torch's operators.",
            )  # fmt: skip
            continue
        if isinstance(up, ast.Call) and up.func is node:  # an old is_cuda(), or the user's own
            if any(f.name == "is_cuda" for f in module.names.all(ast.FunctionDef)):
                continue
            module.report(RULE, node, "manual", "`is_cuda` is called: it is no tensor's attribute")
            continue
        if module.vendor:
            module.use_target()
            edits = [Edit(end - 4, end, module.vendor)]
        else:
            edits = _edits(module, node)
        module.change(RULE, node, edits, "the device's type is asked",
                      tip="True for every device but the CPU.")  # fmt: skip


_FLAGS = re.compile(
    r"(?:.*\.)?_?(?:args?|opts?|options|cfg|config|conf|flags|hparams|params)", re.I
)


def _own(module: Module, node: ast.Attribute) -> bool:
    """Whether it is the program's own attribute: one that it sets, or an option of its command
    line, such as `args.is_cuda`.
    """
    owner = module.text(node.value)
    return bool(_FLAGS.fullmatch(owner)) or any(
        other.attr == "is_cuda" and isinstance(other.ctx, ast.Store)
        and module.text(other.value) == owner
        for other in module.names.all(ast.Attribute)
    )  # fmt: skip


def _edits(module: Module, node: ast.Attribute) -> list[Edit]:
    source, end = module.source, module.source.end(node)
    quote = module.quote_for(node)
    up = node.up  # type: ignore[attr-defined]
    compare, edits = "!=", []
    if isinstance(up, ast.UnaryOp) and isinstance(up.op, ast.Not):
        start = source.start(up)
        parenthesised = module.parenthesised(up, "x") != "x"
        if source.slice(start, source.start(node)).strip() == "not" and not parenthesised:
            compare = "=="
            edits.append(Edit(start, source.start(node), ""))
    if module.other_devices:
        kind = module.device_type(node)
        compare = f"== {kind} !=" if compare == "!=" else f"!= {kind} or {kind} =="
        if " or " in compare:
            # "not" stays: no shorter form says the same
            edits, compare = [], f"== {kind} !="
    text = f"device.type {compare} {quote}cpu{quote}"
    wrapped = module.parenthesised(node, text)
    if wrapped != text:
        start = source.start(node)
        edits.append(Edit(start, start, "("))
        text += ")"
    edits.append(Edit(end - len("is_cuda"), end, text))
    return edits
