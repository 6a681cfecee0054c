"""apex.fused_dense: linear layers, one or two with a gelu between."""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["DenseNoBias", "FusedDense", "FusedDenseGeluDense"]


class FusedDense(nn.Linear):
    """torch.nn.Linear under apex's name."""


class DenseNoBias(nn.Linear):
    """torch.nn.Linear without a bias, under apex's name."""

    def __init__(self, in_features: int, out_features: int, bias: bool = False) -> None:
        if bias:
            raise ValueError("DenseNoBias has no bias: use FusedDense")
        super().__init__(in_features, out_features, bias=False)


class FusedDenseGeluDense(nn.Module):
    """Linear, gelu, linear; its parameters have apex's names."""

    def __init__(
        self, in_features: int, intermediate_features: int, out_features: int, bias: bool = True
    ) -> None:
        super().__init__()
        if not bias:
            raise ValueError("FusedDenseGeluDense has biases: leave bias=False out")
        first = nn.Linear(in_features, intermediate_features)
        second = nn.Linear(intermediate_features, out_features)
        self.weight1, self.bias1 = first.weight, first.bias
        self.weight2, self.bias2 = second.weight, second.bias

    def forward(self, input: Tensor) -> Tensor:
        hidden = nn.functional.linear(input, self.weight1, self.bias1)
        hidden = torch.nn.functional.gelu(hidden)
        return nn.functional.linear(hidden, self.weight2, self.bias2)
