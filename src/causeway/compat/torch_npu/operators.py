"""Operators of torch_npu that torch expresses. Formulas and arguments are those of torch_npu's
documentation of each; the results are torch's, on any device, and have gradients.

Where torch_npu returns intermediate results for its own backward, autograd keeps those here, and
the place holds an empty tensor.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from causeway import _C
from causeway.compat.torch_npu.npu_format import Format
from causeway.errors import CausewayError


def _only(operator: str, **given: Any) -> None:
    """Raise for an argument that is not served: `_only("npu_x", scale=scale is None)`."""
    for name, fine in given.items():
        if not fine:
            raise CausewayError(
                f"torch_npu.{operator}: {name} is not served; write it with torch's operators "
                "(docs/compat.md)"
            )


# --- layout and dtype -----------------------------------------------------------------------------

_formats: weakref.WeakKeyDictionary[torch.UntypedStorage, Format] = weakref.WeakKeyDictionary()


def npu_format_cast(input: Tensor, acl_format: Any, customize_dtype: Any = None) -> Tensor:
    """The tensor itself. Where that pays the chip keeps a layout of its own too (layout.v1); asking
    for another format than ND (2) or NCHW (0) is torch.npu.allow_layouts.
    """
    if input.device.type == torch._C._get_privateuse1_backend_name():
        _formats[input.untyped_storage()] = Format(acl_format)
        if acl_format not in (0, 2):
            _C.allow_layouts(input)
    return input


def npu_format_cast_(input: Tensor, acl_format: Any) -> Tensor:
    """The tensor itself, as npu_format_cast."""
    return npu_format_cast(input, acl_format)


def get_npu_format(input: Tensor) -> Format:
    """What npu_format_cast was asked for, else 2, which is ND; as with torch_npu a file has numbers
    alone. A tensor has torch's strides in any case.
    """
    return _formats.get(input.untyped_storage(), Format.ND)


def npu_dtype_cast(input: Tensor, dtype: torch.dtype, input_dtype: Any = None) -> Tensor:
    """input.to(dtype)."""
    _only("npu_dtype_cast", input_dtype=input_dtype is None)
    return input.to(dtype)


def npu_transpose(self: Tensor, perm: Sequence[int], require_contiguous: bool = True) -> Tensor:
    """self.permute(perm), contiguous."""
    return self.permute(*perm).contiguous()


def npu_broadcast(self: Tensor, size: Sequence[int]) -> Tensor:
    """self.expand(size), contiguous."""
    return self.expand(*size).contiguous()


def npu_reshape(self: Tensor, shape: Sequence[int], can_refresh: bool = False) -> Tensor:
    """self.reshape(shape)."""
    return self.reshape(*shape)


def npu_slice(self: Tensor, offsets: Sequence[int], size: Sequence[int]) -> Tensor:
    """`size` elements from `offsets` on, in each dimension; a size of -1 is all that is left."""
    for dim, (offset, length) in enumerate(zip(offsets, size, strict=True)):
        self = self.narrow(dim, offset, self.size(dim) - offset if length == -1 else length)
    return self.contiguous()


def npu_confusion_transpose(
    self: Tensor, perm: Sequence[int], shape: Sequence[int], transpose_first: bool
) -> Tensor:
    """permute and then reshape, or the other way round."""
    if transpose_first:
        return self.permute(*perm).reshape(*shape)
    return self.reshape(*shape).permute(*perm).contiguous()


def npu_one_hot(
    input: Tensor, num_classes: int = -1, depth: int = 1, on_value: float = 1, off_value: float = 0
) -> Tensor:
    """float32 of shape (*input, depth); a class outside of 0 to depth - 1 has no `on_value`."""
    _only("npu_one_hot", num_classes=num_classes == -1)
    classes = torch.arange(depth, device=input.device, dtype=input.dtype)
    here = input.unsqueeze(-1) == classes
    on, off = (input.new_full((), v, dtype=torch.float32) for v in (on_value, off_value))
    return torch.where(here, on, off)


def npu_pad(input: Tensor, paddings: Sequence[int]) -> Tensor:
    """Zeros before and after: paddings are pairs, of the first dimension first."""
    pairs = [tuple(paddings[i : i + 2]) for i in range(0, len(paddings), 2)]
    return F.pad(input, [n for pair in reversed(pairs) for n in pair])


# --- products -------------------------------------------------------------------------------------


def npu_linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """torch.nn.functional.linear."""
    return F.linear(input, weight, bias)


def npu_bmmV2(self: Tensor, mat2: Tensor, output_sizes: Sequence[int] = ()) -> Tensor:
    """torch.matmul, in the shape `output_sizes` where one is given."""
    product = torch.matmul(self, mat2)
    return product.reshape(*output_sizes) if len(output_sizes) else product


def npu_grouped_matmul(
    x: Sequence[Tensor], weight: Sequence[Tensor], *, bias: Sequence[Tensor] | None = None,
    group_list: Any = None, split_item: int = 0, group_type: int | None = None, **others: Any,
) -> list[Tensor]:  # fmt: skip
    """x[i] @ weight[i] + bias[i], each of its own shape."""
    _only(
        "npu_grouped_matmul", group_list=group_list is None, split_item=split_item in (0, 1),
        group_type=group_type in (None, -1),
        **{name: value in (None, 0) for name, value in others.items()},
    )  # fmt: skip
    products = [a @ b for a, b in zip(x, weight, strict=True)]
    return [p + b for p, b in zip(products, bias, strict=True)] if bias else products


_Activation = Callable[[Tensor], Tensor]
_ACTIVATIONS: dict[str, _Activation] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "fastgelu": lambda x: x * torch.sigmoid(1.702 * x),
    "silu": F.silu,
}


def npu_ffn(
    x: Tensor, weight1: Tensor, weight2: Tensor, activation: str, *,
    bias1: Tensor | None = None, bias2: Tensor | None = None, inner_precise: int | None = None,
    **others: Any,
) -> Tensor:  # fmt: skip
    """activation(x @ weight1 + bias1) @ weight2 + bias2, of one expert."""
    _only("npu_ffn", **{name: value is None for name, value in others.items()})
    gated: dict[str, _Activation] = {"geglu": F.gelu, "swiglu": F.silu, "reglu": F.relu}
    _only("npu_ffn", activation=activation in _ACTIVATIONS or activation in gated)
    inner = x @ weight1 if bias1 is None else x @ weight1 + bias1
    if activation in gated:
        a, b = inner.chunk(2, -1)
        inner = gated[activation](a) * b
    else:
        inner = _ACTIVATIONS[activation](inner)
    return inner @ weight2 if bias2 is None else inner @ weight2 + bias2


# --- activations ----------------------------------------------------------------------------------


def npu_silu(self: Tensor) -> Tensor:
    """torch.nn.functional.silu."""
    return F.silu(self)


def npu_silu_(self: Tensor) -> Tensor:
    """torch.nn.functional.silu in place."""
    return F.silu(self, inplace=True)


def npu_mish(self: Tensor) -> Tensor:
    """torch.nn.functional.mish."""
    return F.mish(self)


def npu_gelu(self: Tensor, *, approximate: str = "none") -> Tensor:
    """torch.nn.functional.gelu."""
    return F.gelu(self, approximate=approximate)


def npu_fast_gelu(input: Tensor) -> Tensor:
    """x / (1 + exp(-1.702 x)), the formula of Atlas A2 and later."""
    return input * torch.sigmoid(1.702 * input)


fast_gelu = npu_fast_gelu


def npu_swiglu(self: Tensor, dim: int = -1) -> Tensor:
    """silu(a) * b of the two halves along `dim`."""
    a, b = self.chunk(2, dim)
    return F.silu(a) * b


def npu_geglu(
    self: Tensor, dim: int = -1, approximate: int = 1, activate_left: bool = False
) -> tuple[Tensor, Tensor]:
    """(gelu(b) * a, gelu(b)) of the two halves along `dim`; of a with `activate_left`.

    `approximate` is 1 for tanh and 0 for erf.
    """
    a, b = self.chunk(2, dim)
    if activate_left:
        a, b = b, a
    gate = F.gelu(b, approximate="tanh" if approximate else "none")
    return gate * a, gate


def npu_gelu_mul(input: Tensor, *, approximate: str = "none") -> Tensor:
    """gelu(a) * b of the two halves of the last dimension."""
    a, b = input.chunk(2, -1)
    return F.gelu(a, approximate=approximate) * b


# --- norms ----------------------------------------------------------------------------------------


def npu_rms_norm(self: Tensor, gamma: Tensor, epsilon: float = 1e-6) -> tuple[Tensor, Tensor]:
    """(self * rstd * gamma, rstd) with rstd = 1 / sqrt(mean(self^2) + epsilon) over the dimensions
    of `gamma`; rstd is float32, its reduced dimensions 1.
    """
    dims = tuple(range(-gamma.dim(), 0))
    rstd = torch.rsqrt(self.float().pow(2).mean(dims, keepdim=True) + epsilon)
    return F.rms_norm(self, gamma.shape, gamma, epsilon), rstd


def npu_gemma_rms_norm(
    input: Tensor, gamma: Tensor, epsilon: float = 1e-6
) -> tuple[Tensor, Tensor]:
    """As npu_rms_norm, with 1 + gamma."""
    return npu_rms_norm(input, 1 + gamma, epsilon)


def npu_add_rms_norm(
    x1: Tensor, x2: Tensor, gamma: Tensor, epsilon: float = 1e-6
) -> tuple[Tensor, Tensor, Tensor]:
    """(rms_norm(x), rstd, x) with x = x1 + x2."""
    x = x1 + x2
    y, rstd = npu_rms_norm(x, gamma, epsilon)
    return y, rstd, x


def npu_layer_norm_eval(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None,
    bias: Tensor | None = None, eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """torch.nn.functional.layer_norm."""
    return F.layer_norm(input, list(normalized_shape), weight, bias, eps)


def npu_group_norm_silu(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, group: int, eps: float = 1e-5
) -> tuple[Tensor, Tensor, Tensor]:
    """(silu(group_norm(input)), mean, rstd); mean and rstd of shape (N, group)."""
    y, mean, rstd = torch.native_group_norm(
        input, weight, bias, input.size(0), input.size(1), math.prod(input.shape[2:]), group, eps
    )
    return F.silu(y), mean, rstd


# --- attention ------------------------------------------------------------------------------------


def npu_rotary_mul(
    input: Tensor, r1: Tensor, r2: Tensor, rotary_mode: str = "half", rotate: Tensor | None = None
) -> Tensor:
    """r1 * input + r2 * rotated, where the halves, or neighbours with "interleave", change places
    and the new first has a minus; or `input @ rotate`.
    """
    if rotate is not None:
        return r1 * input + r2 * (input @ rotate)
    if rotary_mode == "interleave":
        turned = torch.stack((-input[..., 1::2], input[..., ::2]), -1).flatten(-2)
    else:
        _only("npu_rotary_mul", rotary_mode=rotary_mode == "half")
        a, b = input.chunk(2, -1)
        turned = torch.cat((-b, a), -1)
    return r1 * input + r2 * turned


def npu_scaled_masked_softmax(
    x: Tensor, mask: Tensor, scale: float = 1.0, fixed_triu_mask: bool = False
) -> Tensor:
    """softmax(x * scale) over the last dimension without what `mask` is True for; with
    `fixed_triu_mask` without what is above the diagonal.
    """
    if fixed_triu_mask:
        mask = torch.ones(x.shape[-2:], dtype=torch.bool, device=x.device).triu(1)
    return (x * scale).masked_fill(mask.bool(), -10000.0).softmax(-1)


def npu_dropout_with_add_softmax(
    self: Tensor, x1: Tensor, alpha: float, prob: float, dim: int
) -> tuple[Tensor, Tensor, Tensor]:
    """(mask, softmax, dropped) of x1 + self * alpha: `prob` is what is dropped, mask is of bool."""
    soft = torch.softmax(x1 + self * alpha, dim)
    dropped, mask = torch.native_dropout(soft, prob, True)
    return mask, soft, dropped


def npu_fusion_attention(
    query: Tensor, key: Tensor, value: Tensor, head_num: int, input_layout: str, *,
    pse: Tensor | None = None, padding_mask: Tensor | None = None, atten_mask: Tensor | None = None,
    scale: float = 1.0, keep_prob: float = 1.0, pre_tockens: int = 2147483647,
    next_tockens: int = 2147483647, inner_precise: int = 0, prefix: Any = None,
    actual_seq_qlen: Any = None, actual_seq_kvlen: Any = None, sparse_mode: int = 0,
    gen_mask_parallel: bool = True, sync: bool = False, softmax_layout: str = "",
) -> tuple[Tensor, Tensor, Tensor, Tensor, int, int, int]:  # fmt: skip
    """dropout(softmax(scale * (q k^T + pse), without what atten_mask is True for)) v, in the layout
    of the query: BSH, SBH, BSND or BNSD. Of seven results the first is computed.

    sparse_mode: 0 and 1 take the mask as it is, 2 is causal from the upper left corner, 3 from the
    lower right one; others raise CausewayError, as does TND.
    """
    _only(
        "npu_fusion_attention", padding_mask=padding_mask is None, prefix=prefix is None,
        actual_seq_qlen=actual_seq_qlen is None, actual_seq_kvlen=actual_seq_kvlen is None,
        sparse_mode=sparse_mode in (0, 1, 2, 3), input_layout=input_layout in _LAYOUTS,
    )  # fmt: skip
    q = _heads(query, head_num, input_layout)
    width = q.size(-1)
    k, v = (_heads(t, _count(t, width, input_layout), input_layout) for t in (key, value))
    rows, columns = q.size(-2), k.size(-2)
    everywhere = pre_tockens >= columns and next_tockens >= columns
    _only("npu_fusion_attention", pre_tockens=sparse_mode != 0 or everywhere or (
        next_tockens == 0 and pre_tockens >= rows and atten_mask is not None
    ))  # fmt: skip
    if sparse_mode in (2, 3):
        shift = columns - rows if sparse_mode == 3 else 0
        atten_mask = torch.ones(rows, columns, dtype=torch.bool, device=q.device).triu(1 + shift)
    bias = None
    if atten_mask is not None:
        bias = torch.zeros_like(atten_mask, dtype=q.dtype)
        bias = bias.masked_fill(atten_mask.bool(), -math.inf)
    if pse is not None:
        bias = pse * scale if bias is None else bias + pse * scale
    out = F.scaled_dot_product_attention(
        q, k, v, attn_mask=bias, dropout_p=1 - keep_prob, scale=scale,
        enable_gqa=q.size(1) != k.size(1),
    )  # fmt: skip
    none = q.new_empty(0)
    return _joined(out, input_layout), none, none, none, 0, 0, 0


def npu_prompt_flash_attention(
    query: Tensor, key: Tensor, value: Tensor, *, pse_shift: Tensor | None = None,
    atten_mask: Tensor | None = None, num_heads: int = 1, scale_value: float = 1.0,
    pre_tokens: int = 2147483647, next_tokens: int = 0, input_layout: str = "BSH",
    num_key_value_heads: int = 0, sparse_mode: int = 0, **others: Any,
) -> Tensor:  # fmt: skip
    """softmax(scale * q k^T, without what atten_mask is True for) v."""
    _only("npu_prompt_flash_attention", **{name: value is None for name, value in others.items()})
    return npu_fusion_attention(
        query, key, value, num_heads, input_layout, pse=pse_shift, atten_mask=atten_mask,
        scale=scale_value, sparse_mode=sparse_mode,
    )[0]  # fmt: skip


def npu_incre_flash_attention(
    query: Tensor, key: Tensor, value: Tensor, *, padding_mask: Tensor | None = None,
    atten_mask: Tensor | None = None, pse_shift: Tensor | None = None,
    actual_seq_lengths: Sequence[int] | Tensor | None = None, num_heads: int = 1,
    scale_value: float = 1.0, input_layout: str = "BSH", num_key_value_heads: int = 0,
    **others: Any,
) -> Tensor:  # fmt: skip
    """Attention of one new position to a cache: softmax(scale * q k^T, without what atten_mask is
    True for and what lies behind actual_seq_lengths) v.
    """
    one = query.size(0 if input_layout == "SBH" else 2 if input_layout == "BNSD" else 1) == 1
    _only("npu_incre_flash_attention", query=one, padding_mask=padding_mask is None,
          **{name: value is None for name, value in others.items()})  # fmt: skip
    if actual_seq_lengths is not None:
        columns = key.size(0 if input_layout == "SBH" else 2 if input_layout == "BNSD" else 1)
        lengths = torch.as_tensor(actual_seq_lengths, device=query.device).view(-1, 1, 1, 1)
        behind = torch.arange(columns, device=query.device) >= lengths
        atten_mask = behind if atten_mask is None else behind | atten_mask.bool()
    return npu_fusion_attention(
        query, key, value, num_heads, input_layout, pse=pse_shift, atten_mask=atten_mask,
        scale=scale_value,
    )[0]  # fmt: skip


_LAYOUTS = ("BSH", "SBH", "BSND", "BNSD")


def _count(tensor: Tensor, width: int, layout: str) -> int:
    """Heads of a key or a value whose heads are as wide as the query's."""
    if layout in ("BSH", "SBH"):
        return tensor.size(-1) // width
    return tensor.size(layout.index("N"))


def _heads(tensor: Tensor, heads: int, layout: str) -> Tensor:
    """As (batch, heads, sequence, width)."""
    if layout == "BNSD":
        return tensor
    if layout == "BSND":
        return tensor.transpose(1, 2)
    split = tensor.view(*tensor.shape[:-1], heads, -1)
    return split.permute(1, 2, 0, 3) if layout == "SBH" else split.transpose(1, 2)


def _joined(tensor: Tensor, layout: str) -> Tensor:
    if layout == "BNSD":
        return tensor
    if layout == "BSND":
        return tensor.transpose(1, 2).contiguous()
    order = (2, 0, 1, 3) if layout == "SBH" else (0, 2, 1, 3)
    return tensor.permute(*order).flatten(-2)


# --- losses, sorting, boxes -----------------------------------------------------------------------


def npu_deep_norm(
    x: Tensor, gx: Tensor, beta: Tensor, gamma: Tensor, alpha: float = 0.3, epsilon: float = 1e-6
) -> tuple[Tensor, Tensor, Tensor]:
    """(mean, rstd, layer_norm(alpha * x + gx) * gamma + beta): arXiv 2203.00555."""
    total = alpha * x + gx
    dims = tuple(range(-gamma.dim(), 0))
    mean = total.float().mean(dims, keepdim=True)
    rstd = (total.float().var(dims, correction=0, keepdim=True) + epsilon).rsqrt()
    return mean, rstd, F.layer_norm(total, gamma.shape, gamma, beta, epsilon)


def npu_conv2d(
    input: Tensor, weight: Tensor, bias: Tensor | None, stride: Any, padding: Any, dilation: Any,
    groups: int,
) -> Tensor:  # fmt: skip
    """torch.nn.functional.conv2d."""
    return F.conv2d(input, weight, bias, stride, padding, dilation, groups)


def npu_softmax_cross_entropy_with_logits(features: Tensor, labels: Tensor) -> Tensor:
    """-sum(labels * log_softmax(features)) of each row."""
    return -(labels * features.log_softmax(-1)).sum(-1)


def npu_max(self: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """torch.max, with indices of int32."""
    values, at = torch.max(self, dim, keepdim)
    return values, at.int()


def npu_min(self: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """torch.min, with indices of int32."""
    values, at = torch.min(self, dim, keepdim)
    return values, at.int()


def npu_scatter_nd_update(input: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    """A copy of `input` in which `updates` stand at `indices`, whose last dimension is a place."""
    return input.index_put(tuple(indices.long().unbind(-1)), updates)


def npu_scatter_nd_update_(input: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    """As npu_scatter_nd_update, in place."""
    return input.index_put_(tuple(indices.long().unbind(-1)), updates)


def npu_moe_gating_top_k_softmax(
    x: Tensor, finished: Tensor | None = None, k: int = 1
) -> tuple[Tensor, Tensor, Tensor]:
    """(weights, experts, rows) of the `k` largest of softmax(x); experts and rows are of int32, and
    rows are numbered column by column.
    """
    _only("npu_moe_gating_top_k_softmax", finished=finished is None)
    weights, experts = x.softmax(-1).topk(k, -1)
    rows = torch.arange(experts.numel(), dtype=torch.int32, device=x.device)
    order = rows.view(k, *experts.shape[:-1]).movedim(0, -1).contiguous()
    return weights, experts.int(), order


def _corners(boxes: Tensor, trans: bool) -> Tensor:
    """(4, n) of x, y, width, height about the middle as corners."""
    if not trans:
        return boxes
    x, y, w, h = boxes
    return torch.stack((x - w / 2, y - h / 2, x + w / 2, y + h / 2))


def npu_iou(bboxes: Tensor, gtboxes: Tensor, mode: int = 0) -> Tensor:
    """(m, n) of boxes (n, 4) and true boxes (m, 4) by corners: what they share, over what they
    cover together, or over the true box with mode 1.
    """
    n, m = bboxes.T.unsqueeze(1), gtboxes.T.unsqueeze(2)
    shared = _overlap(n, m)
    of_true = _area(m)
    whole = of_true if mode == 1 else _area(n) + of_true - shared
    return torch.where(whole > 0, shared / whole, torch.zeros_like(shared))


npu_ptiou = npu_iou


def _overlap(a: Tensor, b: Tensor) -> Tensor:
    wide = (torch.minimum(a[2], b[2]) - torch.maximum(a[0], b[0])).clamp(min=0)
    high = (torch.minimum(a[3], b[3]) - torch.maximum(a[1], b[1])).clamp(min=0)
    return wide * high


def _area(a: Tensor) -> Tensor:
    return (a[2] - a[0]) * (a[3] - a[1])


def npu_giou(
    self: Tensor, gtboxes: Tensor, trans: bool = False, is_cross: bool = False, mode: int = 0
) -> Tensor:
    """IoU less the empty part of the smallest box around both, over that box: arXiv 1902.09630. Of
    boxes (4, n): (1, n), or (m, n) with `is_cross`.
    """
    _only("npu_giou", mode=mode == 0)
    a, b = _pairs(self, gtboxes, trans, is_cross)
    shared = _overlap(a, b)
    union = _area(a) + _area(b) - shared
    around = _around(a, b)
    return shared / union - (around - union) / around


def npu_diou(
    self: Tensor, gtboxes: Tensor, trans: bool = False, is_cross: bool = False, mode: int = 0
) -> Tensor:
    """IoU less the squared distance of the middles over the squared diagonal of the box around
    both: arXiv 1911.08287. Shapes as npu_giou.
    """
    _only("npu_diou", mode=mode == 0)
    a, b = _pairs(self, gtboxes, trans, is_cross)
    shared = _overlap(a, b)
    iou = shared / (_area(a) + _area(b) - shared)
    return iou - _distance(a, b)


def npu_ciou(
    self: Tensor, gtboxes: Tensor, trans: bool = False, is_cross: bool = True, mode: int = 0,
    atan_sub_flag: bool = False,
) -> Tensor:  # fmt: skip
    """npu_diou less alpha * v, of the difference of the sides' ratios: arXiv 1911.08287."""
    _only("npu_ciou", mode=mode == 0)
    a, b = _pairs(self, gtboxes, trans, is_cross)
    shared = _overlap(a, b)
    iou = shared / (_area(a) + _area(b) - shared)
    ratio = torch.atan((b[2] - b[0]) / (b[3] - b[1])) - torch.atan((a[2] - a[0]) / (a[3] - a[1]))
    v = 4 / math.pi**2 * ratio**2
    with torch.no_grad():
        alpha = v / (1 - iou + v).clamp(min=torch.finfo(v.dtype).tiny)
    return iou - _distance(a, b) - alpha * v


def _pairs(boxes: Tensor, true: Tensor, trans: bool, cross: bool) -> tuple[Tensor, Tensor]:
    a, b = _corners(boxes, trans), _corners(true, trans)
    return (a.unsqueeze(1), b.unsqueeze(2)) if cross else (a.unsqueeze(1), b.unsqueeze(1))


def _around(a: Tensor, b: Tensor) -> Tensor:
    wide = torch.maximum(a[2], b[2]) - torch.minimum(a[0], b[0])
    return wide * (torch.maximum(a[3], b[3]) - torch.minimum(a[1], b[1]))


def _distance(a: Tensor, b: Tensor) -> Tensor:
    middle = ((a[0] + a[2] - b[0] - b[2]) / 2) ** 2 + ((a[1] + a[3] - b[1] - b[3]) / 2) ** 2
    wide = torch.maximum(a[2], b[2]) - torch.minimum(a[0], b[0])
    high = torch.maximum(a[3], b[3]) - torch.minimum(a[1], b[1])
    return middle / (wide**2 + high**2)


# --- integers -------------------------------------------------------------------------------------


def npu_quantize(
    input: Tensor, scales: Tensor, zero_points: Tensor | None, dtype: torch.dtype, axis: int = 1,
    div_mode: bool = True,
) -> Tensor:  # fmt: skip
    """round(input / scales + zero_points), or times scales, as int8, uint8 or int32."""
    kinds = {torch.qint8: torch.int8, torch.quint8: torch.uint8, torch.qint32: torch.int32}
    kind = kinds.get(dtype, dtype)
    _only("npu_quantize", dtype=kind in (torch.int8, torch.uint8, torch.int32))
    shape = [1] * input.dim()
    shape[axis] = -1
    scale = scales if scales.dim() == input.dim() else scales.view(shape)
    value = input / scale if div_mode else input * scale
    if zero_points is not None:
        offset = zero_points if zero_points.dim() == input.dim() else zero_points.view(shape)
        value = value + offset
    low, high = torch.iinfo(kind).min, torch.iinfo(kind).max
    return value.round().clamp(low, high).to(kind)


def npu_dynamic_quant(
    x: Tensor, *, smooth_scales: Tensor | None = None, group_index: Any = None, dst_type: Any = None
) -> tuple[Tensor, Tensor]:
    """(int8, scale): each row over its largest magnitude / 127, scale of float32 without the last
    dimension.
    """
    _only(
        "npu_dynamic_quant", group_index=group_index is None,
        dst_type=dst_type in (None, torch.int8),
    )  # fmt: skip
    scaled = (x if smooth_scales is None else x * smooth_scales).float()
    scale = scaled.abs().amax(-1, keepdim=True) / 127
    safe = torch.where(scale == 0, torch.ones_like(scale), scale)
    return (scaled / safe).round().clamp(-128, 127).to(torch.int8), scale.squeeze(-1)
