"""Whether a condition chooses between code for CUDA alone and other code."""

from __future__ import annotations

import ast
import re

from causeway.migrate.module import Module
from causeway.migrate.names import FUNCTIONS, ancestors, statement
from causeway.migrate.rules import beside, labels
from causeway.migrate.rules.callees import kernel_of_cuda
from causeway.migrate.rules.roles import device_like
from causeway.migrate.vendors import PROVIDERS

_OPERATOR = ("torch.autograd.Function", "torch.autograd.function.Function")


def chooses_kernel(module: Module, node: ast.AST) -> bool:
    """Whether a question about the device leads to kernels that exist for CUDA alone: a function
    that calls one in the same function, or a choice of "cuda" as an implementation beside it.
    """
    if _by_architecture(module, node) or beside.of_cuda(module, node):
        return True
    if compiles_for_cuda(module) or _needs_extension(module):
        return True
    if beside.beside_narrow(node) or _chooses_index(node) or beside.chooses_module(module, node):
        return True
    if any(
        isinstance(up, ast.ClassDef)
        and any(module.resolve(base).startswith("apex.") for base in up.bases)
        for _, up in ancestors(node)
    ):
        return True
    where: ast.AST | None = None
    for child, up in ancestors(node):
        if isinstance(up, ast.BoolOp):
            for value in up.values:
                if value is not child and (_implementation(module, value) or _triton(value)):
                    return True
        if isinstance(up, ast.If) and up.test is child:
            where = up  # outside of functions
            if _refuses_others(module, up) or labels.says_cuda_alone(module, up):
                return True
            if beside.has_torchs_code(up):
                return True
            if any(module.own_member(n) for part in up.body for n in ast.walk(part)):
                return True  # what another library calls CUDA
        if isinstance(up, FUNCTIONS) and child in up.body:
            where = up
            break
    if where is None:
        return False
    if any(api.startswith("numba.cuda") for api in module.brought):
        return True
    for inner in ast.walk(where):
        if isinstance(inner, ast.ImportFrom) and not (inner.module or "").startswith("torch"):
            parts = [*(inner.module or "").split("."), *(a.name for a in inner.names)]
            if any(_CUDA_MODULE.search(part) for part in parts):
                return True
        if isinstance(inner, ast.Call) and module.resolve(inner.func).startswith("faiss."):
            return True
        if isinstance(inner, ast.Attribute) and inner.attr == "enabled" and isinstance(
            inner.ctx, ast.Load
        ) and module.resolve(inner) == "torch.backends.cudnn.enabled":  # fmt: skip
            return True
        if isinstance(inner, ast.Call) and (
            kernel_of_cuda(module, inner.func) or _applies_kernel(module, inner.func)
        ):
            return True
        if isinstance(inner, ast.Call) and asks_capability(module, inner.func):
            return True
        if isinstance(inner, ast.Constant) and inner.value in PROVIDERS:
            return True
        if isinstance(inner, ast.Assign) and _function_for_cuda(module, inner.value):
            return True
        if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Subscript):
            api = module.resolve(inner.func.value)
            name = getattr(inner.func.value, "id", "")
            if api.startswith("triton") or name.endswith("_kernel"):
                return True
    return False


def compiles_for_cuda(module: Module) -> bool:
    """Whether a module compiles kernels of CUDA's as it runs: `load_inline(…, cuda_sources=…)`, or
    `load(…)` with files of CUDA's. Its questions are about them.
    """
    text = module.source.text
    if "cpp_extension" not in text or not ("cuda_sources" in text or ".cu" in text):
        return False
    called = {
        module.resolve(call.func).rpartition(".")
        for call in module.names.all(ast.Call)
    }  # fmt: skip
    loads = any(
        home == "torch.utils.cpp_extension" and name in ("load", "load_inline")
        for home, _, name in called
    )
    return loads and ("cuda_sources" in text or any(
        isinstance(n.value, str) and n.value.endswith(".cu") for n in module.names.all(ast.Constant)
    ))  # fmt: skip


def _needs_extension(module: Module) -> bool:
    """Whether a module cannot be imported without an extension that its tree builds for CUDA."""
    return bool(module.extensions) and any(
        isinstance(node.up, ast.Module) and any(  # type: ignore[union-attr]
            f"{getattr(node, 'module', '') or ''}.{alias.name}".strip(".") in module.extensions
            for alias in node.names
        )
        for node in module.imports()
    )  # fmt: skip


def _chooses_index(node: ast.AST) -> bool:
    """Whether it chooses a device's index, by which CUDA's is called: `d.index if d.type == "cuda"
    else d.type`. Apple's device has none.
    """
    up = node.up  # type: ignore[attr-defined]
    body: ast.AST | None = None
    if isinstance(up, ast.IfExp) and up.test is node:
        body = up.body
    elif isinstance(up, ast.If) and up.test is node and len(up.body) == 1 and up.orelse:
        body = getattr(up.body[0], "value", None)
    return isinstance(body, ast.Attribute) and body.attr == "index"


_CAPABILITY = re.compile(r"(?:^|_)(?:device|compute)_capabilit(?:y|ies)$|(?:^|_)sm_version$")


def asks_capability(module: Module, func: ast.expr) -> bool:
    """Whether a function of the program's own gives a compute capability of NVIDIA's."""
    if module.resolve(func).startswith("torch."):
        return False
    name = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
    return bool(_CAPABILITY.search(name))


def _refuses_others(module: Module, node: ast.If) -> bool:
    """Whether an operator of the program's own ends where its tensors are not CUDA's:
    `if not x.is_cuda: raise NotImplementedError("only CUDA tensors")` in an autograd.Function.
    """
    raised = node.body[0]
    if not isinstance(raised, ast.Raise) or "cuda" not in module.text(raised).lower():
        return False
    if labels.says_only_cuda(module, raised):
        return True
    homes = (up for _, up in ancestors(node) if isinstance(up, ast.ClassDef))
    home = next(homes, None)
    bases = home.bases if home else []
    return any(module.resolve(base) in _OPERATOR for base in bases)


def _applies_kernel(module: Module, func: ast.expr) -> bool:
    """Whether what is called is `apply` of an autograd.Function whose kernels are for CUDA alone:
    apex's, or one of the module's own that calls such a kernel; or such a function that is made
    first, as in old torch: `Norm(shape)(x)`.
    """
    if isinstance(func, ast.Call) and isinstance(func.func, ast.Name):
        return _of_kernel(module, func.func)
    if not (isinstance(func, ast.Attribute) and func.attr == "apply"):
        return False
    held = [func.value]
    if isinstance(func.value, ast.Attribute):  # what the class keeps: self.norm = FusedNorm
        held += [
            up.value
            for node in module.names.all(ast.Attribute)
            if node.attr == func.value.attr and isinstance(node.ctx, ast.Store)
            and isinstance(up := node.up, ast.Assign)  # type: ignore[attr-defined]
        ]  # fmt: skip
    if any(module.resolve(value).startswith("apex.") for value in held):
        return True
    return isinstance(func.value, ast.Name) and _of_kernel(module, func.value)


def _of_kernel(module: Module, name: ast.Name) -> bool:
    """Whether a name is a function of the module's own that calls a kernel of CUDA's."""
    bound = module.names.bindings(name)
    return any(
        isinstance(binding.node, ast.ClassDef)
        and any(module.resolve(base) in _OPERATOR for base in binding.node.bases)
        and any(isinstance(n, ast.Call) and kernel_of_cuda(module, n.func)
                for n in ast.walk(binding.node))
        for binding in bound
    )  # fmt: skip


_ARCHITECTURE = ("torch.cuda.get_device_capability", "torch.cuda.get_device_properties")


def _by_architecture(module: Module, node: ast.AST) -> bool:
    """Whether a question about the device chooses what its class set for NVIDIA's architectures:
    `self.cuda_config if x.is_cuda else self.cpu_config`, where `cuda_config` follows from
    `get_device_properties(...).major` and stays None elsewhere.
    """
    homes = [up for _, up in ancestors(node) if isinstance(up, (*FUNCTIONS, ast.ClassDef))]
    class_ = next((up for up in homes if isinstance(up, ast.ClassDef)), None)
    if class_ is None or not any(word in module.source.text for word in ("major", "capability")):
        return False
    made = {
        target.attr
        for function in class_.body
        if isinstance(function, FUNCTIONS) and _asks_architecture(module, function)
        for target in ast.walk(function)
        if isinstance(target, ast.Attribute) and isinstance(target.ctx, ast.Store)
    }
    if not made:
        return False
    names = {n.id for n in ast.walk(statement(node)) if isinstance(n, ast.Name)
             and isinstance(n.ctx, ast.Store)}  # fmt: skip
    for choice in ast.walk(homes[0]):
        if not isinstance(choice, ast.If | ast.IfExp):
            continue
        asks = any(n is node or getattr(n, "id", "") in names for n in ast.walk(choice.test))
        taken = choice.body if isinstance(choice.body, list) else [choice.body]
        reads = {n.attr for part in taken for n in ast.walk(part) if isinstance(n, ast.Attribute)}
        if asks and made & reads:
            return True
    return False


def _asks_architecture(module: Module, function: ast.AST) -> bool:
    """Whether a function asks for the architecture of a GPU of NVIDIA's."""
    called = {
        module.resolve(inner.func) for inner in ast.walk(function) if isinstance(inner, ast.Call)
    }
    if _ARCHITECTURE[0] in called:
        return True
    return _ARCHITECTURE[1] in called and any(
        isinstance(inner, ast.Attribute) and inner.attr in ("major", "minor")
        for inner in ast.walk(function)
    )


# A source of CUDA's, a macro of a build with it.
_SOURCE = re.compile(
    r"\.cuh?$|_cuda\w*\.(?:c|cc|cpp|h)$|^-?D?(?:__)?(?:WITH|USE)_CUDA$|^-D\w*CUDA\w*$|\.cu\.o$"
)
_FLAGS = re.compile(r"(?:^|_)(?:cuda|nvcc)_c?flags$|^nvcc_args$")
# A package that has a build for CUDA, as an installation's requirement names it.
_PACKAGE = re.compile(
    r"^(?:onnxruntime|tensorflow|paddlepaddle|faiss)-gpu|^(?:cupy|jax|jaxlib)-?\[?cuda|^tensorrt\b"
)
_BUILDS = re.compile(r"^(?:tensorflow|onnxruntime|paddlepaddle|faiss)$")
_CUDA_MODULE = re.compile(r"(?:^|_)cuda(?:_|$)", re.I)
_GPU_MODULE = re.compile(r"(?:^|_)(?:gpu|cuda)(?:_|$)", re.I)


def builds_for_cuda(node: ast.AST) -> bool:
    """Whether a statement names sources of CUDA for a build, its compiler, or a provider of another
    library, or imports what was built.
    """
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name | ast.Attribute):
            name = inner.id if isinstance(inner, ast.Name) else inner.attr
            if name in ("CUDAExtension", "CUDA_HOME") or _FLAGS.search(name):
                return True
        if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
            if _SOURCE.search(inner.value) or inner.value in PROVIDERS:
                return True
            if _PACKAGE.search(inner.value):
                return True
        elif isinstance(inner, ast.ImportFrom) and not (inner.module or "").startswith("torch"):
            parts = [*(inner.module or "").split("."), *(a.name for a in inner.names)]
            if any(_GPU_MODULE.search(part) for part in parts):
                return True
    return False


def names_build(node: ast.AST) -> bool:
    """Whether a question within an f-string chooses the build of a package:
    `f"tensorflow{'' if torch.cuda.is_available() else '-cpu'}"`.
    """
    return any(
        isinstance(up, ast.JoinedStr)
        and isinstance(first := up.values[0], ast.Constant)
        and bool(_BUILDS.search(str(first.value)))
        for _, up in ancestors(node)
    )


def sets_switches(module: Module, node: ast.AST) -> bool:
    """Whether a statement sets a switch of CUDA's libraries: `torch.backends.cudnn.benchmark`."""
    if not isinstance(node, ast.Assign):
        return False
    switches = ("torch.backends.cuda.", "torch.backends.cudnn.")
    return all(module.resolve(target).startswith(switches) for target in node.targets)


_SWITCH = re.compile(r"(?:use|is|has|no|with|on|to|want)_", re.I)


def _loaded(module: Module, value: ast.expr | None) -> bool:
    """Whether a value is what a call compiles from sources of C++, or loads:
    `load_extension("ops", ["ops.cpp", "ops.cu"])`.
    """
    return isinstance(value, ast.Call) and any(
        isinstance(n, ast.Constant) and str(n.value).endswith((".cpp", ".cc", ".cu"))
        for n in ast.walk(value)
    )


def _function_for_cuda(module: Module, node: ast.expr) -> bool:
    """Whether a value is a function for CUDA that the module defines or imports, by its name:
    `loss = focal_loss_cuda`.
    """
    if isinstance(node, ast.IfExp):
        return _function_for_cuda(module, node.body) or _function_for_cuda(module, node.orelse)
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        own = [b.value for b in module.names.bindings(node.value)]  # `ext.add_cuda`
        return node.attr.endswith("_cuda") and any(_loaded(module, value) for value in own)
    if not isinstance(node, ast.Name) or not node.id.lower().endswith("_cuda"):
        return False
    scope = module.names.holder(node.id, node.scope)  # type: ignore[attr-defined]
    return scope is module.names.module and not _SWITCH.match(node.id)


def _triton(node: ast.expr) -> bool:
    """Whether a condition asks for Triton: `HAS_TRITON and x.is_cuda`."""
    return any(
        isinstance(n, ast.Name | ast.Attribute)
        and "triton" in (n.id if isinstance(n, ast.Name) else n.attr).lower()
        for n in ast.walk(node)
    )


def _implementation(module: Module, node: ast.expr) -> bool:
    """`impl == "cuda"`: a comparison with "cuda" of what is no device."""
    return (
        isinstance(node, ast.Compare)
        and len(node.comparators) == 1
        and isinstance(node.comparators[0], ast.Constant)
        and node.comparators[0].value == "cuda"
        and not device_like(module, node.left)
    )
