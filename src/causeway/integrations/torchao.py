"""torchao: products with its quantized weights by this device's kernels.

Each of its tensors has a table of functions, filled by `implements_torch_function`, its own hook.
`linear` gets an entry that takes inputs on the device, and leaves all others to the one before.
Weights are read as they lie in memory: none is made floating point as a whole. Int4 formats whose
packing is written for other devices are packed here as `causeway.quant` has it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from causeway import integrations

Linear = Callable[[torch.Tensor, Any], "torch.Tensor | None"]


def _loaded(module: Any) -> None:
    if module.__name__ == "torchao.quantization.quant_api":
        module._check_hardware_support = _checked(module._check_hardware_support)
        integrations.note("torchao", "float8 activations on this device")
        return
    name, _, own = module.__name__.rpartition(".")
    if own not in _TENSORS or not name.startswith("torchao.quantization.quantize_.workflows"):
        return
    class_name, product = _TENSORS[own]
    kind = getattr(module, class_name)
    for function in (F.linear, torch.ops.aten.linear.default):
        _enter(kind, function, product)
    if hasattr(kind, "from_hp") and own in ("int4_tensor", "int4_plain_int32_tensor"):
        _pack_here(kind)
    integrations.note("torchao", f"linear of {class_name}")


def _checked(before: Callable[[Any], None]) -> Callable[[Any], None]:
    """The check of which chips take float8 activations; it asks for CUDA's and XPU's alone."""

    @functools.wraps(before)
    def check(granularities: Any) -> None:
        kinds = {type(g).__name__ for g in granularities}
        if kinds not in ({"PerTensor"}, {"PerRow"}):
            before(granularities)

    return check


def _enter(kind: Any, function: Any, product: Linear) -> None:
    eager = function is F.linear
    before = (kind._TORCH_FN_TABLE if eager else kind._ATEN_OP_TABLE)[kind][function]
    implements = kind.implements_torch_function if eager else kind.implements

    def linear(func: Any, types_: Any, args: Any, kwargs: Any) -> Any:
        x, weight = args[0], args[1]
        if isinstance(weight, kind) and x.device.type == integrations.state.device:
            y = product(x, weight)
            if y is not None:
                bias = args[2] if len(args) > 2 else (kwargs or {}).get("bias")
                return (y if bias is None else y + bias).to(x.dtype)  # rounded once
        return before(func, types_, args, kwargs)

    implements(function)(linear)


def _floats(t: torch.Tensor, outs: int, groups: int) -> torch.Tensor:
    """Scales or zero points as the product takes them, [outs, groups]."""
    return t.float().expand(outs, groups).contiguous()


def _by_groups(x: torch.Tensor, weight: Any, zero: torch.Tensor | None) -> torch.Tensor | None:
    """Weights of 8 bits as they are, `block_size` columns of each row to a scale."""
    q = weight.qdata
    group = (weight.block_size or q.shape)[-1]
    if q.dim() != 2 or q.shape[1] % group or not q.is_contiguous():
        return None
    sizes = (q.shape[0], q.shape[1] // group)
    zeros = None if zero is None else _floats(zero, *sizes)
    return torch.ops.causeway.qlinear_weight(  # type: ignore[no-any-return]
        x, q, _floats(weight.scale, *sizes), zeros, group, 8
    )


def _int8(x: torch.Tensor, weight: Any) -> torch.Tensor | None:
    if weight.act_pre_scale is not None:
        x = x * weight.act_pre_scale
    if weight.act_quant_kwargs is None:
        return _by_groups(x, weight, weight.zero_point)
    from torchao.quantization.quant_primitives import MappingType
    from torchao.quantization.quantize_.common import _choose_quant_func_and_quantize_tensor

    rows = weight.qdata.shape[-1:] == tuple(weight.block_size[-1:])
    symmetric = weight.act_quant_kwargs.mapping_type == MappingType.SYMMETRIC
    if weight.qdata.dim() != 2 or not rows or not symmetric:
        return None
    found = _choose_quant_func_and_quantize_tensor(
        *(x, weight.act_quant_kwargs),
        scale=weight.act_quant_scale,
        zero_point=weight.act_quant_zero_point,
    )
    q: Any = found.qdata
    one = torch.ones(1, device=x.device)
    after = (None, None, 0, False, None, None, 0, 0, torch.float32)
    sums = torch.ops.causeway.qlinear(q.reshape(-1, q.shape[-1]), weight.qdata, one, *after)
    scale = found.scale.reshape(-1, 1)
    wide = torch.float if scale.dtype == torch.half else scale.dtype
    y = (sums.to(wide) * scale.to(wide)).to(x.dtype) * weight.scale.flatten()
    out: torch.Tensor = y.reshape(*x.shape[:-1], -1).to(x.dtype)
    return out


def _float8(x: torch.Tensor, weight: Any) -> torch.Tensor | None:
    if weight.qdata.dtype != torch.float8_e4m3fn:
        return None
    if weight.act_quant_kwargs is None:
        return _by_groups(x, weight, None)
    from torchao.quantization.quant_primitives import _choose_scale_float8
    from torchao.quantization.utils import get_block_size

    how = weight.act_quant_kwargs
    block = get_block_size(x.shape, how.granularity)
    one_scale = all(b in (1, size) for b, size in zip(block[:-1], x.shape[:-1], strict=True))
    if how.float8_dtype != torch.float8_e4m3fn or block[-1] != x.shape[-1] or not one_scale:
        return None
    scale = _choose_scale_float8(
        *(x, block, how.float8_dtype),
        hp_value_lb=how.hp_value_lb,
        hp_value_ub=how.hp_value_ub,
    )
    most = torch.finfo(how.float8_dtype).max
    rounded = round_to_e4m3((x.float() / scale).clamp(-most, most))
    y = _by_groups(rounded, weight, None)
    return None if y is None else y * scale


def round_to_e4m3(x: torch.Tensor) -> torch.Tensor:
    """`x.to(torch.float8_e4m3fn).float()` of float32 from -448 to 448, or NaN, without a tensor of
    float8, which few devices cast: three bits after the first, and steps of 2**-9 below 2**-6.
    """
    bits = x.view(torch.int32)
    dropped = 23 - 3
    odd = (bits & (1 << dropped)).ne(0).int()  # ties go to the even one
    kept = (bits + odd + ((1 << (dropped - 1)) - 1)) & -(1 << dropped)
    small = (x * 512).round() / 512
    return torch.where((x.abs() < 2**-6) | x.isnan(), small, kept.view(torch.float32))


def _intx(x: torch.Tensor, weight: Any) -> torch.Tensor | None:
    if weight.activation_quantization is not None:
        return None
    return _by_groups(x, weight, weight.zero_point)


def _int4(x: torch.Tensor, weight: Any) -> torch.Tensor | None:
    """Two columns that follow each other in a byte, the first in its low half, -8 to 7; a zero
    point is what q = 0 stands for: w = q * scale + zero.
    """
    q, group = weight.qdata, weight.block_size[-1]
    if q.dim() != 2 or group % 32 or weight.activation_dtype != torch.bfloat16:
        return None
    if weight.act_pre_scale is not None:
        x = x * weight.act_pre_scale
    # Our byte j of 16 has columns j and j + 16: the input is brought into that order instead.
    x = x.reshape(*x.shape[:-1], -1, 16, 2).transpose(-1, -2).flatten(-3)
    scale = weight.scale.float().t().contiguous()
    zero = -(weight.zero_point.float().t() / scale).contiguous()
    return torch.ops.causeway.qlinear_weight(  # type: ignore[no-any-return]
        x, q, scale, zero, group, 4
    )


def _int4_of_device(x: torch.Tensor, weight: Any) -> torch.Tensor:
    if weight.act_pre_scale is not None:
        x = x * weight.act_pre_scale
    scale, zero = (t.float().t().contiguous() for t in (weight.scale, weight.zero_point))
    return torch.ops.causeway.qlinear_weight(  # type: ignore[no-any-return]
        x, weight.qdata, scale, zero, weight.block_size[-1], 4
    )


def _pack_here(kind: Any) -> None:
    """Let a weight on the device be packed on it; torchao does that for the devices it knows."""
    before = kind.from_hp.__func__

    @functools.wraps(before)
    def from_hp(cls: Any, w: torch.Tensor, block_size: Any, *rest: Any, **named: Any) -> Any:
        if w.device.type != integrations.state.device:
            return before(cls, w, block_size, *rest, **named)
        group = block_size[-1]
        if w.dim() != 2 or group % 32 or any(b != 1 for b in block_size[:-1]):
            raise ValueError(
                f"{kind.__name__} on {w.device.type!r} packs weights of two dimensions in groups "
                f"of a multiple of 32 columns, not {tuple(w.shape)} in blocks of {block_size}"
            )
        rows = kind.__name__ == "Int4Tensor"
        return (_pack_rows if rows else _pack)(cls, w, block_size)

    kind.from_hp = classmethod(from_hp)


def _pack_rows(cls: Any, w: torch.Tensor, block_size: Any) -> Any:
    """As an Int4Tensor has it."""
    grouped = w.detach().float().reshape(w.shape[0], -1, block_size[-1])
    low, high = grouped.amin(-1), grouped.amax(-1)
    scale = (high - low).clamp(min=1e-6) / 15
    q = ((grouped - low.unsqueeze(-1)) / scale.unsqueeze(-1)).round().clamp(0, 15).int() - 8
    q = q.flatten(1)
    packed = ((q[:, ::2] & 15) | ((q[:, 1::2] & 15) << 4)).to(torch.uint8).view(torch.int8)
    scales, zeros = (t.t().contiguous().to(w.dtype) for t in (scale, low + 8 * scale))
    return cls(packed.contiguous(), scales, zeros, block_size, w.shape)


def _pack(cls: Any, w: torch.Tensor, block_size: Any) -> Any:
    from torchao.quantization.quant_primitives import (
        MappingType,
        choose_qparams_affine,
        quantize_affine,
    )

    from causeway.quant.weights import pack4

    kind = (torch.int32, 0, 15)
    scale, zero = choose_qparams_affine(
        *(w, MappingType.ASYMMETRIC, block_size, *kind),
        eps=1e-6,
        zero_point_dtype=torch.int32,
    )
    q = quantize_affine(w, block_size, scale, zero, *kind)
    sizes = (w.shape[0], -1)
    return cls(
        pack4(q),
        scale.reshape(sizes).t().contiguous(),
        zero.reshape(sizes).t().contiguous().to(torch.int8),
        block_size,
        w.shape,
    )


_TENSORS: dict[str, tuple[str, Linear]] = {
    "int8_tensor": ("Int8Tensor", _int8),
    "float8_tensor": ("Float8Tensor", _float8),
    "intx_unpacked_to_int8_tensor": ("IntxUnpackedToInt8Tensor", _intx),
    "int4_tensor": ("Int4Tensor", _int4),
    "int4_plain_int32_tensor": ("Int4PlainInt32Tensor", _int4_of_device),
}

INTEGRATION = integrations.Integration(
    ("0.18.0", "0.18.0"), "its tables of functions get products with packed weights", _loaded
)
