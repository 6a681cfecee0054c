"""Fused attention by the names of CUDA's kernels, from the one that the ladder has.

Dropout is refused: the numbers drawn are the kernel's own.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import torch
from torch import Tensor

_aten = torch.ops.aten


def _none(q: Tensor) -> Tensor:
    """What stands for the state of a random generator that was not asked."""
    return torch.empty((), dtype=torch.long, device="cpu" if q.device.type != "meta" else "meta")


def _no_dropout(name: str, dropout: float) -> None:
    if dropout:
        raise NotImplementedError(
            f"{name}: dropout in fused attention needs a kernel of the vendor's; "
            "torch.nn.attention.sdpa_kernel(SDPBackend.MATH) has it"
        )


def _in_steps_of_one(t: Tensor) -> Tensor:
    """torch's CPU kernel takes the last dimension for dense, and looks at no stride."""
    return t if t.stride(-1) == 1 else t.contiguous()


def _attend(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, scale: float | None
) -> tuple[Tensor, Tensor]:
    q, k, v = map(_in_steps_of_one, (q, k, v))
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
    q, k, v, out = map(_in_steps_of_one, (q, k, v, out))
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


def efficient_sdp_backward(
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


# --- attention as its kernels are called: (batch, rows, heads, width), or all sequences in a row


def _heads_first(t: Tensor) -> Tensor:
    return t.transpose(-3, -2)


def _band(q: Tensor, k: Tensor, left: int, right: int) -> Tensor | None:
    """What a row may see, counted from the end as flash attention counts; None: all of it."""
    rows, columns = q.size(-2), k.size(-2)
    if left < 0 and right < 0:
        return None
    at = torch.arange(rows, device=q.device).unsqueeze(1) + (columns - rows)
    column = torch.arange(columns, device=q.device)
    seen = torch.ones(rows, columns, dtype=torch.bool, device=q.device)
    if left >= 0:
        seen &= column >= at - left
    if right >= 0:
        seen &= column <= at + right
    return seen


def _windowed(
    q: Tensor, k: Tensor, v: Tensor, left: int, right: int, scale: float | None
) -> tuple[Tensor, Tensor]:
    """Of (batch, heads, rows, width); a row that sees nothing is zero, and its logsumexp -inf."""
    if q.size(1) != k.size(1):
        times = q.size(1) // k.size(1)
        k, v = k.repeat_interleave(times, 1), v.repeat_interleave(times, 1)
    if k.size(2) == 0:
        wide = torch.float64 if q.dtype == torch.float64 else torch.float32
        return torch.zeros_like(q), torch.full(q.shape[:-1], -math.inf, dtype=wide, device=q.device)
    seen = _band(q, k, left, right)
    if seen is None:
        return _attend(q, k, v, None, False, scale)
    out, logsumexp = _attend(q, k, v, _additive(seen, q.dtype), False, scale)
    blind = ~seen.any(1)
    return out.masked_fill(blind.unsqueeze(1), 0), logsumexp.masked_fill(blind, -math.inf)


def _additive(seen: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill(~seen, -math.inf)


def _windowed_backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    left: int,
    right: int,
    scale: float | None,
) -> tuple[Tensor, Tensor, Tensor]:
    if k.size(2) == 0 or q.size(2) == 0:
        return torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
    heads, times = k.size(1), q.size(1) // k.size(1)
    if times > 1:
        k, v = k.repeat_interleave(times, 1), v.repeat_interleave(times, 1)
    seen = _band(q, k, left, right)
    mask = None if seen is None else _additive(seen, q.dtype)
    if seen is not None:
        blind = ~seen.any(1)
        grad = grad.masked_fill(blind.unsqueeze(1), 0)
        logsumexp = logsumexp.masked_fill(blind, 0)
    dq, dk, dv = _attend_backward(grad, q, k, v, mask, out, logsumexp, False, scale)
    if times > 1:
        shape = (k.size(0), heads, times, *k.shape[2:])
        dk, dv = dk.view(shape).sum(2), dv.view(shape).sum(2)
    return dq, dk, dv


def _window(causal: bool, left: int | None, right: int | None) -> tuple[int, int]:
    return (-1 if left is None else left), (0 if causal else -1 if right is None else right)


def _spans(cumulative: Tensor) -> list[tuple[int, int]]:
    return list(itertools.pairwise(cumulative.tolist()))


def flash_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cum_seq_q: Tensor | None,
    cum_seq_k: Tensor | None,
    max_q: int,
    max_k: int,
    dropout: float,
    causal: bool,
    debug: bool,
    *,
    scale: float | None = None,
    window_size_left: int | None = None,
    window_size_right: int | None = None,
    seqused_k: Tensor | None = None,
    alibi_slopes: Tensor | None = None,
    block_table: Tensor | None = None,
    num_splits: int | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    name = "_flash_attention_forward"
    _no_dropout(name, dropout)
    if alibi_slopes is not None:
        raise NotImplementedError(f"{name}: alibi_slopes need a kernel of the vendor's")
    window = _window(causal, window_size_left, window_size_right)
    nothing = query.new_empty(0)
    used = seqused_k.tolist() if seqused_k is not None else None
    if cum_seq_q is None:
        q, k, v = (_heads_first(t) for t in (query, key, value))
        if used is None:
            out, logsumexp = _windowed(q, k, v, *window, scale)
        else:
            parts = [
                _windowed(q[i : i + 1], k[i : i + 1, :, :n], v[i : i + 1, :, :n], *window, scale)
                for i, n in enumerate(used)
            ]
            out, logsumexp = torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts])
        return _heads_first(out).contiguous(), logsumexp, _none(query), nothing, nothing
    outs, sums = [], []
    of_k = _spans(cum_seq_k) if cum_seq_k is not None else None
    for i, (begin, end) in enumerate(_spans(cum_seq_q)):
        if block_table is not None:
            k, v = (t[block_table[i].long().clamp(min=0)].flatten(0, 1) for t in (key, value))
        elif of_k is not None:
            k, v = (t[slice(*of_k[i])] for t in (key, value))
        else:
            raise ValueError(f"{name}: cum_seq_k or block_table is needed beside cum_seq_q")
        if used is not None:
            k, v = k[: used[i]], v[: used[i]]
        q, k, v = (_heads_first(t).unsqueeze(0) for t in (query[begin:end], k, v))
        out, logsumexp = _windowed(q, k, v, *window, scale)
        outs.append(_heads_first(out[0]))
        sums.append(logsumexp[0])
    return torch.cat(outs), torch.cat(sums, 1), _none(query), nothing, nothing


def flash_backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    cum_seq_q: Tensor | None,
    cum_seq_k: Tensor | None,
    max_q: int,
    max_k: int,
    dropout: float,
    causal: bool,
    rng_state: Tensor | None,
    unused: Tensor | None,
    *,
    scale: float | None = None,
    window_size_left: int | None = None,
    window_size_right: int | None = None,
) -> tuple[Tensor, ...]:
    left, right = _window(causal, window_size_left, window_size_right)
    if cum_seq_q is None or cum_seq_k is None or query.dim() == 4:
        g, q, k, v, o = (_heads_first(t) for t in (grad, query, key, value, out))
        grads = _windowed_backward(g, q, k, v, o, logsumexp, left, right, scale)
        return tuple(_heads_first(t).contiguous() for t in grads)
    parts: list[tuple[Tensor, ...]] = []
    for of_q, of_k in zip(_spans(cum_seq_q), _spans(cum_seq_k), strict=True):
        mine, seen = slice(*of_q), slice(*of_k)
        whole = (grad[mine], query[mine], key[seen], value[seen], out[mine])
        g, q, k, v, o = (_heads_first(t).unsqueeze(0) for t in whole)
        sums = logsumexp[:, mine].unsqueeze(0).contiguous()
        grads = _windowed_backward(g, q, k, v, o, sums, left, right, scale)
        parts.append(tuple(_heads_first(t[0]) for t in grads))
    return tuple(torch.cat(t) for t in zip(*parts, strict=True))


_FROM_TOP_LEFT, _FROM_BOTTOM_RIGHT = 1, 2  # custom_mask_type of the memory-efficient kernels


def _mask_of(
    name: str, q: Tensor, k: Tensor, bias: Tensor | None, kind: int, window: int | None
) -> Tensor | None:
    """Bias and mask as one bias, for (..., rows, width) of q and k."""
    if window:
        raise NotImplementedError(f"{name}: window_size needs a kernel of the vendor's")
    if kind == 0:
        return bias
    rows, columns = q.size(-2), k.size(-2)
    shift = columns - rows if kind == _FROM_BOTTOM_RIGHT else 0
    seen = torch.ones(rows, columns, dtype=torch.bool, device=q.device).tril(shift)
    mask = _additive(seen, q.dtype)
    return mask if bias is None else bias + mask


def _refuse_ragged(name: str, *given: Tensor | None) -> None:
    if any(t is not None for t in given):
        raise NotImplementedError(
            f"{name}: sequences in a row need a kernel of the vendor's; "
            "torch.nn.attention.varlen.varlen_attn has them"
        )


def efficient_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    cu_seqlens_q: Tensor | None,
    cu_seqlens_k: Tensor | None,
    max_seqlen_q: int | None,
    max_seqlen_k: int | None,
    dropout: float,
    custom_mask_type: int,
    compute_logsumexp: bool = False,
    *,
    scale: float | None = None,
    seqlen_k: Tensor | None = None,
    window_size: int | None = None,
) -> tuple[Any, ...]:
    name = "_efficient_attention_forward"
    _no_dropout(name, dropout)
    _refuse_ragged(name, cu_seqlens_q, cu_seqlens_k, seqlen_k)
    q, k, v = (_heads_first(t) for t in (query, key, value))
    mask = _mask_of(name, q, k, bias, custom_mask_type, window_size)
    found = efficient_attention(q, k, v, mask, compute_logsumexp, scale=scale)
    return _heads_first(found[0]).contiguous(), *found[1:], q.size(2), k.size(2)


def efficient_backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    out: Tensor,
    cu_seqlens_q: Tensor | None,
    cu_seqlens_k: Tensor | None,
    max_seqlen_q: int,
    max_seqlen_k: int,
    logsumexp: Tensor,
    dropout: float,
    seed: Tensor | None,
    offset: Tensor | None,
    custom_mask_type: int,
    bias_requires_grad: bool,
    *,
    scale: float | None = None,
    num_splits_key: int | None = None,
    window_size: int | None = None,
    shared_storage_dqdkdv: bool = False,
) -> tuple[Tensor, ...]:
    name = "_efficient_attention_backward"
    _refuse_ragged(name, cu_seqlens_q, cu_seqlens_k)
    grad, q, k, v, out = (_heads_first(t) for t in (grad, query, key, value, out))
    mask = _mask_of(name, q, k, bias, custom_mask_type, window_size)
    rows = logsumexp[:, :, : q.size(2)].contiguous()
    grads = _attend_backward(grad, q, k, v, mask, out, rows, False, scale)
    of_bias = q.new_empty(0)
    if bias is not None and mask is not None and bias_requires_grad:
        of_bias = _bias_gradient(grad, q, k, v, mask, out, rows, False, scale)
        of_bias = of_bias.expand(mask.shape).sum_to_size(bias.shape)
    return *(_heads_first(g).contiguous() for g in grads), of_bias
