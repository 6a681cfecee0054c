"""CW119: names of torch.cuda in annotations that are strings."""

from __future__ import annotations

import ast
import re

from causeway.migrate.module import Module
from causeway.migrate.names import all_arguments
from causeway.migrate.rule import Rule
from causeway.migrate.rules.cw104 import DTYPES
from causeway.migrate.source import Edit

RULE = Rule(
    code="CW119",
    name="quoted-annotation",
    title="A type of torch.cuda in an annotation that is a string",
    why="Code that reads the annotation (typing.get_type_hints, a type checker) sees CUDA's type, "
    "and gets another one.",
    by_hand="`torch.Stream`, `torch.Event`, `torch.Tensor`.",
    before='import torch\n\n\ndef f(s: "torch.cuda.Stream", x: "torch.cuda.FloatTensor"):\n'
    "    s.synchronize()\n",
    after='import torch\n\n\ndef f(s: "torch.Stream", x: "torch.Tensor"):\n    s.synchronize()\n',
)
_TYPE = re.compile(
    r"(?<![\w.])(\w+)\.cuda(?:\.streams)?\.(Stream|Event|" + "|".join(DTYPES) + r")(?!\w)"
)


def run(module: Module) -> None:
    if module.vendor:  # its module has these names, as far as it has them at all
        return
    for annotation in _annotations(module):
        for node in ast.walk(annotation):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                _quoted(module, node)


def _annotations(module: Module) -> list[ast.expr]:
    found = [n.annotation for n in module.names.all(ast.AnnAssign)]
    functions: list[ast.FunctionDef | ast.AsyncFunctionDef] = [
        *module.names.all(ast.FunctionDef),
        *module.names.all(ast.AsyncFunctionDef),
    ]
    for function in functions:
        found += [a.annotation for a in all_arguments(function.args) if a.annotation]
        found += [function.returns] if function.returns else []
    return found


def _quoted(module: Module, node: ast.Constant) -> None:
    start, text = module.source.start(node), module.text(node)
    edits = [
        Edit(
            start + len(text[: match.start()].encode()),
            start + len(text[: match.end()].encode()),
            f"{match[1]}.{'Tensor' if match[2] in DTYPES else match[2]}",
        )
        for match in _TYPE.finditer(text)
        if module.names.lookup(match[1], node.scope) == "torch"  # type: ignore[attr-defined]
    ]
    if edits:
        module.change(RULE, node, edits, "the annotation names the type of every device")
