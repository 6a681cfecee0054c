"""What stands beside a question about CUDA, and shows that it is not about any accelerator.

A package for CUDA alone in the same condition or behind it, a build for CUDA, a function for CUDA
graphs. What is said beside it is in `labels.py`, other vendors' devices in `other_devices.py`,
libraries that the answer goes to in `elsewhere.py`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from causeway.migrate import vendors
from causeway.migrate.module import Module
from causeway.migrate.names import (
    FUNCTIONS,
    Binding,
    after,
    ancestors,
    block,
    called,
    ends,
)

_PACKAGE = re.compile(rf"(?<![a-z])(?:{vendors.words('kernels', 'named')})(?![a-z])", re.I)
# What says that an extension was built for CUDA, or chooses its graphs.
_BUILT = re.compile(
    r"\bbuilt_with_cuda|\w*extension\w*_(?:built|available|loaded)\b|has_fused_|\bfused_\w+_cls\b"
    r"|cuda_?graph|\bbackends\.cudnn\.|\bversion\.hip\b",
    re.I,
)
_GRAPHS = re.compile(r"cuda[ _]?graph", re.I)


def of_cuda(module: Module, node: ast.AST) -> bool:
    """Whether what stands around a question makes it one for CUDA."""
    return (
        _condition(module, node)
        or beside_build(module, node)
        or any(uses_package(module, part) for part in _behind(node))
        or of_graphs(node)
    )


def beside_build(module: Module, node: ast.AST) -> bool:
    """Whether the condition of a question also asks for an extension that was built for CUDA, or
    for CUDA graphs: `available and not built_with_cuda()`, `use_cuda_graph and available`.
    """
    return _condition(module, node, _BUILT)


def of_graphs(node: ast.AST) -> bool:
    """Whether it is in a function for CUDA graphs, by its name, or a call that shows them:
    `Checkbox(label="CUDA Graph", interactive=torch.cuda.is_available())`.
    """
    return any(
        (isinstance(up, FUNCTIONS) and _GRAPHS.search(up.name) is not None)
        or (isinstance(up, ast.Call) and child is not up.func and _shows_graphs(up))
        for child, up in ancestors(node)
    )


def _shows_graphs(call: ast.Call) -> bool:
    given = (*call.args, *(k.value for k in call.keywords))
    return any(
        isinstance(n, ast.Constant) and _GRAPHS.search(str(n.value)) is not None
        for value in given if not isinstance(value, ast.Call)
        for n in ast.walk(value)
    )  # fmt: skip


def beside_package(module: Module, node: ast.AST, region: Iterable[ast.AST]) -> bool:
    """Whether the condition of a question names a package for CUDA alone, or all that it decides
    on is code with such a package.
    """
    return _condition(module, node) or any(uses_package(module, part) for part in region)


def _condition(module: Module, node: ast.AST, names: re.Pattern[str] = _PACKAGE) -> bool:
    for child, up in ancestors(node):
        if isinstance(up, ast.stmt):
            return False
        if isinstance(up, ast.BoolOp):
            for value in up.values:
                if value is child:
                    continue
                if names.search(module.text(value)):
                    return True
                if names is _PACKAGE and uses_package(module, value):
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
            if ends(up.body[-1]):
                yield from after(up)
        elif isinstance(up, ast.Assert) and up.test is child:
            yield from after(up)
        if isinstance(up, ast.stmt):
            return


def uses_package(module: Module, part: ast.AST) -> bool:
    """Whether code names a package for CUDA alone, or imports one."""
    kernels = vendors.packages("kernels") - module.own_packages
    for inner in ast.walk(part):
        if isinstance(inner, ast.Import | ast.ImportFrom) and not getattr(inner, "level", 0):
            brought = {alias.name for alias in inner.names} if isinstance(inner, ast.Import) else {
                inner.module or ""
            }  # fmt: skip
            if {name.partition(".")[0] for name in brought} & vendors.packages(
                "kernels"
            ) - module.own_packages:
                return True
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Load):
            bound = module.names.bindings(inner)  # also where the package may be missing: None
            named = {b.qualified for b in bound if b.kind == "import"}
            if any(name.startswith("mmcv.ops.") for name in named):
                return True  # compiled for CUDA, or for the few that mmcv is built for
            brought = {name.partition(".")[0] for name in named}
            brought |= {name for b in bound for name in _tried(b)}
            if brought & kernels:
                return True
    return False


def _tried(binding: Binding) -> set[str]:
    """The packages whose import a switch stands for: `try: import mamba_ssm; FAST = True`."""
    if not isinstance(getattr(binding.value, "value", None), bool):
        return set()
    around = next((up for _, up in ancestors(binding.node) if isinstance(up, ast.Try)), None)
    brought: set[str] = set()
    for stmt in around.body if around is not None else ():
        if isinstance(stmt, ast.Import):
            brought |= {alias.name.partition(".")[0] for alias in stmt.names}
        elif isinstance(stmt, ast.ImportFrom) and not stmt.level:
            brought.add((stmt.module or "").partition(".")[0])
    return brought


def guards_package(module: Module, stmt: ast.If) -> bool:
    """Whether a program ends where a question is denied, and beside that where a package for CUDA
    alone is missing: `if not torch.cuda.is_available(): exit()`, `if not HAS_FLASH: exit()`.
    """
    around = block(stmt)
    at = around.index(stmt)
    beside = [other for other in around[max(0, at - 1) : at + 2] if isinstance(other, ast.If)]
    return len(beside) > 1 and all(ends(other.body[-1]) for other in beside) and any(
        uses_package(module, other.test) for other in beside if other is not stmt
    )  # fmt: skip


def cannot_do_without(module: Module, stmt: ast.AST) -> bool:
    """Whether a branch begins by an import of a package for CUDA alone, and ends where that fails:
    `import flash_attn`, also in a `try` whose handler raises.
    """
    if isinstance(stmt, ast.Try):
        raises = all(isinstance(handler.body[-1], ast.Raise) for handler in stmt.handlers)
        return raises and any(cannot_do_without(module, inner) for inner in stmt.body)
    return isinstance(stmt, ast.Import | ast.ImportFrom) and uses_package(module, stmt)


_NARROW = re.compile(r"flex_?att|(?:^|_)(?:trt|tensorrt)(?:_|\Z)", re.I)


def beside_narrow(node: ast.AST) -> bool:
    """Whether a question stands beside one for what few devices have: torch's flex attention, which
    raises on Apple's, or TensorRT. `HAS_FLEX_ATTENTION and x.is_cuda`.
    """
    for child, up in ancestors(node):
        if isinstance(up, ast.BoolOp):
            return any(
                _NARROW.search(getattr(n, "id", getattr(n, "attr", ""))) is not None
                for value in up.values if value is not child for n in ast.walk(value)
            )  # fmt: skip
        if not isinstance(up, ast.Call | ast.Compare | ast.UnaryOp | ast.Attribute):
            return False
    return False


_KERNELS = re.compile(r"(?:^|_)cuda_(?:kernels?|graphs?|ext(?:ension)?s?)$")


def sets_kernels(part: ast.AST) -> bool:
    """Whether code says that kernels of CUDA's are used: `self.use_cuda_kernel = True`."""
    targets = part.targets if isinstance(part, ast.Assign) else []
    said = getattr(getattr(part, "value", None), "value", None)
    names = (getattr(t, "id", getattr(t, "attr", "")) for t in targets)
    return said is not False and any(_KERNELS.search(name) for name in names)


def chooses_module(module: Module, node: ast.AST) -> bool:
    """Whether the answer yes takes torch.cuda itself, against another device's module, also by the
    name that it is kept in: `torch.cuda if is_cuda else torch.xpu`.
    """
    up = node.up  # type: ignore[attr-defined]
    tests = [node]
    if isinstance(up, ast.Assign) and isinstance(up.targets[0], ast.Name):
        name = up.targets[0].id
        tests = [n for n in module.names.all(ast.Name)
                 if n.id == name and isinstance(n.ctx, ast.Load)]  # fmt: skip
    return any(
        isinstance(n, ast.Attribute)
        and isinstance(n.up, ast.Assign | ast.IfExp)  # type: ignore[attr-defined]
        and module.resolve(n) == "torch.cuda"
        for test in tests for part in _behind(test) for n in ast.walk(part)
    )  # fmt: skip


_IN_TORCH = re.compile(r"_(?:py)?torch\Z")


def has_torchs_code(node: ast.If) -> bool:
    """Whether the other branch does by torch's operators, as its function's name says, what the
    branch does by a kernel: `else: y = deform_attn_pytorch(x)`. It serves every other device.
    """
    names = [
        {
            called(n)
            for part in branch for n in ast.walk(part) if isinstance(n, ast.Call)
        }
        for branch in (node.body, node.orelse)
    ]  # fmt: skip
    return any(_IN_TORCH.search(name) for name in names[1] - names[0]) and bool(names[0])
