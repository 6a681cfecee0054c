"""`quantize_dynamic`: calibrate, save integers; elsewhere load them and run."""

from __future__ import annotations

import copy
import fnmatch
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from causeway.errors import ConfigError
from causeway.quant import settings as settings_
from causeway.quant.calibrate import Range
from causeway.quant.layers import (
    Passes,
    QuantizedConv,
    QuantizedEmbedding,
    QuantizedLayer,
    QuantizedLinear,
    QuantizedRecurrent,
    QuantizedWhole,
)

_CONVOLUTIONS = (
    *(nn.Conv1d, nn.Conv2d, nn.Conv3d),
    *(nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d),
)
# What reads the weights of its children itself.
CLOSED = (nn.MultiheadAttention,)


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
    Embedding, LSTM and GRU, subclasses too where they keep the forward of these.

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
    found = {name: m for name, m in model.named_modules(remove_duplicate=False) if _takes(m)}
    inside = tuple(
        f"{name}." if name else ""
        for name, m in model.named_modules(remove_duplicate=False)
        if isinstance(m, CLOSED)
    )
    found = {name: m for name, m in found.items() if not (inside and name.startswith(inside))}
    by_name = named(mixed_layer or {}, list(found))
    firsts = [n for n, m in found.items() if isinstance(m, _CONVOLUTIONS)]
    first = firsts[0] if firsts and settings.firstconv else None
    if settings.firstconv and first is None:
        raise ConfigError("firstconv=True, but the model has no convolution")
    if first is not None and by_name.get(first) == "float":
        raise ConfigError(f"firstconv=True, but mixed_layer leaves {first!r} as it is")
    made: dict[int, nn.Module] = {}
    passes = Passes(settings.iteration)
    for name, module in found.items():
        chosen = by_name.get(name, settings.dtype)
        if chosen == "float":
            continue
        if id(module) not in made:
            made[id(module)] = _layer(
                module, replace(settings, dtype=chosen), passes, gen_quant, name == first
            )
        if not name:
            model = made[id(module)]
            break
        parent, _, own = name.rpartition(".")
        setattr(model.get_submodule(parent), own, made[id(module)])
    for module in model.modules():
        if isinstance(module, nn.TransformerEncoderLayer):
            module.activation_relu_or_gelu = 0  # torch's fused path reads the weights itself
    if gen_quant:
        model.register_forward_pre_hook(passes)
    return model


def convert(model: nn.Module) -> nn.Module:
    """`model`, calibrated, in integers from now on, in place. Returns it."""
    for module in end_calibration(model).modules():
        if isinstance(module, QuantizedLayer) and module.phase == "calibrating":
            module._become(_state_of(module))
        elif isinstance(module, QuantizedWhole):
            module.convert()
    return model


def end_calibration(model: nn.Module) -> nn.Module:
    """`model` computes on as it does, but watches nothing any more. Returns it."""
    for module in model.modules():
        for key, hook in list(module._forward_pre_hooks.items()):
            if isinstance(hook, Passes):
                hook.count = hook.most + 1
                del module._forward_pre_hooks[key]
    return model


def _state_of(layer: QuantizedLayer) -> dict[str, torch.Tensor | None]:
    if layer.range.batches == 0:
        warnings.warn(
            "converted without calibration: no input was seen, so ranges are measured as inputs "
            "come. Run some through the model first",
            stacklevel=3,
        )
    return layer._integers()


def _takes(module: nn.Module) -> bool:
    kinds = (nn.Linear, *_CONVOLUTIONS, nn.Embedding, nn.LSTM, nn.GRU)
    for kind in kinds:
        if isinstance(module, kind):
            projected = getattr(module, "proj_size", 0) > 0  # has no bound
            return type(module).forward is kind.forward and not projected
    return False


def _layer(
    module: nn.Module, settings: Any, passes: Passes, calibrate: bool, first: bool
) -> nn.Module:
    if isinstance(module, nn.Embedding):
        if module.max_norm is not None:
            raise ConfigError(
                "an Embedding with max_norm changes its weights as it runs: leave it with "
                'mixed_layer={"its.name": "float"}'
            )
        return QuantizedEmbedding(module, calibrate=calibrate)
    if isinstance(module, nn.LSTM | nn.GRU):
        whole = QuantizedRecurrent(module, settings, calibrate=calibrate)
        if calibrate:
            module.register_forward_pre_hook(_Watch(whole.range, passes))
        return whole
    kind = QuantizedLinear if isinstance(module, nn.Linear) else QuantizedConv
    layer = kind(module, settings, passes, calibrate=calibrate, first=first)
    for hooks in ("_forward_hooks", "_forward_pre_hooks"):
        getattr(layer, hooks).update(getattr(module, hooks))
    return layer


class _Watch:
    """Shows a module's first input to a range, while the model calibrates."""

    def __init__(self, range_: Range, passes: Passes) -> None:
        self.range, self.passes = range_, passes

    def __call__(self, _module: nn.Module, inputs: tuple[Any, ...]) -> None:
        if self.passes.count <= self.passes.most:
            self.range.see(inputs[0].data)


def named(given: Mapping[str, str], names: list[str]) -> dict[str, str]:
    """A `mixed_layer` by the names of layers."""
    chosen: dict[str, str] = {}
    for patterns, dtype in given.items():
        settings_.one_of(f"mixed_layer[{patterns!r}]", dtype, (*settings_.DTYPES, "float"))
        for pattern in (p.strip() for p in patterns.split(",")):
            hits = [n for n in names if fnmatch.fnmatchcase(n, pattern)]
            hits += [n for n in names if n.startswith(f"{pattern}.") and n not in hits]
            if not hits:
                raise ConfigError(
                    f"mixed_layer: no layer that is quantized is called {pattern!r}."
                    + settings_.nearest(pattern, names)
                )
            chosen.update(dict.fromkeys(hits, dtype))
    return chosen
