"""2:4 sparsity: two of each four in a row are kept.

Metadata is as torch's own conversions have it; what `_cslt_compress` packs is between it and the
operators that read it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.sparse import _semi_structured_conversions

conversions: Any = _semi_structured_conversions  # not annotated


# --- kept values and metadata apart ---------------------------------------------------------------


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


def _dense(packed: Tensor, meta: Tensor) -> Tensor:
    """As bits: torch takes float32 for pairs of float16, and some of these are NaN."""
    bits = packed if packed.element_size() == 1 else packed.view(torch.int16)
    dense: Tensor = conversions.sparse_semi_structured_to_dense_cutlass(bits, meta)
    return dense.view(packed.dtype)


def semi_structured_mm(
    mat1: Tensor, meta: Tensor, mat2: Tensor, *, out_dtype: torch.dtype | None = None
) -> Tensor:
    dense = _dense(mat1, meta)
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
    dense = _dense(weight, meta)
    flat = _product(input.reshape(-1, input.size(-1)), dense.t(), out_dtype)
    if bias is not None:
        flat = (flat + bias).to(flat.dtype)
    out = flat.view(*input.shape[:-1], dense.size(0))
    return _ACTIVATIONS[activation](out) if activation in _ACTIVATIONS else out


def to_semi_structured(dense: Tensor) -> tuple[Tensor, Tensor]:
    packed, meta = conversions.sparse_semi_structured_from_dense_cutlass(dense)
    return packed, meta


# What a row of a tile of 4 x 4 may keep; columns keep two.
_KEPT = {"causal1122": (1, 1, 2, 2)}
_ALGORITHMS = ("", "largest_values_greedy", "largest_abs_values_greedy", "causal1122")


def _tiles(t: Tensor) -> Tensor:
    """(m, n) as (m / 4, n / 4, 16)."""
    m, n = t.shape
    return t.reshape(m // 4, 4, n // 4, 4).transpose(1, 2).flatten(2)


def _untiled(t: Tensor) -> Tensor:
    m, n = t.shape[:2]
    return t.reshape(m, n, 4, 4).transpose(1, 2).reshape(m * 4, n * 4)


def _greedy_mask(input: Tensor, algorithm: str) -> Tensor:
    """What stays: the largest of each tile of 4 x 4 first, where row and column have room."""
    if algorithm not in _ALGORITHMS:
        raise ValueError(
            f"_sparse_semi_structured_tile: algorithm {algorithm!r} is none of "
            f"{', '.join(_ALGORITHMS[1:])}"
        )
    values = _tiles(input).float()
    tiles = (values.abs() if "abs" in algorithm else values).flatten(0, 1)
    room = torch.tensor(_KEPT.get(algorithm, (2, 2, 2, 2)), device=input.device)
    if algorithm in _KEPT:  # row by row, from the last
        order = tiles.view(-1, 4, 4).sort(dim=-1, descending=True, stable=True).indices
        base = torch.arange(4, device=input.device).unsqueeze(-1) * 4
        order = (order + base).flip(1).flatten(1)
    else:
        order = tiles.sort(dim=-1, descending=True, stable=True).indices
    rows = room.repeat(tiles.size(0), 1)
    columns = torch.full_like(rows, 2)
    kept = torch.zeros_like(tiles, dtype=torch.bool)
    for at in order.unbind(1):  # all tiles at once, sixteen steps
        row, column = (at // 4).unsqueeze(1), (at % 4).unsqueeze(1)
        fits = (rows.gather(1, row) > 0) & (columns.gather(1, column) > 0)
        rows.scatter_add_(1, row, -fits.long())
        columns.scatter_add_(1, column, -fits.long())
        kept.scatter_(1, at.unsqueeze(1), fits)
    return _untiled(kept.view(*values.shape[:2], 16))


def _bitmask(kept: Tensor) -> Tensor:
    """Eight bytes for each 8 x 8, two for each 4 x 4 of it, the lowest bit first."""
    m, n = kept.size(0) // 8, kept.size(1) // 8
    tiles = _tiles(kept).reshape(m, 2, n, 2, 16).transpose(1, 2)
    bits = tiles.reshape(m, n, 8, 8).to(torch.int32)
    powers = torch.tensor([1 << i for i in range(8)], dtype=torch.int32, device=kept.device)
    return (bits * powers).sum(-1, dtype=torch.int32).to(torch.uint8)


def _of_bitmask(masks: Tensor) -> Tensor:
    m, n = masks.size(0), masks.size(1)
    bytes = masks.reshape(m, n, 8, 1).to(torch.int32)
    powers = torch.tensor([1 << i for i in range(8)], dtype=torch.int32, device=masks.device)
    bits = bytes.bitwise_and(powers) != 0
    tiles = bits.reshape(m, n, 2, 2, 16).transpose(1, 2).reshape(m * 2, n * 2, 16)
    return _untiled(tiles)


def semi_structured_tile(
    input: Tensor, algorithm: str = "", use_cutlass: bool = True
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The largest of each tile of 4 x 4, two in each row and column: packed, and transposed."""
    kept = _greedy_mask(input, algorithm)
    pruned = input.masked_fill(~kept, 0)
    turned = pruned.t().contiguous()
    if use_cutlass:
        packed, meta = _packed(pruned, kept)
        packed_t, meta_t = _packed(turned, kept.t().contiguous())
        return packed, meta, packed_t, meta_t, _bitmask(kept)
    nothing = input.new_empty(0)
    return cslt_compress(pruned), nothing, cslt_compress(turned), nothing, _bitmask(kept)


def _packed(input: Tensor, kept: Tensor) -> tuple[Tensor, Tensor]:
    """As `to_semi_structured`, but by what is kept: a kept zero has its place too."""
    m, k = input.shape
    place = torch.arange(k, device=input.device) % 4 + 1
    slots, meta = to_semi_structured((kept * place).to(input.dtype))
    at = slots.view(m, k // 4, 2).long() - 1
    values = input.reshape(m, k // 4, 4).gather(-1, at.clamp(min=0))
    return values.masked_fill(at < 0, 0).view(m, k // 2), meta


def semi_structured_apply(input: Tensor, thread_masks: Tensor) -> tuple[Tensor, Tensor]:
    kept = _of_bitmask(thread_masks)
    masked = input.masked_fill(~kept, 0)
    turned = _packed(masked.t().contiguous(), kept.t().contiguous())
    return _packed(masked, kept)[0], turned[0]


def semi_structured_apply_dense(input: Tensor, thread_masks: Tensor) -> Tensor:
    return input.masked_fill(~_of_bitmask(thread_masks), 0)


# --- 2:4 sparsity, as cuSPARSELt is asked: one tensor of kept values, then their places ----------


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
    compressed = compressed.reshape(-1)  # programs view it by rows
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
