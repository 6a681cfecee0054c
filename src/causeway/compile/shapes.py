"""Shapes of operators that torch has no meta kernel for (2.13), and that the device is asked for
where a program is traced: a cell of a GRU, forward and backward.

torch has those of LSTM's cells. `torch.compile` traces recurrent layers where
`torch._dynamo.config.allow_rnn` is set.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor


def gru_cell(
    input_gates: Tensor,
    hidden_gates: Tensor,
    hx: Tensor,
    input_bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The new hidden state, (batch, hidden), and what backward needs, (batch, 5 * hidden)."""
    batch, hidden = hx.shape
    return hx.new_empty(batch, hidden), hx.new_empty(batch, 5 * hidden)


def gru_cell_backward(
    grad_hy: Tensor, workspace: Tensor, has_bias: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
    """Gradients of both gates, (batch, 3 * hidden), the hidden state and both biases."""
    batch, hidden = grad_hy.shape
    gates, others = (grad_hy.new_empty(batch, 3 * hidden) for _ in range(2))
    bias, other = (grad_hy.new_empty(3 * hidden) if has_bias else None for _ in range(2))
    return gates, others, grad_hy.new_empty(batch, hidden), bias, other


@functools.cache
def register() -> torch.library.Library:
    """Give them to torch, but for those that it has by now. The registration lasts as long as what
    is returned, which is kept."""
    library = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    known = {"_thnn_fused_gru_cell": gru_cell, "_thnn_fused_gru_cell_backward": gru_cell_backward}
    for name, function in known.items():
        if not torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", "Meta"):
            library.impl(name, function, "Meta")  # type: ignore[no-untyped-call]
    return library
