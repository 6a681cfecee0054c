"""CW102: the method `.cuda()`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from causeway.migrate import vendors
from causeway.migrate.module import Module
from causeway.migrate.names import ancestors, called
from causeway.migrate.rule import Rule
from causeway.migrate.source import Edit

RULE = Rule(
    code="CW102",
    name="cuda-method",
    title="The method .cuda()",
    why="`.cuda()` moves a tensor or module to CUDA alone; `.to(device)` to any device.",
    by_hand="`.to(device)`, with the device in a variable.",
    before="import torch\n\nmodel = torch.nn.Linear(2, 2).cuda()\n",
    after="import torch\n\n"
    "accelerator = torch.accelerator.current_accelerator(check_available=True) or "
    'torch.device("cpu")\n\n'
    "model = torch.nn.Linear(2, 2).to(accelerator)\n",
)
_LAST_WORD = re.compile(r"[A-Z][a-z0-9]+$")
_DEVICE_NAME = re.compile(r"(^|_)(device|dev)(_|$)|device$", re.I)
_COPIES = 3  # of a copy
_INDEX_NAME = re.compile(r"(?:id|idx|index|rank|num|number|count)s?$", re.I)


def run(module: Module) -> None:
    if module.other_framework:
        return
    own = _own_classes(module)
    for call in sorted(module.names.all(ast.Call), key=module.source.start):
        func = call.func
        if isinstance(func, ast.Attribute) and func.attr == "cuda" and id(call) not in module.done:
            _call(module, call, func, own)


def _call(module: Module, call: ast.Call, func: ast.Attribute, own: frozenset[str]) -> None:
    api = module.resolve(func)
    if api.partition(".")[0] in vendors.packages("foreign") or _is_module(module, func.value):
        return
    if api == "torch.Tensor.cuda":
        module.report(RULE, call, "manual", "the method is called by its class",
                      tip="Write `tensor.to(device)`.", api=api)  # fmt: skip
        return
    owner = _owner(module, func.value, own)
    if owner == "own":
        module.report(
            RULE, call, "portable", "the class has a method `cuda` of its own, which is converted",
            tip="What the method does inside is moved to the accelerator; its name stays.",
        )  # fmt: skip
        return
    if owner == "maybe":
        module.report(
            RULE, call, "manual", "a class of this project has a method `cuda` of its own, and "
            "this may be one of its objects",
            tip="Leave it if it is; else write `.to(device)`.",
        )  # fmt: skip
        return
    if module.vendor:
        module.use_target()
        end = module.source.end(func)
        module.change(RULE, call, [Edit(end - 4, end, module.vendor)],
                      f"torch.{module.vendor} adds this method")  # fmt: skip
        return
    edits = _edits(module, call, func)
    if edits is None:
        module.report(RULE, call, "manual", "arguments that torch's `.cuda()` does not have",
                      breaking=True)  # fmt: skip
    elif edits and _storage(module, call, func):
        lambda_ = call.up  # type: ignore[attr-defined]
        index = call.args[0] if call.args else None
        start, end = module.source.start(lambda_), module.source.end(lambda_)
        if index is not None and not _is_none(index) and not _is_current(module, index):
            makes = f"{module.torch(call)}.device({module.device_type(call)}, "
            rest = ")"
            if not module.guarded(call):  # no file names "cpu:0"
                rest = f" if {module.there(call)} else None)"
            edits = [
                Edit(start, module.source.start(index), makes),
                Edit(module.source.end(index), end, rest),
            ]
        else:
            edits = [Edit(start, end, module.device(call))]
        module.change(RULE, lambda_, edits, "the device itself is a map_location")
    else:
        module.change(RULE, call, edits, "`.to(device)` moves to any device",
                      tip="`.to()` of a tensor and of a module do what `.cuda()` did.")  # fmt: skip


def _is_module(module: Module, node: ast.expr) -> bool:
    """Whether `node` is a module, `import x`, so that `x.cuda()` is a function of it. The name may
    be given to an object of it: `import model`, `model = model.RNN()`.
    """
    bindings = module.names.bindings(node) if isinstance(node, ast.Name) else []
    made = any(isinstance(b.value, ast.Call) for b in bindings)
    if made or not isinstance(node, ast.Name):
        return False
    imported = any(
        isinstance(b.node, ast.ImportFrom)
        and any((a.asname or a.name) == node.id and a.name in module.own.functions
                for a in b.node.names)
        for b in bindings
    )  # fmt: skip
    return imported or any(isinstance(b.node, ast.Import) for b in bindings)


def _edits(module: Module, call: ast.Call, func: ast.Attribute) -> list[Edit] | None:
    """`.cuda(…)` to `.to(…)`; None where the arguments are not those of torch."""
    end = module.source.end(func)
    edits = [Edit(end - 4, end, "to")]
    name = "device=" if _is_storage(module, func.value) else ""  # theirs takes no other
    known = {"device", "non_blocking", "memory_format"}
    if any(isinstance(a, ast.Starred) for a in call.args) or len(call.args) > 2:
        return None
    if any(k.arg not in known for k in call.keywords):
        return None
    if call.args and any(k.arg == "device" for k in call.keywords):
        return None  # a function of the program: `utils.cuda(batch, device=…)`
    index: ast.expr | None = call.args[0] if call.args else None
    keyword = next((k for k in call.keywords if k.arg == "device"), None)
    if keyword is not None:
        index = keyword.value
    if len(call.args) == 2:  # the second of .to() would be a dtype
        at = module.source.skip(module.source.end(call.args[0]), also=b"),")
        edits.append(Edit(at, at, "non_blocking="))
    if index is None:
        edits.append(module.insert_first(call, name + module.device(call)))
        return edits
    start, stop = module.source.start(index), module.source.end(index)
    if name and keyword is None:
        at = module.argument_start(call, index)
        edits.append(Edit(at, at, name))
    if _is_none(index) or _is_current(module, index):
        edits.append(Edit(start, stop, module.device(call)))
        _drop(module, index)
    elif _is_text(index) or _gives_device(module, index):
        pass  # CW101 sees to a text
    elif _is_device(module, index):
        if _may_be_none(module, index):
            text = module.text(index)
            edits.append(Edit(stop, stop, f" if {text} is not None else {module.device(call)}"))
    else:
        torch, kind = module.torch(call), module.device_type(call)
        edits += [Edit(start, start, f"{torch}.device({kind}, "), Edit(stop, stop, ")")]
    return edits


def _gives_device(module: Module, node: ast.AST) -> bool:
    """Whether a function of the program's gives the device, or its index: `get_current_device()`.
    `.to()` takes both.
    """
    if not isinstance(node, ast.Call) or module.resolve(node.func).startswith("torch."):
        return False
    name = called(node)
    own = isinstance(node.func, ast.Name) or name != "get_device"  # a tensor's gives its index
    return own and name.endswith("device")


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_current(module: Module, node: ast.AST) -> bool:
    """Whether it is `torch.cuda.current_device()`, which the device without an index is."""
    return isinstance(node, ast.Call) and module.resolve(node.func) == "torch.cuda.current_device"


def _drop(module: Module, node: ast.AST) -> None:
    """Note that an argument will not be there."""
    for inner in ast.walk(node):
        module.done.add(id(inner))
        if isinstance(inner, ast.Name):
            module.gone.add(id(inner))


def _is_text(node: ast.AST) -> bool:
    """Whether an argument is a string, also one that is put together."""
    if isinstance(node, ast.BinOp):
        return _is_text(node.left)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr == "format" and _is_text(node.func.value)
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def _is_device(module: Module, node: ast.expr) -> bool:
    """Whether an argument is a torch.device and no number, by its name or what makes it."""
    if isinstance(node, ast.Call):
        return module.resolve(node.func) == "torch.device"
    if isinstance(node, ast.Attribute):
        return bool(_DEVICE_NAME.search(node.attr)) and not _INDEX_NAME.search(node.attr)
    return isinstance(node, ast.Name) and bool(_DEVICE_NAME.search(node.id))


def _may_be_none(module: Module, node: ast.expr) -> bool:
    """Whether a parameter is None where the caller gives nothing. A name alone may be read twice:
    that can do nothing.
    """
    if isinstance(node, ast.Attribute):  # self.device, which is set to such a parameter
        return any(
            isinstance(stmt.value, ast.Name) and _may_be_none(module, stmt.value)
            for stmt in module.names.all(ast.Assign)
            if module.text(stmt.targets[0]) == module.text(node)
        )
    if not isinstance(node, ast.Name):
        return False
    for binding in module.names.bindings(node):
        if isinstance(binding.node, ast.arg):
            function = binding.node.up.up  # type: ignore[attr-defined]
            args = function.args
            positional = [*args.posonlyargs, *args.args]
            defaults = dict(zip(reversed(positional), reversed(args.defaults), strict=False))
            defaults |= dict(zip(args.kwonlyargs, args.kw_defaults, strict=True))
            default = defaults.get(binding.node)
            if isinstance(default, ast.Constant) and default.value is None:
                return True
    return False


def _is_storage(module: Module, node: ast.expr) -> bool:
    """Whether an object is a storage of a tensor, by its name or what makes it."""
    if isinstance(node, ast.Call):
        made = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        made = made or getattr(node.func, "id", "")
        return made.endswith("Storage") or made in (
            "storage", "untyped_storage", "typed_storage", "_typed_storage",
        )  # fmt: skip
    return "storage" in _last(node).lower()


def _storage(module: Module, call: ast.Call, func: ast.Attribute) -> bool:
    """Whether it is the body of `map_location=lambda storage, loc: storage.cuda()`."""
    up = call.up  # type: ignore[attr-defined]
    if not isinstance(up, ast.Lambda) or len(up.args.args) != 2 or len(call.args) > 1:
        return False
    if call.keywords or not isinstance(func.value, ast.Name):
        return False
    holder = up.up  # type: ignore[attr-defined]
    located = (isinstance(holder, ast.keyword) and holder.arg == "map_location") or (
        isinstance(holder, ast.Call) and module.resolve(holder.func) == "torch.load"
    )
    return located and func.value.id == up.args.args[0].arg


def _own_classes(module: Module) -> frozenset[str]:
    """Classes with a method `cuda`, of this module and of the tree."""
    here = {
        node.name
        for node in module.names.all(ast.ClassDef)
        if any(getattr(stmt, "name", "") == "cuda" for stmt in node.body)
    }
    return module.own.classes | here


def _owner(module: Module, node: ast.expr, own: frozenset[str]) -> str:
    """Whether an object is of a class with a `cuda` of its own: "own", "maybe" or ""."""
    if not own:
        return ""
    if isinstance(node, ast.Call):
        return "own" if _last(node.func) in own else ""
    if isinstance(node, ast.Name):
        if node.id in ("self", "cls"):
            return _self(node, own)
        for binding in module.names.bindings(node):
            value = binding.value
            if isinstance(value, ast.Call) and _last(value.func) in own:
                return "own"
            note = getattr(binding.node, "annotation", None)
            if note is not None and _last(note) in own:
                return "own"
    if isinstance(node, ast.Attribute):
        written = module.text(node)
        for assign in module.names.all(ast.Assign):
            value = assign.value
            if (
                isinstance(value, ast.Call)
                and _last(value.func) in own
                and any(module.text(t) == written for t in assign.targets)
            ):
                return "own"
    name = _last(node).replace("_", "").lower()
    if name and name in {c.replace("_", "").lower() for c in own}:
        return "maybe"
    if _object_of_own(module, node):
        return "maybe"
    last_words = {w.lower() for c in module.own.without_to for w in _LAST_WORD.findall(c)}
    return "maybe" if name in last_words else ""  # `embedder` of a SentenceEmbedder


def _object_of_own(module: Module, node: ast.expr) -> bool:
    """Whether `x.cuda()` is a statement of its own in a module that names a class with a `cuda` and
    no `.to()`: tensors are not moved by that, and `x` is not made by anything else here.
    """
    call = node.up.up  # type: ignore[attr-defined]
    if not isinstance(call.up, ast.Expr) or not module.own.without_to & module.names.used:
        return False
    return not any(
        isinstance(v, ast.Call) and _last(v.func)[:1].isupper() for v in _made(module, node)
    )


def _made(module: Module, node: ast.expr, depth: int = 0) -> Iterator[ast.expr]:
    """The values of a name or an attribute; of a copy, `copy.deepcopy(x)`, those of `x`."""
    written = module.text(node)
    for stmt in module.names.all(ast.Assign):
        if not any(module.text(t) == written for t in stmt.targets):
            continue
        value = stmt.value
        if isinstance(value, ast.Call) and _last(value.func) == "deepcopy" and value.args:
            if depth < _COPIES:
                yield from _made(module, value.args[0], depth + 1)
        else:
            yield value


def _self(node: ast.AST, own: frozenset[str]) -> str:
    for _, up in ancestors(node):
        if isinstance(up, ast.ClassDef):
            return "own" if up.name in own else ""
    return ""


def _last(node: ast.AST) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value  # an annotation in quotes
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
