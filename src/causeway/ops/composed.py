"""Operators that torch has kernels for on CUDA alone, computed from operators that the ladder serves.

A vendor that offers one under its name is asked first, as for any operator. Else the CPU has none
to stand in, and the core asks here; what these functions call goes through the ladder again. They
hold no device's layout: metadata of 2:4 sparsity is as torch's own conversions have it, and what
`_cslt_compress` packs is between it and the operators that read it. On meta tensors they say
shapes, for the operators that torch has no meta kernel for.

Left out: dropout in fused attention (the numbers drawn are the kernel's own), block scales of
microscaling formats.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.sparse import _semi_structured_conversions as conversions

Operator = Callable[..., Any]

_aten = torch.ops.aten


# --- products of groups ---------------------------------------------------------------------------


def _bounds(offs: Tensor) -> Iterator[tuple[int, int]]:
    begin = 0
    for end in offs.tolist():
        yield begin, end
        begin = end


def _rows(scale: Tensor, what: str, count: int) -> Tensor:
    if scale.dtype != torch.float32 or scale.numel() != count:
        raise ValueError(
            f"_scaled_grouped_mm: {what} is {scale.dtype} with {scale.numel()} numbers; expected "
            f"float32 with {count}, one for each row (microscaling formats are not served)"
        )
    return scale.flatten()


def scaled_grouped_mm(
    self: Tensor,
    mat2: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    scale_result: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
) -> Tensor:
    """Products of groups of float8 with a scale for each row of `self` and column of `mat2`.

    `offs` has the groups' ends along the dimension that they share: the rows of a 2-D `self`, the
    columns of a 2-D `mat2`, what is summed over where both are 2-D.
    """
    if bias is not None or scale_result is not None:
        raise ValueError("_scaled_grouped_mm: bias and scale_result are not served")
    dtype = out_dtype or torch.bfloat16
    a, b = self.float(), mat2.float()
    if a.dim() == 3 and b.dim() == 3:
        sa = _rows(scale_a, "scale_a", a.size(0) * a.size(1)).view(a.size(0), -1, 1)
        sb = _rows(scale_b, "scale_b", b.size(0) * b.size(2)).view(b.size(0), 1, -1)
        return ((a @ b) * sa * sb).to(dtype)
    if offs is None:
        raise ValueError("_scaled_grouped_mm: offs is needed where a factor has two dimensions")
    bounds = list(_bounds(offs))
    if a.dim() == 2 and b.dim() == 3:
        sa = _rows(scale_a, "scale_a", a.size(0)).view(-1, 1)
        sb = _rows(scale_b, "scale_b", b.size(0) * b.size(2)).view(b.size(0), 1, -1)
        out = a.new_zeros(a.size(0), b.size(2))
        for g, (begin, end) in enumerate(bounds):
            out[begin:end] = (a[begin:end] @ b[g]) * sa[begin:end] * sb[g]
        return out.to(dtype)
    if a.dim() == 3:
        sa = _rows(scale_a, "scale_a", a.size(0) * a.size(1)).view(a.size(0), -1, 1)
        sb = _rows(scale_b, "scale_b", b.size(1)).view(1, -1)
        out = a.new_zeros(a.size(1), b.size(1))
        for g, (begin, end) in enumerate(bounds):
            out[:, begin:end] = (a[g] @ b[:, begin:end]) * sa[g] * sb[:, begin:end]
        return out.to(dtype)
    groups = len(bounds)
    sa = _rows(scale_a, "scale_a", a.size(0) * groups).view(groups, -1, 1)
    sb = _rows(scale_b, "scale_b", b.size(1) * groups).view(groups, 1, -1)
    products = [a[:, begin:end] @ b[begin:end] for begin, end in bounds]
    return (torch.stack(products) * sa * sb).to(dtype)


_ROWWISE = 1  # torch.nn.functional.ScalingType.RowWise


def scaled_grouped_mm_v2(
    self: Tensor,
    mat2: Tensor,
    scale_a: list[Tensor],
    recipe_a: list[int],
    swizzle_a: list[int],
    scale_b: list[Tensor],
    recipe_b: list[int],
    swizzle_b: list[int],
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    contraction_dim: tuple[int, ...] = (),
    use_fast_accum: bool = False,
) -> Tensor:
    """The same, by recipe: a scale for each row."""
    if list(recipe_a) != [_ROWWISE] or list(recipe_b) != [_ROWWISE]:
        raise NotImplementedError(
            f"_scaled_grouped_mm_v2: recipes {list(recipe_a)} and {list(recipe_b)} are not served; "
            "ScalingType.RowWise is"
        )
    return scaled_grouped_mm(self, mat2, scale_a[0], scale_b[0], offs, bias, None, out_dtype)


# --- attention ------------------------------------------------------------------------------------


def _none(q: Tensor) -> Tensor:
    """What stands for the state of a random generator that was not asked."""
    return torch.empty((), dtype=torch.long, device="cpu" if q.device.type != "meta" else "meta")


def _no_dropout(name: str, dropout: float) -> None:
    if dropout:
        raise NotImplementedError(
            f"{name}: dropout in fused attention needs a kernel of the vendor's; "
            "torch.nn.attention.sdpa_kernel(SDPBackend.MATH) has it"
        )


def _attend(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, scale: float | None
) -> tuple[Tensor, Tensor]:
    out, logsumexp = _aten._scaled_dot_product_flash_attention_for_cpu(
        q, k, v, 0.0, causal, attn_mask=mask, scale=scale
    )
    return out, logsumexp


def _attend_backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    out: Tensor,
    logsumexp: Tensor,
    causal: bool,
    scale: float | None,
) -> tuple[Tensor, Tensor, Tensor]:
    grads: tuple[Tensor, Tensor, Tensor] = (
        _aten._scaled_dot_product_flash_attention_for_cpu_backward(
            grad, q, k, v, out, logsumexp, 0.0, causal, attn_mask=mask, scale=scale
        )
    )
    return grads


def flash_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropout: float = 0.0,
    causal: bool = False,
    debug: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Any, ...]:
    _no_dropout("_scaled_dot_product_flash_attention", dropout)
    out, logsumexp = _attend(q, k, v, None, causal, scale)
    return out, logsumexp, None, None, q.size(2), k.size(2), _none(q), _none(q), None


def flash_attention_backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    cum_seq_q: Tensor | None,
    cum_seq_k: Tensor | None,
    max_q: int,
    max_k: int,
    dropout: float,
    causal: bool,
    seed: Tensor | None,
    offset: Tensor | None,
    *,
    scale: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    return _attend_backward(grad, q, k, v, None, out, logsumexp, causal, scale)


_ROWS = 32  # CUDA's kernel pads the rows of its logsumexp to whole blocks, and shapes are said so


def efficient_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    compute_logsumexp: bool,
    dropout: float = 0.0,
    causal: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    _no_dropout("_scaled_dot_product_efficient_attention", dropout)
    out, logsumexp = _attend(q, k, v, bias, causal, scale)
    rows = math.ceil(q.size(2) / _ROWS) * _ROWS if compute_logsumexp else 0
    padded = logsumexp.new_zeros(q.size(0), q.size(1), rows)
    if rows:
        padded[:, :, : q.size(2)] = logsumexp
    return out, padded, _none(q), _none(q)


def _bias_gradient(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    causal: bool,
    scale: float | None,
) -> Tensor:
    """Of softmax(s) @ v with s = q @ k * scale + bias: p * (grad @ v - sum(grad * out))."""
    wide = torch.float64 if q.dtype == torch.float64 else torch.float32
    q, k, v, grad, out = (t.to(wide) for t in (q, k, v, grad, out))
    scores = q @ k.mT * (scale if scale is not None else q.size(-1) ** -0.5) + bias.to(wide)
    if causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(later, -math.inf)
    p = (scores - logsumexp.to(wide).unsqueeze(-1)).exp()
    whole = p * (grad @ v.mT - (grad * out).sum(-1, keepdim=True))
    return whole.sum_to_size(bias.shape).to(bias.dtype)


def efficient_attention_backward(
    grad: Tensor | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    out: Tensor,
    logsumexp: Tensor,
    seed: Tensor | None,
    offset: Tensor | None,
    dropout: float,
    wanted: list[bool],
    causal: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Tensor | None, ...]:
    if grad is None:
        return None, None, None, None
    rows = logsumexp[:, :, : q.size(2)].contiguous()
    of_bias = None
    if bias is not None and wanted[3]:
        of_bias = _bias_gradient(grad, q, k, v, bias, out, rows, causal, scale)
    return *_attend_backward(grad, q, k, v, bias, out, rows, causal, scale), of_bias


def cudnn_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    compute_logsumexp: bool,
    dropout: float = 0.0,
    causal: bool = False,
    debug: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Any, ...]:
    _no_dropout("_scaled_dot_product_cudnn_attention", dropout)
    out, logsumexp = _attend(q, k, v, bias, causal, scale)
    rows = logsumexp.unsqueeze(-1)
    return out, rows, None, None, q.size(2), k.size(2), _none(q), _none(q), None


def cudnn_attention_backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    seed: Tensor | None,
    offset: Tensor | None,
    bias: Tensor | None,
    cum_seq_q: Tensor | None,
    cum_seq_k: Tensor | None,
    max_q: int,
    max_k: int,
    dropout: float,
    causal: bool,
    *,
    scale: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    return _attend_backward(grad, q, k, v, bias, out, logsumexp.squeeze(-1), causal, scale)


# --- 2:4 sparsity, kept values and metadata apart -------------------------------------------------


def _product(a: Tensor, b: Tensor, out_dtype: torch.dtype | None) -> Tensor:
    """a @ b as kernels for 2:4 sparsity sum: integers in int32, floating point in float32."""
    if a.dtype == torch.int8:
        wide = (a.double() if a.size(1) > 1 << 10 else a.float()) @ b.to(
            torch.float64 if a.size(1) > 1 << 10 else torch.float32
        )
        whole = wide.to(torch.int32)  # sums of up to 2^10 products of 2^14 are exact in float32
        return whole if out_dtype in (None, torch.int32) else whole.to(out_dtype)
    narrow = a.dtype in (torch.float8_e4m3fn, torch.float8_e5m2)
    whole = a.float() @ b.float() if narrow else a @ b
    return whole.to(out_dtype or b.dtype)


def semi_structured_mm(
    mat1: Tensor, meta: Tensor, mat2: Tensor, *, out_dtype: torch.dtype | None = None
) -> Tensor:
    dense = conversions.sparse_semi_structured_to_dense_cutlass(mat1, meta)
    return _product(dense, mat2, out_dtype)


def semi_structured_addmm(
    bias: Tensor,
    mat1: Tensor,
    meta: Tensor,
    mat2: Tensor,
    *,
    alpha: float = 1,
    beta: float = 1,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """`bias` has a number for each row."""
    product = semi_structured_mm(mat1, meta, mat2, out_dtype=out_dtype)
    return (product * alpha + bias.unsqueeze(1) * beta).to(product.dtype)


_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "silu": F.silu}


def semi_structured_linear(
    input: Tensor,
    weight: Tensor,
    meta: Tensor,
    *,
    bias: Tensor | None = None,
    activation: str | None = None,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    if activation not in (None, "none", "", *_ACTIVATIONS):
        raise ValueError(
            f"_sparse_semi_structured_linear: activation {activation!r} is none of relu, silu"
        )
    dense = conversions.sparse_semi_structured_to_dense_cutlass(weight, meta)
    flat = _product(input.reshape(-1, input.size(-1)), dense.t(), out_dtype)
    if bias is not None:
        flat = (flat + bias).to(flat.dtype)
    out = flat.view(*input.shape[:-1], dense.size(0))
    return _ACTIVATIONS[activation](out) if activation in _ACTIVATIONS else out


def to_semi_structured(dense: Tensor) -> tuple[Tensor, Tensor]:
    packed, meta = conversions.sparse_semi_structured_from_dense_cutlass(dense)
    return packed, meta


def semi_structured_tile(
    input: Tensor, algorithm: str = "", use_cutlass: bool = True
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The largest of each tile of 4 x 4, two in each row and column: packed, and transposed."""
    pruned = conversions._sparse_semi_structured_tile(input)
    turned = pruned.t().contiguous()
    bitmask = conversions._compute_compressed_swizzled_bitmask(pruned)
    if use_cutlass:
        return *to_semi_structured(pruned), *to_semi_structured(turned), bitmask
    nothing = input.new_empty(0)
    return cslt_compress(pruned), nothing, cslt_compress(turned), nothing, bitmask


# --- 2:4 sparsity, as cuSPARSELt is asked: one tensor of kept values, then their places ------------


def _places_room(m: int, k: int, item: int) -> int:
    """Elements after the kept values: an eighth of a byte for each element of the matrix, or as
    many as torch makes room for where elements are larger than two bytes."""
    return m * k // 8 if item == 1 else m * k // 16


def cslt_compress(input: Tensor) -> Tensor:
    """The two largest of each four in a row; two bits each say which they were."""
    m, k = input.shape
    groups = input.reshape(m, k // 4, 4)
    sizes = groups.float().abs() if groups.dtype != torch.float64 else groups.abs()
    places = sizes.topk(2, dim=-1).indices.sort(dim=-1).values
    raw = groups.view(torch.int8) if groups.element_size() == 1 else groups
    kept = raw.gather(-1, places).view(input.dtype).reshape(-1)
    by_byte = places.to(torch.uint8).reshape(-1, 4)
    shifts = torch.tensor([1, 4, 16, 64], dtype=torch.uint8, device=input.device)
    packed = (by_byte * shifts).sum(-1, dtype=torch.int32).to(torch.uint8)
    room = _places_room(m, k, input.element_size())
    bytes = packed.new_zeros(room * input.element_size())
    bytes[: packed.numel()] = packed
    return torch.cat([kept.view(torch.uint8), bytes]).view(input.dtype)


def _cslt_dense(compressed: Tensor, k: int) -> Tensor:
    item = compressed.element_size()
    m = compressed.numel() * 16 // ((10 if item == 1 else 9) * k)
    kept = compressed[: m * k // 2].view(m, k // 4, 2)
    bytes = compressed[m * k // 2 :].view(torch.uint8)[: m * k // 8]
    shifts = torch.tensor([0, 2, 4, 6], dtype=torch.uint8, device=compressed.device)
    places = bytes.unsqueeze(-1).bitwise_right_shift(shifts).bitwise_and(3).to(torch.int64)
    raw = kept.view(torch.int8) if item == 1 else kept
    groups = raw.new_zeros(m, k // 4, 4).scatter_(-1, places.view(m, k // 4, 2), raw)
    return groups.view(compressed.dtype).view(m, k)


def cslt_sparse_mm(
    compressed: Tensor,
    dense: Tensor,
    bias: Tensor | None = None,
    alpha: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    transpose_result: bool = False,
    alg_id: int = 0,
    split_k: int = 1,
    split_k_mode: int = -1,
) -> Tensor:
    wide = torch.int32 if compressed.dtype == torch.int8 else torch.float32
    out = _product(_cslt_dense(compressed, dense.size(0)), dense, wide)
    if alpha is not None:
        out = out * (alpha.view(-1, 1) if alpha.numel() > 1 else alpha)
    if bias is not None:
        out = out + bias.view(-1, 1)
    dtype = out_dtype or dense.dtype
    if dtype == torch.int8:
        out = out.clamp(-128, 127)
    out = out.to(dtype)
    return out.t().contiguous() if transpose_result else out


def cslt_sparse_mm_search(*args: Any, **kwargs: Any) -> int:
    return 0  # there is one algorithm


COMPOSED: dict[str, Operator] = {
    "aten::_scaled_grouped_mm": scaled_grouped_mm,
    "aten::_scaled_grouped_mm_v2": scaled_grouped_mm_v2,
    "aten::_scaled_dot_product_flash_attention": flash_attention,
    "aten::_scaled_dot_product_flash_attention_backward": flash_attention_backward,
    "aten::_scaled_dot_product_efficient_attention": efficient_attention,
    "aten::_scaled_dot_product_efficient_attention_backward": efficient_attention_backward,
    "aten::_scaled_dot_product_cudnn_attention": cudnn_attention,
    "aten::_scaled_dot_product_cudnn_attention_backward": cudnn_attention_backward,
    "aten::_sparse_semi_structured_mm": semi_structured_mm,
    "aten::_sparse_semi_structured_addmm": semi_structured_addmm,
    "aten::_sparse_semi_structured_linear": semi_structured_linear,
    "aten::_sparse_semi_structured_tile": semi_structured_tile,
    "aten::_to_sparse_semi_structured": to_semi_structured,
    "aten::_cslt_compress": cslt_compress,
    "aten::_cslt_sparse_mm": cslt_sparse_mm,
    "aten::_cslt_sparse_mm_search": cslt_sparse_mm_search,
}
