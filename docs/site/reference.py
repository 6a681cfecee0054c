"""The reference pages of the site, from the code: docstrings, and comments of headers.

Both are read as text: a site is built without torch and without a compiler. In docstrings and
comments a name in backticks is code, as in Markdown, so they go into Markdown pages. What this
cannot read is an error, so that nothing is left out.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
HEADERS = {
    "abi": ("The contract: abi.h", "include/causeway/abi.h"),
    "comm": ("Collectives: comm.h", "include/causeway/comm.h"),
    "run": ("The runtime of model files: run.h", "include/causeway/run.h"),
}
PAGES = ("reference/python", *(f"reference/{name}" for name in HEADERS))
# Names of the package that have a page's section each, in the order of a reader's need.
MODULES = ("config", "transfer", "quant", "code", "run")

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


# --- Python ---------------------------------------------------------------------------------------


def _file(module: str) -> Path:
    path = SOURCE / module.replace(".", "/")
    found = path.with_suffix(".py") if path.with_suffix(".py").exists() else path / "__init__.py"
    if not found.exists():
        raise LookupError(f"{module}: no such module in {SOURCE}")
    return found


def _tree(module: str) -> ast.Module:
    return ast.parse(_file(module).read_text())


def _strings(tree: ast.Module, name: str) -> list[str]:
    """The strings of a list such as `__all__`."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return list(ast.literal_eval(node.value))
    return []


def _imports(nodes: Iterable[ast.stmt]) -> Iterator[tuple[str, str, str]]:
    """(name here, module, name there) of `from module import there as here`."""
    for node in nodes:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            yield from _imports(node.body)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            for alias in node.names:
                yield alias.asname or alias.name, node.module, alias.name


def find(module: str, name: str) -> tuple[str, Definition | None]:
    """The module that defines `name`, and its definition; None where it is a module or a value."""
    tree = _tree(module)
    for node in tree.body:
        if isinstance(node, Definition) and node.name == name:
            return module, node
    for here, there, original in _imports(tree.body):
        if here == name and there.startswith("causeway"):
            try:
                _file(f"{there}.{original}")
            except LookupError:
                return find(there, original)
            return f"{there}.{original}", None
    return module, None


def _signature(node: Definition, name: str, *, method: bool = False) -> str:
    if isinstance(node, ast.ClassDef):
        (*init,) = (n for n in node.body if isinstance(n, ast.FunctionDef) and n.name == "__init__")
        if init:
            return f"{name}({_arguments(init[0], method=True)})"
        if any("dataclass" in ast.unparse(d) for d in node.decorator_list):
            fields = [n for n in node.body if isinstance(n, ast.AnnAssign)]
            return f"{name}({', '.join(ast.unparse(field) for field in fields)})"
        return name
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    method = method and not any(ast.unparse(d) == "staticmethod" for d in node.decorator_list)
    return f"{name}({_arguments(node, method=method)}){returns}"


def _arguments(node: ast.FunctionDef | ast.AsyncFunctionDef, *, method: bool) -> str:
    arguments = node.args
    if method:
        first = arguments.posonlyargs or arguments.args
        del first[0]
    return ast.unparse(arguments)


def _directive(kind: str, signature: str, body: str, options: str = "") -> str:
    fence = "::::" if ":::" in body else ":::"
    return f"{fence}{{{kind}}} {signature}\n{options}\n{body}\n{fence}\n"


def _document(node: Definition | ast.Module) -> str:
    text = ast.get_docstring(node) or ""
    # A docstring's first line ends a sentence that others may follow: one paragraph, as it is read.
    return _escaped(text)


def _fields(node: ast.ClassDef, lines: list[str]) -> list[str]:
    """The fields of a dataclass, each with the comment on its line."""
    parts = []
    for field in node.body:
        if isinstance(field, ast.AnnAssign) and not ast.unparse(field.target).startswith("_"):
            _, _, said = lines[(field.end_lineno or 0) - 1][field.end_col_offset :].partition("# ")
            kind = f":type: {ast.unparse(field.annotation)}\n"
            parts.append(
                _directive("py:attribute", ast.unparse(field.target), _escaped(said), kind)
            )
    return parts


def _described(node: Definition, shown: str, fields: list[str] | None = None) -> str:
    """A definition with its members. `fields`: of a class that only Causeway makes, in place of the
    signature.
    """
    module, _, name = shown.rpartition(".")
    place = f":module: {module}\n"  # where names in its types are looked for first
    if isinstance(node, ast.ClassDef):
        exception = any(ast.unparse(base).endswith(("Error", "Exception")) for base in node.bases)
        bases = ", ".join(f"`{ast.unparse(base)}`" for base in node.bases if base)
        body = _document(node) + (f"\n\nBases: {bases}." if exception else "")
        members = [
            _member(n)
            for n in node.body
            if isinstance(n, ast.FunctionDef) and n.name[0] != "_" and ast.get_docstring(n)
        ]
        kind = "py:exception" if exception else "py:class"
        signature = _signature(node, name) if fields is None else name
        return _directive(kind, signature, "\n\n".join([body, *(fields or []), *members]), place)
    return _directive("py:function", _signature(node, name), _document(node), place)


def _member(node: ast.FunctionDef) -> str:
    if any(ast.unparse(d).endswith(("property", "cached_property")) for d in node.decorator_list):
        kind = f":type: {ast.unparse(node.returns)}\n" if node.returns else ""
        return _directive("py:property", node.name, _document(node), kind)
    return _directive("py:method", _signature(node, node.name, method=True), _document(node))


class _Section:
    """The definitions of a page, each once: what functions give is described after them."""

    def __init__(self) -> None:
        self._shown: dict[tuple[str, str], str] = {}

    def name(self, module: str, names: Iterable[str]) -> None:
        """Say that these names are public, before any is described: one may give another."""
        for name in names:
            where, node = find(module, name)
            if node is not None:
                public = module.replace("causeway.redirect", "causeway.transfer")
                self._shown[where, node.name] = f"{public}.{name}"

    def describe(self, module: str, names: Iterable[str]) -> list[str]:
        parts = []
        for name in names:
            where, node = find(module, name)
            if node is None:
                continue
            given = (
                ast.unparse(node.returns)
                if isinstance(node, ast.FunctionDef) and node.returns
                else ""
            )
            here, result = find(where, given) if given.isidentifier() else (where, None)
            new = isinstance(result, ast.ClassDef) and (here, given) not in self._shown
            if isinstance(result, ast.ClassDef) and isinstance(node, ast.FunctionDef):
                shown = self._shown.setdefault((here, given), f"{here}.{given}")
                node.returns = ast.parse(shown, mode="eval").body
            parts.append(_described(node, self._shown[where, node.name]))
            if new and result is not None:
                fields = _fields(result, _file(here).read_text().split("\n"))
                parts.append(_described(result, self._shown[here, given], fields))
        return parts


def public(module: str) -> list[str]:
    """The names that a module offers: `__all__`, else what has a docstring and no underscore."""
    tree = _tree(module)
    return _strings(tree, "__all__") or [
        node.name
        for node in tree.body
        if isinstance(node, Definition) and node.name[0] != "_" and ast.get_docstring(node)
    ]


def python() -> str:
    """The page of the package's public names."""
    names = [name for name in public("causeway") if name != "__version__"]
    names.remove("apex")  # the names of another package: docs/amp.md has them
    modules = {name: find("causeway", name) for name in (*names, *MODULES)}
    errors = [name for name in names if name.endswith("Error")]
    functions = [name for name in names if name not in errors and modules[name][1] is not None]
    missing = set(names) - set(errors) - set(functions) - set(MODULES)
    if missing:
        raise LookupError(f"public names that no section has: {', '.join(sorted(missing))}")
    page = _Section()
    page.name("causeway", [*functions, *errors])
    for name in MODULES:
        page.name(modules[name][0], public(modules[name][0]))
    parts = [
        "# Python",
        "The public names of the package, from their docstrings. The device's module, "
        "`torch.<name>`, has [its own page](../docs/device.md), and so have the "
        "[settings](../docs/settings.md).",
        "## causeway",
        *page.describe("causeway", functions),
        "## Errors",
        _document(_tree("causeway.errors")),
        *page.describe("causeway", errors),
    ]
    for name in MODULES:
        where, _ = modules[name]
        parts += [f"## causeway.{name}", _document(_tree(where))]
        parts += page.describe(where, public(where))
    return "\n\n".join(parts) + "\n"


# --- C headers ------------------------------------------------------------------------------------

_SECTION = re.compile(r"-{4,}\s*(.*?)\s*-{4,}\s*\**\s*(.*)", re.DOTALL)
_COMMENT = re.compile(r"/\*(.*?)\*/", re.DOTALL)
_MACRO = re.compile(
    r"#define (\w+(?:\(.*?\))?) ((?:\\\n|[^\n/]|/(?!\*))+)(?:/\*(.*?)\*/)?", re.DOTALL
)


def _escaped(text: str) -> str:
    """As Markdown would otherwise read: a * or _ that is no mark, outside of backticks."""
    parts = re.split(r"(`[^`]*`)", text)
    for at in range(0, len(parts), 2):
        parts[at] = re.sub(
            r"(\*|<|(?<![A-Za-z0-9])_(?=\w)|(?<=\w)_(?![A-Za-z0-9]))", r"\\\1", parts[at]
        )
    return "".join(parts)


def _comment(text: str) -> str:
    """A comment's text without its stars; its lists stay lists."""
    lines = [re.sub(r"^\s*\*?(?: |$)", "", line).rstrip() for line in text.strip(" *").split("\n")]
    kept: list[str] = []
    for line in lines:
        listed = re.match(r"\s*- ", line)
        if listed and kept and kept[-1] and not re.match(r"\s*(- |  )", kept[-1]):
            kept.append("")
        kept.append(line.lstrip() if listed else line.strip() if kept and not kept[-1] else line)
    return _escaped("\n".join(kept).strip())


def _pieces(text: str) -> Iterator[tuple[str, str]]:
    """("comment" | "blank" | "code", text), a declaration a piece; its own comment is of it."""
    at = 0
    while at < len(text):
        if text[at].isspace():
            end = at + len(re.match(r"\s+", text[at:])[0])  # type: ignore[index]
            if text.count("\n", at, end) > 1:
                yield "blank", ""
            at = end
        elif found := _COMMENT.match(text, at):
            yield "comment", found[1]
            at = found.end()
        elif found := _MACRO.match(text, at):
            yield "macro", found[0]
            at = found.end()
        elif text[at] == "#":
            end = text.find("\n", at)
            yield "directive", text[at:end]
            at = end
        else:
            end = _declared(text, at)
            # A comment that begins on the same line belongs to it.
            trailing = re.compile(r"[ \t]*/\*.*?\*/", re.DOTALL).match(text, end)
            end = trailing.end() if trailing else end
            yield "code", text[at:end]
            at = end


def _declared(text: str, at: int) -> int:
    depth = 0
    for end in range(at, len(text)):
        depth += {"{": 1, "(": 1, "}": -1, ")": -1}.get(text[end], 0)
        if text[end] == ";" and depth == 0:
            return end + 1
    raise ValueError(f"a declaration without an end: {text[at : at + 80]!r}")


def _one_line(code: str) -> str:
    return re.sub(r"\s+", " ", code).strip().rstrip(";")


def _struct(code: str) -> str | None:
    """A struct as a directive with its members; None where it holds a union or is no struct."""
    found = re.match(r"typedef struct (\w+) \{(.*)\} \w+;", code, re.DOTALL)
    if not found or "union" in found[2]:
        return None
    body: list[str] = []
    for kind, piece in _pieces(found[2]):
        if kind == "comment":
            body.append(_comment(piece))
        elif kind == "code":
            declared = _one_line(_COMMENT.sub("", piece))
            said = "\n".join(_comment(text) for text in _COMMENT.findall(piece))
            names, shared = declared, ""
            if several := re.match(r"(\w+) (\w+(?:, \w+)+)$", declared):  # uint32_t a, b
                names, shared = several[2], f"{several[1]} "
            for name in names.split(", ") if shared else [declared]:
                body.append(_directive("c:member", shared + name, said))
    inside = "\n\n".join(body)
    return f"::::{{c:struct}} {found[1]}\n\n{inside}\n::::\n"


def header(title: str, path: Path) -> str:
    """The page of a header: its comments as text, its macros as tables, its structs by member."""
    # What is for C++ and for other systems says nothing of the contract.
    text = re.sub(
        r"^#if(?:def __cplusplus| ).*?^#endif[^\n]*\n",
        "",
        path.read_text(),
        flags=re.DOTALL | re.MULTILINE,
    )
    parts = [f"# {title}"]
    rows: list[tuple[str, str, str]] = []

    def flush() -> None:
        if rows:
            width = 3 if any(row[2] for row in rows) else 2
            head = (
                ["| name | value | meaning |", "| --- | --- | --- |"]
                if width == 3
                else ["| name | value |", "| --- | --- |"]
            )
            parts.append(
                "\n".join([*head, *("| " + " | ".join(row[:width]) + " |" for row in rows)])
            )
            rows.clear()

    guard = path.stem.upper()
    for kind, piece in _pieces(text):
        if kind == "macro":
            found = _MACRO.match(piece)
            assert found
            said = re.sub(r"\s*\n[ *]*", " ", found[3] or "").strip()
            value = re.sub(r"\s*\\\n\s*", " ", found[2]).strip()
            if not found[1].startswith(("CW_EXPORT", f"CAUSEWAY_{guard}")):
                rows.append((f"`{found[1]}`", f"`{value}`", _escaped(said)))
            continue
        if kind == "blank":
            continue
        flush()
        if kind == "comment":
            if section := _SECTION.match(piece.strip()):
                parts.append(f"## {section[1][0].upper()}{section[1][1:]}")
            words = _comment(section[2] if section else piece)
            parts += [words] if words else []
        elif kind == "code":
            said = "\n".join(_comment(words) for words in _COMMENT.findall(piece))
            parts.append(_struct(piece) or _declaration(piece, said))
    flush()
    return "\n\n".join(parts) + "\n"


def _declaration(code: str, said: str) -> str:
    if function := re.match(r"CW_EXPORT (.*\w\(.*\))$", _one_line(_COMMENT.sub("", code))):
        return _directive("c:function", function[1], said)
    return f"```c\n{code.strip()}\n```"


def pages() -> dict[str, str]:
    """Every page of the reference, by its path in the site without the ending."""
    made = {"reference/python": python()}
    for name, (title, path) in HEADERS.items():
        made[f"reference/{name}"] = header(title, ROOT / path)
    return made
