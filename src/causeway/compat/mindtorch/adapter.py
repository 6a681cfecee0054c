"""What MindTorch's modules have and torch's lack: `bprop`, auto_mixed_precision, casts of tensors.

A module with a method `bprop(inputs..., out, dout)` has its gradients from that method, as in
MindSpore: its forward pass becomes one function of autograd.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn


class _ByBprop(torch.autograd.Function):
    """A module's forward, with the module's `bprop` for a backward."""

    @staticmethod
    def forward(ctx: Any, module: Any, forward: Callable[..., Any], *inputs: Any) -> Any:
        ctx.module = module
        tensors = [x for x in inputs if isinstance(x, torch.Tensor)]
        with torch.no_grad():
            out = forward(module, *inputs)
        ctx.places = [isinstance(x, torch.Tensor) for x in inputs]
        ctx.others = [None if isinstance(x, torch.Tensor) else x for x in inputs]
        outs = out if isinstance(out, tuple) else (out,)
        ctx.single = not isinstance(out, tuple)
        ctx.save_for_backward(*tensors, *outs)
        ctx.count = len(tensors)
        # The backward pass casts as the forward one did.
        where = tensors[0].device.type if tensors else "cpu"
        ctx.cast = where, torch.is_autocast_enabled(where), torch.get_autocast_dtype(where)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        saved = ctx.saved_tensors
        tensors = iter(saved[: ctx.count])
        outs = saved[ctx.count :]
        inputs = [
            next(tensors) if is_tensor else other
            for is_tensor, other in zip(ctx.places, ctx.others, strict=True)
        ]
        out, dout = (outs[0], grads[0]) if ctx.single else (outs, grads)
        where, enabled, dtype = ctx.cast
        with torch.autocast(where, dtype=dtype, enabled=enabled):
            found = ctx.module.bprop(*inputs, out, dout)
        found = found if isinstance(found, tuple) else (found,)
        if len(found) != len(inputs):
            raise RuntimeError(
                f"{type(ctx.module).__name__}.bprop gives {len(found)} gradients for "
                f"{len(inputs)} inputs of forward"
            )
        # Autograd casts a gradient to the dtype of its input.
        return (None, None, *found)


def _with_bprop(cls: type[nn.Module]) -> None:
    own = cls.__dict__
    if "bprop" not in own or "forward" not in own:
        return
    forward = own["forward"]

    @functools.wraps(forward)
    def call(self: Any, *inputs: Any) -> Any:
        return _ByBprop.apply(self, forward, *inputs)  # type: ignore[no-untyped-call]

    cls.forward = call


def auto_mixed_precision(network: nn.Module, amp_level: str = "O1") -> nn.Module:
    """The network with its forward pass under torch.autocast of the device it is called on.

    amp_level: O0 leaves it as it is; O1 and O2 are autocast, which casts by operator; O3, all in
    half, raises ValueError.
    """
    if amp_level not in ("O0", "O1", "O2", "auto"):
        raise ValueError(f"auto_mixed_precision: {amp_level!r} is none of O0, O1, O2, auto")
    if amp_level == "O0":
        return network
    forward = network.forward

    @functools.wraps(forward)
    def call(*inputs: Any, **options: Any) -> Any:
        where = next((x.device.type for x in inputs if isinstance(x, torch.Tensor)), "cpu")
        with torch.autocast(where):
            return forward(*inputs, **options)

    network.forward = call
    return network


def cast_to_adapter_tensor(value: Any) -> Any:
    """The value itself: tensors are torch's on both sides."""
    return value


def extend() -> None:
    """Put the names into torch, and look at modules as they are defined."""
    former = nn.Module.__init_subclass__

    def defined(cls: type[nn.Module], /, **options: Any) -> None:
        former(**options)
        _with_bprop(cls)

    nn.Module.__init_subclass__ = classmethod(defined)  # type: ignore[assignment]
    torch.amp.auto_mixed_precision = auto_mixed_precision  # type: ignore[attr-defined]
    torch.cast_to_adapter_tensor = cast_to_adapter_tensor  # type: ignore[attr-defined]
    torch.cast_to_ms_tensor = cast_to_adapter_tensor  # type: ignore[attr-defined]
