"""CW118: `async=True`, which Python 3.7 made a word of its own."""

from __future__ import annotations

import ast
import re

from causeway.migrate import vendors
from causeway.migrate.module import Module
from causeway.migrate.rule import Rule
from causeway.migrate.source import Edit

RULE = Rule(
    code="CW118",
    name="async-argument",
    title="The argument async of .cuda() and copy_()",
    why="`async` is a word of Python since 3.7: the file does not parse. torch has called the "
    "argument non_blocking since 0.4.",
    by_hand="Write `non_blocking=True`.",
    before="import torch\n\nx = torch.ones(2).cuda(async=True)\n",
    after="import torch\n\n"
    "accelerator = torch.accelerator.current_accelerator(check_available=True) or "
    'torch.device("cpu")\n\n'
    "x = torch.ones(2).to(accelerator, non_blocking=True)\n",
)
_ASYNC = re.compile(r"\basync(?=\s*=[^=])")
_STAND_IN = "asynk"  # as long, so that all places stay
_METHODS = {"copy_", "to", "type", *vendors.METHODS}


def parse(text: str) -> ast.Module | None:
    """The tree of a module whose one fault is `async=` as an argument of torch's methods; None
    where it is not that. The argument's name is "non_blocking" in it, at the place of "async".
    """
    if not _ASYNC.search(text):
        return None
    try:
        tree = ast.parse(_ASYNC.sub(_STAND_IN, text))
    except SyntaxError:
        return None
    found: list[ast.keyword] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            for keyword in node.keywords:
                if keyword.arg == _STAND_IN:
                    if getattr(node.func, "attr", "") not in _METHODS:
                        return None
                    found.append(keyword)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            node.value = node.value.replace(_STAND_IN, "async")
        elif getattr(node, "id", "") == _STAND_IN:
            return None  # a variable called so
    for keyword in found:
        keyword.arg = "non_blocking"
    return tree if found else None


def run(module: Module) -> None:
    if "async" not in module.source.text:
        return
    for call in module.names.all(ast.Call):
        for keyword in call.keywords:
            start = module.source.start(keyword)
            if keyword.arg == "non_blocking" and module.source.slice(start, start + 5) == "async":
                module.change(RULE, keyword, [Edit(start, start + 5, "non_blocking")],
                              "torch's name of the argument is non_blocking")  # fmt: skip
