"""What the compiler takes of Inductor: every name that torch does not promise, in this one file.

They move with torch's minor releases. Where one is gone, `missing()` says which, and torch.compile
runs the graph by the ladder instead (backend.py), with a warning that names it.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

# Module, and what of it is used.
NAMES = {
    "torch._inductor.fx_passes.reinplace": ("inplaceable_ops",),
    "torch._inductor.codegen.common": (
        "CSE",
        "DTYPE_TO_COMPUTATION_DTYPE",
        "BackendFeature",
        "DeferredLine",
        "DeviceOpOverrides",
        "IndentedBuffer",
        "OpOverrides",
        "RemovedArg",
        "register_backend_for_device",
        "register_device_op_overrides",
    ),
    "torch._inductor.codegen.simd": ("SIMDKernel", "SIMDKernelFeatures", "SIMDScheduling"),
    "torch._inductor.codegen.wrapper": (
        "PythonWrapperCodegen",
        "SubgraphPythonWrapperCodegen",
        "WrapperLine",
    ),
    "torch._inductor.custom_graph_pass": ("CustomGraphModulePass",),
    "torch._inductor.decomposition": ("decompositions",),
    "torch._inductor.dependencies": ("MemoryDep",),
    "torch._inductor.ir": (
        "Buffer",
        "ExternKernel",
        "ExternKernelAlloc",
        "ExternKernelOut",
        "FixedLayout",
        "Layout",
        "ReinterpretView",
        "TemplateBuffer",
    ),
    "torch._inductor.lowering": ("make_fallback",),
    "torch._inductor.utils": (
        "get_bounds_index_expr",
        "get_fused_kernel_name",
        "get_kernel_metadata",
        "sympy_product",
    ),
    "torch._inductor.virtualized": ("V", "ops"),
    "torch.utils._ordered_set": ("OrderedSet",),
    "torch.utils._sympy.functions": ("Max",),
    "torch.utils._sympy.printers": ("ExprPrinter", "PythonPrinter"),
    "torch.utils._sympy.symbol": ("SymT", "symbol_is_type"),
    "torch.utils._sympy.value_ranges": ("ValueRanges",),
}
# Methods that are overridden, or called on an object of Inductor's.
METHODS = {
    "SIMDKernel": (
        "codegen_body",
        "codegen_iteration_ranges_entry",
        "codegen_kernel",
        "call_kernel",
        "is_indirect_indexing",
        "prepare_indexing",
        "rename_indexing",
        "index_to_str",
    ),
    "SIMDScheduling": (
        "can_fuse_horizontal",
        "can_fuse_vertical",
        "codegen_node_schedule",
        "codegen_node_schedule_with_kernel",
        "codegen_template",
        "define_kernel",
        "free_buffers_in_scheduler",
        "generate_node_schedule",
        "get_backend_features",
    ),
    "PythonWrapperCodegen": (
        "_generate_kernel_call_helper",
        "codegen_inputs",
        "codegen_python_sizevar",
        "generate_after_suffix",
        "make_allocation",
        "write_assert_size_stride",
        "write_async_compile_wait",
        "generate_numel_expr",
        "next_kernel_suffix",
    ),
}


@functools.cache
def missing() -> str:
    """The first of the names that this torch does not have, or ""."""
    for module, names in NAMES.items():
        try:
            loaded = importlib.import_module(module)
        except ImportError as error:
            return f"{module} ({error})"
        for name in names:
            if not hasattr(loaded, name):
                return f"{module}.{name}"
    for module in ("torch._inductor.codegen.simd", "torch._inductor.codegen.wrapper"):
        loaded = importlib.import_module(module)
        for owner, methods in METHODS.items():
            for method in methods if hasattr(loaded, owner) else ():
                if not hasattr(getattr(loaded, owner), method):
                    return f"{module}.{owner}.{method}"
    return ""


def __getattr__(name: str) -> Any:
    for module, names in NAMES.items():
        if name in names:
            return getattr(importlib.import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
