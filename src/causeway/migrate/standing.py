"""The variables in which a module holds the accelerator already, so that no other one is needed.

`device = torch.device("cuda" if torch.cuda.is_available() else "cpu")` and `self.device = …` are
the accelerator once they are converted. Such a variable is used where it is surely set and is bound
to nothing else: behind its statement, or in functions that nothing calls before it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from causeway.migrate.names import FUNCTIONS, Names, Scope, after, ancestors, block

NAME = re.compile(r"_?(torch_)?(device|dev)", re.I)
_LATE = {"__new__", "__getattr__", "__getattribute__", "__setstate__", "__del__"}
_PLAIN_BASES = {"object", "torch.nn.Module", "torch.utils.data.Dataset"}
Set = ast.Assign | ast.AnnAssign


@dataclass(frozen=True)
class Meaning:
    """What a value is: a torch.device, or its name alone. `test` is what decides between the
    accelerator and the CPU, "" where only the question whether there is one does. `kept`: it stays
    as it is written, with its index or its branch for Apple's or Intel's device.
    """

    is_device: bool
    test: str = ""
    kept: bool = False
    indexed: bool = False  # "cuda:0" as a string, which is no type


@dataclass(frozen=True)
class Variable:
    """`text` is how it is written, `stmt` what sets it, `owner` the class of a `self.device`."""

    text: str
    stmt: ast.stmt
    meaning: Meaning
    scope: Scope
    owner: ast.ClassDef | None = None


def choice(asks: Callable[[ast.expr], bool], node: ast.AST) -> tuple[ast.expr, ast.expr] | None:
    """The two sides of `"cuda" if torch.cuda.is_available() else "cpu"`, the accelerator's first;
    None where something else decides.
    """
    if not isinstance(node, ast.IfExp):
        return None
    if asks(node.test):
        return node.body, node.orelse
    no = node.test
    if isinstance(no, ast.UnaryOp) and isinstance(no.op, ast.Not) and asks(no.operand):
        return node.orelse, node.body
    return None


class Variables:
    """All such variables of a module."""

    def __init__(
        self,
        names: Names,
        resolve: Callable[[ast.AST], str],
        asks: Callable[[ast.expr], bool],
        portable: Callable[[ast.expr], bool],
        may: Callable[[ast.AST], bool],
        simple: Callable[[ast.AST], bool],
    ) -> None:
        """`portable`: whether a value is the accelerator's line that a conversion writes; `may`:
        whether a place is converted at all; `simple`: whether no comment is inside.
        """
        self._names, self._resolve, self._asks = names, resolve, asks
        self._portable, self._may, self._simple = portable, may, simple
        # "cuda:0" is the current device where nothing makes another one that.
        self.one_device = not any(
            n.attr in ("set_device", "set_device_index", "local_rank", "device_index")
            for n in names.all(ast.Attribute)
        ) and not any(resolve(c.func) == "torch.cuda.device" for c in names.all(ast.Call))
        found = [*self._attributes(), *self._assigned(), *self._branched()]
        if any(map(_rebinds, names.all(ast.Call))):
            found = [v for v in found if v.owner is not None or v.scope is not names.module]
        # The nearest first.
        self._found = sorted(found, key=lambda v: v.owner is None and v.scope is names.module)

    def at(self, node: ast.AST) -> Variable | None:
        """The variable to use where `node` is, or None."""
        return next((v for v in self._found if self._serves(v, node)), None)

    def set_by(self, stmt: ast.AST) -> Variable | None:
        """The variable that a statement sets."""
        return next((v for v in self._found if v.stmt is stmt), None)

    def meaning(self, value: ast.AST | None) -> Meaning | None:
        """What a value means, once converted; None where it is not the accelerator."""
        if isinstance(value, ast.Constant):
            if value.value == "cuda:0" and self.one_device:
                return Meaning(False, kept=True, indexed=True)
            return Meaning(False) if value.value == "cuda" else None
        if isinstance(value, ast.Call):
            if self._resolve(value.func) != "torch.device" or value.keywords:
                return None
            inner = self.meaning(value.args[0]) if len(value.args) == 1 else None
            return Meaning(True, inner.test, inner.kept) if inner and not inner.is_device else None
        if isinstance(value, ast.IfExp):
            sides, test = choice(self._asks, value), ""
            if sides is None and isinstance(value.test, ast.Name | ast.Attribute):
                sides, test = (value.body, value.orelse), ast.unparse(value.test)
            if sides is None:
                return None
            inner = self.meaning(sides[0])
            if inner is None or inner.test:
                return None
            other, kept = sides[1], inner.kept
            while isinstance(other, ast.IfExp) and _asks_others(other.test):
                other, kept = other.orelse, True  # the accelerator's branch comes first
            same = self._cpu(other, inner.is_device)
            return Meaning(inner.is_device, test, kept, inner.indexed) if same else None
        if isinstance(value, ast.expr) and self._portable(value):
            return Meaning(True)
        return None

    def _cpu(self, node: ast.AST, is_device: bool) -> bool:
        if is_device and isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords:
            return self._resolve(node.func) == "torch.device" and self._cpu(node.args[0], False)
        return not is_device and isinstance(node, ast.Constant) and node.value == "cpu"

    # -- what there is

    def _assigned(self) -> Iterator[Variable]:
        """Names with one value."""
        for stmt, target, value in self._sets(ast.Name):
            assert isinstance(target, ast.Name)
            scope: Scope = target.scope  # type: ignore[attr-defined]
            meaning = self.meaning(value)
            if meaning and self._bound(target, 1) and self._may(value) and self._simple(value):
                yield Variable(target.id, stmt, meaning, scope)

    def _branched(self) -> Iterator[Variable]:
        """`if torch.cuda.is_available(): device = … else: device = …`."""
        for node in self._names.all(ast.If):
            test = node.test.id if isinstance(node.test, ast.Name) else ""
            if len(node.body) != 1 or len(node.orelse) != 1 or not (test or self._asks(node.test)):
                continue
            one, other, branches = node.body[0], node.orelse[0], [node.body[0]]
            while isinstance(other, ast.If) and _asks_others(other.test) and not test:
                if len(other.body) != 1 or len(other.orelse) != 1:
                    break
                branches.append(other.body[0])
                other = other.orelse[0]
            if not (isinstance(one, ast.Assign) and isinstance(other, ast.Assign)):
                continue
            target = one.targets[0]
            if not isinstance(target, ast.Name) or not NAME.fullmatch(target.id):
                continue
            branches.append(other)
            wanted = ast.dump(target)
            same = all(
                isinstance(b, ast.Assign) and ast.dump(b.targets[0]) == wanted for b in branches
            )
            meaning, often = self.meaning(one.value), len(branches)
            if not (same and meaning and not meaning.test and self._bound(target, often)):
                continue
            if self._cpu(other.value, meaning.is_device) and self._may(one.value):
                scope: Scope = target.scope  # type: ignore[attr-defined]
                made = Meaning(meaning.is_device, test, indexed=meaning.indexed)
                yield Variable(target.id, node, made, scope)

    def _attributes(self) -> Iterator[Variable]:
        """`self.device` of a class that sets it once, in __init__."""
        stores: dict[tuple[str, int], int] = {}
        for node in self._names.all(ast.Attribute):
            if not isinstance(node.ctx, ast.Load) and NAME.fullmatch(node.attr):
                key = node.attr, self._class_of(node.value)
                stores[key] = stores.get(key, 0) + 1
        for stmt, target, value in self._sets(ast.Attribute):
            assert isinstance(target, ast.Attribute)
            init = stmt.up  # type: ignore[union-attr]
            owner = getattr(init, "up", None)
            meaning = self.meaning(value)
            if (
                meaning is None
                or meaning.test
                or getattr(init, "name", "") != "__init__"
                or not isinstance(owner, ast.ClassDef)
                or stores[target.attr, id(owner)] != 1
                or stores.get((target.attr, 0), 0)  # of an object that is not known here
                or any(target.attr in _bound_in_class(s) for s in owner.body)
                or not self._may(value)
                or not self._simple(value)
                or not (init.args.args and _is_name(target.value, init.args.args[0].arg))
            ):
                continue
            text = f"{init.args.args[0].arg}.{target.attr}"
            yield Variable(text, stmt, meaning, target.scope, owner)  # type: ignore[attr-defined]

    def _class_of(self, node: ast.AST) -> int:
        """The id of the class whose object a method's own `self` is; 0 for any other object."""
        held = self._names.holder(node.id, node.scope) if isinstance(node, ast.Name) else None  # type: ignore[attr-defined]
        method = held.node if held is not None else None
        if not isinstance(method, FUNCTIONS) or not isinstance(node, ast.Name):
            return 0
        first = method.args.args[0].arg if method.args.args else ""
        owner = method.up  # type: ignore[union-attr]
        return id(owner) if isinstance(owner, ast.ClassDef) and first == node.id else 0

    def _sets(self, kind: type[ast.expr]) -> Iterator[tuple[Set, ast.expr, ast.expr]]:
        """The assignments of one target with a device's name."""
        stmts: list[Set] = [*self._names.all(ast.Assign), *self._names.all(ast.AnnAssign)]
        for stmt in stmts:
            targets = stmt.targets if isinstance(stmt, ast.Assign) else [stmt.target]
            target = targets[0]
            if len(targets) != 1 or not isinstance(target, kind) or stmt.value is None:
                continue
            name = target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", "")
            if NAME.fullmatch(name):
                yield stmt, target, stmt.value

    def _bound(self, target: ast.Name, times: int) -> bool:
        """Whether a name of a module or function is bound so often, and nowhere else."""
        scope: Scope = target.scope  # type: ignore[attr-defined]
        held = self._names.holder(target.id, scope)
        return (
            held is scope
            and scope.kind in ("module", "function")
            and len(scope.bindings[target.id]) == times
        )

    # -- where it serves

    def _serves(self, variable: Variable, node: ast.AST) -> bool:
        scope: Scope | None = node.scope  # type: ignore[attr-defined]
        name = variable.text.partition(".")[0]
        if variable.meaning.test and not self._behind(variable, node):
            return False
        if variable.owner is None:
            if self._names.holder(name, scope) is not variable.scope:
                return False
            return self._later(variable.stmt, node) or self._called_later(variable.stmt, node)
        if self._later(variable.stmt, node):
            return self._names.holder(name, scope) is variable.scope
        return self._of_method(variable, node, name)

    @staticmethod
    def _later(stmt: ast.stmt, node: ast.AST) -> bool:
        """Whether a node is in a statement behind `stmt` of the same block."""
        behind = {id(other) for other in after(stmt)}
        return any(id(child) in behind for child, _ in [*ancestors(node)])

    def _called_later(self, stmt: ast.stmt, node: ast.AST) -> bool:
        """Whether a node is in a function, and `stmt` runs before anything could call that."""
        if not isinstance(stmt.up, ast.Module):  # type: ignore[attr-defined]
            return False
        if not any(isinstance(up, FUNCTIONS) and child in up.body for child, up in ancestors(node)):
            return False
        body = block(stmt)
        return not any(self._calls_own(other) for other in body[: body.index(stmt)])

    def _calls_own(self, stmt: ast.stmt) -> bool:
        """Whether a statement of the module may call what the module defines."""
        if isinstance(stmt, FUNCTIONS):
            parts: list[ast.AST] = [*stmt.decorator_list]
        elif isinstance(stmt, ast.ClassDef):
            # Its functions only run later; what else is in its body runs now.
            rest = [s for s in stmt.body if not isinstance(s, FUNCTIONS)]
            decorators = [d for s in stmt.body for d in getattr(s, "decorator_list", ())]
            parts = [*stmt.decorator_list, *stmt.keywords, *rest, *decorators]
        else:
            parts = [stmt]
        return any(
            isinstance(n, ast.Name)
            and any(isinstance(b.node, (*FUNCTIONS, ast.ClassDef)) for b in self._names.bindings(n))
            for part in parts
            for n in ast.walk(part)
        )

    def _behind(self, variable: Variable, node: ast.AST) -> bool:
        """Whether a node only runs where the variable's own condition is true."""
        test = variable.meaning.test
        for child, up in ancestors(node):
            if isinstance(up, (*FUNCTIONS, ast.Lambda)):
                return False
            body = up.body if isinstance(up, ast.If) else [getattr(up, "body", None)]
            if isinstance(up, ast.If | ast.IfExp) and child in body:
                asked = up.test
                if isinstance(asked, ast.Name) and asked.id == test:
                    return len(self._names.bindings(asked)) == 1
                if isinstance(asked, ast.Attribute) and ast.unparse(asked) == test:
                    return self._is_option(asked)
        return False

    def _is_option(self, node: ast.Attribute) -> bool:
        """Whether it is an attribute that nothing here sets, of a name with one value: args.on."""
        owner = node.value
        return (
            isinstance(owner, ast.Name)
            and len(self._names.bindings(owner)) == 1
            and not any(
                other.attr == node.attr and not isinstance(other.ctx, ast.Load)
                for other in self._names.all(ast.Attribute)
            )
        )

    def _of_method(self, variable: Variable, node: ast.AST, name: str) -> bool:
        """Whether a node is in another method of the class, which nothing calls too early."""
        owner = variable.owner
        assert owner is not None
        method = next(
            (c for c, up in ancestors(node) if up is owner and isinstance(c, FUNCTIONS)), None
        )
        if method is None or method.name in {"__init__", *_LATE}:
            return False
        if any(_is_name(d, "staticmethod") for d in method.decorator_list):
            return False
        arguments = method.args.args
        held = self._names.holder(name, node.scope)  # type: ignore[attr-defined]
        if not arguments or arguments[0].arg != name or held is None or held.node is not method:
            return False
        if any(child in method.args.defaults for child, _ in ancestors(node)):
            return False
        return self._set_first(variable, owner, name)

    def _set_first(self, variable: Variable, owner: ast.ClassDef, name: str) -> bool:
        body = block(variable.stmt)
        plain = all(self._resolve(b) in _PLAIN_BASES or _is_name(b, "object") for b in owner.bases)
        for other in body[: body.index(variable.stmt)]:
            for call in ast.walk(other):
                if not isinstance(call, ast.Call):
                    continue
                func = call.func
                of_super = isinstance(func, ast.Attribute) and _is_super(func.value)
                own = isinstance(func, ast.Attribute) and _is_name(func.value, name)
                if own or (of_super and not plain):
                    return False
                handed = any(_is_name(a, name) for a in call.args)
                if handed and not _is_super(call) and not (of_super and plain):
                    return False
        return not any(  # a class below it that may not call its __init__
            any(_is_name(base, owner.name) for base in other.bases)
            and any(getattr(s, "name", "") == "__init__" for s in other.body)
            for other in self._names.all(ast.ClassDef)
        )


_OTHERS = re.compile(r"\b(?:mps|xpu)\.is_available\(\)")


def _asks_others(test: ast.expr) -> bool:
    """Whether a question is that for Apple's or Intel's device."""
    return _OTHERS.search(ast.unparse(test)) is not None


def _is_name(node: ast.AST | None, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _is_super(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and _is_name(node.func, "super")


def _bound_in_class(stmt: ast.stmt) -> set[str]:
    """The names that a statement of a class's body gives a meaning."""
    if isinstance(stmt, (*FUNCTIONS, ast.ClassDef)):
        return {stmt.name}
    return {n.id for n in ast.walk(stmt) if isinstance(n, ast.Name)}


def _rebinds(call: ast.Call) -> bool:
    """Whether a call may set the module's variables unseen: `exec(text)`, `globals().update(a)`,
    `globals()[name] = a`.
    """
    if not isinstance(call.func, ast.Name):
        return False
    if call.func.id == "exec":
        return len(call.args) == 1 and not call.keywords
    up = call.up  # type: ignore[attr-defined]
    return call.func.id == "globals" and (
        (isinstance(up, ast.Attribute) and up.attr == "update")
        or (isinstance(up, ast.Subscript) and isinstance(up.ctx, ast.Store))
    )
