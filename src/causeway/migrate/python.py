"""The converter of Python modules: parse, let the rules look, apply their edits, check it."""

from __future__ import annotations

import ast
import re
import sys
import warnings
from collections.abc import Callable

from causeway.compat import System
from causeway.migrate import advice, knowledge, systems, unparsable, visible, whole
from causeway.migrate.finding import OUR_MISTAKE, FileInput, FileResult, Finding
from causeway.migrate.module import Draft, Module
from causeway.migrate.names import (
    FUNCTIONS,
    after,
    ancestors,
    brought,
    import_before,
    only_for_types,
)
from causeway.migrate.own import NOTHING, Own
from causeway.migrate.rules import RUNS, cw118
from causeway.migrate.settings import Settings
from causeway.migrate.source import Edit, Source, Undecodable, apply, decode
from causeway.migrate.systems import back, read

# A module in which none of this occurs has nothing that a rule looks for; a test compares the list
# with the rules. It is asked of bytes, before anything is decoded or parsed.
_PACKAGES = {p.only or p.name for p in knowledge.packages().values()}
_CONCERNS = re.compile(
    rb"cuda|CUDA|nccl|NCCL|nvidia|nvml|cudnn|CUBLAS|DataParallel|data_parallel|"
    rb"torch\.ops\b|import ops\b|\bmps\b|\bxpu\b|autocast_|"
    + "|".join(map(re.escape, sorted(_PACKAGES))).encode()
)


def convert(file: FileInput, settings: Settings) -> FileResult:
    """Convert one module. What cannot be decoded or parsed comes back as it is, with the reason."""
    loads = b"torch" in file.data and b".load(" in file.data
    concerns = loads or any(p.search(file.data) for p in (_CONCERNS, systems.words()))
    concerns = concerns or (file.chosen_late and b"current_accelerator" in file.data)
    if not concerns and not advice.concerns(file.data):
        return FileResult(file.path, "unchanged", "nothing that concerns CUDA")
    try:
        text, encoding = decode(file.data)
    except Undecodable as error:
        return FileResult(file.path, "unparsable", f"cannot be decoded: {error}")
    result = FileResult(file.path, "unchanged", before=text, after=text, encoding=encoding)
    try:
        after, findings = convert_source(
            text,
            settings,
            path=file.path,
            own=file.own,
            own_packages=file.own_packages,
            flags=file.flags,
            extensions=file.extensions,
            chosen_late=file.chosen_late,
            hints_only=not concerns,
        )
    except (SyntaxError, ValueError) as error:
        result.status = "unparsable"
        result.reason = unparsable.why(error, text)
        return result
    except RecursionError:
        result.status, result.reason = "unparsable", "nested too deep for Python's parser"
        return result
    except AssertionError as error:
        # A mistake of this converter must not cost the user the rest of the tree.
        result.status, result.reason = "skipped", f"{OUR_MISTAKE}: {error}"
        return result
    result.after, result.findings = after, findings
    if after != text:
        result.status = "converted"
    return result


def convert_source(
    text: str,
    settings: Settings,
    *,
    path: str = "<source>",
    own: Own = NOTHING,
    own_packages: frozenset[str] = frozenset(),
    flags: frozenset[str] = frozenset(),
    extensions: frozenset[str] = frozenset(),
    chosen_late: bool = False,
    hints_only: bool = False,
) -> tuple[str, list[Finding]]:
    """The converted text of a module, and what was found. `hints_only` leaves the rules out: there
    is nothing for them. Raises SyntaxError where it does not parse.
    """

    def make(text: str) -> Module:
        source = Source(text)
        tree = _parse(text)
        return Module(
            path, source, tree, settings, own, own_packages, flags, extensions, chosen_late
        )

    found = [] if hints_only else systems.concerned(text, settings.target)
    if found and not own.several_vendors and path not in own.of_vendors:
        module = _of_systems(text, found, make)
    else:
        module = make(text)
        if found:  # each vendor has its own code in that tree
            module.several_vendors = read.read(make(text), found, frozenset()).by_vendor
        module = _ruled(module, hints_only=hints_only)
    after = apply(module.source, module.edits)
    if after != text:
        try:
            _check(after)
        except SyntaxError as error:
            raise AssertionError(f"line {error.lineno} would not parse: {error.msg}") from None
    return after, module.findings()


def _ruled(module: Module, *, hints_only: bool = False) -> Module:
    """A module that all rules have been through."""
    _relocate(module)
    for run in () if hints_only else RUNS:
        run(module)
    whole.run(module)
    advice.run(module)
    module.spare()
    module.share()
    _imports(module)
    module.settle()
    return module


def _of_systems(text: str, found: list[System], make: Callable[[str], Module]) -> Module:
    """The same of code for other systems' packages, in two steps; see systems/__init__.py. What the
    rules leave keeps its name, and the import that brings it, so it is read again without.
    """
    source = Source(text)
    stay: frozenset[int] = frozenset()
    kept: list[Draft] = []  # of what was left
    while True:
        reading = read.read(make(text), found, stay)
        module = make(back.between(source, reading.pieces))
        module.several_vendors = reading.by_vendor
        left = back.join(_ruled(module), source, reading.pieces, found)
        starts = {piece.start for piece in left} - stay
        starts |= {  # a question that would be for CUDA alone
            low for low, high in reading.kept_tests
            if not any(e.start < high and low < e.end for e in module.edits)
        }  # fmt: skip
        if not starts:
            module.drafts += [*reading.drafts, *kept]
            return module
        kept += [
            d for d in module.drafts
            if d.kind != "changed" and any(d.start <= s < d.end for s in starts)
        ]  # fmt: skip
        stay |= starts


def _parse(text: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes are the author's
        try:
            return ast.parse(text)
        except SyntaxError:
            older = cw118.parse(text)
            if older is None:
                raise
            return older


def _check(text: str) -> None:
    """Compile a text, from the text: to make a tree of objects takes most of the time."""
    # Cells of a notebook may await.
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compile(text, "<converted>", "exec", flags, dont_inherit=True)


def _relocate(module: Module) -> None:
    """Python 3.11 places what is inside of f-strings wrongly where they span lines or are joined;
    find the true places, or take the nodes from the rules.
    """
    for joined in module.names.all(ast.JoinedStr):
        text = module.text(joined)
        if "cuda" not in text and "nccl" not in text:
            continue
        for value in joined.values:
            if not isinstance(value, ast.FormattedValue):
                continue
            wanted = ast.dump(value.value)
            try:
                right = ast.dump(ast.parse(f"({module.text(value.value)})", mode="eval").body)
            except (SyntaxError, ValueError):
                right = ""
            if right != wanted and not _search(module, joined, value.value, wanted):
                for node in ast.walk(value.value):
                    module.done.add(id(node))


def _search(module: Module, joined: ast.JoinedStr, node: ast.expr, wanted: str) -> bool:
    """Give `node` the place of the one expression in the f-string that reads like it."""
    source = module.source
    start, end = source.start(joined), source.end(joined)
    data = source.data[start:end]
    found = []
    for brace in re.finditer(rb"\{", data):
        begin = brace.end()
        for stop in re.finditer(rb"[}!:=]", data[begin:]):
            piece = data[begin : begin + stop.start()]
            try:
                tree = ast.parse(b"(" + piece + b")", mode="eval").body
            except (SyntaxError, ValueError):
                continue
            if ast.dump(tree) == wanted:
                found.append((begin, tree))
                break
    if len(found) != 1:
        return False
    begin, tree = found[0]
    line, _ = source.place(start + begin)
    shift = start + begin - source.starts[line - 1]
    for old, new in zip(ast.walk(node), ast.walk(tree), strict=True):
        if not hasattr(new, "lineno"):
            continue
        for place in ("lineno", "end_lineno"):
            setattr(old, place, getattr(new, place) + line - 1)
        for place, on in (("col_offset", "lineno"), ("end_col_offset", "end_lineno")):
            on_first = getattr(new, on) == 1
            setattr(old, place, getattr(new, place) + (shift - 1 if on_first else 0))
    return True


def _imports(module: Module) -> None:
    """Insert the lines that the rules' spellings need: `import torch`, a vendor's module, and the
    variable that holds the device.
    """
    target = knowledge.target(module.vendor) if module.vendor else None
    lines: list[str] = []
    vendor_line = ""
    if target and module.target_used and target.module:
        known_already = target.module.partition(".")[0] in module.names.used
        vendor_line = "" if known_already else f"import {target.module}"
    helper = bool(module.helper_wanted) and module.helper_line is None
    if not (module.torch_wanted or vendor_line or helper):
        return
    if helper and module.names.lookup("torch", module.names.module) != "torch":
        known = next(
            (n for n in module.names.module.bindings
             if module.names.lookup(n, module.names.module) == "torch"), ""
        )  # fmt: skip
    else:
        known = "torch"
    if helper and not module.torch_wanted and (places := _own_imports(module)):
        for stmt, name in places:
            _beside(module, stmt, f"{module.helper_name} = {module.question(name)}")
        helper = False
    if not (module.torch_wanted or vendor_line or helper):
        return
    at_run_time = [
        n
        for n in (*module.imports(), *module.names.all(ast.Assign))
        if n.scope is module.names.module and not only_for_types(n)  # type: ignore[union-attr]
    ]
    if helper and not (known and any(_binds(n, known) for n in at_run_time)):
        module.torch_wanted, known = True, "torch"
    body = module.tree.body
    first_import = _first_statement(module)
    torch_import = next((s for s in body if _imports_torch(s)), None)
    source = module.source
    newline = source.newline
    conditional = _conditional_imports(module, known) if helper else []
    early = bool(conditional) and _asks_before(module, conditional)
    if early or (module.torch_wanted and not any(_binds(n, "torch") for n in at_run_time)):
        lines.append("import torch")
        torch_import = None
    if vendor_line:
        if torch_import is not None:
            end = source.end(torch_import)
            module.edits.append(Edit(end, end, newline + vendor_line))
        else:
            lines.append(vendor_line)
    if lines:
        below = _after_imports(module, torch_import, known) if helper else len(source.data)
        at = _beside_imports(module, first_import, below or 0)
        gap = (
            newline if at == len(source.data) and source.data and source.data[-1:] != b"\n" else ""
        )
        module.edits.append(Edit(at, at, gap + newline.join(lines) + newline))
    if helper:
        text = f"{module.helper_name} = {module.question(known)}"
        if conditional and not early:
            for stmt in conditional:
                _beside(module, stmt, text)
            return
        after = _after_imports(module, torch_import, known)
        if after is not None:
            for edit in sorted(module.edits, reverse=True):  # imports that went
                if edit.start < after < edit.end:
                    after = edit.start - len(newline)
        if after is None or after <= 0:
            module.edits.append(Edit(first_import, first_import, newline + text + newline * 2))
        else:
            gap = "; " if _followed(source, after) else newline * 2
            module.edits.append(Edit(after, after, gap + text))


def _beside(module: Module, stmt: ast.stmt, text: str) -> None:
    """Write a line below a statement."""
    source, at = module.source, module.source.end(stmt)
    indent = source.slice(source.line_start(source.start(stmt)), source.start(stmt))
    at = at if _followed(source, at) else source.line_end(at)
    module.edits.append(Edit(at, at, f"{source.newline}{indent}{text}"))


def _own_imports(module: Module) -> list[tuple[ast.stmt, str]]:
    """Where functions import torch themselves, each with torch's name there, if the module does
    not, and no other place needs the device: the module stays one that does not load torch.
    """
    if module.torch_at_top or module.names.stars:
        return []
    found: dict[int, tuple[ast.stmt, str]] = {}
    for node in module.helper_wanted:
        name = module.torch(node)
        stmt = import_before(module.names, name, node)
        if stmt is None or not _whole_line(module, stmt):
            return []
        for following in after(stmt):
            if not isinstance(following, ast.Import | ast.ImportFrom):
                break
            stmt = following
        found[id(stmt)] = (stmt, name)
    return list(found.values())


def _whole_line(module: Module, stmt: ast.AST) -> bool:
    start = module.source.start(stmt)
    return not module.source.slice(module.source.line_start(start), start).strip()


def _conditional_imports(module: Module, known: str) -> list[ast.stmt]:
    """Where torch is imported under a condition alone, `try: import torch`, since the device can
    only be asked there: of each such import the last of the imports in a row.
    """
    if module.torch_wanted or any(_binds(stmt, known) for stmt in module.tree.body):
        return []
    found: list[ast.stmt] = []
    for node in module.imports():
        scope = node.scope  # type: ignore[union-attr]
        if scope is module.names.module and _binds(node, known) and not only_for_types(node):
            stmt: ast.stmt = node
            for following in after(node):
                if not isinstance(following, ast.Import | ast.ImportFrom):
                    break
                stmt = following
            start = module.source.start(stmt)
            before = module.source.slice(module.source.line_start(start), start)
            found += [] if before.strip() else [stmt]
    return found


def _asks_before(module: Module, conditional: list[ast.stmt]) -> bool:
    """Whether a block that imports torch late needs the device before that:
    `if __name__ == "__main__": model.cuda(); import torch`.
    """
    first = min(map(module.source.start, conditional))
    blocks = [n.up for n in conditional]  # type: ignore[attr-defined]
    return all(isinstance(up, ast.If) for up in blocks) and any(
        module.source.start(node) < first
        and any(module.within(node, up) for up in blocks)
        and not any(isinstance(up, FUNCTIONS) for _, up in ancestors(node))
        for node in module.helper_wanted
    )


def _first_statement(module: Module) -> int:
    """Where a first import may stand: after the docstring and the imports from the future."""
    for stmt in module.tree.body:
        doc = isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Constant)
        future = isinstance(stmt, ast.ImportFrom) and stmt.module == "__future__"
        # A notebook's `%pip install`, which may bring torch, and the mark of its next cell.
        hidden = isinstance(stmt, ast.Expr) and getattr(stmt.value, "id", "")[:11] == "__causeway_"
        if not doc and not future and not hidden:
            decorators = getattr(stmt, "decorator_list", [])
            first = min([stmt, *decorators], key=lambda n: n.lineno)
            return module.source.line_start(module.source.start(first))
    return len(module.source.data)


def _beside_imports(module: Module, first: int, below: int) -> int:
    """Where a new import stands among those that open the module: behind the standard library's, if
    that is not behind what the line at `below` needs.
    """
    source, at = module.source, first
    for stmt in module.tree.body:
        start = source.line_start(source.start(stmt))
        if start < first:
            continue
        if not isinstance(stmt, ast.Import | ast.ImportFrom):
            return at if at < below else first
        heads = (
            {a.name for a in stmt.names} if isinstance(stmt, ast.Import) else {stmt.module or ""}
        )
        own = isinstance(stmt, ast.ImportFrom) and stmt.level
        if own or not {h.partition(".")[0] for h in heads} <= sys.stdlib_module_names:
            return start if source.slice(start, source.start(stmt)).strip() == "" else first
        end = source.end(stmt)
        at = source.line_end(end) + len(source.newline)
        if _followed(source, end) or at > len(source.data):
            return first
    return at if at < below else first


def _imports_torch(stmt: ast.stmt) -> bool:
    return isinstance(stmt, ast.Import) and any(
        a.name == "torch" or (a.name.startswith("torch.") and not a.asname) for a in stmt.names
    )


def _after_imports(module: Module, torch_import: ast.stmt | None, known: str) -> int | None:
    """The end of the last import that comes before anything that may need the device."""
    wanted = {id(top) for node in module.helper_wanted if (top := _top(node)) is not None}
    last: ast.stmt | None = None
    seen_torch = torch_import is None and "torch" not in module.names.module.bindings
    for stmt in module.tree.body:
        if id(stmt) in wanted or isinstance(
            stmt, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
        ):
            break
        if isinstance(stmt, ast.Import | ast.ImportFrom):
            last = stmt
            seen_torch = seen_torch or _binds(stmt, known)
        elif visible.sets_at_import(stmt):
            last = stmt  # to ask for the device starts CUDA's driver, which reads it once
        elif isinstance(stmt, ast.Try | ast.If | ast.With) and any(
            isinstance(n, ast.Import | ast.ImportFrom) for n in ast.walk(stmt)
        ):
            last = stmt
            seen_torch = seen_torch or any(_binds(n, known) for n in ast.walk(stmt))
        elif isinstance(stmt, ast.For | ast.While):
            break
    if not seen_torch:
        for stmt in module.tree.body:  # torch comes late; so does the helper
            if _binds(stmt, known):
                last = stmt
                for following in after(stmt):  # behind the imports that stand with it
                    between = module.source.slice(
                        module.source.end(last), module.source.start(following)
                    )
                    imports = isinstance(following, ast.Import | ast.ImportFrom)
                    if not imports or between.strip() or between.count("\n") > 1:
                        break
                    last = following
                break
    if last is None:
        return None
    source = module.source
    end = source.end(last)
    return end if _followed(source, end) else source.line_end(end)


def _followed(source: Source, end: int) -> bool:
    """Whether another statement follows on the line."""
    return source.slice(end, source.line_end(end)).strip().startswith(";")


def _binds(node: ast.AST, name: str) -> bool:
    """Whether a statement imports something as `name`."""
    if isinstance(node, ast.Import):
        return any((a.asname or a.name.partition(".")[0]) == name for a in node.names)
    if isinstance(node, ast.Assign):  # torch = pytest.importorskip("torch")
        named = any(getattr(t, "id", "") == name for t in node.targets)
        return named and brought(node.value) is not None
    return isinstance(node, ast.ImportFrom) and any(
        a.name == "*" or (a.asname or a.name) == name for a in node.names
    )


def _top(node: ast.AST) -> ast.AST | None:
    while getattr(node, "up", None) is not None and not isinstance(node.up, ast.Module):  # type: ignore[attr-defined]
        node = node.up  # type: ignore[attr-defined]
    return node
