"""apex.mlp: linear layers with activations between them, as one module."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

__all__ = ["MLP"]


class MLP(nn.Module):
    """Linear layers of `mlp_sizes`, an activation ("none", "relu" or "sigmoid") after each."""

    def __init__(
        self, mlp_sizes: Sequence[int], bias: bool = True, activation: str = "relu"
    ) -> None:
        super().__init__()
        if activation not in ("none", "relu", "sigmoid"):
            raise TypeError(f"activation is {activation!r}: expected none, relu or sigmoid")
        self.mlp_sizes = list(mlp_sizes)
        self.num_layers = len(mlp_sizes) - 1
        self.activation = activation
        for i in range(self.num_layers):
            weight = nn.Parameter(torch.empty(mlp_sizes[i + 1], mlp_sizes[i]))
            setattr(self, f"weight_{i}", weight)
            if bias:
                setattr(self, f"bias_{i}", nn.Parameter(torch.empty(mlp_sizes[i + 1])))
        self.bias = bias
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Normal weights with apex's deviations: sqrt(2 / (in + out)), and sqrt(1 / out)."""
        for i in range(self.num_layers):
            weight = getattr(self, f"weight_{i}")
            nn.init.normal_(weight, 0.0, (2.0 / sum(weight.shape)) ** 0.5)
            if self.bias:
                nn.init.normal_(getattr(self, f"bias_{i}"), 0.0, (1.0 / weight.shape[0]) ** 0.5)

    def forward(self, input: Tensor) -> Tensor:
        x = input
        for i in range(self.num_layers):
            bias = getattr(self, f"bias_{i}") if self.bias else None
            x = nn.functional.linear(x, getattr(self, f"weight_{i}"), bias)
            if self.activation != "none":
                x = x.relu() if self.activation == "relu" else x.sigmoid()
        return x
