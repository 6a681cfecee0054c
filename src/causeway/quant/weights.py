"""Linear layers whose weights alone are integers, of 8 or 4 bits: for language models, whose speed
token by token is that of reading weights. Products read them packed.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import nn

from causeway.errors import CausewayError, ConfigError
from causeway.quant import settings as settings_
from causeway.quant.layers import Kept
from causeway.quant.select import layers_of, named, replace_in


def pack4(q: torch.Tensor) -> torch.Tensor:
    """Integers 0 to 15, [out, in], as uint8 [out, in / 2]: of each 32 columns byte j has column j
    in its low half and column j + 16 in its high one.
    """
    halves = q.to(torch.uint8).reshape(q.shape[0], -1, 2, 16)
    return (halves[:, :, 0] | (halves[:, :, 1] << 4)).reshape(q.shape[0], -1)


def unpack4(packed: torch.Tensor) -> torch.Tensor:
    """The inverse of `pack4`: uint8 [out, in]."""
    halves = packed.reshape(packed.shape[0], -1, 1, 16)
    return torch.cat([halves & 15, halves >> 4], 2).reshape(packed.shape[0], -1)


class WeightOnlyLinear(Kept):
    """torch.nn.Linear, its weight w = (q - zero) * scale with a scale for each group of columns.

    State: `weight` (int8 [out, in], or uint8 [out, in / 2] as `pack4` has it), `scale` and of 4
    bits `zero`, float32 [out, in / group], and `bias`; where columns are not in the order of the
    inputs `order`, which input each takes.
    """

    _casts = frozenset({"bias"})
    weight: Any
    scale: Any
    zero: Any
    bias: Any
    order: Any

    def __init__(
        self,
        weight: torch.Tensor,
        scale: torch.Tensor,
        zero: torch.Tensor | None,
        bias: torch.Tensor | None,
        bits: int,
        group: int,
        order: torch.Tensor | None = None,
    ) -> None:
        super().__init__()
        self.bits, self.group = bits, group
        self.register_buffer("weight", weight)
        self.register_buffer("scale", scale)
        self.register_buffer("zero", zero)
        self.register_buffer("bias", bias)
        self.register_buffer("order", order)

    @classmethod
    def of(cls, linear: nn.Linear, bits: int, group: int) -> WeightOnlyLinear:
        """`linear` with its weight rounded to the nearest integers."""
        weight = linear.weight.detach().float()
        if not bool(torch.isfinite(weight).all()):
            raise CausewayError("a weight is infinite or NaN: it has no integer")
        grouped = weight.view(weight.shape[0], -1, group)
        zero = None
        if bits == 8:
            scale = grouped.abs().amax(-1).div(127)
            scale = torch.where(scale > 2.0**-126, scale, 1.0)
            q = (grouped / scale.unsqueeze(-1)).round().clamp(-127, 127).to(torch.int8)
            packed = q.view_as(weight)
        else:
            low, high = grouped.amin(-1).clamp(max=0), grouped.amax(-1).clamp(min=0)
            scale = (high - low).div(15)
            scale = torch.where(scale > 2.0**-126, scale, 1.0)
            zero = (-low / scale).round()
            q = (grouped / scale.unsqueeze(-1) + zero.unsqueeze(-1)).round().clamp(0, 15)
            packed = pack4(q.view_as(weight))
        bias = None if linear.bias is None else linear.bias.detach().clone()
        return cls(packed, scale, zero, bias, bits, group)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.order is not None:
            x = x.index_select(-1, self.order)
        y: torch.Tensor = torch.ops.causeway.qlinear_weight(
            x, self.weight, self.scale, self.zero, self.group, self.bits
        )
        return y if self.bias is None else y + self.bias.to(y.dtype)

    def extra_repr(self) -> str:
        return f"{tuple(self.weight.shape)}, bits={self.bits}, group={self.group}"


def quantize_weights(
    model: nn.Module,
    bits: int = 8,
    group: int = 128,
    inplace: bool = False,
    mixed_layer: Mapping[str, str] | None = None,
) -> nn.Module:
    """`model` with the weights of its Linear layers in integers. Nothing is calibrated; activations
    stay in floating point. The state loads into a model made by the same call.

    Args:
        model: Any module.
        bits: 8 or 4.
        group: Columns that share a scale: 32 to 256, a multiple of 32. Where it does not divide a
            layer's columns, the largest that does is taken; a layer of 4 bits needs a multiple of
            32, else it stays as it is.
        inplace: Change `model` itself.
        mixed_layer: Names or patterns of layers to "float": these stay as they are.

    Raises:
        ConfigError: other bits or groups, or a name that does not exist.
    """
    if bits not in (4, 8):
        raise ConfigError(f"weights have 4 or 8 bits, not {bits!r}")
    if not isinstance(group, int) or group % 32 or not 32 <= group <= 256:
        raise ConfigError(f"group is 32 to 256 and a multiple of 32, not {group!r}")
    if not inplace:
        model = copy.deepcopy(model)
    layers = cast(dict[str, nn.Linear], layers_of(model, (nn.Linear,)))
    found = {name: linear for name, linear in layers.items() if linear.in_features}
    for patterns, dtype in (mixed_layer or {}).items():
        settings_.one_of(f"mixed_layer[{patterns!r}]", dtype, ("float",))
    left = named(mixed_layer or {}, list(found))
    made: dict[int, nn.Module] = {}
    for name, linear in found.items():
        size = next((g for g in range(group, 31, -32) if linear.in_features % g == 0), 0)
        if name not in left and (bits == 8 or size) and id(linear) not in made:
            made[id(linear)] = WeightOnlyLinear.of(linear, bits, size or linear.in_features)
    return replace_in(model, {n: made[id(m)] for n, m in found.items() if id(m) in made})
