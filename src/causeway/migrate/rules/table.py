"""The part that rules on functions of torch.cuda share: each does what cuda.toml says."""

from __future__ import annotations

import ast

from causeway.migrate import knowledge
from causeway.migrate.knowledge import Api
from causeway.migrate.module import Module, Use, alone
from causeway.migrate.names import ancestors
from causeway.migrate.rule import Rule
from causeway.migrate.rules.roles import role
from causeway.migrate.source import Edit


def run(module: Module, rule: Rule) -> None:
    """Apply `rule` to all uses of the names that cuda.toml gives to it."""
    for use in module.uses("torch.cuda"):
        api = knowledge.find(use.api)
        if api and api.rule == rule.code and api.action != "special":
            apply(module, rule, use, api)


def apply(module: Module, rule: Rule, use: Use, api: Api) -> None:
    """Rename, or report, one use."""
    node = use.node
    if not isinstance(getattr(node, "ctx", None), ast.Load):
        module.report(rule, node, "manual", f"`{use.api}` is replaced by the program itself",
                      tip="Replace the new name too, or drop it.", api=use.api)  # fmt: skip
    elif isinstance(node, ast.Name) and assigned(module, node):
        module.done.add(id(node))
    elif _cached(node):
        module.report(rule, node, "portable", f"the cache of `{use.api}` is CUDA's",
                      tip="Leave it.", api=use.api)  # fmt: skip
    elif api.action == "keep":
        if api.status != "internal":
            module.report(rule, node, "portable", f"`{use.api}` does no harm on other devices",
                          tip=api.tip, api=use.api, category=api.category)  # fmt: skip
        module.done.add(id(node))
    elif api.action == "manual" or (api.status == "missing" and module.vendor):
        module.report(rule, node, "manual", f"`{use.api}` exists for CUDA alone",
                      tip=api.tip, api=use.api, category=api.category, breaking=True)  # fmt: skip
    elif module.vendor and not _of_torch_itself(api):
        vendor(module, rule, use)
    elif api.action == "module":
        name = use.api.removeprefix("torch.cuda.")
        new = of_module(module, node, name)
        edits = [module.replace(node, new)]
        if name == "is_initialized" and use.call and not module.guarded(use.call):
            edits += _where_there(module, use.call)  # torch.cpu's is always true
        module.change(rule, node, edits,
                      f"`{name}` is asked of the device in use", tip=api.tip, api=use.api,
                      category=api.category)  # fmt: skip
    else:
        _rename(module, rule, use, api)


def _cached(node: ast.expr) -> bool:
    """Whether a function is asked for its cache, which torch.accelerator's do not have:
    `torch.cuda.device_count.cache_clear()`, `hasattr(torch.cuda.device_count, "cache_clear")`.
    """
    up = node.up  # type: ignore[attr-defined]
    if isinstance(up, ast.Attribute):
        return up.attr in ("cache_clear", "cache_info")
    asks = isinstance(up, ast.Call) and getattr(up.func, "id", "") == "hasattr"
    return asks and up.args[0] is node


def of_module(module: Module, node: ast.expr, name: str) -> str:
    """A name of the module of the device in use; with what stands in for it where some have none:
    torch.cpu, torch.mps and torch.xpu differ in what they have (knowledge/modules.toml).
    """
    torch, quote = module.torch(node), module.quote_for(node)
    api = knowledge.find(f"torch.cuda.{name}")
    if api is None or not api.lacking:
        if set(knowledge.lacking(name)) - {"cpu"}:  # where there is a device, it is not the CPU
            module.fragile.append((node, name))
        return f"{torch}.get_device_module().{name}"
    kind = module.device_type(node) if "{type}" in api.lacking else ""
    other = api.lacking.format(torch=torch, type=kind).replace('"', quote)
    return f"getattr({torch}.get_device_module(), {quote}{name}{quote}, {other})"


def _of_torch_itself(api: Api) -> bool:
    """Whether the replacement is one name for all devices: torch.OutOfMemoryError."""
    return api.action == "rename" and not api.to.startswith("torch.accelerator.")


def vendor(module: Module, rule: Rule, use: Use) -> None:
    """Write a vendor's name: torch.npu.x."""
    module.use_target()
    name = use.api.removeprefix("torch.cuda.")
    new = module.spelled(use.node, f"torch.{module.vendor}.{name}")
    module.change(rule, use.node, [module.replace(use.node, new)],
                  f"`torch.{module.vendor}` has this name too", api=use.api)  # fmt: skip


def assigned(module: Module, node: ast.Name) -> bool:
    """Whether a name was assigned (`sync = torch.cuda.synchronize`): its definition changes."""
    return any(b.kind == "assign" for b in module.names.bindings(node))


def _rename(module: Module, rule: Rule, use: Use, api: Api) -> None:
    edits = module.rename(use, api.to)
    call = use.call
    if call:
        for keyword in call.keywords:
            if api.positional and keyword.arg == api.positional and not call.args:
                edits.append(module.unkey(keyword))
        edits += _guard(module, call, api)
    made = module.change(rule, call or use.node, edits, f"`{api.to}` in place of `{use.api}`",
                         tip=api.tip, api=use.api, category=api.category)  # fmt: skip
    stmt = _of_nothing_else(module, call) if call else None
    if made and stmt is not None and edits and edits[-1].text.startswith("if "):
        module.guards.append((stmt, edits[-1]))
    module.done.add(id(use.node))


def _guard(module: Module, call: ast.Call, api: Api) -> list[Edit]:
    """A condition around a call that raises where there is no accelerator."""
    if not api.guard or module.guarded(call) or _of_replicas(call):
        return []
    asks = module.there(call)
    if stmt := _of_nothing_else(module, call):
        source, start = module.source, module.source.start(stmt)
        indent = source.slice(source.line_start(start), start)
        return [Edit(start, start, f"if {asks}:{source.newline}{indent}{module.indent}")]
    if api.guard == "statement":
        return []
    value = "{{}}" if api.guard == "{}" and module.in_fstring(call) else api.guard
    if module.in_fstring(call) and "{" in value:
        return []
    if api.name == "torch.cuda.current_device":
        value = _without_index(module, call).replace('"', module.quote_for(call))
    return or_else(module, call, value)


def _where_there(module: Module, call: ast.Call) -> list[Edit]:
    """Edits that make a question of a device's module false where there is none."""
    up = call.up  # type: ignore[attr-defined]
    whole = isinstance(up, ast.If | ast.IfExp | ast.While | ast.Assert | ast.Assign | ast.Return)
    a, b = ("", "") if whole else ("(", ")")
    start, end = module.source.start(call), module.source.end(call)
    edits = [Edit(start, start, f"{a}{module.there(call)} and ")]
    return [*edits, Edit(end, end, b)] if b else edits


def if_there(module: Module, call: ast.Call | None) -> list[Edit]:
    """The same around a call that is a statement; nothing where it is asked already."""
    if call is None or module.guarded(call) or not (stmt := _of_nothing_else(module, call)):
        return []
    source, start = module.source, module.source.start(stmt)
    indent = source.slice(source.line_start(start), start)
    asks = f"if {module.there(call)}:{source.newline}{indent}{module.indent}"
    return [Edit(start, start, asks)]


def _of_replicas(call: ast.Call) -> bool:
    """Whether it is a number of a device of DistributedDataParallel, which CW140 sees to."""
    return any(
        isinstance(up, ast.keyword) and up.arg in ("device_ids", "output_device")
        for _, up in ancestors(call)
    )


def or_else(module: Module, node: ast.expr, value: str) -> list[Edit]:
    """Edits that make `node` be `value` where there is no accelerator."""
    start, end = module.source.start(node), module.source.end(node)
    up = node.up  # type: ignore[attr-defined]
    alone_there = isinstance(
        up, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Return | ast.keyword | ast.List
    ) or (isinstance(up, ast.Call) and node in up.args)
    a, b = ("", "") if alone_there or isinstance(up, ast.Dict) else ("(", ")")
    edits = [Edit(start, start, a)] if a else []
    asks = module.there(node)
    return [*edits, Edit(end, end, f" if {asks} else {value}{b}")]


# Methods of streams, events and tensors that wait or mark, and give nothing that is used.
_MARKS = ("synchronize", "wait_stream", "wait_event", "record", "record_stream", "wait")


def _of_nothing_else(module: Module, call: ast.Call) -> ast.Expr | None:
    """The statement that is for a call alone: the call, or a method of streams that takes it.
    `current_stream().synchronize()`, `x.record_stream(current_stream())`.
    """
    node: ast.expr = call
    while isinstance(up := node.up, ast.Attribute | ast.Call):  # type: ignore[attr-defined]
        method = up.func if isinstance(up, ast.Call) else up
        if not isinstance(method, ast.Attribute) or method.attr not in _MARKS:
            return None
        node = up
    return alone(module, node)


def _without_index(module: Module, call: ast.Call) -> str:
    """What stands for the index of the current device where there is none: the CPU's name where it
    is used as a device, None as the index of a torch.device, else 0.
    """
    up = call.up  # type: ignore[attr-defined]
    if isinstance(up, ast.Call) and module.resolve(up.func) == "torch.device" and call in up.args:
        return "None" if up.args.index(call) else '"cpu"'
    if _counted_with(module, up):
        return "0"
    return "0" if role(module, call, "device") is None else '"cpu"'


def _counted_with(module: Module, stmt: ast.AST) -> bool:
    """Whether the name that a statement sets is counted with: `i = current_device()`, `i * n`."""
    target = stmt.targets[0] if isinstance(stmt, ast.Assign) else None
    if not isinstance(target, ast.Name):
        return False
    held = module.names.holder(target.id, target.scope)  # type: ignore[attr-defined]
    return any(
        node.id == target.id
        and isinstance(node.up, ast.BinOp)  # type: ignore[attr-defined]
        and module.names.holder(node.id, node.scope) is held  # type: ignore[attr-defined]
        for node in module.names.all(ast.Name)
    )
