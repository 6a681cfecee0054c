"""What a string is for: a device, a collective backend, or something else.

A string "cuda" is only rewritten where its place shows that it names a device: an argument called
`device`, `.to("cuda")`, `torch.device("cuda")`, a variable that later goes to such a place, the
other branch of a choice of "cpu". Keys, paths, messages and flags show nothing of that.
"""

from __future__ import annotations

import ast
import re
from enum import Enum

from causeway.migrate import flow, vendors
from causeway.migrate.module import Module
from causeway.migrate.names import FUNCTIONS, ancestors, called
from causeway.migrate.rules.callees import kernel_of_cuda

_DEVICE_WORD = re.compile(r"device|map_location|(^|_)dev(_|$)", re.I)
_BACKEND_WORD = re.compile(r"backend", re.I)
# Callees whose argument at a position is a device, as a name (str) or as a torch.device.
_TYPE_AT = {
    "torch.device": 0,
    "torch.autocast": 0,
    "torch.amp.autocast": 0,
    "torch.amp.GradScaler": 0,
    "torch.amp.is_autocast_available": 0,
    "torch.amp.autocast_mode.is_autocast_available": 0,
    "torch.get_autocast_dtype": 0,
    "torch.set_autocast_dtype": 0,
    "torch.is_autocast_enabled": 0,
    "torch.set_autocast_enabled": 0,
    "torch.distributed.init_device_mesh": 0,
    "torch.distributed.device_mesh.init_device_mesh": 0,
    "torch.distributed.DeviceMesh": 0,
    "torch.distributed.device_mesh.DeviceMesh": 0,
    "torch.distributed.get_default_backend_for_device": 0,
}
_DEVICE_AT = {
    "torch.Generator": 0,
    "torch.set_default_device": 0,
    "torch.get_device_module": 0,
    "torch.load": 1,
    "torch.Stream": 0,
    "torch.Event": 0,
}
_BACKEND_AT = {
    "torch.distributed.init_process_group": 0,
    "torch.distributed.new_group": 2,
    "torch.distributed.is_backend_available": 0,
}
_METHODS = {"to", "cuda", "to_empty", "pin_memory", "empty_like", "type_as"}


class Role(Enum):
    """A torch.device is taken, or only a str."""

    DEVICE = 1
    TYPE = 2


_CASES = ("parametrize", "fixture")


def role(module: Module, node: ast.expr, what: str, *, certain: bool = False) -> Role | None:
    """The role of a string as a "device" or a "backend", or None where nothing shows one.

    `certain`: the string itself shows it (f"cuda:{i}"), only its surroundings may deny it.
    """
    word = _DEVICE_WORD if what == "device" else _BACKEND_WORD
    if _within_framework(node):
        return None
    if not module.imports_torch and flow.shown_alone(module.names, node):
        return None  # what a report says of other programs
    child: ast.AST = node
    direct, listed = True, False
    while (up := getattr(child, "up", None)) is not None:
        if isinstance(up, ast.IfExp) and child is not up.test:
            other = up.orelse if child is up.body else up.body
            certain |= _counterpart(other, what)
        elif isinstance(up, ast.keyword):
            call = up.up  # type: ignore[attr-defined]
            if up.arg == "ids" and getattr(getattr(call, "func", None), "attr", "") in _CASES:
                return None  # a test's name
            if up.arg == "device_types" and _kernel_of_cuda(module, call):
                return None
            if isinstance(call, ast.Call) and (
                _foreign(module, call) or _of_ctranslate2(module, call)
            ):
                return None
            if isinstance(call, ast.Call) and up.arg == "default" and _field(call):
                child = call
                continue
            if up.arg == "type" and isinstance(call, ast.Call):
                return Role.TYPE if module.resolve(call.func) == "torch.device" else None
            if isinstance(call, ast.Call) and up.arg in ("default", "choices", "const"):
                if _among_architectures(call):
                    return None
                if what == "device" and module.own.ctranslate2 and _option(call, word):
                    _keep_questions(module, up.value)
                    return None
                certain |= _option(call, word) or _chosen_among(call, what)
            if up.arg and word.search(up.arg):
                certain = True
                takes = up.arg in ("device", "map_location")
                if direct and takes and isinstance(call, ast.Call) and _takes_device(module, call):
                    return Role.DEVICE
            return Role.TYPE if certain else None
        elif isinstance(up, ast.Call):
            if _is_format(child, up):
                child, direct = up, False
                continue
            if child not in up.args or _foreign(module, up):
                return None
            if _added_to_devices(module, up, what, word):
                return Role.TYPE
            if _of_pytest(module, up) or (child is up.args[0] and _field(up)):
                child = up
                continue
            found = _positional(module, up, up.args.index(child), what, word)
            if found is Role.DEVICE and not direct:
                return Role.TYPE
            return found or (Role.TYPE if certain else None)
        elif isinstance(up, ast.Assign | ast.AnnAssign | ast.NamedExpr | ast.AugAssign):
            targets = up.targets if isinstance(up, ast.Assign) else [up.target]
            if what == "device" and goes_elsewhere(module, up):
                return None
            named = any(_named(module, t, what, word) for t in targets)
            return Role.TYPE if named or certain else None
        elif isinstance(up, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            parameter = _default_of(up.args, child)
            if parameter is None:
                return None
            return Role.TYPE if certain or word.search(parameter) or _flows(module, parameter, what) else None  # noqa: E501  # fmt: skip
        elif isinstance(up, ast.Return):
            function = _function(up)
            if function is not None and not certain:
                certain = word.search(function.name) is not None or (
                    what == "device" and chooses(module, function)
                )
            return Role.TYPE if certain else None
        elif isinstance(up, ast.Dict):
            if child in up.keys:
                to_cpu = all(getattr(v, "value", "") == "cpu" for v in up.values)
                if what == "device" and _map_location(up) and not to_cpu:
                    return Role.TYPE
                return None  # a file that was saved on CUDA, to be read anywhere
            key = up.keys[up.values.index(child)]  # type: ignore[arg-type]
            if any(
                isinstance(v, ast.Constant) and "nvidia" in str(v.value).lower() for v in up.values
            ):
                return None  # what a report of one machine says
            if _of_ctranslate2(module, up):
                return None
            named_so = isinstance(key, ast.Constant) and word.search(str(key.value))
            found_so = certain or bool(named_so) or (what == "device" and _map_location(up))
            return Role.TYPE if found_so else None
        elif isinstance(up, ast.Compare):
            return Role.TYPE if _compared(module, up, child, what, word) else None
        elif isinstance(up, ast.Tuple) and _unpacked(up):
            named = _named(module, _given_to(up, child), what, word)
            return Role.TYPE if named or certain else None
        elif isinstance(up, ast.List | ast.Tuple | ast.Set):
            if any(_architecture(e) for e in up.elts) or _by_vendor(up) or _of_lightning(up):
                return None
            if _of_profiler(up):
                return None
            certain = certain or all(_among_devices(e, what) for e in up.elts)
            listed = True  # more of them may be added
        elif isinstance(up, ast.FormattedValue):
            return Role.TYPE if certain else None
        elif isinstance(up, ast.BinOp) and isinstance(up.op, ast.Mod | ast.Add):
            other = up.right if child is up.left else up.left
            if listed and isinstance(other, ast.List):
                if not all(_among_devices(e, what) for e in other.elts):
                    return None
            elif child is not up.left:
                return None
        elif isinstance(up, ast.For | ast.comprehension) and child is up.iter:
            loop = up.target
            named = _named(module, loop, what, word)
            return Role.TYPE if named else None
        elif isinstance(up, ast.Attribute):
            if up.attr != "format":
                return None
        elif isinstance(up, ast.ListComp | ast.SetComp | ast.GeneratorExp):
            if child is not up.elt:
                return None
        elif not isinstance(up, ast.BoolOp | ast.Starred):
            return None
        direct = direct and isinstance(up, ast.IfExp | ast.BoolOp)
        child = up
    return None


def chooses(module: Module, function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether what a function returns is a device, by where it goes: `model.to(pick())`,
    `device = pick()`, here or in another module of the tree.
    """
    known = module.choosing.get(id(function))
    if known is None:
        module.choosing[id(function)] = False  # one that calls itself
        known = function.name in module.own.device_functions or any(
            role(module, call, "device") is not None
            or any(
                role(module, place, "device") is not None
                for place in flow.arrivals(module.names, call) if place is not call
            )
            for call in flow.calls(module.names, function)
        )  # fmt: skip
        module.choosing[id(function)] = known
    return known


def _from_choice(module: Module, node: ast.expr) -> bool:
    """Whether a call is that of such a function, or a variable is set to one."""
    if isinstance(node, ast.Name):
        values = [b.value for b in module.names.bindings(node)]
        return any(isinstance(v, ast.Call) and _from_choice(module, v) for v in values)
    if not isinstance(node, ast.Call):
        return False
    if called(node) in module.own.device_functions:
        return True
    bound = module.names.bindings(node.func) if isinstance(node.func, ast.Name) else []
    return any(isinstance(b.node, FUNCTIONS) and chooses(module, b.node) for b in bound)


def _of_pytest(module: Module, call: ast.Call) -> bool:
    """Whether a call is a case among a test's: `pytest.param("cuda", marks=…)`."""
    return module.resolve(call.func) == "pytest.param"


def _given_to(node: ast.Tuple, member: ast.AST) -> ast.expr:
    """The name that gets a member of a tuple."""
    return node.up.targets[0].elts[[*map(id, node.elts)].index(id(member))]  # type: ignore[attr-defined,no-any-return]


def _unpacked(node: ast.Tuple) -> bool:
    """Whether a tuple is given to as many names: `dtype, device = torch.half, "cuda"`."""
    up = node.up  # type: ignore[attr-defined]
    target = up.targets[0] if isinstance(up, ast.Assign) and up.value is node else None
    if not isinstance(target, ast.Tuple) or len(target.elts) != len(node.elts):
        return False
    return not any(isinstance(e, ast.Starred) for e in (*target.elts, *node.elts))


def device_like(module: Module, node: ast.expr) -> bool:
    """Whether an expression is a device or its name, by its own name or by where it goes."""
    if isinstance(node, ast.Attribute) and node.attr == "type":
        return device_like(module, node.value)
    if _of_deepspeed(module, node) or _is_piece(module, node):
        return False
    if _from_choice(module, node):
        return True
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Name) and node.func.id == "str" and len(node.args) == 1:
            return device_like(module, node.args[0])
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("lower", "strip"):
            return device_like(module, node.func.value)
        return device_like(module, node.func)
    if isinstance(node, ast.Subscript):
        if isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
            return bool(_DEVICE_WORD.search(node.slice.value))
        if isinstance(node.value, ast.Name | ast.Attribute):  # `device_list[i]`
            return device_like(module, node.value)
        return _split(node.value) and device_like(module, node.value.func.value)  # type: ignore[attr-defined]
    return _named(module, node, "device", _DEVICE_WORD)


def _is_piece(module: Module, node: ast.expr) -> bool:
    """Whether it is a piece of a word of the program's own, `kept, device = mode.split("-")`:
    "cuda" is as much a part of the words that it has for its modes.
    """
    if not isinstance(node, ast.Name | ast.Attribute) or ".split(" not in module.source.text:
        return False
    wanted = ast.unparse(node)
    return any(
        isinstance(stmt.targets[0], ast.Tuple)
        and _split(stmt.value)
        and not _named(module, stmt.value.func.value, "device", _DEVICE_WORD)  # type: ignore[attr-defined]
        and wanted in [ast.unparse(t) for t in stmt.targets[0].elts]
        for stmt in module.names.all(ast.Assign)
    )


def _of_deepspeed(module: Module, node: ast.expr) -> bool:
    """Whether it is the name of DeepSpeed's accelerator, which has a class for each vendor: who
    asks it for "cuda" means CUDA. `get_accelerator().device_name()`, or a variable of that.
    """
    if isinstance(node, ast.Name):
        values = [b.value for b in module.names.bindings(node)]
        return any(v is not None and not isinstance(v, ast.Name) and _of_deepspeed(module, v)
                   for v in values)  # fmt: skip
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    owner = node.func.value
    name = getattr(owner, "func", owner)
    last = name.attr if isinstance(name, ast.Attribute) else getattr(name, "id", "")
    return isinstance(owner, ast.Call) and last == "get_accelerator" and (
        node.func.attr in ("device_name", "_name", "current_device_name")
    )  # fmt: skip


def backend_like(module: Module, node: ast.expr) -> bool:
    """Whether an expression is the name of a collective backend."""
    if isinstance(node, ast.Call):
        return backend_like(module, node.func)
    return _named(module, node, "backend", _BACKEND_WORD)


def surely_not_torch(module: Module, node: ast.AST) -> bool:
    """Whether a node is an argument of another framework's function."""
    return any(isinstance(up, ast.Call) and _foreign(module, up) for _, up in ancestors(node))


def goes_elsewhere(module: Module, stmt: ast.AST) -> bool:
    """Whether a statement sets a variable that goes to another framework's function:
    `device = "cuda"`, `faster_whisper.WhisperModel(path, device=device)`.
    """
    target = stmt.targets[0] if isinstance(stmt, ast.Assign) else None
    return target is not None and name_goes_elsewhere(module, target)


def name_goes_elsewhere(module: Module, target: ast.expr) -> bool:
    """The same of a variable, wherever it stands."""
    if isinstance(target, ast.Attribute):
        return _attribute_goes(module, target)
    if not isinstance(target, ast.Name):
        return False
    held = module.names.holder(target.id, target.scope)  # type: ignore[attr-defined]
    for call in module.names.all(ast.Call):
        given = (*call.args, *(k.value for k in call.keywords))
        if any(
            isinstance(a, ast.Name) and a.id == target.id
            and module.names.holder(a.id, a.scope) is held  # type: ignore[attr-defined]
            for a in given
        ) and _foreign(module, call):  # fmt: skip
            return True
    return False


def _attribute_goes(module: Module, target: ast.Attribute) -> bool:
    """The same of an attribute of a class: `self.device = "cuda"`,
    `ctranslate2.Translator(path, device=self.device)`.
    """
    home = next((up for _, up in ancestors(target) if isinstance(up, ast.ClassDef)), None)
    if home is None or not isinstance(target.value, ast.Name) or target.value.id != "self":
        return False
    spelled = ast.unparse(target)
    return any(
        isinstance(call, ast.Call)
        and any(
            ast.unparse(a) == spelled
            for a in (*call.args, *(k.value for k in call.keywords))
            if isinstance(a, ast.Attribute)
        )
        and _foreign(module, call)
        for call in ast.walk(home)
    )


_CTRANSLATE2 = re.compile(rf"\b(?:{vendors.words('ctranslate2')})\b")
_ITS_OPTIONS = {"device_index", "compute_type", "inter_threads", "intra_threads", "cpu_threads"}


def _of_ctranslate2(module: Module, node: ast.Call | ast.Dict) -> bool:
    """Whether arguments, or a dictionary of them, are CTranslate2's, by what stands beside the
    device in a module that speaks of it: `{"device": "cuda", "device_index": 0}`.
    """
    if isinstance(node, ast.Call):
        beside = {k.arg for k in node.keywords}
    else:
        beside = {getattr(k, "value", None) for k in node.keys}
    return bool(beside & _ITS_OPTIONS) and _CTRANSLATE2.search(module.source.text) is not None


def _within_framework(node: ast.AST) -> bool:
    """Whether a node is in a function that imports another framework itself: its devices are
    meant there.
    """
    return any(
        isinstance(stmt, ast.Import | ast.ImportFrom)
        and any(name.partition(".")[0] in vendors.packages("framework") for name in (
            [a.name for a in stmt.names] if isinstance(stmt, ast.Import) else [stmt.module or ""]
        ))
        for _, up in ancestors(node) if isinstance(up, FUNCTIONS)
        for stmt in up.body
    )  # fmt: skip


def _split(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "split"
    )


def _counterpart(node: ast.expr, what: str) -> bool:
    """Whether the other choice says what this one is: "cpu" beside "cuda"."""
    while isinstance(node, ast.IfExp):
        node = node.orelse
    values = ("cpu", "mps", "xpu") if what == "device" else ("gloo", "mpi")
    return isinstance(node, ast.Constant) and node.value in values


_SORTS = ("cpu", "cuda", "gpu", "hip", "rocm", "meta", "auto", "sim")
_DEVICES = re.compile(rf"({'|'.join((*_SORTS, *vendors.TORCHS, *sorted(vendors.DEVICES)))})(:\d+)?")
_BACKENDS = re.compile(r"nccl|gloo|mpi|ucc|hccl|xccl")


def _architecture(node: ast.AST) -> bool:
    """Whether a member of a list is an architecture, no device of torch: ["cuda", "rocm"]."""
    return isinstance(node, ast.Constant) and node.value in vendors.ARCHITECTURES


def _by_vendor(node: ast.List | ast.Tuple | ast.Set) -> bool:
    """Whether a list names what vendors' devices can do: FUSED = ["cuda", "xpu", "hpu"], without
    the CPU. Choices of a command line do not.
    """
    option = isinstance(node.up, ast.keyword) and node.up.arg == "choices"  # type: ignore[union-attr]
    names = {e.value for e in node.elts if isinstance(e, ast.Constant)}
    told_apart = bool(names & {"xpu", "mps"}) and "cpu" not in names
    # Apple's device, or Intel's, is left out: device.type not in {"cpu", "cuda", "xpu"}.
    refused = isinstance(node.up, ast.Compare) and len(names & {"xpu", "mps"}) == 1  # type: ignore[union-attr]
    told_apart = told_apart or refused
    return not option and (bool(names & vendors.DEVICES) or told_apart)


def _of_lightning(node: ast.List | ast.Tuple | ast.Set) -> bool:
    """Whether a list has Lightning's words for accelerators: {"cpu", "gpu", "cuda", "auto"}."""
    names = {e.value for e in node.elts if isinstance(e, ast.Constant)}
    return "gpu" in names and bool(names & {"auto", "tpu"})


def _of_profiler(node: ast.List | ast.Tuple | ast.Set) -> bool:
    """Whether a list goes by the name of what torch.profiler records, whose members are the names
    of torch.profiler.ProfilerActivity: `activities=["cpu", "cuda"]`.
    """
    up = node.up  # type: ignore[union-attr]
    if isinstance(up, ast.keyword):
        return up.arg == "activities"
    if isinstance(up, FUNCTIONS):
        return _default_of(up.args, node) == "activities"
    targets = up.targets if isinstance(up, ast.Assign) else [getattr(up, "target", None)]
    return any(getattr(t, "id", getattr(t, "attr", "")) == "activities" for t in targets)


def _kernel_of_cuda(module: Module, call: ast.AST) -> bool:
    """Whether `call` decorates the kernel of a custom operator that calls what is CUDA's."""
    function = getattr(call, "up", None)
    if not (isinstance(function, FUNCTIONS) and call in function.decorator_list):
        return True  # called later, with a kernel that is not seen here
    return any(
        (isinstance(n, ast.Call) and kernel_of_cuda(module, n.func))
        or (isinstance(n, ast.Call) and _of_operators(module, n.func))
        or (isinstance(n, ast.Call) and isinstance(n.func, ast.Subscript))
        for n in ast.walk(function)
    )


def _of_operators(module: Module, func: ast.expr) -> bool:
    """Whether a function is one of compiled operators by a name that several lines may bind:
    `ops = torch.ops.attention`, `import attention_cuda as ops`.
    """
    root = module.root(func)
    if root is None or root is func:
        return False
    bound = module.names.bindings(root)
    named = [b.qualified for b in bound] + [
        module.resolve(b.value) for b in bound if b.value is not None
    ]  # fmt: skip
    return any(name.startswith("torch.ops.") or name.endswith("_cuda") for name in named)


def _among_devices(node: ast.expr, what: str) -> bool:
    """Whether a member of a list is of the sort: ["cpu", "cuda"]."""
    known = _DEVICES if what == "device" else _BACKENDS
    if isinstance(node, ast.Starred | ast.Name):
        return False
    if isinstance(node, ast.Call) and called(node) == "param" and node.args:  # a test's case
        node = node.args[0]
    return (
        isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and bool(known.fullmatch(node.value))
    )


def _option(call: ast.Call, word: re.Pattern[str]) -> bool:
    """Whether an option of a command line is called so: add_argument("--device", …)."""
    named = [*call.args, *(k.value for k in call.keywords if k.arg == "dest")]
    return any(
        isinstance(a, ast.Constant) and isinstance(a.value, str) and word.search(a.value)
        and " " not in a.value
        for a in named
    )  # fmt: skip


def _chosen_among(call: ast.Call, what: str) -> bool:
    """Whether an option's choices say what its default is: choices=["cuda", "cpu"]."""
    for keyword in call.keywords:
        if keyword.arg == "choices" and isinstance(keyword.value, ast.List | ast.Tuple | ast.Set):
            members = keyword.value.elts
            return len(members) > 1 and all(_among_devices(m, what) for m in members)
    return False


def _keep_questions(module: Module, node: ast.AST) -> None:
    """Keep the questions that choose what stays."""
    module.kept_questions.update(id(n) for n in ast.walk(node) if isinstance(n, ast.Call))


def _among_architectures(call: ast.Call) -> bool:
    """Whether an option is one of architectures: choices=["cuda", "rocm"]."""
    return any(
        keyword.arg == "choices" and any(_architecture(e) for e in ast.walk(keyword.value))
        for keyword in call.keywords
    )


def _foreign(module: Module, call: ast.Call) -> bool:
    root = module.root(call.func)
    if root is not None and root.id == "torch_tensorrt":  # often by a helper that may not find it
        return True
    if module.resolve(call.func).partition(".")[0] in vendors.packages("foreign"):
        return True
    bound = module.names.bindings(call.func) if isinstance(call.func, ast.Name) else []
    return any(  # a class of the module's own on top of one
        isinstance(b.node, ast.ClassDef)
        and any(
            module.resolve(base).partition(".")[0] in vendors.packages("foreign")
            for base in b.node.bases
        )
        for b in bound
    )


def _takes_device(module: Module, call: ast.Call) -> bool:
    api = module.resolve(call.func)
    if api in _TYPE_AT:
        return False
    attr = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    return api.startswith("torch.") or attr in _METHODS or attr.startswith("new_")


def _positional(
    module: Module, call: ast.Call, position: int, what: str, word: re.Pattern[str]
) -> Role | None:
    api = module.resolve(call.func)
    if what == "backend":
        known = _BACKEND_AT.get(api) == position or _named_before(call, position, word)
        return Role.TYPE if known or _own_parameter(module, call, position, word) else None
    if _TYPE_AT.get(api) == position:
        return Role.TYPE
    if _DEVICE_AT.get(api) == position:
        return Role.DEVICE
    if api.startswith("torch.cuda._C"):
        return None  # functions of C take numbers
    if position == 0 and api.startswith(("torch.cuda.", "torch.accelerator.")):
        return Role.DEVICE
    if position == 0 and getattr(call.func, "id", "") in ("GradScaler", "autocast"):
        return Role.TYPE if module.guarded(call) else None  # from one of two places: a `try:`
    attr = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    if attr in _METHODS and position == 0 and not api.startswith(("shutil", "os.")):
        return Role.DEVICE
    if _named_before(call, position, word) or _own_parameter(module, call, position, word):
        return Role.TYPE
    return None


def _added_to_devices(module: Module, call: ast.Call, what: str, word: re.Pattern[str]) -> bool:
    """`available_devices.append("cuda")`."""
    func = call.func
    return (
        isinstance(func, ast.Attribute)
        and func.attr in ("append", "add")
        and len(call.args) == 1
        and isinstance(func.value, ast.Name | ast.Attribute)
        and _named(module, func.value, what, word)
    )


def _named_before(call: ast.Call, position: int, word: re.Pattern[str]) -> bool:
    """`getattr(args, "device", "cuda")`, `config.get("device", "cuda")`."""
    return any(
        isinstance(a, ast.Constant) and isinstance(a.value, str) and word.search(a.value)
        and " " not in a.value
        for a in call.args[:position]
    )  # fmt: skip


def _own_parameter(module: Module, call: ast.Call, position: int, word: re.Pattern[str]) -> bool:
    """Whether a function or class of this module has such a parameter at that position."""
    if not isinstance(call.func, ast.Name):
        return False
    for binding in module.names.bindings(call.func):
        node, offset = binding.node, 0
        if isinstance(node, ast.ClassDef):
            inits = [n for n in node.body if getattr(n, "name", "") == "__init__"]
            if not inits:
                continue
            node, offset = inits[0], 1
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names = [a.arg for a in (*node.args.posonlyargs, *node.args.args)][offset:]
            if position < len(names) and word.search(names[position]):
                return True
    return False


def _named(module: Module, node: ast.expr, what: str, word: re.Pattern[str]) -> bool:
    if isinstance(node, ast.Subscript):
        key = node.slice
        return isinstance(key, ast.Constant) and bool(word.search(str(key.value)))
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return bool(name) and (bool(word.search(name)) or _flows(module, module.text(node), what))


def _flows(module: Module, name: str, what: str) -> bool:
    """Whether a variable goes to a place that takes a device, somewhere in the module."""
    if what != "device":
        return False
    cached: set[str] | None = getattr(module, "_flow", None)
    if cached is None:
        cached = set()
        for call in module.names.all(ast.Call):
            places = [k.value for k in call.keywords if k.arg and _DEVICE_WORD.search(k.arg)]
            attr = call.func.attr if isinstance(call.func, ast.Attribute) else ""
            if call.args and attr == "to":
                places.append(call.args[0])
            api = module.resolve(call.func)
            at = {**_TYPE_AT, **_DEVICE_AT}.get(api)
            if at is not None and len(call.args) > at:
                places.append(call.args[at])
            cached |= {module.text(p) for p in places if isinstance(p, ast.Name | ast.Attribute)}
        module._flow = cached  # type: ignore[attr-defined]
    return name in cached


def default_of(args: ast.arguments, node: ast.AST) -> ast.arg | None:
    """The parameter that `node` is the default of."""
    positional = [*args.posonlyargs, *args.args]
    for arg, default in zip(positional[len(positional) - len(args.defaults) :], args.defaults,
                            strict=True):  # fmt: skip
        if default is node:
            return arg
    for arg, keyword_default in zip(args.kwonlyargs, args.kw_defaults, strict=True):
        if keyword_default is node:
            return arg
    return None


def _default_of(args: ast.arguments, node: ast.AST) -> str | None:
    """Its name."""
    arg = default_of(args, node)
    return None if arg is None else arg.arg


def _function(node: ast.AST) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    return next((up for _, up in ancestors(node) if isinstance(up, FUNCTIONS)), None)


def _field(call: ast.Call) -> bool:
    """Whether a call says the default of a parameter or a field: `field(default="cuda")`."""
    return called(call) in ("field", "Field", "Option", "Argument", "attrib", "ib")


def _is_format(child: ast.AST, call: ast.Call) -> bool:
    return False if child is not call.func else isinstance(child, ast.Attribute)


def _map_location(node: ast.Dict) -> bool:
    """Whether a dictionary maps the devices of a checkpoint."""
    up = node.up  # type: ignore[attr-defined]
    if isinstance(up, ast.keyword):
        return up.arg == "map_location"
    if isinstance(up, ast.Assign) and isinstance(up.targets[0], ast.Name):
        return up.targets[0].id == "map_location"
    return False


def _compared(
    module: Module, node: ast.Compare, child: ast.AST, what: str, word: re.Pattern[str]
) -> bool:
    """Whether a member of a tuple is compared with a device, or a name that is put together:
    `device in ("cuda", "cpu")`, `"cuda:" + str(i) != device`.
    """
    if isinstance(child, ast.Constant):
        return False
    like = device_like if what == "device" else backend_like
    return like(module, node.comparators[0] if child is node.left else node.left)
