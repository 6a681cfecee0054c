"""Bias correction: what rounding moves a layer's outputs by on average, its bias takes back."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from causeway.errors import CausewayError
from causeway.quant.layers import QuantizedConv, QuantizedLayer


class _Reached(Exception):
    """The layer that is looked at has its output: the rest of the model is not needed."""


def correct_bias(quantized: nn.Module, model: nn.Module, batches: Iterable[Any]) -> nn.Module:
    """`quantized`, in place, with biases that make each output channel's mean that of `model`.

    `b + E[y] - E[y']` of each channel, with y the layer's output in floating point, y' the one in
    integers, and means over `batches`: bias correction from data, "Data-Free Quantization through
    Weight Equalization and Bias Correction", arXiv 1906.04721, equation 1. Layers are taken in the
    order in which they run, each with those before it corrected. One without a bias gets one.
    Embeddings and recurrent layers stay as they are.

    Args:
        quantized: `model` in integers: what `convert` returned.
        model: The same in floating point.
        batches: Inputs, or tuples of them; those of calibration will do.

    Raises:
        CausewayError: there are no batches, a layer is not in integers, or is not in `model`.
    """
    given = arguments_of(batches, "bias correction")
    layers = {n: m for n, m in quantized.named_modules() if isinstance(m, QuantizedLayer)}
    layers = {n: m for n, m in layers.items() if m.phase != "float"}
    if not layers:
        raise CausewayError("the model has no layer in integers whose bias could be corrected")
    for name, layer in layers.items():
        if layer.phase != "quantized":
            raise CausewayError(f"{name or 'the layer'} is not in integers yet: convert it first")
    floats = dict(model.named_modules())
    missing = [n for n in layers if n not in floats]
    if missing:
        raise CausewayError(f"the model in floating point has no {missing[0]!r}")
    with torch.no_grad():
        wanted = _means(model, {n: floats[n] for n in layers}, layers, given)
        for name in wanted:  # in the order in which they ran
            layer = layers[name]
            off = wanted[name] - _means(quantized, {name: layer}, layers, given, stop=True)[name]
            bias = off if layer.bias is None else layer.bias + off
            layer._buffers.pop("bias", None)
            layer.register_buffer("bias", bias.float())
    return quantized


def arguments_of(batches: Iterable[Any], user: str) -> list[tuple[Any, ...]]:
    """The arguments of a model for each batch; an error where there is none for `user`."""
    given = [b if isinstance(b, tuple) else (b,) for b in batches]
    if not given:
        raise CausewayError(f"there is no data: {user} needs at least one batch")
    return given


def _means(
    model: nn.Module,
    modules: dict[str, nn.Module],
    layers: dict[str, QuantizedLayer],
    given: list[tuple[Any, ...]],
    stop: bool = False,
) -> dict[str, torch.Tensor]:
    """The mean of each output channel of these modules, by name, in the order of their calls."""
    sums: dict[str, list[Any]] = {}

    def hook(name: str) -> Any:
        conv = isinstance(layers[name], QuantizedConv)

        def add(_module: Any, _inputs: Any, out: torch.Tensor) -> None:
            dims = layers[name].weight.dim()
            channel = out.dim() - (dims - 1 if conv else 1)
            rows = out.double().movedim(channel, -1).flatten(0, -2)
            total = sums.setdefault(name, [0.0, 0])
            total[0], total[1] = total[0] + rows.sum(0), total[1] + rows.shape[0]
            if stop:
                raise _Reached

        return add

    hooks = [m.register_forward_hook(hook(n)) for n, m in modules.items()]
    try:
        for inputs in given:
            with contextlib.suppress(_Reached):
                model(*inputs)
    finally:
        for each in hooks:
            each.remove()
    return {name: total / max(count, 1) for name, (total, count) in sums.items()}
