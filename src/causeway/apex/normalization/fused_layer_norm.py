"""apex.normalization: layer and RMS norm, by torch's own kernels.

The "mixed" ones take an input in half precision with float32 weights and give the weights' dtype,
apex's way for Megatron. `memory_efficient` is taken for apex's sake and changes nothing: torch's
kernels keep the input, and results are the same either way.
"""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

Shape = int | Sequence[int] | torch.Size


def _sizes(shape: Shape) -> list[int]:
    return [int(shape)] if isinstance(shape, numbers.Integral) else list(shape)  # type: ignore[arg-type]


def fused_layer_norm_affine(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    normalized_shape: Shape,
    eps: float = 1e-6,
    memory_efficient: bool = False,
) -> Tensor:
    """Layer norm with weights; the result has `input`'s dtype."""
    return nn.functional.layer_norm(
        input, _sizes(normalized_shape), weight.to(input.dtype),
        None if bias is None else bias.to(input.dtype), eps,
    )  # fmt: skip


def fused_layer_norm(
    input: Tensor, normalized_shape: Shape, eps: float = 1e-6, memory_efficient: bool = False
) -> Tensor:
    """Layer norm without weights."""
    return nn.functional.layer_norm(input, _sizes(normalized_shape), None, None, eps)


def mixed_dtype_fused_layer_norm_affine(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    normalized_shape: Shape,
    eps: float = 1e-6,
    memory_efficient: bool = False,
) -> Tensor:
    """Layer norm whose result has `weight`'s dtype."""
    return nn.functional.layer_norm(
        input.to(weight.dtype), _sizes(normalized_shape), weight, bias, eps
    )


def fused_rms_norm_affine(
    input: Tensor,
    weight: Tensor,
    normalized_shape: Shape,
    eps: float = 1e-6,
    memory_efficient: bool = False,
) -> Tensor:
    """RMS norm with weights; the result has `input`'s dtype."""
    return nn.functional.rms_norm(input, _sizes(normalized_shape), weight.to(input.dtype), eps)


def fused_rms_norm(
    input: Tensor, normalized_shape: Shape, eps: float = 1e-6, memory_efficient: bool = False
) -> Tensor:
    """RMS norm without weights."""
    return nn.functional.rms_norm(input, _sizes(normalized_shape), None, eps)


def mixed_dtype_fused_rms_norm_affine(
    input: Tensor,
    weight: Tensor,
    normalized_shape: Shape,
    eps: float = 1e-6,
    memory_efficient: bool = False,
) -> Tensor:
    """RMS norm whose result has `weight`'s dtype."""
    return nn.functional.rms_norm(input.to(weight.dtype), _sizes(normalized_shape), weight, eps)


class _Arguments(nn.Module):
    """apex's arguments for torch's norms."""

    def __init__(
        self,
        normalized_shape: Shape,
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        memory_efficient: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(_sizes(normalized_shape), eps, elementwise_affine, **kwargs)
        self.memory_efficient = memory_efficient


class _Mixed(_Arguments):
    """A norm that always has weights."""

    def __init__(
        self,
        normalized_shape: Shape,
        eps: float = 1e-5,
        *,
        memory_efficient: bool = False,
        **kwargs: Any,
    ) -> None:
        if not kwargs.pop("elementwise_affine", True):
            raise RuntimeError("mixed norms have weights: leave elementwise_affine=False out")
        super().__init__(
            normalized_shape, eps, elementwise_affine=True, memory_efficient=memory_efficient,
            **kwargs,
        )  # fmt: skip


class FusedLayerNorm(_Arguments, nn.LayerNorm):
    """torch.nn.LayerNorm with apex's arguments; the result has the input's dtype."""

    def forward(self, input: Tensor) -> Tensor:
        if not self.elementwise_affine:
            return fused_layer_norm(input, self.normalized_shape, self.eps)
        return fused_layer_norm_affine(
            input, self.weight, self.bias, self.normalized_shape, self.eps
        )


class MixedFusedLayerNorm(_Mixed, FusedLayerNorm):
    """Layer norm whose result has the weights' dtype."""

    def forward(self, input: Tensor) -> Tensor:
        return mixed_dtype_fused_layer_norm_affine(
            input, self.weight, self.bias, self.normalized_shape, self.eps
        )


class FusedRMSNorm(_Arguments, nn.RMSNorm):
    """torch.nn.RMSNorm with apex's arguments; the result has the input's dtype."""

    def forward(self, input: Tensor) -> Tensor:
        eps = 1e-5 if self.eps is None else self.eps
        if not self.elementwise_affine:
            return fused_rms_norm(input, self.normalized_shape, eps)
        return fused_rms_norm_affine(input, self.weight, self.normalized_shape, eps)


class MixedFusedRMSNorm(_Mixed, FusedRMSNorm):
    """RMS norm whose result has the weights' dtype."""

    def forward(self, input: Tensor) -> Tensor:
        eps = 1e-5 if self.eps is None else self.eps
        return mixed_dtype_fused_rms_norm_affine(input, self.weight, self.normalized_shape, eps)
