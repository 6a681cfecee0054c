"""Modules that become integers as a whole: embeddings and recurrent layers. Their state is plain
tensors, as that of layers.py: each weight in int8 or int16 beside its scale.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from causeway.errors import CausewayError
from causeway.quant.calibrate import Range
from causeway.quant.integers import (
    input_scale,
    integers_of,
    levels_of,
    measured,
    scales_of,
    waits_for_integers,
)
from causeway.quant.layers import Kept, Passes
from causeway.quant.settings import Settings


class QuantizedWhole(Kept):
    """What is replaced as a whole: while it calibrates, the module that it replaces computes, as
    its child `source`; then that is gone, and integers are its state.
    """

    source: nn.Module | None
    place: Any  # empty, and on the layer's device

    def __init__(
        self, source: nn.Module, settings: Settings, passes: Passes, *, calibrate: bool
    ) -> None:
        super().__init__()
        self.settings, self.passes = settings, passes
        self.training = source.training
        place = torch.empty(0, device=next(source.parameters()).device)
        self.register_buffer("place", place, persistent=False)
        self.source = source if calibrate else None
        self.ready = False
        self.left = False  # as it was, by its state: `_plain` computes, which is no child
        self._plain = [source]
        self._register_state_dict_hook(QuantizedWhole._only_integers)  # type: ignore[no-untyped-call]

    @staticmethod
    def _only_integers(module: Any, state: Any, prefix: str, _metadata: Any) -> None:
        if module.source is not None:
            for key in [k for k in state if k.startswith(f"{prefix}source.")]:
                del state[key]

    def _state(self) -> dict[str, torch.Tensor]:
        """The integers of `source`."""
        raise NotImplementedError

    def convert(self) -> None:
        """Run in integers from now on."""
        if self.source is None:
            return
        device = next(self.source.parameters()).device
        state = self._state()
        self.source, self._plain = None, []
        self._take({k: v.to(device) for k, v in state.items()})

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> Any:
        if self.left:
            self._plain[0]._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return super()._apply(fn, recurse)

    @property
    def _computes(self) -> nn.Module | None:
        """What computes in floating point, where that is still so."""
        return self._plain[0] if self.left else self.source

    def _take(self, state: Mapping[str, torch.Tensor]) -> None:
        for name, value in state.items():
            self._buffers.pop(name, None)
            self.register_buffer(name, value)
        self.ready = self.passes.over = True

    def _check(self) -> None:
        if not self.ready:
            raise waits_for_integers()

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        if self.left:
            for name, module in self._plain[0].named_modules():
                at = f"{prefix}{name}." if name else prefix
                module._save_to_state_dict(destination, at, keep_vars)
            return None
        if self.source is None:
            self._check()
            return super()._save_to_state_dict(destination, prefix, keep_vars)
        for name, value in self._state().items():
            destination[prefix + name] = value
        return None

    def _names(self) -> dict[str, list[int] | None]:
        """What its state has, and of which shape; None: any."""
        raise NotImplementedError

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
        names = self._names()
        mine = {k[len(prefix) :]: v for k, v in state_dict.items() if k.startswith(prefix)}
        if mine and self._plain and not any(k.endswith("scale") for k in mine):
            self.left = True
            plain = self._plain[0].to(self._device)
            how = (local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
            for name, module in plain.named_modules():
                at = f"{prefix}{name}." if name else prefix
                module._load_from_state_dict(state_dict, at, *how)
            return
        unexpected_keys += [prefix + k for k in mine if k not in names]
        lacking = [k for k in names if k not in mine]
        missing_keys += [prefix + k for k in lacking]
        if lacking:
            return
        for name, shape in names.items():
            if shape is not None and list(mine[name].shape) != shape:
                error_msgs.append(
                    f"size mismatch for {prefix}{name}: the state has {tuple(mine[name].shape)}, "
                    f"the layer {tuple(shape)}"
                )
            if shape is not None and len(shape) == 2 and mine[name].is_floating_point():
                error_msgs.append(f"{prefix}{name} is floating point: expected integers")
        if not error_msgs:
            device = self._device
            self.source, self.left, self._plain = None, False, []
            self._take({k: mine[k].detach().clone().to(device) for k in names})

    @property
    def _device(self) -> torch.device:
        device: torch.device = self.place.device
        return device


class QuantizedEmbedding(QuantizedWhole):
    """torch.nn.Embedding with a table of integers and a scale for each row."""

    weight: Any
    weight_scale: Any

    def __init__(
        self, source: nn.Embedding, settings: Settings, passes: Passes, *, calibrate: bool
    ) -> None:
        super().__init__(source, settings, passes, calibrate=calibrate)
        self.shape = list(source.weight.shape)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if (plain := self._computes) is not None:
            return plain(x)  # type: ignore[no-any-return]
        self._check()
        rows = self.weight.index_select(0, x.flatten())
        scale = self.weight_scale.index_select(0, x.flatten())
        out: torch.Tensor = rows.float() * scale.unsqueeze(1)
        return out.view(*x.shape, -1)

    def _state(self) -> dict[str, torch.Tensor]:
        source: Any = self.source
        q, scale = integers_of(source.weight, self.settings, by_row=True)
        return {"weight": q, "weight_scale": scale}

    def _names(self) -> dict[str, list[int] | None]:
        return {"weight": self.shape, "weight_scale": [self.shape[0]]}

    def extra_repr(self) -> str:
        return "x".join(map(str, self.shape))


class QuantizedRecurrent(QuantizedWhole):
    """torch.nn.LSTM and torch.nn.GRU with products in integers; what is between them in float32.

    What a cell gives is within -1 to 1, so its scale, `state_scale`, needs no calibration. Inputs
    have no zero point.
    """

    input_scale: Any

    state_scale: Any

    def __init__(self, source: Any, settings: Settings, passes: Passes, *, calibrate: bool) -> None:
        super().__init__(source, settings, passes, calibrate=calibrate)
        self.kind = "LSTM" if isinstance(source, nn.LSTM) else "GRU"
        self.layers, self.hidden = source.num_layers, source.hidden_size
        self.inputs, self.batch_first = source.input_size, source.batch_first
        self.bidirectional, self.dropout = source.bidirectional, source.dropout
        self.biased = source.bias
        self.range = Range(settings.method, settings.use_avg, settings.percentile, settings.levels)

    def _suffixes(self) -> list[str]:
        ways = ("", "_reverse") if self.bidirectional else ("",)
        return [f"l{n}{way}" for n in range(self.layers) for way in ways]

    def _state(self) -> dict[str, torch.Tensor]:
        s = self.settings
        found: dict[str, torch.Tensor] = {}
        for suffix in self._suffixes():
            for part in ("ih", "hh"):
                name = f"weight_{part}_{suffix}"
                weight = getattr(self.source, name)
                found[name], found[f"{name}_scale"] = integers_of(weight, s, s.per_channel)
                if self.biased:
                    bias = getattr(self.source, f"bias_{part}_{suffix}")
                    found[f"bias_{part}_{suffix}"] = bias.detach().float().cpu()
        found["state_scale"] = scales_of(torch.ones(1), s)
        found["input_scale"], _ = input_scale(self.range, replace(s, symmetric=True))
        return found

    def _names(self) -> dict[str, list[int] | None]:
        gates = (4 if self.kind == "LSTM" else 3) * self.hidden
        ways = 2 if self.bidirectional else 1
        found: dict[str, list[int] | None] = {}
        for i, suffix in enumerate(self._suffixes()):
            width = self.inputs if i < ways else self.hidden * ways
            for part, columns in (("ih", width), ("hh", self.hidden)):
                found[f"weight_{part}_{suffix}"] = [gates, columns]
                found[f"weight_{part}_{suffix}_scale"] = None
                if self.biased:
                    found[f"bias_{part}_{suffix}"] = [gates]
        found["state_scale"] = [1]
        found["input_scale"] = None
        return found

    def forward(self, x: Any, state: Any = None) -> Any:
        if self.source is not None:
            self.passes.watch(self.range, x.data)  # of a packed sequence its numbers
        if (plain := self._computes) is not None:
            return plain(x, state)
        self._check()
        if not isinstance(x, torch.Tensor):
            raise CausewayError(
                "a recurrent layer in integers takes tensors: pad a packed sequence, or leave the "
                'layer with mixed_layer={"its.name": "float"}'
            )
        batched = x.dim() == 3
        if not batched:
            x = x.unsqueeze(1)
        elif self.batch_first:
            x = x.transpose(0, 1)
        batch = x.shape[1]
        pair = self.kind == "LSTM"
        given = state if isinstance(state, tuple) else (state,)
        if state is None:
            zeros = x.new_zeros(len(self._suffixes()), batch, self.hidden)
            given = (zeros, zeros)
        elif not batched:
            given = tuple(s.unsqueeze(1) for s in given)
        ways = 2 if self.bidirectional else 1
        last: list[tuple[torch.Tensor, ...]] = []
        for layer in range(self.layers):
            outs = []
            for way in range(ways):
                i = layer * ways + way
                out, ends = self._run(x, layer == 0, i, [s[i] for s in given[: 1 + pair]], way == 1)
                outs.append(out)
                last.append(ends)
            x = torch.cat(outs, -1) if ways == 2 else outs[0]
        ends = tuple(torch.stack(parts) for parts in zip(*last, strict=True))
        if not batched:
            x, ends = x.squeeze(1), tuple(e.squeeze(1) for e in ends)
        elif self.batch_first:
            x = x.transpose(0, 1)
        return x, ends if pair else ends[0]

    def _run(
        self, x: torch.Tensor, first: bool, i: int, state: list[torch.Tensor], reverse: bool
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        suffix = self._suffixes()[i]
        # Of all steps at once; layers after the first have what cells gave.
        from_input = self._product(
            f"ih_{suffix}", x, self.input_scale if first else self.state_scale
        )
        steps = range(x.shape[0])
        out: list[torch.Tensor] = []
        h = state[0]
        c = state[1] if len(state) > 1 else h
        for t in reversed(steps) if reverse else steps:
            from_state = self._product(f"hh_{suffix}", h, self.state_scale)
            if self.kind == "LSTM":
                i_, f_, g_, o_ = (from_input[t] + from_state).chunk(4, -1)
                c = f_.sigmoid() * c + i_.sigmoid() * g_.tanh()
                h = o_.sigmoid() * c.tanh()
            else:
                r_, z_, n_ = from_input[t].chunk(3, -1)
                hr, hz, hn = from_state.chunk(3, -1)
                r, z = (r_ + hr).sigmoid(), (z_ + hz).sigmoid()
                n = (n_ + r * hn).tanh()
                h = n + z * (h - n)
            out.append(h)
        if reverse:
            out.reverse()
        return torch.stack(out), (h, c) if self.kind == "LSTM" else (h,)

    def _product(self, name: str, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        weight, by = self._buffers[f"weight_{name}"], self._buffers[f"weight_{name}_scale"]
        assert weight is not None
        assert by is not None
        levels = levels_of(weight.dtype)
        inverse, scale = (1 / scale, scale) if scale.numel() else measured(x, levels)
        bias = self._buffers.get(f"bias_{name}")
        return torch.ops.causeway.linear_in_integers(  # type: ignore[no-any-return]
            x, inverse, None, -levels, levels, weight, scale * by, bias, None
        )

    def extra_repr(self) -> str:
        return f"{self.kind}, {self.inputs}, {self.hidden}, num_layers={self.layers}"
