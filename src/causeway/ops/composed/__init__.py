"""Operators that torch has kernels for on CUDA alone, computed from others that the ladder serves.

A vendor that offers one under its name is asked first, as for any operator. Else the CPU has none
to stand in, and the core asks here; what these functions call goes through the ladder again. On
meta tensors they say shapes, for the operators that torch has no meta kernel for.

Left out: dropout in fused attention, block scales of microscaling formats.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from causeway.ops.composed import attention, products, sparsity

COMPOSED: dict[str, Callable[..., Any]] = {
    "aten::_grouped_mm": products.grouped_mm,
    "aten::_scaled_grouped_mm": products.scaled_grouped_mm,
    "aten::_scaled_grouped_mm_v2": products.scaled_grouped_mm_v2,
    "aten::_scaled_dot_product_flash_attention": attention.flash_attention,
    "aten::_scaled_dot_product_flash_attention_backward": attention.flash_attention_backward,
    "aten::_scaled_dot_product_efficient_attention": attention.efficient_attention,
    "aten::_scaled_dot_product_efficient_attention_backward": attention.efficient_sdp_backward,
    "aten::_scaled_dot_product_cudnn_attention": attention.cudnn_attention,
    "aten::_scaled_dot_product_cudnn_attention_backward": attention.cudnn_attention_backward,
    "aten::_flash_attention_forward": attention.flash_forward,
    "aten::_flash_attention_backward": attention.flash_backward,
    "aten::_efficient_attention_forward": attention.efficient_forward,
    "aten::_efficient_attention_backward": attention.efficient_backward,
    "aten::_sparse_semi_structured_mm": sparsity.semi_structured_mm,
    "aten::_sparse_semi_structured_addmm": sparsity.semi_structured_addmm,
    "aten::_sparse_semi_structured_linear": sparsity.semi_structured_linear,
    "aten::_sparse_semi_structured_tile": sparsity.semi_structured_tile,
    "aten::_sparse_semi_structured_apply": sparsity.semi_structured_apply,
    "aten::_sparse_semi_structured_apply_dense": sparsity.semi_structured_apply_dense,
    "aten::_to_sparse_semi_structured": sparsity.to_semi_structured,
    "aten::_cslt_compress": sparsity.cslt_compress,
    "aten::_cslt_sparse_mm": sparsity.cslt_sparse_mm,
    "aten::_cslt_sparse_mm_search": sparsity.cslt_sparse_mm_search,
}
