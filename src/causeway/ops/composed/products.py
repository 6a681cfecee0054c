"""Products of groups: shapes, and those of float8, each row and column with a scale."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor


def grouped_mm(
    self: Tensor,
    mat2: Tensor,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """The shape alone, on meta tensors: torch's own takes bfloat16 only, and computes all."""
    rows, columns = self.size(-2), mat2.size(-1)
    groups = [x.size(0) for x in (self, mat2) if x.dim() == 3]
    if offs is not None and not groups:
        groups = [offs.size(0)]
    whole = self.dim() == mat2.dim()  # else one of them is cut into the groups
    shape = (groups[0], rows, columns) if whole else (rows, columns)
    return self.new_empty(shape, dtype=out_dtype or self.dtype)


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
