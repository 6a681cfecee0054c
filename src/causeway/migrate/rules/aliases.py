"""A variable that is a tensor type of CUDA's or of the CPU's: CW104 for what it is used for.

`Tensor = torch.cuda.FloatTensor if cuda else torch.FloatTensor`. Few devices have such types, and
the CPU's would meet a model that is elsewhere. So the variable becomes the CPU's type, and what is
made by it is moved; where it is used for anything else nothing is changed here.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from causeway.migrate.module import Module
from causeway.migrate.names import Binding, ancestors
from causeway.migrate.rule import Rule
from causeway.migrate.source import Edit


@dataclass(frozen=True)
class _Choice:
    """One value of the variable: CUDA's name in it, the type's last part, the CPU's side and what
    decides, both None where it is CUDA's type alone.
    """

    cuda: ast.expr
    kind: str
    other: ast.expr | None = None
    test: ast.expr | None = None


def run(module: Module, rule: Rule, dtypes: Mapping[str, str]) -> None:
    """All such variables of a module."""
    for branches in module.names.all(ast.If):
        _branches(module, rule, branches, dtypes)
    for assign in module.names.all(ast.Assign):
        target = assign.targets[0]
        found = _choice(module, assign.value, dtypes)
        if found is None or len(assign.targets) != 1:
            continue
        if isinstance(target, ast.Attribute):
            if target.attr not in module.own.shared_types:
                _variable(module, rule, target, found, dtypes[found.kind])
        elif isinstance(target, ast.Name) and target.id not in module.own.imported:
            _variable(module, rule, target, found, dtypes[found.kind])


def _branches(module: Module, rule: Rule, node: ast.If, dtypes: Mapping[str, str]) -> None:
    """`if …: dtype = torch.cuda.FloatTensor` and `else: dtype = torch.FloatTensor`: the variable
    becomes the device, `dtype_device`, with a name that says so.
    """
    first, second = _alone(node.body), _alone(node.orelse)
    if first is None or second is None:
        return
    (target, value), (also, other) = first, second
    kind = _kind(module, value, "torch.cuda.", dtypes)
    new = f"{module.text(target)}_device"
    same = module.text(target) == module.text(also)
    if not same or not kind or _kind(module, other, "torch.", dtypes) != kind:
        return
    uses: Sequence[ast.expr]
    if isinstance(target, ast.Name) and isinstance(also, ast.Name):
        uses = _uses(module, target, [target, also])
        taken = any(n.id == new for n in module.names.all(ast.Name))
    else:
        assert isinstance(target, ast.Attribute)
        uses = _attribute_uses(module, target, 2)
        taken = target.attr in module.own.shared_types or any(
            n.attr == f"{target.attr}_device" for n in module.names.all(ast.Attribute)
        )
    if not uses or taken or not all(_call(n) for n in uses):
        return
    cpu = module.quote_for(other) + "cpu" + module.quote_for(other)
    device = module.device(value)
    edits = [
        module.replace(target, new), module.replace(value, device),
        module.replace(also, new), module.replace(other, cpu),
    ]  # fmt: skip
    api = f"torch.cuda.{kind}"
    if not module.change(rule, value, edits, "the device, to which a tensor is moved", api=api):
        return
    gone = {id(n) for side in (value, other) for n in ast.walk(side)}
    module.done |= gone
    module.gone |= gone
    for use in uses:
        call = _call(use)
        assert call is not None
        if call.func is use:
            end = module.source.end(call)
            made = f"{module.torch(call)}.{kind}"
            moves = [module.replace(use, made), Edit(end, end, f".to({new})")]
        else:
            moves = _moves(module, call, use, f"{new}, {module.torch(call)}.{dtypes[kind]}")
        module.change(rule, call, moves, "it is moved to the device", api=api)


def _alone(stmts: list[ast.stmt]) -> tuple[ast.Name | ast.Attribute, ast.expr] | None:
    """The one assignment of a branch that does nothing else."""
    if len(stmts) == 1 and isinstance(stmts[0], ast.Assign) and len(stmts[0].targets) == 1:
        target = stmts[0].targets[0]
        if isinstance(target, ast.Name | ast.Attribute):
            return target, stmts[0].value
    return None


def _uses(module: Module, target: ast.Name, bound: list[ast.Name]) -> list[ast.Name]:
    """Where a variable is used that nothing but `bound` binds; none for any other."""
    names = module.names
    held = names.holder(target.id, target.scope)  # type: ignore[attr-defined]
    bindings = held.bindings.get(target.id, ()) if held is not None else ()
    if {id(b.node) for b in bindings} != {id(n) for n in bound}:
        return []
    return [
        n for n in names.all(ast.Name)
        if n.id == target.id and isinstance(n.ctx, ast.Load)
        and names.holder(n.id, n.scope) is held  # type: ignore[attr-defined]
    ]  # fmt: skip


def _attribute_uses(module: Module, target: ast.Attribute, times: int = 1) -> list[ast.Attribute]:
    """Where an attribute of a method's own object is used in its class, which sets it so often;
    none for any other, or where something else has an attribute of that name.
    """
    home = _class(target)
    named = [n for n in module.names.all(ast.Attribute) if n.attr == target.attr]
    own = [n for n in named if ast.dump(n.value) == ast.dump(target.value)]
    uses = [n for n in own if isinstance(n.ctx, ast.Load)]
    others = [n for n in named if n not in own and not module.resolve(n).startswith("torch.")]
    alone = home is not None and getattr(target.value, "id", "") == "self"
    if (
        not alone
        or others
        or len(own) != len(uses) + times
        or any(_class(n) is not home for n in uses)
    ):
        return []
    return uses


def _class(node: ast.AST) -> ast.AST | None:
    return next((up for _, up in ancestors(node) if isinstance(up, ast.ClassDef)), None)


def _moves(module: Module, call: ast.Call, use: ast.expr, to: str) -> list[Edit]:
    """`x.type(use)` as `x.to(…)`."""
    at = module.source.end(call.func)
    return [Edit(at - 4, at, "to"), module.replace(use, to)]


def _choice(module: Module, value: ast.expr, dtypes: Mapping[str, str]) -> _Choice | None:
    if not isinstance(value, ast.IfExp):
        kind = _kind(module, value, "torch.cuda.", dtypes)
        return _Choice(value, kind) if kind else None
    kind = _kind(module, value.body, "torch.cuda.", dtypes)
    same = _kind(module, value.orelse, "torch.", dtypes) == kind or (
        kind == "FloatTensor" and module.resolve(value.orelse) == "torch.Tensor"
    )
    return _Choice(value.body, kind, value.orelse, value.test) if kind and same else None


def _kind(module: Module, node: ast.expr, home: str, dtypes: Mapping[str, str]) -> str:
    """The type that a name means, without its home; "" for another name."""
    kind = module.resolve(node).removeprefix(home)
    return kind if kind in dtypes else ""


def _variable(
    module: Module, rule: Rule, target: ast.Name | ast.Attribute, found: _Choice, dtype: str
) -> None:
    uses: Sequence[ast.expr]
    if isinstance(target, ast.Name):
        uses = _uses(module, target, [target])
    elif _of_object(module, found.test):
        uses = _attribute_uses(module, target)
    else:
        return
    device = _device(module, found.test)
    if not uses or device is None or not all(_call(n) for n in uses):
        return
    value = target.up.value  # type: ignore[union-attr]
    new = (
        module.text(found.other)
        if found.other is not None
        else module.spelled(found.cuda, f"torch.{found.kind}")
    )
    edit = Edit(module.source.start(value), module.source.end(value), new)
    says, api = "the CPU's type; what is made by it is moved", f"torch.cuda.{found.kind}"
    if not module.change(rule, value, [edit], says, api=api):
        return
    kept = () if found.other is None else ast.walk(found.other)
    gone = {id(n) for n in ast.walk(value)} - {id(n) for n in kept}
    module.done |= gone
    if found.other is not None:
        module.gone |= gone
    for use in uses:
        call = _call(use)
        assert call is not None
        end = module.source.end(call)
        if call.func is use:
            edits = [Edit(end, end, f".to({device(call)})")]
        else:
            edits = _moves(module, call, use, f"{device(call)}, {module.torch(call)}.{dtype}")
        module.change(rule, call, edits, "it is moved to the device", api=api)


def _of_object(module: Module, test: ast.expr | None) -> bool:
    """Whether what decides can be asked in every method: a question, or an attribute of the object
    itself that is set once.
    """
    if test is None or _is_question(module, test):
        return True
    owner = test.value if isinstance(test, ast.Attribute) else None
    set_to = [
        n for n in module.names.all(ast.Attribute)
        if n.attr == getattr(test, "attr", "") and not isinstance(n.ctx, ast.Load)
    ]  # fmt: skip
    return getattr(owner, "id", "") == "self" and len(set_to) == 1


def _call(use: ast.expr) -> ast.Call | None:
    """The call that makes a tensor by the type, or `x.type(use)`; None for any other use."""
    up = use.up  # type: ignore[attr-defined]
    if not isinstance(up, ast.Call):
        return None
    if up.func is use:
        return None if any(k.arg in (None, "device") for k in up.keywords) else up
    method = up.func.attr if isinstance(up.func, ast.Attribute) else ""
    return up if method == "type" and up.args == [use] and not up.keywords else None


def _device(module: Module, test: ast.expr | None) -> Callable[[ast.AST], str] | None:
    """How the device is written where a tensor is made; None where that cannot be said."""
    if test is None or _is_question(module, test):
        return module.device
    if isinstance(test, ast.Attribute) and test.attr == "is_cuda":
        owner = test.value
        plain = isinstance(owner, ast.Name | ast.Attribute)
        return (lambda _: f"{module.text(owner)}.device") if plain else None
    if isinstance(test, ast.Name):
        values: list[Binding] = module.names.bindings(test)
        if len(values) != 1 or values[0].value is None:
            return None
        if _is_question(module, values[0].value):
            return module.device
    elif not (isinstance(test, ast.Attribute) and isinstance(test.value, ast.Name)):
        return None
    asked = module.text(test)

    def chosen(node: ast.AST) -> str:
        quote = module.quote_for(node)
        inside = any(isinstance(up, ast.FormattedValue) for _, up in ancestors(node))
        choice = f"{module.device(node)} if {asked} else {quote}cpu{quote}"
        return f"({choice})" if inside else choice

    return chosen


def _is_question(module: Module, node: ast.expr) -> bool:
    """Whether it is no more than the question whether there is a device, also as `True if … else
    False`.
    """
    if isinstance(node, ast.IfExp):
        sides = getattr(node.body, "value", None), getattr(node.orelse, "value", None)
        return module.asks(node.test) and sides == (True, False)
    return module.asks(node)
