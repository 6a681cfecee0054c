"""CW143: tests that replace a name of torch.cuda."""

from __future__ import annotations

import ast

from causeway.migrate import knowledge
from causeway.migrate.module import Module
from causeway.migrate.names import called
from causeway.migrate.rule import Rule

_EXAMPLE = (
    "from unittest.mock import patch\n\nfrom package import device\n\n\n"
    '@patch("torch.cuda.is_available", return_value=False)\n'
    'def test_device(_):\n    assert device() == "cpu"\n'
)
RULE = Rule(
    code="CW143",
    name="replaced-in-tests",
    title="A test that replaces a name of torch.cuda",
    why="Converted code asks torch.accelerator, so what a test puts in place of torch.cuda's "
    "function does not reach it.",
    by_hand="Replace `torch.accelerator.is_available` in the same way, and "
    "`torch.accelerator.current_accelerator` where the answer is yes. A device that a module asks "
    "for at its import is replaced there: `package.module.accelerator`.",
    before=_EXAMPLE,
    after=_EXAMPLE,
)
_REPLACES = ("patch", "setattr", "object")  # unittest.mock's, pytest's and pytest-mock's


def run(module: Module) -> None:
    """Runs before the rule for torch.cuda as an object, which says less of the same place."""
    if module.vendor:
        return
    for call in module.names.all(ast.Call):
        if called(call) not in _REPLACES:
            continue
        name = _replaced(module, call)
        api = knowledge.find(name) if name else None
        if api is None or not api.to:
            continue
        module.report(
            RULE, call.args[0], "manual", f"a test replaces `{name}`, which converted code does "
            f"not ask", tip=f"Replace `{api.to}` too.", api=name,
        )  # fmt: skip


def _replaced(module: Module, call: ast.Call) -> str:
    """The name of torch.cuda that a call replaces: `patch("module.torch.cuda.is_available")`,
    `setattr(torch.cuda, "is_available", …)`; "" for none.
    """
    first = call.args[0] if call.args else None
    if isinstance(first, ast.Constant):
        _, found, name = str(first.value).rpartition("torch.cuda.")
        return found + name if found else ""
    second = call.args[1] if len(call.args) > 1 else None
    if first is None or module.resolve(first) != "torch.cuda":
        return ""
    name = getattr(second, "value", "")
    return f"torch.cuda.{name}" if isinstance(name, str) and name else ""
