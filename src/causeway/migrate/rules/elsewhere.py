"""Where the answer to a question about CUDA goes that is not torch's: a switch of another library,
an index of faiss, all of torch.cuda, a checkpoint that goes back to CUDA's device.
"""

from __future__ import annotations

import ast
import re

from causeway.migrate.module import Module
from causeway.migrate.names import (
    after,
    ancestors,
    statement,
)

_SWITCH = re.compile(r"(?:\w+_)?cuda|(?:use_)?gpu")


def is_switch_of_others(module: Module, node: ast.AST) -> bool:
    """Whether a value is an argument `cuda=` or `gpu=` of a library that is neither torch nor the
    tree's.
    """
    up = node.up  # type: ignore[attr-defined]
    if not (isinstance(up, ast.keyword) and _SWITCH.fullmatch(up.arg or "")):
        return False
    head = module.resolve(up.up.func).partition(".")[0]  # type: ignore[attr-defined]
    return bool(head) and head != "torch" and head not in module.own_packages and (
        any(name.partition(".")[0] == head for name in module.brought)
    )  # fmt: skip


def named_switch_of_others(module: Module, call: ast.Call) -> bool:
    """The same of a question that has a name in its function: `use_gpu = torch.cuda.is_available()`
    and `faiss.Kmeans(…, gpu=use_gpu)`, also of `device_count() > 0`.
    """
    stmt = statement(call)
    if not isinstance(stmt, ast.Assign) or len(stmt.targets) != 1:
        return False
    target = stmt.targets[0]
    compared = isinstance(stmt.value, ast.Compare) and stmt.value.left is call
    if not isinstance(target, ast.Name) or not (stmt.value is call or compared):
        return False
    held = module.names.holder(target.id, target.scope)  # type: ignore[attr-defined]
    return any(
        is_switch_of_others(module, name) for name in module.names.all(ast.Name)
        if name.id == target.id and isinstance(name.ctx, ast.Load)
        and module.names.holder(name.id, name.scope) is held  # type: ignore[attr-defined]
    )  # fmt: skip


def hands_cudas_module(module: Module, part: ast.AST) -> bool:
    """Whether code hands on all of torch.cuda, which stays: `restore("CUDA", torch.cuda)`."""
    return any(
        isinstance(n, ast.Attribute)
        and isinstance(call := n.up, ast.Call | ast.keyword)  # type: ignore[attr-defined]
        and getattr(call, "func", None) is not n
        and getattr(getattr(call, "func", None), "id", "") not in ("hasattr", "getattr")
        and module.resolve(n) == "torch.cuda"
        for n in ast.walk(part)
    )


def copies_among_devices(module: Module, node: ast.AST) -> bool:
    """Whether it is in a DataParallel of the program's own, by torch's parts of one, which serve
    CUDA: elsewhere it is the model itself.
    """
    parts = ("scatter_gather", "replicate", "parallel_apply")
    return any(
        isinstance(up, ast.ClassDef) and "parallel" in up.name.lower() for _, up in ancestors(node)
    ) and any(part in name.split(".") for name in module.brought for part in parts)


def locates_checkpoint(module: Module, call: ast.AST) -> bool:
    """Whether the answer yes means that a checkpoint's tensors go where they came from, which was
    CUDA's device: `map_location = None if torch.cuda.is_available() else "cpu"`, or `torch.load(f)`
    against `torch.load(f, map_location="cpu")`.
    """
    if _loads_either(module, call):
        return True
    for child, up in ancestors(call):
        if isinstance(up, ast.IfExp) and up.test is child:
            holder = up.up  # type: ignore[attr-defined]
            where = getattr(holder, "arg", "") or _target(holder)
            return where == "map_location" and _none_or_cpu(up.body, up.orelse)
        if isinstance(up, ast.If) and up.test is child:
            sides = [b[0] for b in (up.body, up.orelse) if len(b) == 1]
            values = [s.value for s in sides if isinstance(s, ast.Assign)]
            where = {_target(s) for s in sides}
            return where == {"map_location"} and len(values) == 2 and _none_or_cpu(*values)
        if not (isinstance(up, ast.UnaryOp) and isinstance(up.op, ast.Not)):
            return False
    return False


def _target(node: ast.AST) -> str:
    target = node.targets[0] if isinstance(node, ast.Assign) else None
    return getattr(target, "id", getattr(target, "attr", ""))


def _none_or_cpu(*values: ast.expr) -> bool:
    return {_location(v) for v in values} == {None, "cpu"}


def _location(value: ast.expr) -> object:
    """What a map_location says, `torch.device("cpu")` and `lambda storage, loc: storage` too."""
    if isinstance(value, ast.Call) and len(value.args) == 1 and not value.keywords:
        value = value.args[0]
    if isinstance(value, ast.Lambda) and isinstance(value.body, ast.Name):
        return "cpu"
    return getattr(value, "value", "")


def _loads_either(module: Module, node: ast.AST) -> bool:
    """Whether the branches of a question only read a checkpoint, the other one to the CPU."""
    for child, up in ancestors(node):
        if isinstance(up, ast.IfExp) and up.test is child:
            return _loaded(module, up.body) == [None] and _loaded(module, up.orelse) == ["cpu"]
        if isinstance(up, ast.If) and up.test is child and len(up.body) == 1:
            other = up.orelse
            if not other and isinstance(up.body[0], ast.Return):
                other = after(up)[:1]
            return len(other) == 1 and (
                _loaded(module, up.body[0]) == [None] and _loaded(module, other[0]) == ["cpu"]
            )
        if isinstance(up, ast.stmt):
            return False
    return False


def _loaded(module: Module, part: ast.AST) -> list[object]:
    """Where the checkpoints go that code reads by torch.load."""
    return [
        next((_location(k.value) for k in n.keywords if k.arg == "map_location"), None)
        for n in ast.walk(part)
        if isinstance(n, ast.Call) and module.resolve(n.func) == "torch.load" and len(n.args) == 1
    ]


def feeds_faiss(module: Module, call: ast.AST) -> bool:
    """Whether an answer is handed to a function of the module that puts faiss on GPUs:
    `gpu = torch.cuda.is_available() and args.gpu`, `search(x, gpu)`.
    """
    stmt = statement(call)
    if "faiss" not in module.source.text or not isinstance(stmt, ast.Assign):
        return False
    value, target = stmt.value, stmt.targets[0]
    asked = value.values if isinstance(value, ast.BoolOp) else [value]
    if call not in asked or not isinstance(target, ast.Name):
        return False
    functions = module.names.all(ast.FunctionDef)
    users = {f.name for f in functions if any(_on_gpus(module, n) for n in ast.walk(f))}
    users |= {f.name for f in functions if any(_names(n, users) for n in ast.walk(f))}
    return any(
        isinstance(n.func, ast.Name) and n.func.id in users
        and any(_names(a, {target.id}) for a in (*n.args, *(k.value for k in n.keywords)))
        for n in module.names.all(ast.Call)
    )  # fmt: skip


def puts_faiss_on_gpus(module: Module, part: ast.AST) -> bool:
    """Whether code uses what faiss has for GPUs, which are CUDA's: faiss.index_cpu_to_all_gpus."""
    return "faiss" in module.source.text and any(_on_gpus(module, n) for n in ast.walk(part))


def _on_gpus(module: Module, node: ast.AST) -> bool:
    api = module.resolve(node) if isinstance(node, ast.Attribute) else ""
    return api.startswith("faiss.") and "gpu" in api.lower()


def _names(node: ast.AST, names: set[str]) -> bool:
    return isinstance(node, ast.Name) and node.id in names
