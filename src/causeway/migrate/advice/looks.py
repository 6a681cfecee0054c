"""What a hint of the table cannot say as data: a function each, `(module, call) -> bool`."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator

from causeway.migrate.module import Module
from causeway.migrate.names import FUNCTIONS

_LOOPS = ast.For | ast.AsyncFor | ast.While
Look = Callable[[Module, ast.Call], bool]


def around(node: ast.AST) -> Iterator[ast.AST]:
    """The loops around a node, up to the function that it is in; not those it is the head of."""
    child, up = node, getattr(node, "up", None)
    while up is not None and not isinstance(up, (*FUNCTIONS, ast.Lambda)):
        if isinstance(up, _LOOPS) and child in up.body:
            yield up
        child, up = up, getattr(up, "up", None)


def is_training(loop: ast.AST) -> bool:
    """Whether a loop takes a step each time: calls backward(), and not in a loop of its own."""
    if not hasattr(loop, "_trains"):
        loop._trains = any(  # type: ignore[attr-defined]
            isinstance(inner, ast.Call)
            and isinstance(inner.func, ast.Attribute)
            and inner.func.attr == "backward"
            and next(around(inner), None) is loop
            for inner in ast.walk(loop)
        )
    return bool(loop._trains)  # type: ignore[attr-defined]


def in_training(node: ast.AST) -> bool:
    """Whether the loop next to a node is one of steps."""
    loop = next(around(node), None)
    return loop is not None and is_training(loop)


def keyword(call: ast.Call, name: str) -> ast.expr | None:
    """The value of a keyword, or None."""
    return next((k.value for k in call.keywords if k.arg == name), None)


def _number(node: ast.expr | None) -> float | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return float(node.value)
    return None


def _tight(module: Module, call: ast.Call) -> bool:
    """Both tolerances are given or usual ones, and the larger is below 1e-6."""
    numbers = [_number(keyword(call, name)) for name in ("rtol", "atol")]
    if module.resolve(call.func) in ("torch.allclose", "torch.isclose"):
        for i, argument in enumerate(call.args[2:4]):
            numbers[i] = _number(argument)
    known = [number for number in numbers if number is not None]
    return bool(known) and max(known) < 1e-6


def _tiny(module: Module, call: ast.Call) -> bool:
    eps = _number(keyword(call, "eps"))
    half = re.search(r"\.half\(|float16|torch\.half\b", module.source.text)
    return eps is not None and 0 < eps < 6e-8 and half is not None


def _moved(module: Module, call: ast.Call) -> bool:
    """`torch.zeros(3).to(device)`: made here, moved at once."""
    up = call.up  # type: ignore[attr-defined]
    outer = getattr(up, "up", None)
    if not isinstance(up, ast.Attribute) or not isinstance(outer, ast.Call) or outer.func is not up:
        return False
    if keyword(call, "device") is not None:
        return False
    if up.attr == "cuda":
        return True
    return up.attr == "to" and bool(outer.args) and _is_device(module, outer.args[0])


def _is_device(module: Module, node: ast.expr) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and node.value.partition(":")[0] not in ("cpu", "meta")
    name = module.text(node).rpartition(".")[2].lower()
    return "device" in name or name in ("accelerator", "gpu", "cuda") or name.startswith("cuda")


def _blocking(module: Module, call: ast.Call) -> bool:
    if not isinstance(call.func, ast.Attribute) or keyword(call, "non_blocking") is not None:
        return False
    if isinstance(call.func.value, ast.Call):  # torch.zeros(3).to(device) has a hint of its own
        return False
    if call.func.attr == "cuda":
        return not call.args and in_training(call)
    moves = call.func.attr == "to" and len(call.args) == 1 and not call.keywords
    return moves and _is_device(module, call.args[0]) and in_training(call)


def _zeros(module: Module, call: ast.Call) -> bool:
    named = isinstance(call.func, ast.Attribute) and call.func.attr == "zero_grad"
    value = keyword(call, "set_to_none")
    return named and isinstance(value, ast.Constant) and value.value is False


def _switched_on(module: Module, call: ast.Call) -> bool:
    first = call.args[0] if call.args else keyword(call, "mode")
    return not (isinstance(first, ast.Constant) and first.value is False)


def _shuffled(module: Module, call: ast.Call) -> bool:
    value = keyword(call, "shuffle")
    return isinstance(value, ast.Constant) and value.value is True


def _high(module: Module, call: ast.Call) -> bool:
    first = call.args[0] if call.args else keyword(call, "precision")
    return not (isinstance(first, ast.Constant) and first.value == "highest")


def _no_arguments(module: Module, call: ast.Call) -> bool:
    """`x.double()` and `x.eval()`; a method of that name with arguments is another one."""
    return not call.args and not call.keywords


def _unique_of_tensor(module: Module, call: ast.Call) -> bool:
    """numpy and pandas have methods of these names, without arguments; so have tensors. Only what
    the module calls through torch, or says of a tensor's own arguments, is told apart.
    """
    if not isinstance(call.func, ast.Attribute) or module.resolve(call.func):
        return bool(module.resolve(call.func))
    known = {"as_tuple", "return_inverse", "return_counts"}
    if call.func.attr == "unique":
        return any(k.arg in known for k in call.keywords)
    return call.func.attr != "nonzero" or not re.search(r"\bnumpy\b", module.source.text)


# Looked at where the table's own conditions hold.
ALSO: dict[str, Look] = {
    "CW702": _high,
    "CW704": _tight,
    "CW756": _shuffled,
    "CW758": _unique_of_tensor,
    "CW760": _moved,
    "CW761": _switched_on,
    "CW762": _no_arguments,
}
# Looked at for every call.
ALONE: dict[str, Look] = {"CW707": _tiny, "CW763": _zeros, "CW764": _blocking}
# What such calls are found by.
WORDS: dict[str, tuple[str, ...]] = {
    "CW707": ("eps",),
    "CW763": ("zero_grad",),
    "CW764": ("to", "cuda"),
}
# Methods of a tensor that take no argument.
BARE = frozenset({"double", "half", "item", "tolist", "numpy", "eval"})
