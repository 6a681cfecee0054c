"""What is said beside a question about CUDA: a label, a message, a comment that names CUDA.

A question whose answer is shown by the name of CUDA stays one about CUDA.
"""

from __future__ import annotations

import ast
import re

from causeway.migrate.module import Module
from causeway.migrate.names import (
    FUNCTIONS,
    ancestors,
    called,
    statement,
)

_CUDA = re.compile(r"cuda", re.I)
_SHOWS = re.compile(r"print|log|info|debug|warn|write|echo|message", re.I)
_NVIDIA = re.compile(r"nvidia", re.I)
DEVICES = re.compile(r"(?:cuda|mps|xpu|cpu|gpu)(?::\d+)?")


def is_label(module: Module, node: ast.AST) -> bool:
    """Whether a value is shown with a text that says "CUDA": `print("CUDA:", is_available())`,
    `f"CUDA available: {…}"`, `{"cuda_available": …}`.
    """
    up = node.up  # type: ignore[attr-defined]
    if isinstance(up, ast.Call) and getattr(up.func, "id", "") in ("bool", "int", "str"):
        return len(up.args) == 1 and is_label(module, up)
    if isinstance(up, ast.FormattedValue):
        parts = up.up.values  # type: ignore[attr-defined]
        before = parts[parts.index(up) - 1] if parts.index(up) else None
        return _says_cuda(before)
    if isinstance(up, ast.Call) and getattr(up.func, "attr", "") == "format":
        text = up.func.value  # type: ignore[attr-defined]
        shown = str(getattr(text, "value", "")).lower()
        return len(up.args) == 1 and _says_cuda(text) and "avail" in shown
    if isinstance(up, ast.Dict):
        key = up.keys[up.values.index(node)] if node in up.values else None
        says = str(getattr(key, "value", "")).lower()
        return "avail" in says and (_says_cuda(key) or _of_build(module, up))
    if isinstance(up, ast.Call) and node in up.args and up.args.index(node):
        name = called(up)
        before = up.args[up.args.index(node) - 1]
        if isinstance(before, ast.Call) and len(before.args) == 1:  # a translated text
            before = before.args[0]
        return bool(_SHOWS.search(name)) and _says_cuda(before)
    return False


def _of_build(module: Module, shown: ast.Dict) -> bool:
    """Whether a dictionary says which CUDA torch was built for: `{"build": torch.version.cuda}`."""
    return any(module.resolve(value) == "torch.version.cuda" for value in shown.values)


def is_count_of_cuda(module: Module, call: ast.Call) -> bool:
    """Whether a number of devices is shown by a key that says "CUDA", beside what torch was built
    for: `{"torch_cuda": torch.version.cuda, "cuda_device_count": torch.cuda.device_count()}`.
    """
    value, up = call, call.up  # type: ignore[attr-defined]
    if isinstance(up, ast.Call) and getattr(up.func, "id", "") in ("int", "str"):
        value, up = up, up.up  # type: ignore[attr-defined]
    if not isinstance(up, ast.Dict) or value not in up.values:
        return False
    return _says_cuda(up.keys[up.values.index(value)]) and _of_build(module, up)


def named_label(module: Module, call: ast.Call) -> bool:
    """The same of a question that has a name in its function: `there = torch.cuda.is_available()`,
    `info["CUDA available"] = there`.
    """
    stmt = call.up  # type: ignore[attr-defined]
    target = stmt.targets[0] if isinstance(stmt, ast.Assign) else None
    if isinstance(target, ast.Subscript):  # info["CUDA available"] = torch.cuda.is_available()
        key = str(getattr(target.slice, "value", ""))
        return _says_cuda(target.slice) and "avail" in key.lower()
    if not isinstance(target, ast.Name):
        return False
    held = module.names.holder(target.id, target.scope)  # type: ignore[attr-defined]
    if any(
        name.id == target.id
        and isinstance(name.ctx, ast.Load)
        and _decides(name)
        and module.names.holder(name.id, name.scope) is held  # type: ignore[attr-defined]
        for name in module.names.all(ast.Name)
    ):
        return False  # what it chooses is put on the device
    if any(_shows_named(show, target.id) for show in module.names.all(ast.Call)):
        return True
    if any(
        name.id == target.id
        and isinstance(name.up, ast.FormattedValue)  # type: ignore[attr-defined]
        and is_label(module, name)
        and module.names.holder(name.id, name.scope) is held  # type: ignore[attr-defined]
        for name in module.names.all(ast.Name)
    ):
        return True
    return any(
        isinstance(shown.value, ast.Name)
        and shown.value.id == target.id
        and isinstance(place := shown.targets[0], ast.Subscript)
        and _says_cuda(place.slice)
        for shown in module.names.all(ast.Assign)
    )


def _decides(name: ast.Name) -> bool:
    """Whether a name chooses a device, and is not only shown."""
    for child, up in ancestors(name):
        if isinstance(up, ast.If | ast.IfExp) and up.test is child:
            body = up.body if isinstance(up.body, list) else [up.body]
            return any(_puts(n) for stmt in body for n in ast.walk(stmt))
        if not isinstance(up, ast.BoolOp | ast.UnaryOp | ast.Compare):
            return False
    return False


def _puts(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and DEVICES.fullmatch(node.value) is not None
    func = node.func if isinstance(node, ast.Call) else None
    return isinstance(func, ast.Attribute) and func.attr in ("cuda", "to")


def _shows_named(call: ast.Call, name: str) -> bool:
    """Whether a call shows a name by a text that says CUDA: `log("cuda_available=%s", name)`."""
    shows = called(call)
    given = any(isinstance(arg, ast.Name) and arg.id == name for arg in call.args[1:])
    return given and bool(_SHOWS.search(shows)) and _says_cuda(call.args[0]) and (
        "avail" in str(getattr(call.args[0], "value", "")).lower()
    )  # fmt: skip


def _says_cuda(node: ast.AST | None) -> bool:
    if isinstance(node, ast.JoinedStr):
        node = node.values[-1]
    says = node.value if isinstance(node, ast.Constant) else None
    return isinstance(says, str) and _CUDA.search(says) is not None


def says_nvidia(node: ast.AST) -> bool:
    """Whether an answer gets a name that says NVIDIA: `IS_NVIDIA = device == "cuda"`."""
    stmt = statement(node)
    targets = stmt.targets if isinstance(stmt, ast.Assign) else []
    names = (getattr(t, "id", getattr(t, "attr", "")) for t in targets)
    return any(_NVIDIA.search(name) for name in names)


_TOOL = re.compile(r"(?:^|/)nvidia-smi(?:\s|$)")
_REQUIRES = re.compile(r"(?:^|_)(?:requires?|needs?)_cuda$")
_ALONE = re.compile(
    r"#.*(?:\bnon-?cuda\b|\b(?:false|off|not)\b.{0,20}\bmps\b"
    r"|\bonly (?:\w+ )?(?:on|for|supported (?:on|by)) cuda\b|\bcuda[- ]only\b)",
    re.I,
)
_THERE = re.compile(r"\bCUDA\b.{0,12}\bavail", re.I)


def shows_cuda(module: Module, body: list[ast.stmt]) -> bool:
    """Whether a branch shows that CUDA is there, `print("CUDA is available")`, puts nothing on a
    device, and gives no answer by which others may.
    """
    parts = [s for stmt in body for s in (stmt.body if isinstance(stmt, ast.For) else [stmt])]
    calls = [s.value for s in parts if isinstance(s, ast.Expr) and isinstance(s.value, ast.Call)]
    shown = [c for c in calls if _SHOWS.search(called(c))]
    said = any(
        _THERE.search(str(n.value))
        for c in shown
        for n in ast.walk(c)
        if isinstance(n, ast.Constant)
    )
    return said and not any(
        getattr(n, "attr", "") in ("to", "device") or getattr(n, "value", "") == "cuda"
        or (isinstance(n, ast.Attribute) and n.attr == "cuda" and not module.resolve(n))
        or (isinstance(n, ast.Return) and n.value is not None)
        for stmt in body for n in ast.walk(stmt)
    )  # fmt: skip


_REQUIRING = re.compile(r"#.*\b(?:requir(?:es?|ing)|needs?|needing) (?:an? )?cuda\b", re.I)


def asks_nvidia(module: Module, node: ast.AST) -> bool:
    """Whether code asks NVIDIA's driver: by pynvml, by its tool `nvidia-smi`, or by a function of
    the module that does; or names "CUDA" as what it chose.
    """
    for inner in ast.walk(node):
        if isinstance(inner, ast.Assign | ast.Return) and inner.value is not None and (
            getattr(inner.value, "value", "") == "CUDA" or module.own_member(inner.value)
        ):  # fmt: skip
            return True
        if isinstance(inner, ast.Constant) and _TOOL.search(str(inner.value)):
            return True
        if isinstance(inner, ast.Call):
            if module.resolve(inner.func).startswith(("pynvml.", "gpustat.")):
                return True
            if "nvlink" in called(inner).lower():
                return True
            if isinstance(inner.func, ast.Name) and _starts_tool(module, inner.func):
                return True
    return False


def _starts_tool(module: Module, name: ast.Name) -> bool:
    return any(
        isinstance(n, ast.Constant) and _TOOL.search(str(n.value)) is not None
        for b in module.names.bindings(name) if isinstance(b.node, FUNCTIONS)
        for n in ast.walk(b.node)
    )  # fmt: skip


_ONLY = re.compile(
    r"""\bonly[\w\s'"+\\-]{0,60}\b(?:on|with|for|supports?)[\s'"+\\]+(?:the[\s]+)?"""
    r"cuda(?! devices)\b",
    re.I,
)


def says_only_cuda(module: Module, message: ast.AST) -> bool:
    """Whether a message says that what follows is for CUDA alone: "only support cuda inputs"."""
    return _ONLY.search(module.text(message)) is not None


def says_cuda_alone(module: Module, node: ast.If) -> bool:
    """Whether a comment in a branch says that it is about CUDA alone: `# not on non-CUDA`."""
    start, end = module.source.start(node), module.source.end(node)
    text = module.source.slice(start, end)
    line = module.source.line_start(start)
    above = module.source.slice(0, line).rstrip().rpartition("\n")[2].strip()
    if above.startswith("#") and (_ALONE.search(above) or _REQUIRING.search(above)):
        return True
    return len(text) < _NEAR and _ALONE.search(text) is not None


def noted_cuda_alone(module: Module, stmt: ast.stmt) -> bool:
    """Whether a comment on a simple statement, or above it, says that it is for CUDA alone:
    `use_amp = torch.cuda.is_available()  # only for CUDA, not MPS`.
    """
    source = module.source
    if (
        isinstance(stmt, ast.If | ast.For | ast.While | ast.With | ast.Try)
        or "#" not in source.text
    ):
        return False
    start, end = source.start(stmt), source.end(stmt)
    behind = source.slice(end, source.line_end(end))
    above = source.slice(0, source.line_start(start)).rstrip().rpartition("\n")[2].strip()
    return _ALONE.match(behind.strip()) is not None or _ALONE.match(above) is not None


_NEAR = 2000  # bytes; a comment in a longer branch is about a part of it


def in_requirement(node: ast.AST) -> bool:
    """Whether it is in a function that tests use to require CUDA, `def requires_cuda():`, or beside
    an argument that does: `if require_cuda and not torch.cuda.is_available(): raise`.
    """
    return any(
        (isinstance(up, FUNCTIONS) and _REQUIRES.search(up.name) is not None)
        or (
            isinstance(up, ast.BoolOp)
            and isinstance(up.op, ast.And)
            and any(_REQUIRES.search(getattr(v, "id", getattr(v, "attr", ""))) for v in up.values)
        )
        for _, up in ancestors(node)
    )
