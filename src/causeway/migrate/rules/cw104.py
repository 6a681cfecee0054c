"""CW104: typed tensors, `torch.cuda.FloatTensor`."""

from __future__ import annotations

import ast
import re

from causeway.migrate.module import Module, Use
from causeway.migrate.names import FUNCTIONS, ancestors
from causeway.migrate.rule import Rule
from causeway.migrate.rules import aliases
from causeway.migrate.rules.branches import no_other
from causeway.migrate.source import Edit

RULE = Rule(
    code="CW104",
    name="typed-tensor",
    title="A tensor type of torch.cuda",
    why="`torch.cuda.FloatTensor` is a dtype and a device in one name, and the device is CUDA.",
    by_hand="Build the tensor with `torch.tensor`, `torch.empty` or `torch.zeros`, with `dtype=` "
    "and `device=`.",
    before="import torch\n\nx = torch.cuda.FloatTensor(2, 3)\ny = x.type(torch.cuda.LongTensor)\n",
    after="import torch\n\n"
    "accelerator = torch.accelerator.current_accelerator(check_available=True) or "
    'torch.device("cpu")\n\n'
    "x = torch.empty(2, 3, dtype=torch.float32, device=accelerator)\n"
    "y = x.to(accelerator, torch.int64)\n",
)

DTYPES = {
    "BFloat16Tensor": "bfloat16",
    "BoolTensor": "bool",
    "ByteTensor": "uint8",
    "CharTensor": "int8",
    "DoubleTensor": "float64",
    "FloatTensor": "float32",
    "HalfTensor": "float16",
    "IntTensor": "int32",
    "LongTensor": "int64",
    "ShortTensor": "int16",
}
NAMES = {f"torch.cuda.{name}": dtype for name, dtype in DTYPES.items()}


def run(module: Module) -> None:
    if not module.vendor:
        aliases.run(module, RULE, DTYPES)
    for use in module.uses(*NAMES):
        if use.api in NAMES:
            _use(module, use)
    for node in module.names.all(ast.Constant):
        if isinstance(node.value, str) and node.value in NAMES and id(node) not in module.done:
            _string(module, node, node.value)


def _use(module: Module, use: Use) -> None:
    node, kind = use.node, use.api.rpartition(".")[2]
    if isinstance(node, ast.Name) and any(b.kind == "assign" for b in module.names.bindings(node)):
        module.done.add(id(node))  # the assignment is what changes
        return
    if module.vendor:
        module.use_target()
        new = module.spelled(node, f"torch.{module.vendor}.{kind}")
        module.change(RULE, node, [module.replace(node, new)], f"it is a type of {module.vendor}",
                      api=use.api)  # fmt: skip
        return
    call = _type_call(node)
    if use.call and any(k.arg == "device" for k in use.call.keywords):
        module.report(
            RULE, use.call, "manual", "a type of the CPU takes no other device",
            tip=f"Write `torch.empty(…, dtype=torch.{NAMES[use.api]}, device=device)`, or "
            "`torch.tensor` where it is given values.",
            api=use.api, breaking=True,
        )  # fmt: skip
        module.done.add(id(node))
    elif use.call:
        end = module.source.end(use.call)
        if _of_sizes(use.call):
            options = f"dtype={module.spelled(node, 'torch.' + NAMES[use.api])}"
            options += f", device={module.device(node)}"
            module.change(
                RULE, use.call,
                [
                    module.replace(node, module.spelled(node, "torch.empty")),
                    module.insert_last(use.call, options),
                ],
                "the tensor is built where it is used", api=use.api,
            )  # fmt: skip
            module.done.add(id(node))
            return
        module.change(
            RULE, use.call,
            [
                module.replace(node, module.spelled(node, f"torch.{kind}")),
                Edit(end, end, f".to({module.device(node)})"),
            ],
            "the tensor is built on the CPU and moved",
            tip=f"`torch.empty(…, dtype=torch.{NAMES[use.api]}, device=…)` builds it in place.",
            api=use.api,
        )  # fmt: skip
        module.done.add(id(node))
    elif call:
        _type(module, call, node, use.api)
    elif asked := _isinstance(node):
        _is_of_type(module, asked, node, use.api)
    elif any(_annotation(child, up) for child, up in ancestors(node)):
        module.change(RULE, node, [module.replace(node, module.spelled(node, "torch.Tensor"))],
                      "an annotation names no device", api=use.api)  # fmt: skip
    else:
        torch, quote = module.torch(node), module.quote_for(node)
        new = f"{torch}.get_device_module().{kind}"
        if module.available(node):
            module.fragile.append((node, kind))  # the question asks for the name too
        else:  # it was there without CUDA too, if of no use
            new = f"getattr({torch}.get_device_module(), {quote}{kind}{quote}, {torch}.{kind})"
        module.change(
            RULE, node, [module.replace(node, new)], "it is the type of the device in use",
            tip="A dtype and a device say the same and work everywhere; not every vendor's module "
            "has typed tensors.",
            api=use.api,
        )  # fmt: skip


_SIZES = re.compile(r"(?:\w+_)?(?:size|shape|sz)s?", re.I)


def _of_sizes(call: ast.Call) -> bool:
    """Whether the arguments are surely sizes, and no values: several, numbers, `*x.size()`."""
    args = call.args
    if len(args) > 1 and not any(isinstance(a, ast.List | ast.Tuple | ast.Dict) for a in args):
        return True
    return len(args) == 1 and _is_size(args[0])


def _is_size(node: ast.expr) -> bool:
    if isinstance(node, ast.Starred):  # its members are several numbers
        inner = node.value
        name = inner.attr if isinstance(inner, ast.Attribute) else _name(inner)
        return bool(_SIZES.fullmatch(name)) or _is_size(inner)
    if isinstance(node, ast.Constant):
        return isinstance(node.value, int)
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else _name(node.func)
        return name in ("size", "Size", "len", "int", "numel", "item")
    # A name says too little: of a list, `sizes`, the values are taken. `x.shape` is a torch.Size.
    return isinstance(node, ast.Attribute) and node.attr == "shape"


def _name(node: ast.AST) -> str:
    return getattr(node, "id", "")


def _isinstance(node: ast.expr) -> ast.Call | None:
    """The call `isinstance(x, node)` of a plain name or attribute `x`, or None."""
    up = node.up  # type: ignore[attr-defined]
    if not (isinstance(up, ast.Call) and _name(up.func) == "isinstance"):
        return None
    plain = len(up.args) == 2 and isinstance(up.args[0], ast.Name | ast.Attribute)
    return up if plain and up.args[1] is node else None


def _is_of_type(module: Module, call: ast.Call, node: ast.expr, api: str) -> None:
    """`isinstance(x, torch.cuda.FloatTensor)` to the questions that it is: few devices have such
    types.
    """
    asked, torch = module.text(call.args[0]), module.torch(node)
    tail = "" if module.available(node) else no_other(module, call)
    text = (
        f"isinstance({asked}, {torch}.Tensor) and {asked}.device.type == "
        f"{module.device_type(node)}{tail} and {asked}.dtype == {torch}.{NAMES[api]}"
    )
    up = call.up  # type: ignore[attr-defined]
    joined = isinstance(up, ast.BoolOp) and isinstance(up.op, ast.And)
    if not (joined or isinstance(up, ast.If | ast.While | ast.Assert | ast.Assign | ast.Return)):
        text = f"({text})"
    edit = Edit(module.source.start(call), module.source.end(call), text)
    if module.change(RULE, call, [edit], "a tensor of a device and a dtype", api=api):
        module.gone.add(id(module.root(node)))
    module.done.add(id(node))


def _type_call(node: ast.expr) -> ast.Call | None:
    """The call `x.type(node)`, or None."""
    up = node.up  # type: ignore[attr-defined]
    if (
        isinstance(up, ast.Call)
        and isinstance(up.func, ast.Attribute)
        and up.func.attr == "type"
        and up.args == [node]
    ):
        return up
    return None


def _type(module: Module, call: ast.Call, node: ast.expr, api: str) -> None:
    """`x.type(torch.cuda.FloatTensor)` to `x.to(accelerator, torch.float32)`."""
    end = module.source.end(call.func)
    dtype = module.spelled(node, f"torch.{NAMES[api]}")
    module.change(
        RULE, call,
        [Edit(end - 4, end, "to"), module.replace(node, f"{module.device(node)}, {dtype}")],
        "a dtype and a device in place of the type", api=api,
    )  # fmt: skip
    module.done.add(id(node))


def _string(module: Module, node: ast.Constant, api: str) -> None:
    parts = module.source.string_parts(node)
    call = _type_call(node)
    kind = api.rpartition(".")[2]
    if module.vendor and parts:
        module.use_target()
        new = f"{parts[0]}{parts[1]}torch.{module.vendor}.{kind}{parts[1]}"
        module.change(RULE, node, [module.replace(node, new)], f"it is a type of {module.vendor}",
                      api=api)  # fmt: skip
    elif call:
        _type(module, call, node, api)
    elif parts and not module.in_fstring(node) and _is_compared(node):
        new = f"f{parts[1]}torch.{{{module.device_type(node)}}}.{kind}{parts[1]}"
        module.change(RULE, node, [module.replace(node, new)], "the type's name has the device's",
                      api=api)  # fmt: skip
    else:
        module.report(RULE, node, "manual", "the name of a tensor type as a string", api=api)
        module.types_left.append(node)


def _is_compared(node: ast.Constant) -> bool:
    """Whether a type's name is compared, alone or among others: `x.type() in ["…", "…"]`."""
    up = node.up  # type: ignore[attr-defined]
    if isinstance(up, ast.List | ast.Tuple | ast.Set):
        asked = up.up  # type: ignore[union-attr]
        return isinstance(asked, ast.Compare) and asked.comparators == [up]
    return isinstance(up, ast.Compare)


def _annotation(child: ast.AST, up: ast.AST) -> bool:
    return (
        (isinstance(up, ast.arg) and up.annotation is child)
        or (isinstance(up, ast.AnnAssign) and up.annotation is child)
        or (isinstance(up, FUNCTIONS) and up.returns is child)
        or (
            isinstance(up, FUNCTIONS)
            and any(a.annotation is child for a in ast.walk(up.args) if isinstance(a, ast.arg))
        )
    )
