"""What integers cost a model: its accuracy, each layer's noise, and which layers need more bits."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from causeway.errors import CausewayError, ConfigError
from causeway.quant.balance import equalize, smooth_quant
from causeway.quant.correct import correct_bias
from causeway.quant.dynamic import convert, end_calibration, quantize_dynamic
from causeway.quant.layers import QuantizedConv, QuantizedLayer
from causeway.quant.wholes import QuantizedWhole


@dataclass(frozen=True)
class Layer:
    """One layer in integers against the same layer in floating point. Noise is in decibels:
    10 * log10(sum of squares of the numbers / of their errors); infinite where there is none.
    """

    name: str
    dtype: str
    noise: float  # of its output, with all that comes before it in integers
    cosine: float  # between the two outputs
    worst_channel: int
    worst_noise: float
    alone: float  # of the model's output, where only this layer is in integers
    plain: float | None = None  # `noise` without the report's steps; None where there are none


@dataclass
class AccuracyReport:
    """`before` and `after` are the model's `metric` in floating point and in integers."""

    metric: str
    before: float
    after: float
    layers: list[Layer] = field(default_factory=list)
    raised: dict[str, str] = field(default_factory=dict)  # for mixed_layer
    tried: int = 1  # models that were measured
    steps: list[str] = field(default_factory=list)  # "equalized", "smoothed 0.5", ...
    plain: float | None = None  # `after` without them

    @property
    def lost(self) -> float:
        """In points of `metric`."""
        return self.before - self.after


def measure(
    model: nn.Module,
    batches: Iterable[Any],
    spec: Mapping[str, Any] | None = None,
    dtype: str = "int8",
    lose: float | None = None,
    mixed_layer: Mapping[str, str] | None = None,
    correct: bool = False,
    *,
    equal: bool = False,
    smooth: float | None = None,
    pairs: Sequence[tuple[str, str | Sequence[str]]] | None = None,
) -> tuple[nn.Module, AccuracyReport]:
    """`model` in integers, calibrated with `batches`, and what that cost on them.

    With `equal`, `smooth` or `correct` it is measured without them too. Noise is in the channels of
    the model as it is given, so that the two can be compared though channels have other scales.

    Args:
        model: Any module, as `quantize_dynamic` takes it. It is measured in eval mode.
        batches: Each an input or a tuple of inputs; or (inputs, labels), labels being one integer
            for each row of the output: then the metric is accuracy in percent. Without labels it is
            the percentage of rows whose largest output is where the float model has it, or the
            noise of the output where that has no rows.
        spec, dtype, mixed_layer: As of `quantize_dynamic`; `iteration` is the number of batches.
        lose: How many points of the metric may be lost. Where more are, layers are raised to int16,
            those first that alone disturb the output most; where that is not enough, left in
            floating point.
        correct: Correct biases, as `correct_bias` does.
        equal: Equalize layers first, as `equalize` does with these batches.
        smooth: The alpha with which to smooth inputs next, as `smooth_quant` does.
        pairs: Of layers, by name, for whichever of the two is asked for.

    Raises:
        CausewayError: there are no batches, the model has no layer that is quantized, or no pair
            that can be equalized or smoothed.
    """
    given = [_split(b) for b in batches]
    if not given:
        raise CausewayError("there is no data: calibration needs at least one batch")
    if lose is not None and not lose >= 0:
        raise ConfigError(f"what may be lost is 0 or more points, not {lose}")
    if pairs is not None and equal == (smooth is not None):
        raise ConfigError("pairs of layers are for one of the two, equalize or smooth")
    spec = {**(spec or {}), "iteration": len(given)}
    inputs_of = [inputs for inputs, _ in given]

    def calibrated(net: nn.Module, mixed: Mapping[str, str]) -> nn.Module:
        q = quantize_dynamic(
            net, spec, dtype, gen_quant=True, mixed_layer={**(mixed_layer or {}), **mixed}
        ).eval()
        for inputs in inputs_of:
            q(*inputs)
        return end_calibration(q)

    with torch.no_grad():
        base = reference = calibrated(model, {})
        kinds = (QuantizedLayer, QuantizedWhole)
        names = [n for n, m in reference.named_modules() if isinstance(m, kinds)]
        if not names:
            raise CausewayError("the model has no layer that is quantized")
        expected = [_output(base(*inputs)) for inputs in inputs_of]
        steps = []
        if equal or smooth is not None:
            model = copy.deepcopy(model).eval()
        if equal:
            each = [(a, (b,) if isinstance(b, str) else b) for a, b in pairs or ()]
            by_two = [(a, b) for a, after in each for b in after] or None
            equalize(model, by_two, inplace=True, batches=inputs_of)
            steps.append("equalized")
        if smooth is not None:
            smooth_quant(model, inputs_of, smooth, pairs, inplace=True)
            steps.append(f"smoothed {smooth:g}")
        if steps:
            reference = calibrated(model, {})
        if correct:
            steps.append("biases corrected")

        def converted(calibrated: nn.Module) -> nn.Module:
            if not correct:
                return convert(calibrated)
            return correct_bias(convert(calibrated), reference, inputs_of)

        integers = converted(copy.deepcopy(reference))
        metric, before = _metric(expected, expected, given)

        def after(q: nn.Module) -> float:
            return _metric([_output(q(*inputs)) for inputs in inputs_of], expected, given)[1]

        report = AccuracyReport(metric, before, after(integers), steps=steps)
        plain: dict[str, _Sums] = {}
        if steps:
            without = convert(copy.deepcopy(base))
            report.plain = after(without)
            report.tried += 1
            plain = _compared(base, without, names, inputs_of)
        alone = {n: _alone(reference, integers, n, given, expected) for n in names}
        if lose is not None and report.lost > lose:
            order = sorted(names, key=alone.__getitem__)
            integers = _raise(report, order, lambda m: converted(calibrated(model, m)), after, lose)
        found = _compared(reference, integers, names, inputs_of)
        report.layers = [
            _row(n, found[n], plain.get(n), integers, alone[n]) for n in names if n in found
        ]
    return integers, report


def _split(batch: Any) -> tuple[tuple[Any, ...], torch.Tensor | None]:
    if not isinstance(batch, tuple | list):
        return (batch,), None
    if len(batch) == 2 and isinstance(batch[1], torch.Tensor):
        labels = batch[1]
        if labels.dim() == 1 and not labels.is_floating_point():
            inputs = batch[0]
            return tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,), labels
    return tuple(batch), None


def _output(found: Any) -> torch.Tensor:
    while isinstance(found, tuple | list):
        found = found[0]
    if isinstance(found, Mapping):
        found = next(iter(found.values()))
    if not isinstance(found, torch.Tensor):
        raise CausewayError(f"the model returned {type(found).__name__}, which has no numbers")
    return found.detach().float().cpu()


def _metric(
    found: Sequence[torch.Tensor],
    expected: Sequence[torch.Tensor],
    given: Sequence[tuple[Any, torch.Tensor | None]],
) -> tuple[str, float]:
    labels = [label for _, label in given]
    if all(label is not None for label in labels):
        right = rows = 0
        for f, label in zip(found, labels, strict=True):
            assert label is not None
            right += int((f.argmax(-1).flatten() == label.cpu().flatten()).sum())
            rows += label.numel()
        return "accuracy", 100 * right / rows
    if all(e.dim() >= 2 for e in expected):
        pairs = list(zip(found, expected, strict=True))
        same = sum(int((f.argmax(-1) == e.argmax(-1)).sum()) for f, e in pairs)
        return "agreement", 100 * same / sum(e[..., 0].numel() for e in expected)
    # Bounded, so that what is lost is a number.
    return "signal to noise, at most 100 dB", min(
        _noise(
            sum(float(e.double().square().sum()) for e in expected),
            sum(
                float((f.double() - e.double()).square().sum())
                for f, e in zip(found, expected, strict=True)
            ),
        ),
        100.0,
    )


def _noise(signal: float, error: float) -> float:
    if error == 0:
        return math.inf
    return 10 * math.log10(signal / error) if signal > 0 else -math.inf


def _alone(
    reference: nn.Module,
    integers: nn.Module,
    name: str,
    given: Sequence[tuple[Any, Any]],
    expected: Sequence[torch.Tensor],
) -> float:
    parent, _, own = name.rpartition(".")
    holder = reference.get_submodule(parent)
    before = getattr(holder, own) if name else reference
    net = integers.get_submodule(name) if name else integers
    if name:
        setattr(holder, own, net)
        net = reference
    try:
        signal = error = 0.0
        for (inputs, _), e in zip(given, expected, strict=True):
            signal += float(e.double().square().sum())
            error += float((_output(net(*inputs)).double() - e.double()).square().sum())
    finally:
        if name:
            setattr(holder, own, before)
    return _noise(signal, error)


def _raise(
    report: AccuracyReport,
    order: Sequence[str],
    build_with: Callable[[Mapping[str, str]], nn.Module],
    after: Callable[[nn.Module], float],
    lose: float,
) -> nn.Module:
    """The least number of layers in more bits, taken in `order`, that keeps within `lose`."""

    def build(count: int, dtype: str) -> tuple[nn.Module, float, dict[str, str]]:
        mixed = dict.fromkeys(order[:count], dtype)
        if dtype == "float":
            mixed |= dict.fromkeys(order[count:], "int16")
        q = build_with(mixed)
        report.tried += 1
        return q, after(q), mixed

    for dtype in ("int16", "float"):
        best = build(len(order), dtype)
        if report.before - best[1] > lose:
            continue
        low, high = 0, len(order)  # `high` layers are enough, `low` are not
        while high - low > 1:
            middle = (low + high) // 2
            tried = build(middle, dtype)
            if report.before - tried[1] <= lose:
                high, best = middle, tried
            else:
                low = middle
        q, report.after, report.raised = best
        return q
    raise CausewayError("even in floating point the model loses more than that")


@dataclass
class _Sums:
    """Of each channel of a layer's output, over all batches: squares of the numbers in floating
    point and in integers, of the errors, and the products of the two.
    """

    signal: torch.Tensor
    ours: torch.Tensor
    error: torch.Tensor
    dot: torch.Tensor

    def scaled(self, units: _Sums) -> _Sums:
        """With channels of the size that `units` has, which a step may have given another scale."""
        by = torch.where(self.signal > 0, units.signal / self.signal, 1.0)
        return _Sums(self.signal * by, self.ours * by, self.error * by, self.dot * by)

    @property
    def noise(self) -> float:
        return _noise(float(self.signal.sum()), float(self.error.sum()))


def _compared(
    reference: nn.Module, integers: nn.Module, names: Sequence[str], given: Sequence[Any]
) -> dict[str, _Sums]:
    """The layers that the data reaches, in integers against floating point."""
    seen: dict[str, list[torch.Tensor]] = {n: [] for n in names}
    sums: dict[str, _Sums] = {}

    def keep(name: str) -> Callable[..., None]:
        return lambda _module, _inputs, out: seen[name].append(_output(out))

    def compare(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, _inputs: Any, out: Any) -> None:
            theirs, ours = seen[name].pop(0).double(), _output(out).double()
            channel = (
                1 if theirs.dim() > 2 and isinstance(module, QuantizedConv) else theirs.dim() - 1
            )
            rest = [d for d in range(theirs.dim()) if d != channel]
            products = (theirs.square(), ours.square(), (ours - theirs).square(), ours * theirs)
            now = [p.sum(rest) if rest else p for p in products]  # sum([]) is of all
            before = sums.get(name)
            if before is not None:
                was = (before.signal, before.ours, before.error, before.dot)
                now = [a + b for a, b in zip(was, now, strict=True)]
            sums[name] = _Sums(*now)

        return hook

    net = dict(integers.named_modules())
    hooks = [reference.get_submodule(n).register_forward_hook(keep(n)) for n in names]
    hooks += [net[n].register_forward_hook(compare(n)) for n in names]
    try:
        for inputs in given:
            reference(*inputs)
            integers(*inputs)
    finally:
        for hook in hooks:
            hook.remove()
    return sums


def _row(name: str, sums: _Sums, plain: _Sums | None, integers: nn.Module, alone: float) -> Layer:
    if plain is not None:
        sums = sums.scaled(plain)
    by_channel = [_noise(float(s), float(e)) for s, e in zip(sums.signal, sums.error, strict=True)]
    worst = min(range(len(by_channel)), key=by_channel.__getitem__)
    size = math.sqrt(float(sums.signal.sum()) * float(sums.ours.sum()))
    return Layer(
        name or "(the model)",
        str(_weight(integers.get_submodule(name)).dtype).removeprefix("torch."),
        sums.noise,
        float(sums.dot.sum()) / size if size else 1.0,
        worst,
        by_channel[worst],
        alone,
        None if plain is None else plain.noise,
    )


def _weight(module: nn.Module) -> torch.Tensor:
    """The first weight of a layer, whatever it is held in."""
    everything = itertools.chain(module.named_parameters(), module.named_buffers())
    return next(t for n, t in everything if n.startswith("weight") and not n.endswith("scale"))
