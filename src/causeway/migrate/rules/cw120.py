"""CW120: mixed precision, torch.cuda.amp."""

from __future__ import annotations

import ast

from causeway.migrate import knowledge
from causeway.migrate.module import Module, Use
from causeway.migrate.names import ancestors, called
from causeway.migrate.rule import Rule
from causeway.migrate.rules import table
from causeway.migrate.rules.roles import device_like
from causeway.migrate.source import Edit

RULE = Rule(
    code="CW120",
    name="amp",
    title="Mixed precision of torch.cuda.amp",
    why="torch.amp takes the device as an argument; torch.cuda.amp is deprecated, and CUDA's.",
    by_hand="`torch.amp.autocast(device_type, …)`, `torch.amp.GradScaler(device_type, …)`, "
    "`torch.amp.custom_fwd(device_type=…)`. torch.cuda.amp switches itself off on the CPU: where "
    "the program runs there too, say `enabled=`.",
    before="import torch\nfrom torch.cuda.amp import GradScaler, autocast\n\n"
    "scaler = GradScaler()\nwith autocast():\n    pass\n",
    after="import torch\nfrom torch.amp import GradScaler, autocast\n\n"
    "accelerator = torch.accelerator.current_accelerator(check_available=True) or "
    'torch.device("cpu")\n\n'
    'scaler = GradScaler(accelerator.type, enabled=accelerator.type != "cpu")\n'
    'with autocast(accelerator.type, enabled=accelerator.type != "cpu"):\n    pass\n',
)
_AUTOCAST = ("enabled", "dtype", "cache_enabled")
# Functions that mean CUDA's autocast where they are given no device, the ones that are given one,
# and the number of arguments without it.
_STATE = {
    "torch.is_autocast_enabled": ("torch.is_autocast_enabled", 0),
    "torch.set_autocast_enabled": ("torch.set_autocast_enabled", 1),
    "torch.get_autocast_gpu_dtype": ("torch.get_autocast_dtype", 0),
    "torch.set_autocast_gpu_dtype": ("torch.set_autocast_dtype", 1),
}


def run(module: Module) -> None:
    for use in module.uses("torch.cuda.amp"):
        name = use.api.removeprefix("torch.cuda.amp.")
        if name in ("autocast", "GradScaler"):
            _context(module, use, name)
        elif name in ("custom_fwd", "custom_bwd"):
            _custom(module, use, name)
    for use in module.uses("torch.autocast", "torch.amp.autocast", "torch.amp.GradScaler"):
        _literal(module, use)
    for use in module.uses(*_STATE):
        _state(module, use)
    for options in module.names.all(ast.Dict) if not module.vendor else ():
        _options(module, options)
    table.run(module, RULE)


def _context(module: Module, use: Use, name: str) -> None:
    api, call = knowledge.find(use.api), use.call
    assert api is not None
    if call is None:
        _named(module, use, name)
        return
    edits = [*module.rename(use, api.to)]
    if not any(k.arg == "device_type" for k in call.keywords):
        edits.append(module.insert_first(call, module.device_type(call)))
    if name == "autocast":
        for arg, parameter in zip(call.args, _AUTOCAST, strict=False):
            at = module.argument_start(call, arg)
            edits.append(Edit(at, at, f"{parameter}="))
    if any(isinstance(a, ast.Starred) for a in call.args):
        module.report(RULE, call, "manual", "arguments that are not seen here", api=use.api)
        module.done.add(id(use.node))
        return
    if name == "GradScaler" and any(k.arg == "dynamic" for k in call.keywords):  # torch_npu's
        module.report(RULE, call, "manual", "torch's GradScaler has no argument `dynamic`",
                      tip="Leave it out: the scale is dynamic. Where it is False multiply the loss "
                      "by the scale and divide the gradients.", api=use.api)  # fmt: skip
        module.done.add(id(use.node))
        return
    edits += _enabled(module, call, name, 0 if name == "autocast" else 4)
    module.change(RULE, call, edits, f"torch.amp.{name} takes the device", tip=api.tip,
                  api=use.api, category="precision")  # fmt: skip
    module.done.add(id(use.node))


def _options(module: Module, options: ast.Dict) -> None:
    """Autocast's options as a dictionary: `{"device_type": "cuda", "enabled": amp}`. It is off on
    the CPU too; CW101 changes the device.
    """
    given = {
        key.value: value for key, value in zip(options.keys, options.values, strict=True)
        if isinstance(key, ast.Constant)
    }  # fmt: skip
    device, enabled = given.get("device_type"), given.get("enabled")
    if enabled is None or getattr(device, "value", "") != "cuda" or module.available(options):
        return
    if _off_on_cpu(module, enabled):
        return
    quote = module.quote_for(options)
    edits = _and(module, enabled, f"{module.device_type(options)} != {quote}cpu{quote}")
    if edits:
        module.change(RULE, enabled, edits, "autocast stays off on the CPU", category="precision")


def _state(module: Module, use: Use) -> None:
    """A question about autocast, or a setting of it, that means CUDA's as it names no device."""
    call, (api, given) = use.call, _STATE[use.api]
    if call is None or len(call.args) != given or call.keywords:
        return
    if any(isinstance(up, ast.ExceptHandler) for _, up in ancestors(call)):
        return  # for a torch that has no other
    edits = [*module.rename(use, api), module.insert_first(call, module.device_type(call))]
    if api == "torch.set_autocast_enabled":  # it had no effect on the CPU
        edits += _enabled(module, call, "autocast", 0)
    module.change(RULE, call, edits, f"`{use.api}` without a device is CUDA's", api=use.api,
                  category="precision")  # fmt: skip
    module.done.add(id(use.node))


def _enabled(module: Module, call: ast.Call, name: str, position: int) -> list[Edit]:
    """torch.cuda.amp is off on the CPU, and stays so."""
    if module.vendor or module.available(call):
        return []
    node = call
    quote = module.quote_for(node)
    condition = f"{module.device_type(node)} != {quote}cpu{quote}"
    value = next((k.value for k in call.keywords if k.arg == "enabled"), None)
    if value is None and len(call.args) > position:
        value = call.args[position]
    if value is not None and _off_on_cpu(module, value):
        return []
    handed = next((k.value for k in call.keywords if k.arg is None), None)
    if value is None and isinstance(handed, ast.Name):  # **options, which may have it
        start, end, name = module.source.start(handed), module.source.end(handed), handed.id
        asked = f"{name}.get({quote}enabled{quote}, True) and {condition}"
        return [Edit(start, end, f"{{**{name}, {quote}enabled{quote}: {asked}}}")]
    if handed is not None and value is None:
        at, off = module.source.start(handed), f"{{{quote}enabled{quote}: False}}"
        end = module.source.end(handed)
        return [Edit(at, at, "{**"), Edit(end, end, f", **({{}} if {condition} else {off})}}")]
    if value is None:
        if not call.args and not call.keywords:
            at = module.source.open_paren(call) + 1
            return [Edit(at, at, f", enabled={condition}")]
        return [module.insert_last(call, f"enabled={condition}")]
    return _and(module, value, condition)


def _off_on_cpu(module: Module, value: ast.expr) -> bool:
    """Whether a condition is false where there is no device: `device == "cuda"`, the question
    whether there is one, also by a name that is set to one.
    """
    if isinstance(value, ast.Name):
        bound = module.names.bindings(value)
        set_to = bound[0].value if len(bound) == 1 else None
        return set_to is not None and not isinstance(set_to, ast.Name) and (
            _off_on_cpu(module, set_to)
        )  # fmt: skip
    if isinstance(value, ast.BoolOp) and isinstance(value.op, ast.And):
        return any(_off_on_cpu(module, part) for part in value.values)
    if module.asks(value):
        return True
    if not isinstance(value, ast.Compare) or len(value.ops) != 1:
        return False
    named = getattr(value.comparators[0], "value", "")
    return isinstance(value.ops[0], ast.Eq) and named == "cuda" and device_like(module, value.left)


def _and(module: Module, value: ast.expr, condition: str) -> list[Edit]:
    """Edits that make `value and condition` of a value."""
    if isinstance(value, ast.Constant) and value.value is True:
        return [Edit(module.source.start(value), module.source.end(value), condition)]
    if isinstance(value, ast.Constant):
        return []
    start, end = module.source.start(value), module.source.end(value)
    low = isinstance(value, ast.BoolOp | ast.IfExp | ast.Lambda | ast.NamedExpr)
    low &= not (isinstance(value, ast.BoolOp) and isinstance(value.op, ast.And))
    edits = [Edit(end, end, f"{')' if low else ''} and {condition}")]
    return [Edit(start, start, "("), *edits] if low else edits


def _named(module: Module, use: Use, name: str) -> None:
    """A class that is not called where it is named: an assignment, an annotation, isinstance."""
    node = use.node
    up = node.up  # type: ignore[union-attr]
    if isinstance(node, ast.Name) and table.assigned(module, node):
        module.done.add(id(node))
        return
    if node in getattr(up, "decorator_list", ()):
        module.report(RULE, node, "manual", f"{name} must be given the device",
                      tip=f"Write `@torch.amp.{name}(device_type)`.", api=use.api)  # fmt: skip
        return
    first = isinstance(up, ast.Call) and up.args == [node]
    if first and module.resolve(up.func) == "functools.partial":
        _partial(module, use, up, name)
        return
    if isinstance(up, ast.Call) and node in up.args and _registers(up):
        module.report(RULE, node, "manual", f"what is registered is the class {name} itself",
                      tip="Register a class of your own that gives it the device.",
                      api=use.api)  # fmt: skip
        module.done.add(id(node))
        return
    if _handed_on(module, node, use.api):
        new = f"lambda **options: {module.spelled(node, 'torch.amp.' + name)}("
        kind, quote = module.device_type(node), module.quote_for(node)
        if module.vendor or module.available(node):
            new += f"{kind}, **options)"
        else:  # it was off on the CPU
            off = f"{quote}enabled{quote}: {kind} != {quote}cpu{quote}"
            new += f"{kind}, **{{{off}, **options}})"
        if not isinstance(up, ast.Return | ast.Assign | ast.keyword):
            new = f"({new})"
        if module.change(RULE, node, [module.replace(node, new)],
                         f"who calls {name} later gives no device",
                         tip="It takes options by their names.", api=use.api):  # fmt: skip
            module.gone.add(id(module.root(node)))
        module.done.add(id(node))
        return
    module.change(RULE, node, module.rename(use, f"torch.amp.{name}"),
                  f"torch.amp.{name} serves every device", api=use.api)  # fmt: skip


def _registers(call: ast.Call) -> bool:
    """Whether a call keeps a class by its own name: `register()(GradScaler)`."""
    made = call.func if isinstance(call.func, ast.Call) else call
    return "regist" in called(made).lower()


def _partial(module: Module, use: Use, call: ast.Call, name: str) -> None:
    """`partial(autocast, dtype=…)` to `partial(autocast, device_type, dtype=…)`."""
    at = module.source.end(use.node)
    edits = [*module.rename(use, f"torch.amp.{name}")]
    kind = f", {module.device_type(use.node)}"
    if edits and edits[-1].end == at:
        edits[-1] = Edit(edits[-1].start, at, edits[-1].text + kind)
    else:
        edits.append(Edit(at, at, kind))
    edits += _enabled(module, call, name, len(call.args) + 1)
    module.change(RULE, call, edits, f"torch.amp.{name} takes the device", api=use.api,
                  category="precision")  # fmt: skip
    module.done.add(id(use.node))


def _handed_on(module: Module, node: ast.expr, api: str) -> bool:
    """Whether a class goes to a place from which it is called without being seen here: a return, an
    argument, an attribute, a name that may be something else.
    """
    child: ast.AST = node
    up: ast.AST = node.up  # type: ignore[attr-defined]
    while isinstance(up, ast.IfExp | ast.BoolOp) and child is not getattr(up, "test", None):
        child, up = up, up.up  # type: ignore[union-attr]
    if isinstance(up, ast.Call):
        asks = module.text(up.func) in ("isinstance", "issubclass", "type")
        return child in up.args and not asks
    if isinstance(up, ast.Assign):
        target = up.targets[0]
        return not (
            len(up.targets) == 1
            and isinstance(target, ast.Name)
            and module.names.lookup(target.id, target.scope) == api  # type: ignore[attr-defined]
        )
    return isinstance(up, ast.Return | ast.keyword | ast.Dict | ast.Lambda)


def _custom(module: Module, use: Use, name: str) -> None:
    node, call = use.node, use.call
    up = node.up  # type: ignore[union-attr]
    edits = module.rename(use, f"torch.amp.{name}")
    device = f"device_type={module.device_type(node)}"
    if call and (call.keywords or not call.args):
        edits.append(module.insert_first(call, device))
    elif node in getattr(up, "decorator_list", ()):
        end = module.source.end(node)
        edits.append(Edit(end, end, f"({device})"))
    elif call:
        # custom_fwd(f) as a plain call
        at = module.source.open_paren(call)
        edits.append(Edit(at, at, f"({device})"))
    elif isinstance(node, ast.Name) and table.assigned(module, node):
        module.done.add(id(node))
        return
    else:
        module.report(RULE, node, "manual", f"{name} must be given the device", api=use.api)
        return
    module.change(RULE, call or node, edits, f"torch.amp.{name} takes the device", api=use.api,
                  category="precision")  # fmt: skip
    module.done.add(id(node))


def _literal(module: Module, use: Use) -> None:
    """torch.autocast("cuda") is off on the CPU too; CW101 changes the string itself."""
    call, made_of = use.call, 0
    up = use.node.up  # type: ignore[union-attr]
    handed = call is None and isinstance(up, ast.Call) and up.args[:1] == [use.node]
    if handed and module.resolve(up.func) == "functools.partial":
        call, made_of = up, 1  # `partial(torch.autocast, device_type="cuda")`
    if call is None:
        return
    device = call.args[made_of] if len(call.args) > made_of else None
    for keyword in call.keywords:
        if keyword.arg in ("device_type", "device"):
            device = keyword.value
    sides = [device.body, device.orelse] if isinstance(device, ast.IfExp) else [device]
    if not any(isinstance(side, ast.Constant) and side.value == "cuda" for side in sides):
        return
    if any(isinstance(side, ast.Constant) and side.value == "cpu" for side in sides):
        return  # the program's own choice, which is on there
    name = use.api.rpartition(".")[2]
    position = made_of + (2 if name == "autocast" else 5)
    edits = _enabled(module, call, name, position)
    plain = isinstance(device, ast.Constant)
    if (
        made_of and plain and device in call.args and not module.vendor
    ):  # CW101 sees no device in it
        edits.append(module.replace(device, module.device_type(call)))
        module.done.add(id(device))
    if edits and not any(isinstance(a, ast.Starred) for a in call.args):
        module.change(RULE, call, edits, f"{name} stays off on the CPU", api=use.api,
                      category="precision")  # fmt: skip
