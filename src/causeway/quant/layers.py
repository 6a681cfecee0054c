"""Layers whose weights are integers. A layer is first a copy of the one that it replaces, which
sees the inputs that it will have (calibrating), and then integers and scales (quantized).

Its state is plain tensors: `weight` in int8 or int16, `weight_scale` [out] or [1], `bias`,
`input_scale` [1], or [0] where the range of each input is measured as it comes, `input_zero_point`
where inputs have an offset; of a first convolution that takes images `input_mean`, `input_std`
[channels] and `image_layout`. A weight w stands for w * weight_scale.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import causeway._C  # noqa: F401  registers torch.ops.causeway
from causeway.errors import CausewayError, ConfigError
from causeway.quant.calibrate import Range
from causeway.quant.integers import (
    DTYPES,
    input_scale,
    integers_of,
    levels_of,
    measured,
    waits_for_integers,
)
from causeway.quant.settings import Settings

_SHIFT = 8  # a pixel's mean is kept in steps of 1 / 2**_SHIFT

# State beside the weight; None where a layer has no such thing.
_STATE = (
    *("bias", "weight_scale", "input_scale", "input_zero_point"),
    *("input_mean", "input_std", "image_layout"),
)
# Made of the state when it is there, and not part of it.
_MADE = ("multiplier", "inverse", "zero", "taps", "image_multiplier", "image_taps", "shift_of_mean")


def _of_rows(weight: torch.Tensor, transposed: bool, groups: int) -> torch.Tensor:
    """Weights as [out, everything else], also of transposed convolutions."""
    if not transposed:
        return weight.flatten(1)
    channels, out = weight.shape[0] // groups, weight.shape[1]
    return weight.reshape(groups, channels, out, -1).transpose(1, 2).reshape(groups * out, -1)


class Kept(nn.Module):
    """A module whose buffers keep their dtypes under `.half()` and its kind: they are integers, and
    what integers stand for.
    """

    _casts: frozenset[str] = frozenset()  # buffers that follow it all the same

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> Any:
        kept = {k: b for k, b in self._buffers.items() if b is not None and k not in self._casts}
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, before in kept.items():
            after = self._buffers[name]
            assert after is not None
            if after.dtype != before.dtype:
                self._buffers[name] = before.to(after.device)
        return self


class Passes:
    """Counts the batches of a model that calibrates, as the hook before its forward, and shows its
    layers' inputs to their ranges while it does.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.count = 0
        self.over = False

    def __call__(self, *_: Any) -> None:
        self.count += 1
        if self.count == self.most + 1 and not self.over:
            warnings.warn(
                f"calibration has seen its {self.most} batches; further ones are not counted. "
                '{"iteration": n} in qconfig_spec says how many there are',
                stacklevel=3,
            )

    def watch(self, seen: Range, x: torch.Tensor) -> None:
        """Show `x` to `seen`, if this batch counts."""
        if self.count <= self.most and not self.over:
            seen.see(x)


class QuantizedLayer(Kept):
    """A layer in integers, in place of `source`.

    Args:
        source: The layer that it replaces; its parameters are taken, not copied.
        settings: How its numbers become integers.
        passes: Of the model that it belongs to.
        calibrate: Watch inputs; without, wait for `load_state_dict`.
        first: The images' convolution.
    """

    phase: str  # "calibrating", "empty", "quantized", or "float": left as it was
    # Parameters first, buffers later.
    weight: Any
    bias: Any
    weight_scale: Any
    input_scale: Any
    input_zero_point: Any
    input_mean: Any
    input_std: Any
    image_layout: Any
    multiplier: Any
    inverse: Any
    zero: Any
    taps: Any
    image_multiplier: Any
    image_taps: Any
    shift_of_mean: Any

    def __init__(
        self,
        source: nn.Module,
        settings: Settings,
        passes: Passes,
        *,
        calibrate: bool,
        first: bool = False,
    ) -> None:
        super().__init__()
        self.phase = "calibrating" if calibrate else "empty"
        self.settings = settings
        self.first = first
        self.groups = int(getattr(source, "groups", 1))
        self.transposed = bool(getattr(source, "transposed", False))
        self.training = source.training
        for name in ("weight", "bias"):
            self.register_parameter(name, getattr(source, name))
        self.nhwc = False
        self.given_integers = False  # inputs are of its own format already: quant/sums.py
        self.levels = settings.levels
        self.passes = passes
        self.range = Range(settings.method, settings.use_avg, settings.percentile, settings.levels)
        for name in (*_STATE[1:], *_MADE):
            self.register_buffer(name, None, persistent=False)
        if first:
            self._take_images()

    # ---- images ----------------------------------------------------------------------------------

    def _take_images(self) -> None:
        channels = self.weight.shape[1]
        if channels not in (1, 3, 4):
            raise ConfigError(
                f"firstconv takes images of 1, 3 or 4 channels, but the first convolution has "
                f"{channels}"
            )
        mean, std = list(self.settings.mean), list(self.settings.std)
        for name, numbers in (("mean", mean), ("std", std)):
            if numbers and len(numbers) != channels:
                raise ConfigError(
                    f"qconfig_spec: {name} has {len(numbers)} numbers, but the first convolution "
                    f"has {channels} channels"
                )
        mean, std = mean or [0.0] * channels, std or [1.0] * channels
        order = self.settings.input_format
        if order is not None and channels != 3:
            raise ConfigError(
                f"input_format goes with a first convolution of 3 channels, not {channels}"
            )
        if order is not None:
            # The network's own channels are red, green, blue. An alpha weighs nothing.
            with torch.no_grad():
                index = ["rgb".find(c) for c in order]
                wide = torch.cat([self.weight, torch.zeros_like(self.weight[:, :1])], 1)
                self.weight = nn.Parameter(wide[:, index].contiguous(), requires_grad=False)
            mean = [mean[i] if i >= 0 else 0.0 for i in index]
            std = [std[i] if i >= 0 else 1.0 for i in index]
        self.input_mean = torch.tensor(mean, dtype=torch.float32)
        self.input_std = torch.tensor(std, dtype=torch.float32)
        self.image_layout = torch.tensor([self.settings.layout == "NHWC"], dtype=torch.int32)
        self.nhwc = self.settings.layout == "NHWC"

    def _as_image(self, x: torch.Tensor) -> torch.Tensor:
        return x.movedim(-1, 1) if self.nhwc else x

    def _shift(self) -> torch.Tensor:
        """The mean in pixels of 0 to 255, [channels, 1, 1]."""
        mean: torch.Tensor = self.input_mean * 255
        return mean.view(-1, *[1] * (self.weight.dim() - 2))

    # ---- calibrating -----------------------------------------------------------------------------

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.phase == "quantized":
            return self._in_integers(x)
        if self.phase == "empty":
            raise waits_for_integers()
        if self.phase == "float":
            return self._as_before(x, self.weight)
        if not self.first:
            self.passes.watch(self.range, x)
            return self._as_before(x, self.weight)
        raw = self._as_image(x).float() - self._shift()
        self.passes.watch(self.range, raw)
        scale = (self.input_std * 255).view(-1, *[1] * (self.weight.dim() - 2))
        return self._as_before(raw / scale, self.weight)

    # ---- integers --------------------------------------------------------------------------------

    def _integers(self) -> dict[str, torch.Tensor | None]:
        """The state of this layer, by what calibration has seen."""
        s = self.settings
        with torch.no_grad():
            weight = self.weight.detach().float().cpu()
            if self.first:  # the deviation is folded in, in float64
                scale = 1 / (self.input_std.cpu().double() * 255)
                scale = scale.view(1, -1, *[1] * (weight.dim() - 2))
                weight = (weight.double() * scale).float()
            rows = _of_rows(weight, self.transposed, self.groups)
            q, scales = integers_of(rows, s, s.per_channel)
            out: dict[str, torch.Tensor | None] = dict.fromkeys(("weight", *_STATE))
            out["weight"] = _back(q, weight, self.transposed, self.groups)
            out["weight_scale"] = scales
            if self.bias is not None:
                out["bias"] = self.bias.detach().float().cpu().clone()
            out["input_scale"], out["input_zero_point"] = input_scale(self.range, s)
            for name in ("input_mean", "input_std", "image_layout"):
                buffer = getattr(self, name)
                out[name] = None if buffer is None else buffer.cpu().clone()
        return out

    def convert(self) -> None:
        """Run in integers from now on."""
        if self.phase == "calibrating":
            self._become(self._integers())

    def _become(self, state: Mapping[str, torch.Tensor | None]) -> None:
        """Quantized, with this state."""
        weight = state["weight"]
        assert weight is not None
        device = self.weight.device
        for name in ("weight", "bias"):
            self._parameters.pop(name, None)
            self._buffers.pop(name, None)
        # Channels beside each other, as products read them.
        spatial = {4: torch.channels_last, 5: torch.channels_last_3d}.get(weight.dim())
        weight = weight.to(device)
        if spatial and not self.transposed:
            weight = weight.to(memory_format=spatial)
        self.register_buffer("weight", weight)
        for name in _STATE:
            value = state.get(name)
            self._buffers.pop(name, None)
            self.register_buffer(name, None if value is None else value.to(device).clone())
        self.first = self.input_mean is not None
        self.nhwc = self.first and bool(self.image_layout.item())
        self.levels = levels_of(weight.dtype)
        self.passes.over = True
        self.phase = "quantized"
        self._make()

    def _make(self) -> None:
        """What products need, of the state."""
        device = self.weight.device
        made: dict[str, torch.Tensor | None] = dict.fromkeys(_MADE)
        weight_scale = self.weight_scale.cpu().double()
        rows = _of_rows(self.weight.cpu().long(), self.transposed, self.groups)
        taps = rows.view(rows.shape[0], -1, max(self._taps(), 1))
        if self.input_scale.numel():
            scale = self.input_scale.cpu().double()
            made["multiplier"] = (scale * weight_scale).float()
            made["inverse"] = (1 / scale).float()
            if self.input_zero_point is not None:
                zero = int(self.input_zero_point)
                made["zero"] = self.input_zero_point.cpu().clone()
                made["taps"] = self._fitting(taps.sum(1) * zero, 0)
        if self.first:
            mean = self.input_mean.cpu().double() * 255
            by_channel = (taps.double() * mean.view(1, -1, 1)).sum(1)
            made["image_taps"] = self._fitting((by_channel * 2**_SHIFT).round().long(), _SHIFT)
            made["image_multiplier"] = (weight_scale / 2**_SHIFT).float()
            made["shift_of_mean"] = self._shift().cpu().float()
        for name, value in made.items():
            self.register_buffer(
                name, None if value is None else value.to(device), persistent=False
            )

    def _taps(self) -> int:
        return self.weight[0, 0].numel() if self.weight.dim() > 2 else 1

    def _fitting(self, taps: torch.Tensor, shift: int) -> torch.Tensor:
        """int32 where no sum with these taps goes beyond it."""
        rows = _of_rows(self.weight.cpu().long(), self.transposed, self.groups)
        most = (int(rows.abs().sum(1).max()) * 255 << shift) + int(taps.abs().sum(1).max())
        fits = most < 2**31 and self.weight.dtype == torch.int8
        return taps.int() if fits else taps

    @property
    def low(self) -> int:
        """The least integer of an input."""
        return -self.levels if self.zero is None else -self.levels - 1

    def _in_integers(self, x: torch.Tensor) -> torch.Tensor:
        if self.first:
            x = self._as_image(x)
            if x.dtype == torch.uint8:  # as they are: nothing is rounded
                return self._product(
                    x, self.image_multiplier, self.image_taps, _SHIFT, torch.float32
                )
            x = x.float() - self.shift_of_mean
        if self.given_integers and x.dtype == self.weight.dtype:
            return self._product(x, self.multiplier, self.taps, 0, torch.float32)
        if not x.is_floating_point():
            raise CausewayError(
                f"expected an input of floating point, but got {x.dtype}. Images in uint8 are what "
                "a first convolution takes: firstconv=True"
            )
        low = self.low
        if self.inverse is not None:
            return self._of_known_range(x, low)
        inverse, scale = measured(x, self.levels)
        q = torch.ops.causeway.quantize(
            x, inverse, None, x.dim() - 1, low, self.levels, self.weight.dtype
        )
        return self._product(q, scale * self.weight_scale, None, 0, x.dtype)

    def _of_known_range(self, x: torch.Tensor, low: int) -> torch.Tensor:
        q = torch.ops.causeway.quantize(
            x, self.inverse, self.zero, x.dim() - 1, low, self.levels, self.weight.dtype
        )
        return self._product(q, self.multiplier, self.taps, 0, x.dtype)

    # ---- as a module -----------------------------------------------------------------------------

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        if self.phase in ("quantized", "float"):
            return super()._save_to_state_dict(destination, prefix, keep_vars)
        if self.phase == "empty":
            raise CausewayError(
                f"{prefix[:-1] or 'the layer'} has no integers yet: there is no state to save"
            )
        for name, value in self._integers().items():
            if value is not None:
                destination[prefix + name] = value
        return None

    def _load_from_state_dict(
        self,
        state_dict: Mapping[str, Any],
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        mine = {
            k[len(prefix) :]: v
            for k, v in state_dict.items()
            if k.startswith(prefix) and "." not in k[len(prefix) :]
        }
        unexpected_keys += [prefix + k for k in mine if k not in ("weight", *_STATE)]
        weight = mine.get("weight")
        if weight is None:
            missing_keys.append(prefix + "weight")
            return
        expected = list(self.weight.shape)
        shape = list(weight.shape)
        if self.first or "input_mean" in mine:
            expected[1] = shape[1] if len(shape) > 1 else 0
        if shape != expected:
            error_msgs.append(
                f"size mismatch for {prefix}weight: the state has {tuple(shape)}, the layer "
                f"{tuple(expected)}"
            )
            return
        if weight.is_floating_point():  # a layer that was left as it was
            if "weight_scale" in mine:
                error_msgs.append(f"{prefix}weight is floating point, but has a scale")
                return
            device = self.weight.device
            for name in ("weight", "bias"):
                self._buffers.pop(name, None)
                given: torch.Tensor | None = mine.get(name)
                taken = None if given is None else given.to(device).clone()
                self.register_parameter(name, nn.Parameter(taken) if taken is not None else None)
            self.phase = "float"
            return
        if weight.dtype not in DTYPES.values():
            error_msgs.append(f"{prefix}weight is of {weight.dtype}: expected int8 or int16")
            return
        lacking = [k for k in ("weight_scale", "input_scale") if k not in mine]
        missing_keys += [prefix + k for k in lacking]
        if not lacking:
            self._become({k: mine.get(k) for k in ("weight", *_STATE)})

    def extra_repr(self) -> str:
        dtype = str(self.weight.dtype).removeprefix("torch.")
        return f"{'x'.join(map(str, self.weight.shape))}, {dtype}, {self.phase}"

    # ---- what differs ----------------------------------------------------------------------------

    def _as_before(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError

    def _product(
        self,
        q: torch.Tensor,
        multiplier: torch.Tensor,
        taps: torch.Tensor | None,
        shift: int,
        dtype: torch.dtype,
    ) -> torch.Tensor:
        raise NotImplementedError


def _back(rows: torch.Tensor, like: torch.Tensor, transposed: bool, groups: int) -> torch.Tensor:
    """The inverse of `_of_rows`."""
    if not transposed:
        return rows.view_as(like)
    channels, out = like.shape[0] // groups, like.shape[1]
    return rows.view(groups, out, channels, -1).transpose(1, 2).reshape(like.shape)


class QuantizedLinear(QuantizedLayer):
    """torch.nn.Linear in integers."""

    def _as_before(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return F.linear(x, weight, self.bias)

    def _product(
        self,
        q: torch.Tensor,
        multiplier: torch.Tensor,
        taps: torch.Tensor | None,
        shift: int,
        dtype: torch.dtype,
    ) -> torch.Tensor:
        return torch.ops.causeway.qlinear(  # type: ignore[no-any-return]
            *(q, self.weight, multiplier, self.bias, taps, shift, False),
            *(None, None, -self.levels, self.levels, dtype),
        )

    def _of_known_range(self, x: torch.Tensor, low: int) -> torch.Tensor:
        return torch.ops.causeway.linear_in_integers(  # type: ignore[no-any-return]
            *(x, self.inverse, self.zero, low, self.levels),
            *(self.weight, self.multiplier, self.bias, self.taps),
        )


class QuantizedConv(QuantizedLayer):
    """torch.nn.Conv1d to Conv3d and ConvTranspose1d to 3d in integers."""

    def __init__(
        self, source: nn.Module, settings: Settings, passes: Passes, *, first: bool, **how: bool
    ) -> None:
        super().__init__(source, settings, passes, first=first, **how)
        conv: Any = source
        self.dims = self.weight.dim() - 2
        self.stride, self.dilation = list(conv.stride), list(conv.dilation)
        self.output_padding = list(conv.output_padding)
        self.padding_mode = conv.padding_mode
        self.around = list(conv._reversed_padding_repeated_twice)
        padding = conv.padding
        if isinstance(padding, str):  # "same" may differ from side to side
            even = all(a == b for a, b in zip(self.around[::2], self.around[1::2], strict=True))
            self.apart = not even
            padding = self.around[::2][::-1]
        else:
            self.apart = False
        self.apart = self.apart or self.padding_mode != "zeros"
        self.padding = [0] * self.dims if self.apart else list(padding)
        if self.apart and first:
            raise ConfigError(
                "firstconv needs a first convolution that is padded with zeros, by as many on "
                f"both sides, but it has padding {conv.padding!r} and {self.padding_mode!r}"
            )

    def _around(self, x: torch.Tensor) -> torch.Tensor:
        if not self.apart:
            return x
        mode = "constant" if self.padding_mode == "zeros" else self.padding_mode
        return F.pad(x, self.around, mode=mode)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        unbatched = x.dim() == self.dims + 1
        y = super().forward(self._around(x.unsqueeze(0) if unbatched else x))
        return y.squeeze(0) if unbatched else y

    def _as_before(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        if self.transposed:
            of_dims: Any = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)
            return of_dims[self.dims - 1](  # type: ignore[no-any-return]
                *(x, weight, self.bias, self.stride, self.padding, self.output_padding),
                *(self.groups, self.dilation),
            )
        forward: Any = (F.conv1d, F.conv2d, F.conv3d)
        return forward[self.dims - 1](  # type: ignore[no-any-return]
            x, weight, self.bias, self.stride, self.padding, self.dilation, self.groups
        )

    def _product(
        self,
        q: torch.Tensor,
        multiplier: torch.Tensor,
        taps: torch.Tensor | None,
        shift: int,
        dtype: torch.dtype,
    ) -> torch.Tensor:
        return torch.ops.causeway.qconv(  # type: ignore[no-any-return]
            *(q, self.weight, multiplier, self.bias, taps, shift),
            *(self.stride, self.padding, self.dilation, self.transposed, self.output_padding),
            *(self.groups, False, None, None, -self.levels, self.levels, dtype),
        )
