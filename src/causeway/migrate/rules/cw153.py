"""CW153: torch.set_default_tensor_type with a type of CUDA."""

from __future__ import annotations

import ast

from causeway.migrate.module import Module, alone
from causeway.migrate.own import LEGACY
from causeway.migrate.rule import Rule
from causeway.migrate.rules.cw104 import NAMES
from causeway.migrate.source import Edit

RULE = Rule(
    code="CW153",
    name="default-tensor-type",
    title="The default type of tensors",
    why="torch.set_default_tensor_type takes types of the CPU and of CUDA alone.",
    by_hand="`torch.set_default_device(device)` and `torch.set_default_dtype(dtype)`.",
    before="import torch\n\ntorch.set_default_tensor_type(torch.cuda.FloatTensor)\n",
    after="import torch\n\n"
    "accelerator = torch.accelerator.current_accelerator(check_available=True) or "
    'torch.device("cpu")\n\n'
    "torch.set_default_device(accelerator)\ntorch.set_default_dtype(torch.float32)\n",
)


def run(module: Module) -> None:
    for use in module.uses("torch.set_default_tensor_type"):
        call = use.call
        if call is None or len(call.args) != 1 or call.keywords or module.vendor:
            continue
        arg = call.args[0]
        legacy = module.own.legacy_tensors or LEGACY.search(module.source.data)
        if legacy and _of_cuda(module, arg):
            module.report(
                RULE, use.node, "manual", "torch.Tensor(…) would be made on the CPU",
                tip="Write `torch.tensor(…)` or `torch.empty(…)` there, then "
                "`torch.set_default_device(device)` here.", api=use.api, breaking=True,
            )  # fmt: skip
            module.done.update(map(id, ast.walk(call)))
            continue
        if isinstance(arg, ast.IfExp):
            _choice(module, use.node, call, arg)
            continue
        dtype = _dtype(module, arg)
        if dtype is None:
            continue
        stmt = alone(module, call)
        source = module.source
        indent = source.slice(source.line_start(source.start(call)), source.start(call))
        between = f"{source.newline}{indent}" if stmt else "; "
        if not isinstance(call.up, ast.Expr):  # type: ignore[attr-defined]
            module.report(RULE, call, "manual", "a default of CUDA", api=use.api)
        else:
            torch = module.torch(call)
            text = (
                f"{torch}.set_default_device({module.device(call)}){between}"
                f"{torch}.set_default_dtype({torch}.{dtype})"
            )
            module.change(RULE, call, [Edit(source.start(call), source.end(call), text)],
                          "a default device and a default dtype", api=use.api)  # fmt: skip
        module.done |= {id(arg), id(use.node)}


def _of_cuda(module: Module, arg: ast.expr) -> bool:
    """Whether the type, or one of two, is CUDA's."""
    sides = (arg.body, arg.orelse) if isinstance(arg, ast.IfExp) else (arg,)
    return any(_dtype(module, side) is not None for side in sides)


def _dtype(module: Module, node: ast.expr) -> str | None:
    name = node.value if isinstance(node, ast.Constant) else module.resolve(node)
    return NAMES.get(name) if isinstance(name, str) else None


def _choice(module: Module, node: ast.expr, call: ast.Call, arg: ast.IfExp) -> None:
    """`… if cuda else torch.FloatTensor`: the same choice of a device."""
    first, second = _dtype(module, arg.body), arg.orelse
    other = second.value if isinstance(second, ast.Constant) else module.resolve(second)
    same = isinstance(other, str) and NAMES.get(other.replace("torch.", "torch.cuda."))
    if first is None or first != same:
        return
    torch, source, quote = module.torch(call), module.source, module.quote_for(call)
    edits = [
        Edit(source.start(node), source.end(node), f"{torch}.set_default_device"),
        Edit(source.start(arg.body), source.end(arg.body), module.device(arg.body)),
        Edit(source.start(second), source.end(second), f"{quote}cpu{quote}"),
    ]
    if isinstance(call.up, ast.Expr):  # type: ignore[attr-defined]
        end = source.end(call)
        edits.append(Edit(end, end, f"; {torch}.set_default_dtype({torch}.{first})"))
    module.change(RULE, call, edits, "a default device and a default dtype")
    module.done |= {id(arg.body), id(second), id(node)}
