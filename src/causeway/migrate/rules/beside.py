"""What stands beside a question about CUDA, and shows that it is not about any accelerator.

A package for CUDA alone in the same condition or behind it, the question for another vendor's
device, a message that says "CUDA", a function for CUDA graphs.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from causeway.migrate.module import Module
from causeway.migrate.names import (
    FUNCTIONS,
    Binding,
    after,
    ancestors,
    block,
    called,
    ends,
    statement,
)

# Packages whose functions take CUDA's tensors. Triton is none: it serves several devices.
_PACKAGES = frozenset({
    "bit_decode", "bitsandbytes", "causal_conv1d", "cupy", "flash_attn", "flashinfer", "mamba_ssm",
    "nvdiffrast", "spconv", "tinycudann", "transformer_engine", "xformers",
})  # fmt: skip
_PACKAGE = re.compile(
    r"flash_?attn|xformers|bitsandbytes|(?<![a-z])bnb(?![a-z])|flashinfer|transformer_engine"
    r"|causal_conv1d|cupy|(?<![a-z])apex(?![a-z])",
    re.I,
)
# What says that an extension was built for CUDA, or chooses its graphs.
_BUILT = re.compile(
    r"\bbuilt_with_cuda|\w*extension\w*_(?:built|available|loaded)\b|has_fused_|\bfused_\w+_cls\b"
    r"|cuda_?graph|\bbackends\.cudnn\.|\bversion\.hip\b",
    re.I,
)
_OTHERS = "mps|xpu|npu|mlu|hpu|musa|gcu|sdaa"
_OTHER = re.compile(
    rf"\b(?:{_OTHERS})\.is_available\(|\bis_(?:torch_)?(?:{_OTHERS})_available\("
    rf"|\b(?:\w+_)?(?:{_OTHERS})_AVAILABLE\b",
    re.I,
)
_GRAPHS = re.compile(r"cuda[ _]?graph", re.I)
_CUDA = re.compile(r"cuda", re.I)
_SHOWS = re.compile(r"print|log|info|debug|warn|write|echo|message", re.I)
_SWITCH = re.compile(r"(?:\w+_)?cuda|(?:use_)?gpu")
_NVIDIA = re.compile(r"nvidia", re.I)


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
    for inner in ast.walk(part):
        if isinstance(inner, ast.Import | ast.ImportFrom) and not getattr(inner, "level", 0):
            brought = {alias.name for alias in inner.names} if isinstance(inner, ast.Import) else {
                inner.module or ""
            }  # fmt: skip
            if {name.partition(".")[0] for name in brought} & _PACKAGES - module.own_packages:
                return True
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Load):
            bound = module.names.bindings(inner)  # also where the package may be missing: None
            named = {b.qualified for b in bound if b.kind == "import"}
            if any(name.startswith("mmcv.ops.") for name in named):
                return True  # compiled for CUDA, or for the few that mmcv is built for
            brought = {name.partition(".")[0] for name in named}
            brought |= {name for b in bound for name in _tried(b)}
            if brought & _PACKAGES - module.own_packages:
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


_BRANCH = re.compile(r"\b(backends\.mps|mps|xpu)\.is_available\(\)")
_DEVICES = re.compile(r"(?:cuda|mps|xpu|cpu|gpu)(?::\d+)?")


def other_settings(module: Module, call: ast.AST) -> list[str]:
    """The devices of torch, as `backends.mps`, that the branches behind a question set up in a way
    of their own: `self.half = True`, and `elif torch.backends.mps.is_available(): self.half =
    False`. They keep their branch.
    """
    node = statement(call)
    if not isinstance(node, ast.If) or not any(n is call for n in ast.walk(node.test)):
        return []
    own, found = _settings(node.body), []
    while len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If):
        node = node.orelse[0]
        asked = _BRANCH.search(module.text(node.test))
        theirs = _settings(node.body)
        if asked and any(own.get(name, value) != value for name, value in theirs.items()):
            found.append("backends.mps" if "mps" in asked[1] else "xpu")
    return found


def _settings(body: list[ast.stmt]) -> dict[str, str]:
    """What a branch sets by constants and types, less the device itself."""
    return {
        ast.dump(stmt.targets[0]): ast.dump(stmt.value)
        for stmt in body
        if isinstance(stmt, ast.Assign) and len(stmt.targets) == 1
        and isinstance(stmt.value, ast.Constant | ast.Attribute | ast.Name)
        and not _DEVICES.fullmatch(str(getattr(stmt.value, "value", "")))
    }  # fmt: skip


def cannot_do_without(module: Module, stmt: ast.AST) -> bool:
    """Whether a branch begins by an import of a package for CUDA alone, and ends where that fails:
    `import flash_attn`, also in a `try` whose handler raises.
    """
    if isinstance(stmt, ast.Try):
        raises = all(isinstance(handler.body[-1], ast.Raise) for handler in stmt.handlers)
        return raises and any(cannot_do_without(module, inner) for inner in stmt.body)
    return isinstance(stmt, ast.Import | ast.ImportFrom) and uses_package(module, stmt)


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
        return isinstance(node.value, str) and _DEVICES.fullmatch(node.value) is not None
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


def is_switch_of_others(module: Module, node: ast.AST) -> bool:
    """Whether a value is an argument `cuda=` or `gpu=` of a library that is neither torch nor the
    tree's.
    """
    up = node.up  # type: ignore[attr-defined]
    if not (isinstance(up, ast.keyword) and _SWITCH.fullmatch(up.arg or "")):
        return False
    head = module.resolve(up.up.func).partition(".")[0]  # type: ignore[attr-defined]
    return bool(head) and head != "torch" and head not in module.own_packages and (
        any(name.partition(".")[0] == head for name in module.brought)
    )  # fmt: skip


def named_switch_of_others(module: Module, call: ast.Call) -> bool:
    """The same of a question that has a name in its function: `use_gpu = torch.cuda.is_available()`
    and `faiss.Kmeans(…, gpu=use_gpu)`, also of `device_count() > 0`.
    """
    stmt = statement(call)
    if not isinstance(stmt, ast.Assign) or len(stmt.targets) != 1:
        return False
    target = stmt.targets[0]
    compared = isinstance(stmt.value, ast.Compare) and stmt.value.left is call
    if not isinstance(target, ast.Name) or not (stmt.value is call or compared):
        return False
    held = module.names.holder(target.id, target.scope)  # type: ignore[attr-defined]
    return any(
        is_switch_of_others(module, name) for name in module.names.all(ast.Name)
        if name.id == target.id and isinstance(name.ctx, ast.Load)
        and module.names.holder(name.id, name.scope) is held  # type: ignore[attr-defined]
    )  # fmt: skip


def says_nvidia(node: ast.AST) -> bool:
    """Whether an answer gets a name that says NVIDIA: `IS_NVIDIA = device == "cuda"`."""
    stmt = statement(node)
    targets = stmt.targets if isinstance(stmt, ast.Assign) else []
    names = (getattr(t, "id", getattr(t, "attr", "")) for t in targets)
    return any(_NVIDIA.search(name) for name in names)


def hands_cudas_module(module: Module, part: ast.AST) -> bool:
    """Whether code hands on all of torch.cuda, which stays: `restore("CUDA", torch.cuda)`."""
    return any(
        isinstance(n, ast.Attribute)
        and isinstance(call := n.up, ast.Call | ast.keyword)  # type: ignore[attr-defined]
        and getattr(call, "func", None) is not n
        and getattr(getattr(call, "func", None), "id", "") not in ("hasattr", "getattr")
        and module.resolve(n) == "torch.cuda"
        for n in ast.walk(part)
    )


def copies_among_devices(module: Module, node: ast.AST) -> bool:
    """Whether it is in a DataParallel of the program's own, by torch's parts of one, which serve
    CUDA: elsewhere it is the model itself.
    """
    parts = ("scatter_gather", "replicate", "parallel_apply")
    return any(
        isinstance(up, ast.ClassDef) and "parallel" in up.name.lower() for _, up in ancestors(node)
    ) and any(part in name.split(".") for name in module.brought for part in parts)


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


_TOOL = re.compile(r"(?:^|/)nvidia-smi(?:\s|$)")
_REQUIRES = re.compile(r"(?:^|_)(?:requires?|needs?)_cuda$")
_ALONE = re.compile(
    r"#.*(?:\bnon-?cuda\b|\b(?:false|off|not)\b.{0,20}\bmps\b"
    r"|\bonly (?:on|for|supported (?:on|by)) cuda\b|\bcuda[- ]only\b)",
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


_KERNELS = re.compile(r"(?:^|_)cuda_(?:kernels?|graphs?|ext(?:ension)?s?)$")


def sets_kernels(part: ast.AST) -> bool:
    """Whether code says that kernels of CUDA's are used: `self.use_cuda_kernel = True`."""
    targets = part.targets if isinstance(part, ast.Assign) else []
    said = getattr(getattr(part, "value", None), "value", None)
    names = (getattr(t, "id", getattr(t, "attr", "")) for t in targets)
    return said is not False and any(_KERNELS.search(name) for name in names)


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


_VENDORS_OWN = re.compile(r"(?:^|_)(?:mps|xpu|npu|mlu|hpu|musa)(?:_|$)")
_CUDAS_OWN = re.compile(r"(?:^|_)(?:cuda|nvidia)(?:_|$)")


def is_for_each(module: Module, node: ast.If) -> bool:
    """Whether each branch calls a function with a vendor's name: `log_cuda_info(torch)`, and
    `elif torch.xpu.is_available(): log_xpu_info(torch)`.
    """
    own, other = _called(module, node.body), node.orelse
    if not any(map(_CUDAS_OWN.search, own)):
        return False
    return any(map(_VENDORS_OWN.search, _called(module, other)))


def _called(module: Module, body: list[ast.stmt]) -> set[str]:
    """The names of functions that a branch calls and torch does not have."""
    return {
        called(n)
        for part in body for n in ast.walk(part)
        if isinstance(n, ast.Call) and not module.resolve(n.func).startswith("torch.")
    }  # fmt: skip


def locates_checkpoint(module: Module, call: ast.AST) -> bool:
    """Whether the answer yes means that a checkpoint's tensors go where they came from, which was
    CUDA's device: `map_location = None if torch.cuda.is_available() else "cpu"`, or `torch.load(f)`
    against `torch.load(f, map_location="cpu")`.
    """
    if _loads_either(module, call):
        return True
    for child, up in ancestors(call):
        if isinstance(up, ast.IfExp) and up.test is child:
            holder = up.up  # type: ignore[attr-defined]
            where = getattr(holder, "arg", "") or _target(holder)
            return where == "map_location" and _none_or_cpu(up.body, up.orelse)
        if isinstance(up, ast.If) and up.test is child:
            sides = [b[0] for b in (up.body, up.orelse) if len(b) == 1]
            values = [s.value for s in sides if isinstance(s, ast.Assign)]
            where = {_target(s) for s in sides}
            return where == {"map_location"} and len(values) == 2 and _none_or_cpu(*values)
        if not (isinstance(up, ast.UnaryOp) and isinstance(up.op, ast.Not)):
            return False
    return False


def _target(node: ast.AST) -> str:
    target = node.targets[0] if isinstance(node, ast.Assign) else None
    return getattr(target, "id", getattr(target, "attr", ""))


def _none_or_cpu(*values: ast.expr) -> bool:
    return {_location(v) for v in values} == {None, "cpu"}


def _location(value: ast.expr) -> object:
    """What a map_location says, `torch.device("cpu")` and `lambda storage, loc: storage` too."""
    if isinstance(value, ast.Call) and len(value.args) == 1 and not value.keywords:
        value = value.args[0]
    if isinstance(value, ast.Lambda) and isinstance(value.body, ast.Name):
        return "cpu"
    return getattr(value, "value", "")


def _loads_either(module: Module, node: ast.AST) -> bool:
    """Whether the branches of a question only read a checkpoint, the other one to the CPU."""
    for child, up in ancestors(node):
        if isinstance(up, ast.IfExp) and up.test is child:
            return _loaded(module, up.body) == [None] and _loaded(module, up.orelse) == ["cpu"]
        if isinstance(up, ast.If) and up.test is child and len(up.body) == 1:
            other = up.orelse
            if not other and isinstance(up.body[0], ast.Return):
                other = after(up)[:1]
            return len(other) == 1 and (
                _loaded(module, up.body[0]) == [None] and _loaded(module, other[0]) == ["cpu"]
            )
        if isinstance(up, ast.stmt):
            return False
    return False


def _loaded(module: Module, part: ast.AST) -> list[object]:
    """Where the checkpoints go that code reads by torch.load."""
    return [
        next((_location(k.value) for k in n.keywords if k.arg == "map_location"), None)
        for n in ast.walk(part)
        if isinstance(n, ast.Call) and module.resolve(n.func) == "torch.load" and len(n.args) == 1
    ]


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


def feeds_faiss(module: Module, call: ast.AST) -> bool:
    """Whether an answer is handed to a function of the module that puts faiss on GPUs:
    `gpu = torch.cuda.is_available() and args.gpu`, `search(x, gpu)`.
    """
    stmt = statement(call)
    if "faiss" not in module.source.text or not isinstance(stmt, ast.Assign):
        return False
    value, target = stmt.value, stmt.targets[0]
    asked = value.values if isinstance(value, ast.BoolOp) else [value]
    if call not in asked or not isinstance(target, ast.Name):
        return False
    functions = module.names.all(ast.FunctionDef)
    users = {f.name for f in functions if any(_on_gpus(module, n) for n in ast.walk(f))}
    users |= {f.name for f in functions if any(_names(n, users) for n in ast.walk(f))}
    return any(
        isinstance(n.func, ast.Name) and n.func.id in users
        and any(_names(a, {target.id}) for a in (*n.args, *(k.value for k in n.keywords)))
        for n in module.names.all(ast.Call)
    )  # fmt: skip


def puts_faiss_on_gpus(module: Module, part: ast.AST) -> bool:
    """Whether code uses what faiss has for GPUs, which are CUDA's: faiss.index_cpu_to_all_gpus."""
    return "faiss" in module.source.text and any(_on_gpus(module, n) for n in ast.walk(part))


def _on_gpus(module: Module, node: ast.AST) -> bool:
    api = module.resolve(node) if isinstance(node, ast.Attribute) else ""
    return api.startswith("faiss.") and "gpu" in api.lower()


def _names(node: ast.AST, names: set[str]) -> bool:
    return isinstance(node, ast.Name) and node.id in names
