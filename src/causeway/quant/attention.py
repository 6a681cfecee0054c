"""Attention with its products in integers: the projections, queries times keys, and weights times
values.

Queries, keys and values have a scale for each head of each sample, measured as they come. Softmax
is in floating point. Its numerators, from 0 to 1, are the integers that values are multiplied by,
and what they are divided by is the sum of these integers: so weights add up to 1 whatever is lost.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from causeway.quant.calibrate import Range
from causeway.quant.integers import input_scale, integers_of, levels_of, measured
from causeway.quant.layers import Passes
from causeway.quant.settings import Settings
from causeway.quant.wholes import QuantizedWhole


def integer_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None = None,
    scale: float | None = None,
    dtype: torch.dtype = torch.int8,
    causal: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(softmax(query @ key.T * scale + mask) @ value, the weights), products in integers.

    Args:
        query, key, value: [..., tokens, channels], floating point, of as many heads.
        mask: Added, or where it is bool: False is left out. What is left with nothing is NaN, as in
            torch.
        scale: None: 1 / sqrt(channels).
        dtype: Of the integers, int8 or int16.
        causal: No token sees those after it.
    """
    levels = levels_of(dtype)
    lead, tokens, seen = query.shape[:-2], query.shape[-2], key.shape[-2]
    heads = [t.reshape(-1, *t.shape[-2:]) for t in (query, key, value)]
    (q, q_scale), (k, k_scale), (v, v_scale) = (_integers(t, levels, dtype) for t in heads)
    by = q_scale * k_scale * (query.shape[-1] ** -0.5 if scale is None else scale)
    scores = _product(q, k, by).view(*lead, tokens, seen)
    if causal:
        later = torch.ones(tokens, seen, dtype=torch.bool, device=query.device).triu(1)
        scores = scores.masked_fill(later, -torch.inf)
    if mask is not None:
        added = mask.dtype != torch.bool
        scores = scores + mask if added else scores.masked_fill(~mask, -torch.inf)
    parts = (scores - scores.amax(-1, keepdim=True)).exp().reshape(-1, tokens, seen)
    high = 255 if dtype == torch.int8 else 32767
    inverse = torch.full((1,), float(high), device=query.device)
    kept = torch.uint8 if dtype == torch.int8 else dtype
    p = torch.ops.causeway.quantize(parts, inverse, None, 0, 0, high, kept)
    total = p.sum(-1, keepdim=True, dtype=torch.int64).float()
    nothing = parts.isnan().any(-1, keepdim=True)
    total = total.masked_fill(nothing, torch.nan)
    out = _product(p, v.transpose(1, 2), v_scale) / total
    weights = (p.float() / total).view(*lead, tokens, seen)
    return out.view(*lead, tokens, -1).to(query.dtype), weights


def _integers(
    x: torch.Tensor, levels: int, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """Integers of [heads, ...], and a scale for each head."""
    size = x.float().abs().amax((1, 2)) if x.numel() else x.new_ones(x.shape[0]).float()
    known = size > 2.0**-120
    inverse = torch.where(known, levels / size, 1.0)
    scale = torch.where(known, size / levels, 1.0 + size * 0)
    return torch.ops.causeway.quantize(x, inverse, None, 0, -levels, levels, dtype), scale


def _product(a: torch.Tensor, b: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """a @ b.T of each head, times its scale: a convolution whose groups are heads."""
    heads, rows, depth = a.shape
    columns = b.shape[1]
    if heads * rows * columns == 0:
        return torch.zeros(heads, rows, columns, device=a.device)
    x = a.transpose(1, 2).reshape(1, heads * depth, rows)
    weight = b.reshape(heads * columns, depth, 1)
    by = scale.repeat_interleave(columns) if scale.numel() > 1 else scale
    geometry = ([1], [0], [1], False, [0], heads)
    after = (False, None, None, 0, 0, torch.float32)
    out: torch.Tensor = torch.ops.causeway.qconv(x, weight, by, None, None, 0, *geometry, *after)
    return out.view(heads, columns, rows).transpose(1, 2)


class QuantizedAttention(QuantizedWhole):
    """torch.nn.MultiheadAttention in integers."""

    # What torch.nn.TransformerEncoderLayer asks before it would read weights itself.
    in_proj_bias = None
    _qkv_same_embed_dim = False
    weight_in: Any
    weight_in_scale: Any
    weight_out: Any
    weight_out_scale: Any
    input_scale: Any

    def __init__(self, source: Any, settings: Settings, passes: Passes, *, calibrate: bool) -> None:
        super().__init__(source, settings, passes, calibrate=calibrate)
        self.heads, self.width = source.num_heads, source.embed_dim
        self.batch_first = source.batch_first
        self.biased = source.in_proj_bias is not None
        self.ranges = [
            Range(settings.method, settings.use_avg, settings.percentile, settings.levels)
            for _ in range(3)
        ]

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        key_padding_mask: torch.Tensor | None = None,
        need_weights: bool = True,
        attn_mask: torch.Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        if self.source is not None:
            for seen, x in zip(self.ranges, (query, key, value), strict=True):
                self.passes.watch(seen, x)
        if (plain := self._computes) is not None:
            return plain(  # type: ignore[no-any-return]
                *(query, key, value, key_padding_mask, need_weights, attn_mask),
                *(average_attn_weights, is_causal),
            )
        self._check()
        batched = query.dim() == 3
        inputs = [x if batched else x.unsqueeze(0) for x in (query, key, value)]
        if batched and not self.batch_first:
            inputs = [x.transpose(0, 1) for x in inputs]
        batch, tokens = inputs[0].shape[:2]
        heads = []
        for i, x in enumerate(inputs):
            rows = slice(i * self.width, (i + 1) * self.width)
            y = self._linear(x, "in", rows, self.input_scale[i : i + 1])
            heads.append(y.view(batch, x.shape[1], self.heads, -1).transpose(1, 2))
        masks = self._masks(attn_mask, key_padding_mask, batch, batched)
        q, k, v = heads
        y, weights = integer_attention(q, k, v, masks, dtype=self.weight_in.dtype)
        y = y.transpose(1, 2).reshape(batch, tokens, self.width)
        out = self._linear(y, "out", slice(None), self.input_scale[:0])
        if batched and not self.batch_first:
            out = out.transpose(0, 1)
        if average_attn_weights:
            weights = weights.mean(1)
        if not batched:
            out, weights = out.squeeze(0), weights.squeeze(0)
        return out, weights if need_weights else None

    def _masks(
        self,
        attn_mask: torch.Tensor | None,
        padding: torch.Tensor | None,
        batch: int,
        batched: bool,
    ) -> torch.Tensor | None:
        """Both as one that is added; in bool ones of this module True is left out."""
        found = []
        if attn_mask is not None:
            shape = attn_mask.shape
            found.append(
                attn_mask.view(batch, -1, *shape[1:]) if attn_mask.dim() == 3 else attn_mask
            )
        if padding is not None:
            padding = padding if batched else padding.unsqueeze(0)
            found.append(padding.view(batch, 1, 1, -1))
        added = [
            torch.zeros(m.shape, device=m.device).masked_fill(m, -torch.inf)
            if m.dtype == torch.bool
            else m.float()
            for m in found
        ]
        return None if not added else sum(added[1:], added[0])

    def _linear(self, x: torch.Tensor, name: str, rows: slice, scale: torch.Tensor) -> torch.Tensor:
        weight = self._buffers[f"weight_{name}"]
        by, bias = self._buffers[f"weight_{name}_scale"], self._buffers.get(f"bias_{name}")
        assert weight is not None
        assert by is not None
        levels = levels_of(weight.dtype)
        inverse, scale = (1 / scale, scale) if scale.numel() else measured(x, levels)
        q = torch.ops.causeway.quantize(x, inverse, None, 0, -levels, levels, weight.dtype)
        by = by[rows] if by.numel() > 1 else by
        bias = None if bias is None else bias[rows]
        return torch.ops.causeway.qlinear(  # type: ignore[no-any-return]
            *(q, weight[rows], scale * by, bias, None, 0, False),
            *(None, None, -levels, levels, x.dtype),
        )

    def _state(self) -> dict[str, torch.Tensor]:
        source: Any = self.source
        found: dict[str, torch.Tensor] = {}
        for name, weight, bias in (
            ("in", source.in_proj_weight, source.in_proj_bias),
            ("out", source.out_proj.weight, source.out_proj.bias),
        ):
            s = self.settings
            q, by = integers_of(weight, s, s.per_channel)
            found[f"weight_{name}"], found[f"weight_{name}_scale"] = q, by
            if bias is not None:
                found[f"bias_{name}"] = bias.detach().float().cpu().clone()
        symmetric = Settings(**{**vars(self.settings), "symmetric": True})
        found["input_scale"] = torch.cat([input_scale(r, symmetric)[0] for r in self.ranges])
        return found

    def _names(self) -> dict[str, list[int] | None]:
        e = self.width
        found: dict[str, list[int] | None] = {
            "weight_in": [3 * e, e],
            "weight_out": [e, e],
            **dict.fromkeys(("weight_in_scale", "weight_out_scale", "input_scale")),
        }
        if self.biased:
            found |= {"bias_in": [3 * e], "bias_out": [e]}
        return found

    def extra_repr(self) -> str:
        return f"{self.width}, heads={self.heads}"


def is_plain(source: nn.MultiheadAttention) -> bool:
    """Whether QuantizedAttention computes what it does."""
    return (
        source._qkv_same_embed_dim
        and source.bias_k is None
        and source.bias_v is None
        and not source.add_zero_attn
    )
