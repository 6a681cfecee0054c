"""What stands beside a question about CUDA, and shows that it is not about any accelerator.

A package for CUDA alone in the same condition or behind it, the question for another vendor's
device, a message that says "CUDA", a function for CUDA graphs.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from causeway.migrate.module import Module
from causeway.migrate.names import FUNCTIONS, after, ancestors

# Packages whose functions take CUDA's tensors. Triton is none: it serves several devices.
_PACKAGES = frozenset({
    "bitsandbytes", "causal_conv1d", "cupy", "flash_attn", "flashinfer", "mamba_ssm", "nvdiffrast",
    "spconv", "tinycudann", "transformer_engine", "xformers",
})  # fmt: skip
_PACKAGE = re.compile(
    r"flash_?attn|xformers|bitsandbytes|(?<![a-z])bnb(?![a-z])|flashinfer|transformer_engine"
    r"|causal_conv1d|cupy|(?<![a-z])apex(?![a-z])",
    re.I,
)
_OTHERS = "mps|xpu|npu|mlu|hpu|musa|gcu|sdaa"
_OTHER = re.compile(
    rf"\b(?:{_OTHERS})\.is_available\(|\bis_(?:torch_)?(?:{_OTHERS})_available\("
    rf"|\b(?:\w+_)?(?:{_OTHERS})_AVAILABLE\b",
    re.I,
)
_GRAPHS = re.compile(r"cuda_?graph", re.I)
_CUDA = re.compile(r"cuda", re.I)
_SHOWS = re.compile(r"print|log|info|debug|warn|write|echo|message", re.I)
_SWITCH = re.compile(r"(?:\w+_)?cuda")


def of_cuda(module: Module, node: ast.AST) -> bool:
    """Whether what stands around a question makes it one for CUDA."""
    return (
        _condition(module, node)
        or any(_uses_package(module, part) for part in _behind(node))
        or of_graphs(node)
    )


def of_graphs(node: ast.AST) -> bool:
    """Whether it is in a function for CUDA graphs, by its name."""
    return any(
        isinstance(up, FUNCTIONS) and _GRAPHS.search(up.name) is not None
        for _, up in ancestors(node)
    )


def beside_package(module: Module, node: ast.AST, region: Iterable[ast.AST]) -> bool:
    """Whether the condition of a question names a package for CUDA alone, or all that it decides
    on is code with such a package.
    """
    return _condition(module, node) or any(_uses_package(module, part) for part in region)


def _condition(module: Module, node: ast.AST) -> bool:
    for child, up in ancestors(node):
        if isinstance(up, ast.stmt):
            return False
        if isinstance(up, ast.BoolOp):
            for value in up.values:
                if value is not child and _PACKAGE.search(module.text(value)):
                    return True
    return False


def _behind(node: ast.AST) -> Iterator[ast.AST]:
    """What a question decides on: the branch, or what stands behind a branch that leaves and an
    assertion.
    """
    for child, up in ancestors(node):
        if isinstance(up, ast.IfExp) and up.test is child:
            yield from (up.body, up.orelse)
        elif isinstance(up, ast.If) and up.test is child:
            yield from (*up.body, *up.orelse)
            if isinstance(up.body[-1], ast.Return | ast.Raise | ast.Continue):
                yield from after(up)
        elif isinstance(up, ast.Assert) and up.test is child:
            yield from after(up)
        if isinstance(up, ast.stmt):
            return


def _uses_package(module: Module, part: ast.AST) -> bool:
    for inner in ast.walk(part):
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Load):
            bound = module.names.bindings(inner)  # also where the package may be missing: None
            brought = {b.qualified.partition(".")[0] for b in bound if b.kind == "import"}
            if brought & _PACKAGES - module.own_packages:
                return True
    return False


def asks_another(module: Module, call: ast.AST) -> bool:
    """Whether the same condition asks for another vendor's device where there is no CUDA:
    `not torch.cuda.is_available() and torch.backends.mps.is_available()`, or by other terms:
    `torch.cuda.is_available() or (is_torch_xpu_available() and new_enough)`.
    """
    for child, up in ancestors(call):
        if isinstance(up, ast.stmt):
            return False
        if not isinstance(up, ast.BoolOp):
            continue
        denied = isinstance(child, ast.UnaryOp) and isinstance(child.op, ast.Not)
        for value in up.values:
            if value is child or not _OTHER.search(module.text(value)):
                continue
            positive = not (isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.Not))
            if isinstance(up.op, ast.And) and denied and positive:
                return True
            if isinstance(up.op, ast.Or) and not denied and isinstance(value, ast.BoolOp):
                return True
    return False


def is_label(module: Module, node: ast.AST) -> bool:
    """Whether a value is shown with a text that says "CUDA": `print("CUDA:", is_available())`,
    `f"CUDA available: {…}"`, `{"cuda_available": …}`.
    """
    up = node.up  # type: ignore[attr-defined]
    if isinstance(up, ast.FormattedValue):
        parts = up.up.values  # type: ignore[attr-defined]
        before = parts[parts.index(up) - 1] if parts.index(up) else None
        return _says_cuda(before)
    if isinstance(up, ast.Dict):
        key = up.keys[up.values.index(node)] if node in up.values else None
        return _says_cuda(key) and "avail" in str(getattr(key, "value", "")).lower()
    if isinstance(up, ast.Call) and node in up.args and up.args.index(node):
        name = up.func.attr if isinstance(up.func, ast.Attribute) else getattr(up.func, "id", "")
        before = up.args[up.args.index(node) - 1]
        if isinstance(before, ast.Call) and len(before.args) == 1:  # a translated text
            before = before.args[0]
        return bool(_SHOWS.search(name)) and _says_cuda(before)
    return False


def _says_cuda(node: ast.AST | None) -> bool:
    if isinstance(node, ast.JoinedStr):
        node = node.values[-1]
    says = node.value if isinstance(node, ast.Constant) else None
    return isinstance(says, str) and _CUDA.search(says) is not None


def is_switch_of_others(module: Module, node: ast.AST) -> bool:
    """Whether a value is an argument `cuda=` of a library that is neither torch nor the tree's."""
    up = node.up  # type: ignore[attr-defined]
    if not (isinstance(up, ast.keyword) and _SWITCH.fullmatch(up.arg or "")):
        return False
    head = module.resolve(up.up.func).partition(".")[0]  # type: ignore[attr-defined]
    return bool(head) and head != "torch" and head not in module.own_packages and (
        any(name.partition(".")[0] == head for name in module.brought)
    )  # fmt: skip
