"""mindspore.ops: value_and_grad, grad and clip_by_global_norm, by torch's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from causeway.compat.missing import getter


def value_and_grad(
    fn: Callable[..., Any],
    grad_position: int | tuple[int, ...] | None = 0,
    weights: Sequence[torch.Tensor] | None = None,
    has_aux: bool = False,
) -> Callable[..., Any]:
    """A function that gives (value, gradients): of the inputs at `grad_position`, of `weights`, or
    (those, these) where both are asked for. With `has_aux` the first of several outputs is what is
    differentiated.
    """

    def call(*inputs: Any) -> Any:
        positions = () if grad_position is None else grad_position
        positions = (positions,) if isinstance(positions, int) else positions
        args = list(inputs)
        for i in positions:
            args[i] = args[i].detach().requires_grad_(True)
        value = fn(*args)
        target = value[0] if has_aux else value
        wanted = [*(args[i] for i in positions), *(weights or ())]
        found = torch.autograd.grad(target.sum(), wanted, allow_unused=True)
        grads = [
            torch.zeros_like(x) if g is None else g for x, g in zip(wanted, found, strict=True)
        ]
        by_input = grads[: len(positions)]
        by_weight = tuple(grads[len(positions) :])
        first = by_input[0] if isinstance(grad_position, int) else tuple(by_input)
        if weights is None:
            return value, first
        return value, (by_weight if grad_position is None else (first, by_weight))

    return call


def grad(
    fn: Callable[..., Any],
    grad_position: int | tuple[int, ...] | None = 0,
    weights: Sequence[torch.Tensor] | None = None,
    has_aux: bool = False,
) -> Callable[..., Any]:
    """The gradients of value_and_grad; (gradients, further outputs) with `has_aux`."""
    both = value_and_grad(fn, grad_position, weights, has_aux)

    def call(*inputs: Any) -> Any:
        value, found = both(*inputs)
        return (found, value[1:]) if has_aux else found

    return call


def clip_by_global_norm(
    x: Sequence[torch.Tensor], clip_norm: float = 1.0, use_norm: Any = None
) -> tuple[torch.Tensor, ...]:
    """The tensors times clip_norm / max(norm of all, clip_norm)."""
    norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(t) for t in x]))
    factor = clip_norm / torch.clamp(norm, min=clip_norm)
    return tuple(t * factor for t in x)


__getattr__ = getter("mindspore.ops")
