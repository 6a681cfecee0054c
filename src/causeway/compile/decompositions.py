"""Decompositions that Inductor lacks for the device, and what is done in place of those of its that
do not hold there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from causeway.compile import names
from causeway.ops import decompose


def choose_qparams(
    input: Tensor, quant_min: int, quant_max: int, eps: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Scale, float64 [1], and zero point, int64 [1], as torch.ao's determine_qparams has them: the
    range always has zero in it. Inductor's (2.13) mixes a tensor of the CPU in, and lets zero out.
    """
    low, high = torch.aminmax(input)
    low, high = low.clamp(max=0), high.clamp(min=0)
    scale = ((high - low) / float(quant_max - quant_min)).float().clamp(min=eps).reshape(1)
    zero = quant_min - torch.round(low / scale).to(torch.int32)
    return scale.double(), zero.clamp(quant_min, quant_max).long()


@functools.cache
def replace() -> None:
    """Put them in place, for tensors of the device; others get what they got."""
    table = names.decompositions
    operator = torch.ops.quantized_decomposed.choose_qparams.tensor
    if operator in table:
        table[operator] = _for_the_device(choose_qparams, table[operator])
    layer = torch.ops.aten._transformer_encoder_layer_fwd.default
    if layer not in table:
        table[layer] = _for_the_device(decompose.encoder_layer, _left_alone)
        # Inductor makes one as it meets the operator, and refuses to where the table has it.
        names.make_fallback(layer, override_decomp=True)


def _left_alone(*args: Any, **kwargs: Any) -> Any:
    return NotImplemented  # the tracer then keeps the operator


def _for_the_device(ours: Callable[..., Any], theirs: Callable[..., Any]) -> Callable[..., Any]:
    device = torch._C._get_privateuse1_backend_name()

    @functools.wraps(theirs)
    def choose(input: Tensor, *args: Any, **kwargs: Any) -> Any:
        function = ours if input.device.type == device else theirs
        return function(input, *args, **kwargs)

    return choose
