"""CW107: the context `torch.cuda.device`."""

from __future__ import annotations

import ast
import re

from causeway.migrate import knowledge
from causeway.migrate.module import Module, Use
from causeway.migrate.names import ancestors
from causeway.migrate.rule import Rule
from causeway.migrate.rules import beside, table
from causeway.migrate.rules.callees import kernel_of_cuda
from causeway.migrate.source import Edit

RULE = Rule(
    code="CW107",
    name="device-context",
    title="The current device for a block",
    why="torch.cuda.device chooses among CUDA's devices; torch.accelerator.device_index among "
    "those in use.",
    by_hand="`with torch.accelerator.device_index(i):`; for a torch.device, its `.index`.",
    before="import torch\n\nwith torch.cuda.device(1):\n    pass\n",
    after="import torch\n\n"
    "with torch.accelerator.device_index(1 if torch.accelerator.is_available() else None):\n"
    "    pass\n",
)
_INDEX = re.compile(r"(^|_)(rank|gpu|idx|index|id|i|gpu_id)$", re.I)


def run(module: Module) -> None:
    for use in module.uses("torch.cuda.device_of"):
        _device_of(module, use)
    for use in module.uses("torch.cuda.device"):
        api, call = knowledge.find(use.api), use.call
        if use.api != "torch.cuda.device" or api is None:
            continue
        if isinstance(use.node, ast.Name) and table.assigned(module, use.node):
            module.done.add(id(use.node))
            continue
        if not module.vendor and _around_kernels(module, use.node):
            module.report(RULE, use.call or use.node, "portable", "what is in it is for CUDA alone",
                          tip="Leave it.", api=use.api)  # fmt: skip
            module.done.add(id(use.node))
            continue
        if not module.vendor and call is not None and (reads := _read(module, call)):
            if reads == "number" and len(call.args) == 1 and not call.keywords:
                start, end = module.source.start(call), module.source.end(call)
                low, high = module.source.start(call.args[0]), module.source.end(call.args[0])
                edits = [Edit(start, low, ""), Edit(high, end, "")]
                says = "what takes this for the device takes the index"
                module.change(RULE, call, edits, says, api=use.api)
            else:
                module.report(RULE, call, "manual", "it is read, and no context alone",
                              tip="Keep the index in a name.", api=use.api)  # fmt: skip
            module.done.add(id(use.node))
            continue
        if module.vendor:
            table.vendor(module, RULE, use)
            continue
        arg = None
        if call and len(call.args) + len(call.keywords) == 1:
            arg = call.args[0] if call.args else call.keywords[0].value
        if call and arg is not None and (kind := _kind(module, arg)):
            edits = module.rename(use, api.to)
            if kind == "device":
                at = module.source.end(arg)
                edits.append(Edit(at, at, ".index"))
            elif not module.guarded(call) and not _index_of_device(arg):
                edits += table.or_else(module, arg, "None")
            module.change(RULE, call, edits, "device_index chooses among the devices in use",
                          tip=api.tip, api=use.api)  # fmt: skip
            module.done.add(id(use.node))
        else:
            new = table.of_module(module, use.node, "device")
            module.change(RULE, use.node, [module.replace(use.node, new)],
                          "the context of the device in use, which takes an index or a device",
                          tip=api.tip, api=use.api)  # fmt: skip
    table.run(module, RULE)


def _read(module: Module, call: ast.Call) -> str:
    """Whether a context is no context but a device, which is handed on or read, also by its name:
    `d = torch.cuda.device(0)`, `torch.cuda.get_device_properties(d)`, `d.idx`. "number" where an
    index does.
    """
    stmt = call.up  # type: ignore[attr-defined]
    target = stmt.targets[0] if isinstance(stmt, ast.Assign) else None
    if not isinstance(target, ast.Name):
        return _is_read(module, call)
    held = module.names.holder(target.id, target.scope)  # type: ignore[attr-defined]
    found = {
        _is_read(module, name)
        for name in module.names.all(ast.Name)
        if name.id == target.id
        and isinstance(name.ctx, ast.Load)
        and module.names.holder(name.id, name.scope) is held  # type: ignore[attr-defined]
    }
    return "number" if found == {"number"} else "object" if found - {""} else ""


def _is_read(module: Module, node: ast.expr) -> str:
    up = node.up  # type: ignore[attr-defined]
    if isinstance(up, ast.keyword):
        up = up.up  # type: ignore[attr-defined]
    if isinstance(up, ast.Attribute):
        return "object" if up.attr == "idx" else ""
    taken = isinstance(up, ast.Call) and up.func is not node
    return "number" if taken and module.resolve(up.func).startswith("torch.cuda.") else ""


def _around_kernels(module: Module, node: ast.AST) -> bool:
    """Whether the block of a context uses a package for CUDA alone, or calls such a kernel."""
    around = next((up for _, up in ancestors(node) if isinstance(up, ast.stmt)), None)
    return isinstance(around, ast.With) and any(
        beside.uses_package(module, stmt)
        or any(
            isinstance(n, ast.Call) and kernel_of_cuda(module, n.func) and _brought(module, n.func)
            for n in ast.walk(stmt)
        )
        for stmt in around.body
    )


def _brought(module: Module, func: ast.expr) -> bool:
    """Whether what is called is of an import, and no variable of a name with "cuda" in it."""
    root = module.root(func)
    return root is not None and any(b.kind == "import" for b in module.names.bindings(root))


def _device_of(module: Module, use: Use) -> None:
    """`device_of(x)` does nothing for a tensor of the CPU, as `device_index(None)`."""
    call = use.call
    if module.vendor or call is None or len(call.args) != 1 or call.keywords:
        return
    at = module.source.end(call.args[0])
    edits = [*module.rename(use, "torch.accelerator.device_index"), Edit(at, at, ".device.index")]
    if module.change(RULE, call, edits, "the index of a tensor's device", api=use.api):
        module.gone.add(id(module.root(use.node)))
    module.done.add(id(use.node))


def _index_of_device(arg: ast.expr) -> bool:
    """Whether it is `x.device.index`, which is None on the CPU."""
    return (
        isinstance(arg, ast.Attribute)
        and arg.attr == "index"
        and isinstance(arg.value, ast.Attribute)
        and arg.value.attr == "device"
    )


def _kind(module: Module, arg: ast.expr) -> str:
    """Whether an argument is an "index" or a "device", or "" where nothing shows it."""
    if isinstance(arg, ast.Constant) and type(arg.value) is int:
        return "index"
    if isinstance(arg, ast.Attribute) and arg.attr == "device":
        owner = arg.value
        own = isinstance(owner, ast.Name) and owner.id in ("self", "args", "opt", "cfg", "config")
        return "" if own or (isinstance(owner, ast.Attribute)) else "device"
    if isinstance(arg, ast.Call):
        last = arg.func.attr if isinstance(arg.func, ast.Attribute) else ""
        return "index" if last in ("get_device", "current_device", "get_rank") else ""
    name = arg.attr if isinstance(arg, ast.Attribute) else getattr(arg, "id", "")
    return "index" if _INDEX.search(name) else ""
