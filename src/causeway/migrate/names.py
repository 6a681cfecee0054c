"""Which names mean what: scopes and qualified names of one module, from its syntax alone.

`resolve(node)` gives "torch.cuda.is_available" for `c.is_available` after `from torch import cuda
as c`, for `cuda.is_available` after `cuda = torch.cuda`, and None for a parameter that may be
anything; `def f(torch, x)` is given torch. Bindings count wherever they are in their scope: the
order of statements is not followed, so a name that is bound to different things is not resolved.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Literal, TypeVar

Node = TypeVar("Node", bound=ast.AST)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
# What unbound names mean where `from something import *` may have brought them.
_USUAL = {
    "torch": "torch",
    "nn": "torch.nn",
    "dist": "torch.distributed",
    "F": "torch.nn.functional",
    "os": "os",
}


class Binding:
    """One thing that binds a name: what it is, and where."""

    __slots__ = ("kind", "node", "qualified", "value")

    def __init__(
        self,
        kind: Literal["import", "assign", "other"],
        node: ast.AST,
        qualified: str = "",
        value: ast.expr | None = None,
    ) -> None:
        self.kind, self.node, self.qualified, self.value = kind, node, qualified, value


class Scope:
    """A module, class, function, lambda or comprehension, and what it binds."""

    __slots__ = ("bindings", "elsewhere", "kind", "node", "parent")

    def __init__(self, kind: str, node: ast.AST, parent: Scope | None) -> None:
        self.kind, self.node, self.parent = kind, node, parent
        self.bindings: dict[str, list[Binding]] = {}
        self.elsewhere: set[str] = set()  # declared global or nonlocal

    def bind(self, name: str, binding: Binding) -> None:
        self.bindings.setdefault(name, []).append(binding)


class Names:
    """All names of a module. Every node gets the attributes `up` (its parent) and `scope`."""

    def __init__(self, tree: ast.Module, exported: dict[str, frozenset[str]]) -> None:
        self.tree = tree
        self.module = Scope("module", tree, None)
        self.by_type: dict[type, list[ast.AST]] = {}
        self.used: set[str] = set()  # every identifier that is a name of any kind
        self.stars: list[str] = []  # modules imported with *
        self._exported = exported  # what `from torch.cuda import *` brings
        self._memo: dict[tuple[int, str], str | None] = {}
        self._declared: list[tuple[Scope, str]] = []  # by `global`
        self.loads: dict[str, list[ast.Name]] = {}  # by the name that is read
        tree.up = None  # type: ignore[attr-defined]
        self._visit_all(tree)

    def all(self, kind: type[Node]) -> list[Node]:
        """All nodes of a type, in no certain order."""
        return self.by_type.get(kind, [])  # type: ignore[return-value]

    def resolve(self, node: ast.AST) -> str | None:
        """The qualified name of an expression, or None where it has none."""
        attributes: list[str] = []
        while isinstance(node, ast.Attribute):
            attributes.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return None
        root = self.lookup(node.id, node.scope)  # type: ignore[attr-defined]
        return None if root is None else ".".join([root, *reversed(attributes)])

    def lookup(self, name: str, scope: Scope | None) -> str | None:
        """What `name` means in `scope`, as a qualified name."""
        found = self.holder(name, scope)
        if found is None:
            for module in self.stars:
                if name in self._exported.get(module, ()):
                    return f"{module}.{name}"
            return _USUAL.get(name) if self.stars else None
        key = (id(found), name)
        if key not in self._memo:
            self._memo[key] = None  # of a name that is defined by itself
            self._memo[key] = self._meaning(found.bindings[name])
        return self._memo[key]

    def holder(self, name: str, scope: Scope | None) -> Scope | None:
        """The scope in which `name`, used in `scope`, is bound."""
        first = True
        while scope is not None:
            if name in scope.elsewhere:
                scope = self.module
            if name in scope.bindings and (first or scope.kind != "class"):
                return scope
            if scope.kind != "comprehension":
                first = False
            scope = scope.parent
        return None

    def bindings(self, name: ast.Name) -> list[Binding]:
        """What binds a name that is used; empty for built-ins and star imports."""
        found = self.holder(name.id, name.scope)  # type: ignore[attr-defined]
        return found.bindings[name.id] if found else []

    def _meaning(self, bindings: list[Binding]) -> str | None:
        meanings = set()
        for binding in bindings:
            if binding.kind == "import":
                meanings.add(binding.qualified)
            elif binding.kind == "assign":
                value = binding.value
                qualified = (self.resolve(value) or brought(value)) if value else None
                if qualified:
                    meanings.add(qualified)
                elif not _stand_in(binding.node):
                    return None
            elif _is_torch(binding.node):
                meanings.add("torch")
            elif not _stand_in(binding.node):
                return None
        return meanings.pop() if len(meanings) == 1 else None

    # -- the walk

    def _visit_all(self, tree: ast.Module) -> None:
        # The hot loop: most of the time goes into it, so it is written flat.
        stack: list[tuple[ast.AST, Scope]] = [(tree, self.module)]
        by_type, ast_type = self.by_type, ast.AST
        while stack:
            node, scope = stack.pop()
            kind = type(node)
            node.scope = scope  # type: ignore[attr-defined]
            if kind in by_type:
                by_type[kind].append(node)
            else:
                by_type[kind] = [node]
            visit = _VISIT.get(kind)
            if visit is not None:
                visit(self, node, scope)
            if kind in _SCOPED:
                for child, inner in self._scoped(node, scope):
                    child.up = node  # type: ignore[attr-defined]
                    stack.append((child, inner))
                continue
            for name in _CHILDREN[kind]:
                value = getattr(node, name, None)
                if type(value) is list:
                    for child in value:
                        if isinstance(child, ast_type):
                            child.up = node  # type: ignore[attr-defined]
                            stack.append((child, scope))
                elif isinstance(value, ast_type):
                    value.up = node  # type: ignore[attr-defined]
                    stack.append((value, scope))
        for scope, name in self._declared:
            self.module.bindings.setdefault(name, []).extend(scope.bindings.pop(name, []))

    def _scoped(self, node: ast.AST, scope: Scope) -> list[tuple[ast.AST, Scope]]:
        """The children of a node that makes a scope, each with the scope that it is in."""
        outer: list[ast.AST] = []
        inside: list[ast.AST] = []
        if isinstance(node, (*FUNCTIONS, ast.Lambda)):
            inner = Scope("function", node, scope)
            _bind_arguments(inner, node.args)
            self.used.update(arg.arg for arg in all_arguments(node.args))
            outer += _outside(node.args)
            node.args.up, node.args.scope = node, scope  # type: ignore[attr-defined]
            if isinstance(node, ast.Lambda):
                inside.append(node.body)
            else:
                outer += [*node.decorator_list, *([node.returns] if node.returns else ())]
                inside += node.body
        elif isinstance(node, ast.ClassDef):
            inner = Scope("class", node, scope)
            outer += [*node.decorator_list, *node.bases, *node.keywords]
            inside += node.body
        else:
            assert isinstance(node, _COMPREHENSIONS)
            inner = Scope("comprehension", node, scope)
            elements = (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,)
            inside += [*elements, *node.generators]
        return [(child, scope) for child in outer] + [(child, inner) for child in inside]

    def _name(self, node: ast.Name, scope: Scope) -> None:
        self.used.add(node.id)
        if isinstance(node.ctx, ast.Load):
            self.loads.setdefault(node.id, []).append(node)
            return
        while scope.kind == "comprehension" and _walrus(node):
            scope = scope.parent  # type: ignore[assignment]
        value = _assigned(node)
        scope.bind(node.id, Binding("assign" if value else "other", node, value=value))

    def _import(self, node: ast.Import, scope: Scope) -> None:
        for alias in node.names:
            name = alias.asname or alias.name.partition(".")[0]
            meaning = alias.name if alias.asname else name
            self.used.add(name)
            scope.bind(name, Binding("import", node, meaning))

    def _import_from(self, node: ast.ImportFrom, scope: Scope) -> None:
        module = "." * node.level + (node.module or "")
        for alias in node.names:
            if alias.name == "*":
                self.stars.append(module)
                continue
            name = alias.asname or alias.name
            self.used.add(name)
            dot = "" if module.endswith(".") else "."
            scope.bind(name, Binding("import", node, f"{module}{dot}{alias.name}"))

    def _definition(self, node: ast.FunctionDef, scope: Scope) -> None:
        self.used.add(node.name)
        scope.bind(node.name, Binding("other", node))

    def _handler(self, node: ast.ExceptHandler, scope: Scope) -> None:
        if node.name:
            self.used.add(node.name)
            scope.bind(node.name, Binding("other", node))

    def _elsewhere(self, node: ast.Global, scope: Scope) -> None:
        self.used.update(node.names)
        scope.elsewhere.update(node.names)
        self._declared += [(scope, name) for name in node.names]


# Of these there is one object for a whole tree.
# Fields without nodes, or with nodes that the parser shares (operators, contexts).
_PLAIN = {
    "arg", "asname", "attr", "ctx", "id", "is_async", "kind", "level", "module", "op", "ops",
    "simple", "type_comment",
}  # fmt: skip


class _Children(dict[type[ast.AST], tuple[str, ...]]):
    """By the type of a node: its fields that may hold nodes."""

    def __missing__(self, kind: type[ast.AST]) -> tuple[str, ...]:
        plain = _PLAIN | ({"value"} if kind is ast.Constant else set())
        self[kind] = found = tuple(name for name in kind._fields if name not in plain)
        return found


_CHILDREN = _Children()
_SCOPED = {*FUNCTIONS, ast.Lambda, ast.ClassDef, *_COMPREHENSIONS}
_VISIT: dict[type[ast.AST], Callable[..., None]] = {
    ast.Name: Names._name,
    ast.Import: Names._import,
    ast.ImportFrom: Names._import_from,
    ast.FunctionDef: Names._definition,
    ast.AsyncFunctionDef: Names._definition,
    ast.ClassDef: Names._definition,
    ast.ExceptHandler: Names._handler,
    ast.Global: Names._elsewhere,
}


def all_arguments(args: ast.arguments) -> list[ast.arg]:
    """The parameters of a function, of every kind."""
    found = [*args.posonlyargs, *args.args, *args.kwonlyargs]
    return found + [a for a in (args.vararg, args.kwarg) if a]


def _bind_arguments(scope: Scope, args: ast.arguments) -> None:
    for arg in all_arguments(args):
        scope.bind(arg.arg, Binding("other", arg))


def _outside(args: ast.arguments) -> list[ast.expr]:
    """Defaults and annotations, which the scope around a function evaluates."""
    found = [*args.defaults, *(d for d in args.kw_defaults if d)]
    for arg in all_arguments(args):
        arg.up = args  # type: ignore[attr-defined]
        if arg.annotation:
            found.append(arg.annotation)
    return found


def _walrus(node: ast.Name) -> bool:
    return isinstance(node.up, ast.NamedExpr)  # type: ignore[attr-defined]


def _assigned(node: ast.Name) -> ast.expr | None:
    """The value that a name alone is assigned; None for loops, unpacking and the like."""
    up = node.up  # type: ignore[attr-defined]
    if isinstance(up, ast.Assign) and node in up.targets:
        return up.value
    if isinstance(up, ast.AnnAssign | ast.NamedExpr) and up.target is node:
        return up.value
    return None


def brought(value: ast.AST) -> str | None:
    """The module that a call imports: `importlib.import_module("torch")`."""
    if not isinstance(value, ast.Call) or not value.args:
        return None
    func, first = value.func, value.args[0]
    name = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
    if name not in ("import_module", "__import__", "importorskip"):
        return None
    return first.value if isinstance(first, ast.Constant) and first.value == "torch" else None


def _is_torch(node: ast.AST) -> bool:
    """Whether it is a parameter by which a function is given torch: `def f(torch, x)`."""
    if not isinstance(node, ast.arg) or node.arg != "torch":
        return False
    args = node.up  # type: ignore[attr-defined]
    if node in (args.vararg, args.kwarg):
        return False
    note = ast.unparse(node.annotation) if node.annotation else "ModuleType"
    plain = [*args.posonlyargs, *args.args]
    without_default = plain[: len(plain) - len(args.defaults)]
    return node in without_default and note.endswith("ModuleType")


def _stand_in(node: ast.AST) -> bool:
    """Whether a binding only replaces an import that failed."""
    return any(isinstance(up, ast.ExceptHandler) for _, up in ancestors(node))


def called(call: ast.Call) -> str:
    """The last name of what is called: `show` of `log.show(x)` and of `show(x)`; "" for none."""
    func = call.func
    return func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")


def ends(stmt: ast.stmt) -> bool:
    """Whether nothing of its block runs behind a statement: it leaves it, or ends the program."""
    if isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Call):
        return called(stmt.value) in ("exit", "quit", "_exit", "skip", "abort")
    return isinstance(stmt, ast.Return | ast.Raise | ast.Continue | ast.Break)


def statement(node: ast.AST) -> ast.stmt:
    """The statement that a node is in."""
    while not isinstance(node, ast.stmt):
        node = node.up  # type: ignore[attr-defined]
    return node


def block(stmt: ast.stmt) -> list[ast.stmt]:
    """The statements among which one stands: its own block of what holds it."""
    for name in ("body", "orelse", "finalbody"):
        found = getattr(stmt.up, name, None)  # type: ignore[attr-defined]
        if isinstance(found, list) and stmt in found:
            return found
    return [stmt]  # of a match


def before(stmt: ast.stmt) -> list[ast.stmt]:
    """The statements before one in its block."""
    around = block(stmt)
    return around[: around.index(stmt)]


def after(stmt: ast.stmt) -> list[ast.stmt]:
    """The statements behind one in its block."""
    around = block(stmt)
    return around[around.index(stmt) + 1 :]


def ancestors(node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
    """(child, parent) from a node up to the module."""
    while getattr(node, "up", None) is not None:
        yield node, node.up  # type: ignore[attr-defined]
        node = node.up  # type: ignore[attr-defined]


def import_before(names: Names, name: str, node: ast.AST) -> ast.stmt | None:
    """The import that binds a name which is used at `node`, where it stands before that in a block
    of the same function around it.
    """
    scope = names.holder(name, node.scope)  # type: ignore[attr-defined]
    bindings = scope.bindings[name] if scope is not None else []
    bound = {
        id(b.node.up if b.value is not None and brought(b.value) else b.node)  # type: ignore[attr-defined]
        for b in bindings
    }
    for child, up in ancestors(node):
        found = [s for s in before(child) if id(s) in bound] if isinstance(child, ast.stmt) else []
        if found and isinstance(found[-1], ast.Import | ast.ImportFrom | ast.Assign):
            return found[-1]
        if scope is None or up is scope.node:
            break
    return None


def only_for_types(node: ast.AST) -> bool:
    """Whether a node is under `if TYPE_CHECKING:`, which never runs."""
    return any(
        isinstance(up, ast.If) and child in up.body and "TYPE_CHECKING" in ast.dump(up.test)
        for child, up in ancestors(node)
    )
