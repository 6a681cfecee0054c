"""What people mean by names of operators that no call reaches: composites, which torch takes apart
before a device sees them, and out variants, through whose kernel the other two forms are served.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

import torch

# What torch calls in place of a composite, by name without overload. A test calls each of them.
COMPOSITES: dict[str, tuple[str, ...]] = {
    "batch_norm": ("native_batch_norm", "native_batch_norm_backward"),
    "conv1d": ("convolution", "convolution_backward"),
    "conv2d": ("convolution", "convolution_backward"),
    "conv3d": ("convolution", "convolution_backward"),
    "conv_transpose1d": ("convolution", "convolution_backward"),
    "conv_transpose2d": ("convolution", "convolution_backward"),
    "conv_transpose3d": ("convolution", "convolution_backward"),
    "cross_entropy_loss": (
        "_log_softmax", "_log_softmax_backward_data", "nll_loss_forward", "nll_loss_backward",
    ),
    "dropout": ("native_dropout", "native_dropout_backward"),
    "einsum": ("bmm", "mm"),
    "group_norm": ("native_group_norm", "native_group_norm_backward"),
    "instance_norm": ("native_batch_norm", "native_batch_norm_backward"),
    "layer_norm": ("native_layer_norm", "native_layer_norm_backward"),
    "linear": ("addmm", "mm", "linear", "linear_backward"),
    "log_softmax": ("_log_softmax", "_log_softmax_backward_data"),
    "matmul": ("mm", "bmm", "mv", "dot"),
    "max_pool2d": ("max_pool2d_with_indices", "max_pool2d_with_indices_backward"),
    "max_pool3d": ("max_pool3d_with_indices", "max_pool3d_with_indices_backward"),
    "nll_loss": ("nll_loss_forward", "nll_loss_backward"),
    "softmax": ("_softmax", "_softmax_backward_data"),
}  # fmt: skip


def meant(pattern: str, operators: Sequence[str]) -> list[str]:
    """Further operators that a plain name means: what a composite calls, and of an out variant the
    functional form and the one in place. Empty for a regular expression.
    """
    name = pattern.removeprefix("aten::")
    if name.partition(".")[0] in COMPOSITES:
        called = COMPOSITES[name.partition(".")[0]]
        return [op for op in operators if _base(op) in called]
    if "." in name:
        known = set(operators)
        return [op for op in _variants(name) if op in known]
    return []


def _base(operator: str) -> str:
    return operator.split("::", 1)[-1].partition(".")[0]


@cache
def _variants(name: str) -> tuple[str, ...]:
    """ "aten::add.Tensor" and "aten::add_.Tensor" of "add.out": the same arguments but for out."""
    base, _, overload = name.partition(".")
    packet = getattr(torch.ops.aten, base, None)
    if packet is None or overload not in packet.overloads():
        return ()
    schema = getattr(packet, overload)._schema
    if not any(argument.is_out for argument in schema.arguments):
        return ()
    wanted = [str(a.type) for a in schema.arguments if not a.is_out]
    return tuple(_of_arguments(base, wanted))


def _of_arguments(base: str, wanted: list[str]) -> Iterator[str]:
    for form in (base, f"{base}_"):
        packet = getattr(torch.ops.aten, form, None)
        for overload in packet.overloads() if packet is not None else ():
            schema = getattr(packet, overload)._schema
            plain = [str(a.type) for a in schema.arguments if not a.is_out]
            if plain == wanted and not any(a.is_out for a in schema.arguments):
                yield f"aten::{form}" + ("" if overload == "default" else f".{overload}")
