"""`quantize_dynamic`: calibrate, save integers; elsewhere load them and run."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import nn

from causeway.errors import ConfigError
from causeway.quant import settings as settings_
from causeway.quant.attention import QuantizedAttention, is_plain
from causeway.quant.layers import Passes, QuantizedConv, QuantizedLayer, QuantizedLinear
from causeway.quant.select import CONVOLUTIONS, Kinds, kind_of, layers_of, named, replace_in
from causeway.quant.wholes import QuantizedEmbedding, QuantizedRecurrent, QuantizedWhole

_WHOLES: dict[type[nn.Module] | None, type[Any]] = {
    nn.Embedding: QuantizedEmbedding,
    nn.LSTM: QuantizedRecurrent,
    nn.GRU: QuantizedRecurrent,
    nn.MultiheadAttention: QuantizedAttention,
}
_KINDS: Kinds = (nn.Linear, *CONVOLUTIONS, nn.Embedding, nn.LSTM, nn.GRU, nn.MultiheadAttention)
_HOOKS = (
    *("_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called"),
    *("_forward_pre_hooks", "_forward_pre_hooks_with_kwargs"),
)


def quantize_dynamic(
    model: nn.Module,
    qconfig_spec: Mapping[str, Any] | None = None,
    dtype: str | None = None,
    mapping: None = None,
    inplace: bool = False,
    gen_quant: bool = False,
    mixed_layer: Mapping[str, str] | None = None,
) -> nn.Module:
    """`model` with layers in integers in place of Linear, Conv1d to Conv3d, their transposed forms,
    Embedding, LSTM, GRU and MultiheadAttention, subclasses too where they keep the forward of
    these.

    With `gen_quant` the layers compute as before and watch their inputs: run some through the
    model, then `state_dict()` has integers and scales, and `convert` makes the model itself run in
    integers. Without, the model waits for such a state: `load_state_dict(state)`, strict. What was
    chosen here comes with it, so `quantize_dynamic(model)` is all that a deployment says.

    Args:
        model: Any module.
        qconfig_spec: A dict of `iteration` (batches that calibration counts, 1), `use_avg` (the
            mean of the batches' extremes, False), `data_scale` (on the range, 1.0), `mean` and
            `std` (of pixels from 0 to 1, for each channel), `firstconv` (the first convolution
            takes images in uint8, False), `per_channel` (a scale for each output, False), `method`
            ("minmax", "moving_average", "percentile", "entropy", "mse"), `percentile` (99.99),
            `symmetric` (True), `fixed_point` (scales are powers of two, False), `input_format`
            ("rgb", "bgr", "rgba", "argb", "bgra", "abgr") and `layout` ("NCHW", "NHWC") of images.
        dtype: "int8" (default) or "int16".
        mapping: Not taken: a dict of classes would have no effect on the integers.
        inplace: Change `model` itself.
        gen_quant: Calibrate.
        mixed_layer: Names or patterns of layers, several with commas, to "int8", "int16" or
            "float": these are left as they are.

    Raises:
        ConfigError: a key, a value or a layer's name that does not exist.
    """
    if mapping is not None:
        raise ConfigError("mapping is not taken: name layers in mixed_layer")
    settings = settings_.read(qconfig_spec, dtype)
    if not gen_quant and (qconfig_spec or dtype or mixed_layer):
        warnings.warn(
            "without gen_quant the settings come with the state that is loaded; those given here "
            "have no effect",
            stacklevel=2,
        )
    if not inplace:
        model = copy.deepcopy(model)
    found = layers_of(model, _KINDS)
    found = {n: m for n, m in found.items() if not getattr(m, "proj_size", 0)}  # has no bound
    found = {
        n: m for n, m in found.items() if not isinstance(m, nn.MultiheadAttention) or is_plain(m)
    }
    by_name = named(mixed_layer or {}, list(found))
    firsts = [n for n, m in found.items() if isinstance(m, CONVOLUTIONS)]
    first = firsts[0] if firsts and settings.firstconv else None
    if settings.firstconv and first is None:
        raise ConfigError("firstconv=True, but the model has no convolution")
    if first is not None and by_name.get(first) == "float":
        raise ConfigError(f"firstconv=True, but mixed_layer leaves {first!r} as it is")
    made: dict[int, nn.Module] = {}  # a layer with several names is replaced by one
    passes = Passes(settings.iteration)
    for name, module in found.items():
        chosen = by_name.get(name, settings.dtype)
        if chosen != "float" and id(module) not in made:
            made[id(module)] = _layer(
                module, replace(settings, dtype=chosen), passes, gen_quant, name == first
            )
    model = replace_in(model, {n: made[id(m)] for n, m in found.items() if id(m) in made})
    if gen_quant:
        model.register_forward_pre_hook(passes)
    return model


def convert(model: nn.Module) -> nn.Module:
    """`model`, calibrated, in integers from now on, in place. Returns it."""
    for module in end_calibration(model).modules():
        if isinstance(module, QuantizedLayer | QuantizedWhole):
            module.convert()
    return model


def end_calibration(model: nn.Module) -> nn.Module:
    """`model` computes on as it does, but watches nothing any more. Returns it."""
    for module in model.modules():
        for key, hook in list(module._forward_pre_hooks.items()):
            if isinstance(hook, Passes):
                hook.over = True
                del module._forward_pre_hooks[key]
    return model


def _layer(
    module: nn.Module, settings: Any, passes: Passes, calibrate: bool, first: bool
) -> nn.Module:
    if isinstance(module, nn.Embedding) and module.max_norm is not None:
        raise ConfigError(
            "an Embedding with max_norm changes its weights as it runs: leave it with "
            'mixed_layer={"its.name": "float"}'
        )
    kind = kind_of(module, _KINDS)
    if kind in _WHOLES:
        made: nn.Module = _WHOLES[kind](module, settings, passes, calibrate=calibrate)
    else:
        of_kind = QuantizedLinear if kind is nn.Linear else QuantizedConv
        made = of_kind(module, settings, passes, calibrate=calibrate, first=first)
    for hooks in _HOOKS:  # what the user hung on it goes on, now on what replaces it
        getattr(made, hooks).update(getattr(module, hooks))
        getattr(module, hooks).clear()
    return made
