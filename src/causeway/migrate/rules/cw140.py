"""CW140: NCCL, the backend of collectives."""

from __future__ import annotations

import ast
import re

from causeway.migrate import knowledge
from causeway.migrate.module import Module
from causeway.migrate.names import statement
from causeway.migrate.rule import Rule
from causeway.migrate.rules import notes, table
from causeway.migrate.rules.branches import negated
from causeway.migrate.rules.roles import backend_like, role
from causeway.migrate.source import Edit

RULE = Rule(
    code="CW140",
    name="nccl",
    title="NCCL as the backend of collectives",
    why="NCCL serves CUDA alone; each device has a backend of its own, which torch knows.",
    by_hand="`torch.distributed.get_default_backend_for_device(device)`, or no backend at all: "
    "init_process_group() then takes that of each device. The first raises where a device has no "
    "collectives, so a default that is only read asks `Backend.default_device_backend_map`.",
    before="import torch\nimport torch.distributed as dist\n\n"
    'dist.init_process_group(backend="nccl")\n',
    after="import torch\nimport torch.distributed as dist\n\n"
    "accelerator = torch.accelerator.current_accelerator(check_available=True) or "
    'torch.device("cpu")\n\n'
    "dist.init_process_group(backend=dist.get_default_backend_for_device(accelerator))\n",
)
_PAIR = re.compile(r"(?:(cpu:\w+),)?cuda:nccl(?:,(cpu:\w+))?")


def run(module: Module) -> None:
    for use in module.uses("torch.distributed"):
        name = use.api.removeprefix("torch.distributed.")
        up = use.node.up  # type: ignore[union-attr]
        if isinstance(use.node, ast.Name) and table.assigned(module, use.node):
            module.done.add(id(use.node))  # what it is set to changes
            continue
        if name == "Backend.NCCL" and isinstance(up, ast.Compare) and not module.vendor:
            if len(up.ops) == 1 and isinstance(up.ops[0], ast.Eq | ast.NotEq):
                edits = _exact(module, up, use.node)
                says = "compared with the backend of the device in use"
                if module.change(RULE, up, edits, says, api=use.api):
                    module.gone.add(id(module.root(use.node)))
                module.done.add(id(use.node))
        elif name == "Backend.NCCL" and _by_its_name(up) and not module.vendor:
            module.report(RULE, use.node, "portable", "the program's own name of NCCL",
                          tip="Leave it: the program takes another by itself.")  # fmt: skip
        elif name == "Backend.NCCL":
            module.change(RULE, use.node, [module.replace(use.node, default(module, use.node))],
                          "the backend of the device in use", api=use.api)  # fmt: skip
        elif name == "is_nccl_available" and use.call and _chosen(module, use.call):
            choice = use.call.up  # type: ignore[attr-defined]
            own = _own(module, choice)
            asks = f"{_distributed(module, use.node)}.is_backend_available({own})"
            edits = [module.replace(choice.body, own), module.replace(use.call, asks)]
            module.change(RULE, choice, edits,
                          "the backend of the device in use, gloo where it has none",
                          api=use.api)  # fmt: skip
            module.gone.add(id(module.root(use.node)))
            module.done |= {id(use.node), id(choice.body)}
        elif name == "is_nccl_available" and "hccl" in module.text(statement(use.node)).lower():
            module.report(RULE, use.node, "portable", "another vendor's backend is asked for too",
                          tip="Leave it: each is asked for there.")  # fmt: skip
        elif name == "is_nccl_available" and use.call and not module.vendor:
            asks = f"{_distributed(module, use.node)}.is_backend_available"
            quote = module.quote_for(use.call)
            there = f"{module.device_type(use.call)} != {quote}cpu{quote}"
            new = f"{there} and {asks}({default(module, use.call)})"
            if not isinstance(use.call.up, ast.If | ast.Assert | ast.Assign | ast.Return):  # type: ignore[attr-defined]
                new = f"({new})"
            module.change(RULE, use.call, [module.replace(use.call, new)],
                          "the backend of the device in use", api=use.api)  # fmt: skip
            module.gone.add(id(module.root(use.node)))
            module.done.add(id(use.node))
    if "nccl" in module.source.text.lower():
        for comparison in sorted(module.names.all(ast.Compare), key=module.source.start):
            _compare(module, comparison)
        named = [
            (node, node.value) for node in module.names.all(ast.Constant)
            if isinstance(node.value, str) and "nccl" in node.value.lower()
        ]  # fmt: skip
        for node, value in sorted(named, key=lambda pair: module.source.start(pair[0])):
            if id(node) not in module.done:
                _constant(module, node, value)
    for call in () if module.vendor else module.names.all(ast.Call):
        if module.resolve(call.func) == "torch.nn.parallel.DistributedDataParallel":
            _device_ids(module, call)
    notes.run(module, RULE)
    table.run(module, RULE)


def _asks_own_for_cuda(module: Module, node: ast.If) -> bool:
    """Whether a branch asks a function of the program's for CUDA's device, which stays:
    `tensor.to(get_device("cuda"))`.
    """
    return any(
        isinstance(n, ast.Call)
        and isinstance(n.func, ast.Name)
        and not module.resolve(n.func).startswith("torch.")
        and any(getattr(arg, "value", "") == "cuda" for arg in n.args)
        for part in node.body for n in ast.walk(part)
    )  # fmt: skip


def _by_its_name(up: ast.AST) -> bool:
    """Whether a program gives NCCL a name of its own: `NCCL = dist.Backend.NCCL`."""
    return isinstance(up, ast.Assign) and getattr(up.targets[0], "id", "") == "NCCL"


def _device_ids(module: Module, call: ast.Call) -> None:
    """`DistributedDataParallel(model, device_ids=[rank])`: a model on the CPU takes no numbers."""
    if module.guarded(call):
        return
    for keyword in call.keywords:
        value = keyword.value
        listed = isinstance(value, ast.List | ast.Tuple) and value.elts
        one = isinstance(value, ast.Name | ast.Attribute | ast.Subscript | ast.Constant | ast.Call)
        none = isinstance(value, ast.Constant) and value.value is None
        if (keyword.arg == "device_ids" and listed) or (
            keyword.arg == "output_device" and one and not none
        ):
            module.change(RULE, value, table.or_else(module, value, "None"),
                          "a model on the CPU takes no numbers of devices")  # fmt: skip


def _chosen(module: Module, call: ast.Call) -> bool:
    """Whether it is `"nccl" if dist.is_nccl_available() else "gloo"`."""
    up = call.up  # type: ignore[attr-defined]
    return (
        not module.vendor
        and isinstance(up, ast.IfExp)
        and up.test is call
        and _nccl(up.body)
        and isinstance(up.orelse, ast.Constant)
        and up.orelse.value == "gloo"
    )


def default(module: Module, node: ast.AST) -> str:
    """An expression of the name of the device's own backend."""
    if module.vendor:
        module.use_target()
        quote = module.quote_for(node)
        return f"{quote}{knowledge.target(module.vendor).collectives}{quote}"
    distributed = _distributed(module, node)
    if _asked_at_once(module, node):
        return f"{distributed}.get_default_backend_for_device({module.device(node)})"
    return _own(module, node)


def _own(module: Module, node: ast.AST) -> str:
    """The device's own backend, or gloo: it must not fail where the device has no collectives."""
    quote, kind = module.quote_for(node), module.device_type(node)
    own = f"{_distributed(module, node)}.Backend.default_device_backend_map"
    return f"{own}.get({kind}, {quote}gloo{quote})"


def _asked_at_once(module: Module, node: ast.AST) -> bool:
    """Whether the backend is an argument of a call that starts it."""
    up = node.up  # type: ignore[attr-defined]
    call = up.up if isinstance(up, ast.keyword) else up  # type: ignore[attr-defined]
    return isinstance(call, ast.Call) and module.resolve(call.func) in (
        "torch.distributed.init_process_group",
        "torch.distributed.new_group",
    )


def _distributed(module: Module, node: ast.AST) -> str:
    scope = node.scope  # type: ignore[attr-defined]
    while scope is not None:
        for name in scope.bindings:
            if module.names.lookup(name, scope) == "torch.distributed":
                return str(name)
        scope = scope.parent
    return module.spelled(node, "torch.distributed")


def _constant(module: Module, node: ast.Constant, value: str) -> None:
    pair = _PAIR.fullmatch(value)
    if value.lower() != "nccl" and not pair:
        return
    if role(module, node, "backend") is None and not pair:
        if not isinstance(node.up, ast.Expr | ast.Dict):  # type: ignore[attr-defined]
            module.report(RULE, node, "manual",
                          f"{module.text(node)} stays: nothing shows that it is a backend",
                          severity="info")  # fmt: skip
        return
    parts = module.source.string_parts(node)
    if parts is None or module.in_fstring(node):
        module.report(RULE, node, "manual", "a backend in several pieces")
        return
    if not module.imports_torch and not module.names.stars and not module.vendor:
        module.report(RULE, node, "manual", "the module does not import torch, which knows the "
                      "device's backend", severity="info")  # fmt: skip
        return
    if pair and not module.vendor:
        quote, other = parts[1], "'" if parts[1][0] == '"' else '"'
        backend = default(module, node)
        if other in backend or quote in backend:
            module.report(RULE, node, "manual", "a backend in several pieces")
            return
        new = value.replace("cuda", f"{{{module.device_type(node)}}}").replace(
            "nccl", f"{{{backend}}}"
        )
        text = f"f{quote}{new}{quote}"
    elif pair:
        target = knowledge.target(module.vendor)
        module.use_target()
        text = value.replace("cuda", module.vendor).replace("nccl", target.collectives)
        text = f"{parts[0]}{parts[1]}{text}{parts[1]}"
    else:
        text = default(module, node)
    module.change(RULE, node, [module.replace(node, text)], "the backend of the device in use")


def _compare(module: Module, node: ast.Compare) -> None:
    if len(node.ops) != 1 or not isinstance(node.ops[0], ast.Eq | ast.NotEq):
        return
    left, right = node.left, node.comparators[0]
    literal, other = (right, left) if _nccl(right) else (left, right)
    if not _nccl(literal):
        return
    module.done.add(id(literal))
    parts = module.source.string_parts(literal)
    api = module.resolve(other)
    if not module.imports_torch:
        module.report(RULE, node, "manual", "a comparison with \"nccl\" without torch",
                      tip="Compare with what torch.distributed.get_backend() gave.",
                      severity="info")  # fmt: skip
        module.backend_left = True
        return
    if not backend_like(module, other) and not api.startswith("torch.distributed"):
        return
    if isinstance(other, ast.Call) and any(
        isinstance(arg, ast.Constant) and arg.value == "cuda" for arg in other.args
    ):
        return  # the backend of CUDA's device: `backend_of("cuda") == "nccl"`
    stmt = statement(node)
    if isinstance(stmt, ast.Assert) and stmt.msg is not None and "NCCL" in module.text(stmt.msg):
        module.report(RULE, node, "portable", "the message says that it is about NCCL",
                      tip="Leave it, or write both for any backend.")  # fmt: skip
        return
    if parts is None:
        return
    if not module.vendor and isinstance(stmt, ast.If) and _asks_own_for_cuda(module, stmt):
        module.report(RULE, node, "portable", "an own function is asked for CUDA's device",
                      tip="Leave it, or ask that function for the device in use.")  # fmt: skip
        return
    if module.vendor:
        text = default(module, literal)
        edits = [Edit(module.source.start(literal), module.source.end(literal), text)]
    else:
        edits = _exact(module, node, literal)
    module.change(RULE, node, edits, "compared with the backend of the device in use")


def _exact(module: Module, node: ast.Compare, literal: ast.expr) -> list[Edit]:
    """`x == "nccl"` to the device's own backend, which is never gloo: that is the CPU's."""
    source, quote, kind = module.source, module.quote_for(node), module.device_type(node)
    own = f"{_distributed(module, node)}.Backend.default_device_backend_map.get({kind})"
    edits = [Edit(source.start(literal), source.end(literal), own)]
    if module.available(node):
        return edits
    gloo, start, end = f"{quote}gloo{quote}", source.start(node), source.end(node)
    at = start if literal is node.left else end
    edits.append(Edit(at, at, f"{gloo} != " if literal is node.left else f" != {gloo}"))
    if isinstance(node.ops[0], ast.NotEq):
        edits += negated(module, node)
    return edits


def _nccl(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == "nccl"
