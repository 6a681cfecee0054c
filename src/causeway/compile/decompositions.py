"""Decompositions that Inductor lacks for the device, and what is done in place of those of its that
do not hold there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from causeway.compile import chip, names
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


def add(input: Tensor, other: Any, *, alpha: Any = 1) -> Tensor:
    """`input + alpha * other`. Inductor (2.13, on the CPU too) takes `add(x, mm(a, b), alpha=s)`
    for `addmm(x, a, b)`, and two products for one kernel, without the factor.
    """
    if not isinstance(other, Tensor) or (isinstance(alpha, (int, float)) and alpha == 1):
        return NotImplemented
    return input + other.to(torch.result_type(input, other)) * alpha


@functools.cache
def replace() -> None:
    """Put them in place, for tensors of the device; others get what they got."""
    table, aten = names.decompositions, torch.ops.aten
    operator = torch.ops.quantized_decomposed.choose_qparams.tensor
    if operator in table:
        table[operator] = _for_the_device(choose_qparams, table[operator])
    table[aten.add.Tensor] = _for_the_device(add, table.get(aten.add.Tensor, _left_alone))
    # A CPU has memory for indices, and takes longer to make them of places in a window.
    pool = aten.max_pool2d_with_indices.default
    if pool in table:
        table[pool] = _where(_is_in_turn, _left_alone, table[pool])
    # Not a sum at indices: each element looks at the windows that it is in.
    backward = aten.max_pool2d_with_indices_backward.default
    if backward in table:
        table[backward] = _for_the_device(_left_alone, table[backward])
    layer = aten._transformer_encoder_layer_fwd.default
    if layer not in table:
        table[layer] = _for_the_device(decompose.encoder_layer, _left_alone)
        # Inductor makes one as it meets the operator, and refuses to where the table has it.
        names.make_fallback(layer, override_decomp=True)


def _left_alone(*args: Any, **kwargs: Any) -> Any:
    return NotImplemented  # the tracer then keeps the operator


def _is_on_the_device(*args: Any, **kwargs: Any) -> bool:
    """Whether one of the first two arguments is there; a number of the CPU may come before it."""
    name = chip.device_name()
    return any(isinstance(a, Tensor) and a.device.type == name for a in args[:2])


def _is_in_turn(input: Tensor, *args: Any, **kwargs: Any) -> bool:
    return _is_on_the_device(input) and chip.is_in_turn(input.device)


def _where(
    condition: Callable[..., bool], ours: Callable[..., Any], theirs: Callable[..., Any]
) -> Callable[..., Any]:
    @functools.wraps(theirs)
    def choose(*args: Any, **kwargs: Any) -> Any:
        function = ours if condition(*args, **kwargs) else theirs
        return function(*args, **kwargs)

    return choose


_for_the_device = functools.partial(_where, _is_on_the_device)
