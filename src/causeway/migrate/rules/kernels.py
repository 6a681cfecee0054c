"""Whether a condition chooses between code for CUDA alone and other code."""

from __future__ import annotations

import ast
import re

from causeway.migrate.module import PROVIDERS, Module
from causeway.migrate.names import FUNCTIONS, ancestors
from causeway.migrate.rules.callees import kernel_of_cuda
from causeway.migrate.rules.roles import device_like


def chooses_kernel(module: Module, node: ast.AST) -> bool:
    """Whether a question about the device leads to kernels that exist for CUDA alone: a function
    that calls one in the same function, or a choice of "cuda" as an implementation beside it.
    """
    where: ast.AST | None = None
    for child, up in ancestors(node):
        if isinstance(up, ast.BoolOp):
            for value in up.values:
                if value is not child and (_implementation(module, value) or _triton(value)):
                    return True
        if isinstance(up, ast.If) and up.test is child:
            where = up  # outside of functions
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
        if isinstance(inner, ast.Call) and kernel_of_cuda(module, inner.func):
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


# A source of CUDA's, a macro of a build with it.
_SOURCE = re.compile(r"\.cuh?$|_cuda\w*\.(?:c|cc|cpp|h)$|^-?D?(?:__)?(?:WITH|USE)_CUDA$|\.cu\.o$")
_CUDA_MODULE = re.compile(r"(?:^|_)cuda(?:_|$)", re.I)
_GPU_MODULE = re.compile(r"(?:^|_)(?:gpu|cuda)(?:_|$)", re.I)


def builds_for_cuda(node: ast.AST) -> bool:
    """Whether a statement names sources of CUDA for a build or a provider of another library, or
    imports what was built.
    """
    for inner in ast.walk(node):
        if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
            if _SOURCE.search(inner.value) or inner.value in PROVIDERS:
                return True
        elif isinstance(inner, ast.ImportFrom) and not (inner.module or "").startswith("torch"):
            parts = [*(inner.module or "").split("."), *(a.name for a in inner.names)]
            if any(_GPU_MODULE.search(part) for part in parts):
                return True
    return False


def sets_switches(module: Module, node: ast.AST) -> bool:
    """Whether a statement sets a switch of CUDA's libraries: `torch.backends.cudnn.benchmark`."""
    if not isinstance(node, ast.Assign):
        return False
    switches = ("torch.backends.cuda.", "torch.backends.cudnn.")
    return all(module.resolve(target).startswith(switches) for target in node.targets)


_SWITCH = re.compile(r"(?:use|is|has|no|with|on|to|want)_", re.I)


def _function_for_cuda(module: Module, node: ast.expr) -> bool:
    """Whether a value is a function for CUDA that the module defines or imports, by its name:
    `loss = focal_loss_cuda`.
    """
    if isinstance(node, ast.IfExp):
        return _function_for_cuda(module, node.body) or _function_for_cuda(module, node.orelse)
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
