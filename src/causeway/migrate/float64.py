"""Whether a module computes in float64 on the device that it chooses.

Apple's device has no float64: where a program asks whether there is CUDA, it went on with the CPU
on a Mac, and must after the conversion. What is on the host anyway, `x.cpu().double()` and types of
numpy, does not count, nor what is only compared, `x.dtype == torch.float64`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from causeway.migrate.names import Names, ancestors

_TYPES = {"torch.float64", "torch.double", "torch.complex128", "torch.cdouble"}
_SETS = {"torch.set_default_dtype", "torch.set_default_tensor_type"}
_TENSORS = {"torch.DoubleTensor", "torch.cuda.DoubleTensor"}
# What a chain that starts or goes through one of these holds is on the host.
_ON_HOST = {"cpu", "from_numpy", "tensor", "as_tensor", "numpy", "FloatTensor", "Tensor", "load"}
_MOVES = {"cuda", "to"}


def computes(names: Names, resolve: Callable[[ast.AST], str]) -> bool:
    """See above."""
    return (
        any(_call(call, resolve) for call in names.all(ast.Call))
        or any(_beside(node, resolve) for node in names.all(ast.Dict))
        or _each(names, resolve)
    )


def _each(names: Names, resolve: Callable[[ast.AST], str]) -> bool:
    """Whether something is done for each of several types, a double among them, on a device:
    `for dtype in (torch.float, torch.double):`, `parametrize("dtype", [torch.float64])`.
    """
    if not any(k.arg == "device" for k in names.all(ast.keyword)):
        return False
    for kind in (ast.Tuple, ast.List):
        for several in names.all(kind):
            up = several.up  # type: ignore[attr-defined]
            loop = isinstance(up, ast.For | ast.comprehension) and up.iter is several
            name = getattr(getattr(up, "func", None), "attr", getattr(up, "func", None))
            given = isinstance(up, ast.Call) and (
                getattr(name, "id", name) in ("product", "parametrize")
            )
            members = several.elts  # type: ignore[attr-defined]
            if (loop or given) and any(_is_double_name(e, resolve) for e in members):
                return True
    return False


def _is_double(node: ast.expr | None, resolve: Callable[[ast.AST], str]) -> bool:
    if isinstance(node, ast.Constant):
        return node.value in _TENSORS
    if isinstance(node, ast.Name) and not resolve(node):  # dtype = torch.double
        scope = node.scope  # type: ignore[attr-defined]
        while scope is not None and node.id not in scope.bindings:
            scope = scope.parent
        found = scope.bindings[node.id] if scope is not None else []
        return any(b.value is not None and _is_double_name(b.value, resolve) for b in found)
    return node is not None and _is_double_name(node, resolve)


def _is_double_name(node: ast.expr, resolve: Callable[[ast.AST], str]) -> bool:
    return resolve(node) in _TYPES | _TENSORS


def _call(call: ast.Call, resolve: Callable[[ast.AST], str]) -> bool:
    api = resolve(call.func)
    method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    if api in _SETS:
        return any(_is_double(arg, resolve) for arg in call.args)
    if api == "torch.cuda.DoubleTensor":
        return True
    given = {k.arg: k.value for k in call.keywords}
    if "device" in given and _is_double(given.get("dtype"), resolve):
        return not _is_cpu(given["device"]) and not _needs_cuda(given["device"])
    if api or not isinstance(call.func, ast.Attribute):
        return False
    if method == "double" and not call.args and not call.keywords:
        return not _on_host(call) or _moved(call)
    if method in ("to", "type"):
        types = [*call.args, *given.values()]
        double = any(_is_double(a, resolve) for a in types)
        placed = len(types) > 1 and not any(map(_is_cpu, types))
        return double and (placed or not _on_host(call))
    return False


def _is_cpu(node: ast.expr) -> bool:
    inner = node.args[0] if isinstance(node, ast.Call) and len(node.args) == 1 else node
    return getattr(inner, "value", "") == "cpu"


def _needs_cuda(node: ast.expr) -> bool:
    """Whether it is CUDA's name, unasked: what it made never ran without CUDA."""
    named = isinstance(node, ast.Constant) and str(node.value).startswith("cuda")
    asked = (ast.If, ast.IfExp, ast.BoolOp)
    return named and not any(isinstance(up, asked) for _, up in ancestors(node))


def _receivers(node: ast.AST) -> Iterator[ast.AST]:
    """What a chain of methods is called on, from the end."""
    while isinstance(node, ast.Call | ast.Attribute | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
        yield node


def _on_host(call: ast.Call) -> bool:
    return any(isinstance(n, ast.Attribute) and n.attr in _ON_HOST for n in _receivers(call))


def _moved(call: ast.Call) -> bool:
    """Whether what a call gives is moved at once: `torch.tensor(a).double().to(device)`."""
    up = call.up  # type: ignore[attr-defined]
    return isinstance(up, ast.Attribute) and up.attr in _MOVES


def _beside(node: ast.Dict, resolve: Callable[[ast.AST], str]) -> bool:
    """Whether a dictionary has both: `{"dtype": torch.double, "device": device}`."""
    pairs = zip(node.keys, node.values, strict=True)
    given = {getattr(key, "value", None): value for key, value in pairs}
    return "device" in given and _is_double(given.get("dtype"), resolve)
