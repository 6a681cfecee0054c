"""Whether what a module calls exists for CUDA alone, by its name."""

from __future__ import annotations

import ast
import re

from causeway.migrate import vendors
from causeway.migrate.module import Module

_CUDA_WORD = re.compile(r"(^|[._])(cuda|cu|nvcc)([._]|$)|cuda_kernel", re.I)
_EXTENSION = re.compile(r"(^|[._])(_ext|_C|ext_module|.*_ext|.*_cuda|.*_cuda_.*|cuda_.*)($|\.)")


# Operators of torch's that have a kernel for the CPU and for CUDA alone.
_CPUS_AND_CUDAS = ("torch._native_multi_head_attention", "torch._transformer_encoder_layer_fwd")
# Of torch's own, and of its sister libraries, which have kernels for other devices too.
_NOT_OWN = ("aten", "prim", "prims", "c10d", "quantized", "torchvision", "torchaudio", "inductor")


def _own_operator(api: str) -> bool:
    """Whether it is an operator of a library of the program's own: `torch.ops.mine.nearest`."""
    parts = api.split(".")
    return parts[:2] == ["torch", "ops"] and len(parts) > 3 and parts[2] not in _NOT_OWN


def kernel_of_cuda(module: Module, func: ast.expr) -> bool:
    """Whether what is called is a kernel for CUDA alone, by its name or by where it is from."""
    parts: list[str] = []
    node = func
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return False
    name = ".".join([node.id, *reversed(parts)])
    api = module.resolve(func) or name
    if api.partition(".")[0] in vendors.packages("bindings"):
        return True
    if "._C._cuda" in name or _own_operator(api) or api in _CPUS_AND_CUDAS:
        return True
    if api.startswith(("torch.cuda.", "torch.backends.", "torch.version.")) or name.endswith(
        (".cuda", ".is_cuda")
    ):
        return False
    if "triton" in name.lower():
        return True
    if _CUDA_WORD.search(name) or _CUDA_WORD.search(api):
        return not name.startswith(("self.", "args.", "torch."))
    if any(api.startswith(f"{built}.") for built in module.extensions):
        return True
    head = api.rpartition(".")[0]
    return bool(head) and bool(_EXTENSION.search(head)) and not api.startswith("torch.")
