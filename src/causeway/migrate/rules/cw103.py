"""CW103: the attribute `.is_cuda`."""

from __future__ import annotations

import ast
import re

from causeway.migrate.module import Module
from causeway.migrate.names import statement
from causeway.migrate.rule import Rule
from causeway.migrate.rules.branches import for_each_vendor, no_other, stated
from causeway.migrate.rules.kernels import chooses_kernel
from causeway.migrate.rules.labels import is_label
from causeway.migrate.source import Edit

RULE = Rule(
    code="CW103",
    name="is-cuda",
    title="Whether a tensor is on the device: .is_cuda",
    why="`.is_cuda` is False on every other accelerator.",
    by_hand='`x.device.type == accelerator.type != "cpu"`, or compare with the device meant.',
    before="import torch\n\nx = torch.ones(2)\nif x.is_cuda:\n    y = not x.is_cuda\n",
    after="import torch\n\n"
    "accelerator = torch.accelerator.current_accelerator(check_available=True) or "
    'torch.device("cpu")\n\n'
    'x = torch.ones(2)\nif x.device.type == accelerator.type != "cpu":\n'
    '    y = not x.device.type == accelerator.type != "cpu"\n',
)


def run(module: Module) -> None:
    if module.other_framework:
        return
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
            module.names_left.append(node)
            continue
        if isinstance(up, ast.Call) and up.func is node:  # an old is_cuda(), or the user's own
            if any(f.name == "is_cuda" for f in module.names.all(ast.FunctionDef)):
                continue
            module.report(RULE, node, "manual", "`is_cuda` is called: it is no tensor's attribute")
            continue
        if for_each_vendor(node) and not module.vendor:
            module.report(RULE, node, "portable", "the program has a branch for each vendor",
                          tip="Add one for the device, or an `else` that serves any.")  # fmt: skip
            continue
        if not module.vendor and (is_label(module, node) or _shown_behind(module, node)):
            module.report(RULE, node, "portable", "a text says that it is about CUDA",
                          tip="Leave it, or show `.device` in place of it.")  # fmt: skip
            continue
        if module.vendor:
            module.use_target()
            edits = [Edit(end - 4, end, module.vendor)]
        else:
            edits = _edits(module, node)
        module.change(RULE, node, edits, "the device's type is asked",
                      tip="True on the accelerator that is there, never on the CPU.")  # fmt: skip


def _shown_behind(module: Module, node: ast.Attribute) -> bool:
    """Whether it decides on an error whose text shows it as CUDA's: `if not x.is_cuda: raise …`."""
    stmt = statement(node)
    return isinstance(stmt, ast.If) and module.within(node, stmt.test) and any(
        isinstance(n, ast.Attribute) and n.attr == "is_cuda" and is_label(module, n)
        for part in stmt.body if isinstance(part, ast.Raise) for n in ast.walk(part)
    )  # fmt: skip


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
    text = f"device.type == {module.device_type(node)}"
    if not module.available(node) and not stated(module, node):
        text += no_other(module, node)
    edits = []
    if module.parenthesised(node, text) != text:
        start = source.start(node)
        edits.append(Edit(start, start, "("))
        text += ")"
    edits.append(Edit(end - len("is_cuda"), end, text))
    return edits
