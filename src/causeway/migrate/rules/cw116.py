"""CW116: imports of torch.cuda. Runs last: an import changes when what it brought has changed."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from causeway.migrate import knowledge
from causeway.migrate.module import Module
from causeway.migrate.names import Scope, block
from causeway.migrate.rule import Rule
from causeway.migrate.source import Edit

RULE = Rule(
    code="CW116",
    name="import",
    title="An import from torch.cuda",
    why="What it brings is CUDA's.",
    by_hand="Import the same names from torch.accelerator, torch.amp or torch.",
    before="import torch\nfrom torch.cuda import device_count, synchronize\n\nn = device_count()\n"
    "synchronize\n",
    after="import torch\nfrom torch.accelerator import device_count, synchronize\n\n"
    "n = device_count()\nsynchronize\n",
)


# What takes other arguments than its namesake of torch.cuda, and a module with such names.
_APART = frozenset({
    "torch.amp", "torch.amp.autocast", "torch.amp.GradScaler", "torch.amp.custom_fwd",
    "torch.amp.custom_bwd", "torch.Event", "torch.Stream",
})  # fmt: skip


def run(module: Module) -> None:
    for stmt in module.names.all(ast.Assign):
        _assigned(module, stmt)
    for node in module.imports():
        if any(_concerned(node, alias) for alias in node.names):
            _statement(module, node)


def _assigned(module: Module, stmt: ast.Assign) -> None:
    """The same of a name that is given to one: `autocast = torch.cuda.amp.autocast`."""
    api = knowledge.find(knowledge.canonical(module.resolve(stmt.value)))
    target = stmt.targets[0]
    if api is None or api.to not in _APART or not isinstance(target, ast.Name):
        return
    uses = _uses(module, target.id, target.scope)  # type: ignore[attr-defined]
    if not all(_changes(module, n) for n in (stmt.value, *uses)):
        _take_back(module, [stmt.value, *uses])


def _changes(module: Module, node: ast.AST) -> list[int]:
    """Which of the module's changes a node is in."""
    at = module.source.start(node)
    return [
        i for i, d in enumerate(module.drafts)
        if d.kind == "changed" and d.start <= at < d.end
    ]  # fmt: skip


def _take_back(module: Module, uses: Iterable[ast.AST]) -> None:
    for use in uses:
        for i in _changes(module, use):
            module.take_back(i, "what has the same name elsewhere in the module stays CUDA's")


def _concerned(node: ast.ImportFrom | ast.Import, alias: ast.alias) -> bool:
    api = _meaning(node, alias)
    return api == "torch.cuda" or api.startswith("torch.cuda.")


def _meaning(node: ast.ImportFrom | ast.Import, alias: ast.alias) -> str:
    if isinstance(node, ast.Import):
        return alias.name
    return "." * node.level + f"{node.module or ''}.{alias.name}"


def _statement(module: Module, node: ast.ImportFrom | ast.Import) -> None:
    scope: Scope = node.scope  # type: ignore[union-attr]
    same: list[str] = []  # aliases that stay
    lines: dict[str, list[str]] = {}  # module: its aliases
    changed = False
    for alias in node.names:
        name = alias.asname or alias.name.partition(".")[0]
        if module.homes.get((id(node), name)) in _APART and _concerned(node, alias):
            uses = _uses(module, name, scope)
            if module.kept(node) or not all(_changes(module, use) for use in uses):
                _take_back(module, uses)
                del module.homes[id(node), name]
        written = alias.name + (f" as {alias.asname}" if alias.asname else "")
        home = module.homes.get((id(node), name))
        uses = _uses(module, name, scope)
        left = [u for u in uses if id(u) not in module.gone]
        if alias.name == "*":
            _star(module, node)
            return
        if isinstance(node, ast.Import) and not alias.asname:
            if not _concerned(node, alias):
                same.append(written)
                continue
            # `import torch.cuda.amp` binds torch.
            imported = any(
                b.node is not node and b.kind == "import" for b in scope.bindings.get("torch", [])
            )
            still = any(_means_cuda(module, u) for u in left)
            if still:
                same.append(written)
            else:
                changed = True
                if not imported:
                    same.append("torch")
        elif home and _concerned(node, alias):
            where, _, new = home.rpartition(".")
            bound = new if new == name else f"{new} as {name}"
            if not where:
                same.append(written)
                continue
            lines.setdefault(where, []).append(bound)
            changed = True
        elif not _concerned(node, alias) or left or not uses:
            same.append(written)
        else:
            changed = True
    if not changed:
        if any(_concerned(node, a) for a in node.names):
            module.report(RULE, node, "portable", "what it brings is still used, or is not known",
                          tip="The import itself works on every build of torch.")  # fmt: skip
        return
    _write(module, node, same, lines)


def _write(
    module: Module,
    node: ast.ImportFrom | ast.Import,
    same: list[str],
    lines: dict[str, list[str]],
) -> None:
    source = module.source
    start, end = source.start(node), source.end(node)
    parts = []
    if same and isinstance(node, ast.Import):
        parts.append("import " + ", ".join(same))
    elif same:
        assert isinstance(node, ast.ImportFrom)
        parts.append(f"from {'.' * node.level}{node.module} import {', '.join(same)}")
    parts += [f"from {where} import {', '.join(names)}" for where, names in lines.items()]
    first = source.line_start(start)
    indent = source.slice(first, start)
    if not parts:
        if not _droppable(module, node):
            parts = ["pass"]
        else:
            stop = source.line_end(end)
            newline = len(source.newline) if stop < len(source.data) else 0
            if block(node)[0] is node and not isinstance(node.up, ast.Module):  # type: ignore[union-attr]
                while source.data[stop + newline :].startswith(source.newline.encode()):
                    newline += len(source.newline)
            if comments := source.comments(start, stop):
                module.change(RULE, node, [Edit(start, stop, "  ".join(comments))],
                              "nothing uses it any more")  # fmt: skip
                return
            module.change(RULE, node, [Edit(first, stop + newline, "")], "nothing uses it any more",
                          tip="The names that it brought are written with torch now.")  # fmt: skip
            return
    separator = f"{source.newline}{indent}" if not indent.strip() else "; "
    after = source.slice(end, source.line_end(end)).strip()
    if after.startswith(";"):
        separator = "; "
    if comments := source.comments(start, end):
        parts[0] = "  ".join([parts[0], *comments])
        separator = f"{source.newline}{indent}"
    module.change(RULE, node, [Edit(start, end, separator.join(parts))],
                  "the same names from where they serve every device",
                  tip="The names in the module stay as they are.",
                  follows=bool(lines))  # fmt: skip


def _droppable(module: Module, node: ast.stmt) -> bool:
    """Whether the statement has its lines for itself and is not the only one of its block."""
    source, up = module.source, node.up  # type: ignore[attr-defined]
    start, end = source.start(node), source.end(node)
    before = source.slice(source.line_start(start), start)
    after = source.slice(end, source.line_end(end)).strip()
    if before.strip() or (after and not after.startswith("#")):
        return False
    return isinstance(up, ast.Module) or any(
        other is not node and id(other) not in module.done for other in block(node)
    )


def _uses(module: Module, name: str, scope: Scope) -> list[ast.Name]:
    return [
        node
        for node in module.names.all(ast.Name)
        if node.id == name and module.names.holder(name, node.scope) is scope  # type: ignore[attr-defined]
        and isinstance(node.ctx, ast.Load)
    ]  # fmt: skip


def _means_cuda(module: Module, node: ast.AST) -> bool:
    while isinstance(node.up, ast.Attribute):  # type: ignore[attr-defined]
        node = node.up  # type: ignore[attr-defined]
        if module.resolve(node) == "torch.cuda":
            return True
    return False


def _star(module: Module, node: ast.ImportFrom | ast.Import) -> None:
    assert isinstance(node, ast.ImportFrom)
    where = node.module or ""
    homes: dict[str, list[str]] = {}
    brought = knowledge.exported().get(where, frozenset())
    for name in sorted(module.star_uses & brought):
        api = knowledge.find(f"{where}.{name}")
        if api and api.to:
            place, _, new = api.to.rpartition(".")
            homes.setdefault(place, []).append(new if new == name else f"{new} as {name}")
    if homes and not module.vendor:
        end = module.source.end(node)
        text = "".join(
            f"{module.source.newline}from {place} import {', '.join(names)}"
            for place, names in homes.items()
        )
        module.change(RULE, node, [Edit(end, end, text)],
                      "the names that are used are taken from where they serve every device",
                      tip="They replace what the import with * brought.")  # fmt: skip
