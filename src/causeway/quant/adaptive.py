"""Training in fixed point that chooses its bits: `adaptive_quantize`.

Of each convolution and linear layer three streams of numbers are rounded to integers of n bits
times a power of two: the input, the weight, and the gradient of the output. Where rounding changes
the mean size of a stream by too much, it gets 8 more bits. The method is "Adaptive Precision
Training", arXiv 1911.00361 (Zhang et al., Fixed-Point Back-Propagation Training, CVPR 2020), with
the constants of its public implementations:

    s = ceil(log2(Z / (2**(n-1) - 1))), Z = max |x|, and -12 where Z is 0
    x^ = clamp(round(x / 2**s), -(2**(n-1)-1), 2**(n-1)-1) * 2**s
    Diff = log2(| mean|x| - mean|x^| | / mean|x| + 1);  while Diff > Th and n < 31: n += 8
    m <- alpha * s + (1 - alpha) * m;  d1 = alpha * |s - m|;  d2 = delta * Diff**2
    the next look at the numbers is in  clamp(round(beta / max(d1, d2) - gamma), 1, steps_per_epoch)

The first hundredth of the first epoch looks at each step, the rest of it at that interval, later
epochs once each. Between looks n and s stay as they are, and the host waits for nothing. One thing
is ours: in the first epoch no look is further away than as many steps as have been done. Without,
an epoch of few steps clips numbers that grow, and some runs do not learn at all.
"""

from __future__ import annotations

import copy
import itertools
import math
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from causeway.errors import ConfigError
from causeway.quant import log as log_
from causeway.quant.select import CONVOLUTIONS, Kinds, close_fused_paths, layers_of

ALPHA, BETA, GAMMA, DELTA = 0.04, 0.1, 2.0, 100.0
QUANTIFY_RATE = 0.01  # of the first epoch's steps look each time
MOST_BITS = 31
STREAMS = ("input", "weight", "gradient")


class Stream:
    """The bits of one stream of numbers, and when to look at it again."""

    def __init__(self, bits: int, threshold: float, steps_per_epoch: int, group: Any) -> None:
        self.bits = bits
        self.shift = 0
        self.average = 0.0
        self.next_look = 0
        self.looked = -1  # the step of the last look
        self.looks = 0
        self.steps = [0, 0, 0, 0]  # at 8, 16, 24 and 31 bits
        self.threshold = threshold
        self.steps_per_epoch = steps_per_epoch
        self.group = group
        self.log: tuple[str, str, str] | None = None  # file, layer, stream

    def state(self) -> list[float]:
        """Ten numbers, from which `take` goes on."""
        now = (self.bits, self.shift, self.average, self.next_look)
        return [*now, *map(float, self.steps), float(self.looked), float(self.looks)]

    def take(self, state: list[float]) -> None:
        self.bits, self.shift = int(state[0]), int(state[1])
        self.average, self.next_look = state[2], int(state[3])
        self.steps = [int(v) for v in state[4:8]]
        self.looked, self.looks = int(state[8]), int(state[9])

    def __call__(self, x: torch.Tensor, step: int, learn: bool) -> torch.Tensor:
        wide = x.float()
        if learn and step >= self.next_look and self.looked != step:
            self._look(wide, step)
        return rounded(wide, self.bits, self.shift).to(x.dtype)

    def count(self) -> None:
        self.steps[min(self.bits // 8, 4) - 1] += 1

    def _look(self, x: torch.Tensor, step: int) -> None:
        """Choose bits and shift by these numbers. The host waits twice."""
        with torch.no_grad():
            size = x.abs()
            most = size.amax() if x.numel() else x.new_zeros(())
            most = self._over_ranks(most, dist.ReduceOp.MAX)
            largest = float(most)
            if not math.isfinite(largest):
                return  # a loss scaler's overflow: that step is not taken, and teaches nothing
            widths = [n for n in (8, 16, 24, MOST_BITS) if n >= self.bits]
            shifts = [shift_of(largest, n) for n in widths]
            sums = [size.sum(dtype=torch.float32)]
            sums += [
                rounded(x, n, s).abs().sum(dtype=torch.float32)
                for n, s in zip(widths, shifts, strict=True)
            ]
            of_all = self._over_ranks(torch.stack(sums), dist.ReduceOp.SUM).tolist()
        mean, chosen, diff = of_all[0], len(widths) - 1, 0.0
        for i, rounded_sum in enumerate(of_all[1:]):
            diff = math.log2(abs(mean - rounded_sum) / mean + 1) if mean > 0 else 0.0
            if diff <= self.threshold:
                chosen = i
                break
        self.bits, shift = widths[chosen], shifts[chosen]
        first = self.looks == 0
        self.average = float(shift) if first else ALPHA * shift + (1 - ALPHA) * self.average
        self.shift = shift
        self.looks += 1
        self.looked = step
        d1, d2 = ALPHA * abs(shift - self.average), DELTA * diff * diff
        most_change = max(d1, d2)
        interval = self.steps_per_epoch
        if most_change > 0:
            interval = max(min(round(BETA / most_change - GAMMA), self.steps_per_epoch), 1)
        if step < QUANTIFY_RATE * self.steps_per_epoch:
            interval = 1
        elif step < self.steps_per_epoch:
            interval = min(interval, step + 1)  # numbers change most at first
        else:  # once an epoch
            interval = self.steps_per_epoch - step % self.steps_per_epoch
        self.next_look = step + interval
        if self.log and not (dist.is_available() and dist.is_initialized() and dist.get_rank()):
            path, layer, stream = self.log
            log_.write(path, log_.Look(layer, stream, step, self.bits, shift))

    def _over_ranks(self, value: torch.Tensor, how: Any) -> torch.Tensor:
        if self.group is False or not (dist.is_available() and dist.is_initialized()):
            return value
        if dist.get_world_size(self.group) > 1:
            dist.all_reduce(value, how, group=self.group)
        return value


def shift_of(largest: float, bits: int) -> int:
    """ceil(log2(largest / (2**(bits-1) - 1))), exactly; -12 where `largest` is 0."""
    if largest == 0:
        return -12
    levels = 2 ** (bits - 1) - 1
    guess = math.frexp(largest)[1] - bits  # may be one or two too small
    # Exact: both sides are float64 integers times powers of two.
    while math.ldexp(float(levels), guess) < largest:
        guess += 1
    return guess


def rounded(x: torch.Tensor, bits: int, shift: int) -> torch.Tensor:
    """`x` in integers of `bits` times 2**shift, as float32. Exact but for the rounding, and for the
    largest integer of 31 bits, for which float32 has 2**30.
    """
    levels = float(2 ** (bits - 1) - 1)
    # Two factors: 2**-shift alone may be beyond float32.
    up, rest = 2.0 ** (-shift // 2), 2.0 ** (-shift - -shift // 2)
    return (x * up).mul_(rest).round_().clamp_(-levels, levels).mul_(1 / up).mul_(1 / rest)


# ---- an operator, opaque to torch.compile: its state is in Python --------------------------------

_numbers = itertools.count()
_layers: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


@torch.library.custom_op("causeway::adapt", mutates_args=())
def adapt(x: torch.Tensor, layer: int, stream: int, learn: bool) -> torch.Tensor:
    return cast(torch.Tensor, _layers[layer].adapt(x, stream, learn))


@adapt.register_fake
def _(x: torch.Tensor, layer: int, stream: int, learn: bool) -> torch.Tensor:
    return torch.empty_like(x)


# Straight through: rounding has no gradient of its own.
adapt.register_autograd(lambda ctx, grad: (grad, None, None, None))


class _OfGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, y: torch.Tensor, layer: int) -> torch.Tensor:
        ctx.layer = layer
        return y.view_as(y)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return torch.ops.causeway.adapt(grad.contiguous(), ctx.layer, 2, True), None


class Adaptive(nn.Module):
    """Put before a layer's own class: its numbers in fixed point."""

    _streams: list[Stream]
    _before: type[nn.Module]

    def _begin(self, bits: int, threshold: float, steps_per_epoch: int, group: Any) -> None:
        streams = [Stream(bits, threshold, steps_per_epoch, group) for _ in STREAMS]
        self._streams = streams
        self._step = 0
        self._enrol()

    def _enrol(self) -> None:
        self._number = next(_numbers)
        _layers[self._number] = self

    def __reduce_ex__(self, _protocol: Any) -> Any:  # its class is made here, not imported
        return _revive, (self._before,), self.__dict__

    def __setstate__(self, state: Any) -> None:  # a copy is a layer of its own
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._enrol()

    def adapt(self, x: torch.Tensor, stream: int, learn: bool) -> torch.Tensor:
        out = self._streams[stream](x, self._step, learn)
        if stream == 2:  # a step ends where its gradient comes: forward may run twice before
            for s in self._streams:
                s.count()
            self._step += 1
        return out

    def get_extra_state(self) -> torch.Tensor:
        rows = [s.state() for s in self._streams]
        return torch.tensor([[self._step] * 10, *rows], dtype=torch.float64)

    def set_extra_state(self, state: torch.Tensor) -> None:
        rows = state.cpu().tolist()
        self._step = int(rows[0][0])
        for stream, row in zip(self._streams, rows[1:], strict=True):
            stream.take(row)

    def forward(self, x: torch.Tensor, *rest: Any) -> torch.Tensor:
        learn = self.training and torch.is_grad_enabled()
        x = torch.ops.causeway.adapt(x, self._number, 0, learn)
        weight = torch.ops.causeway.adapt(self.weight, self._number, 1, learn)
        y = self._with(x, weight, *rest)
        return cast(torch.Tensor, _OfGradient.apply(y, self._number)) if learn else y  # type: ignore[no-untyped-call]

    def _with(self, x: torch.Tensor, weight: torch.Tensor, *rest: Any) -> torch.Tensor:
        layer: Any = self
        if isinstance(self, nn.Linear):
            return F.linear(x, weight, self.bias)
        if not layer.transposed:
            return layer._conv_forward(x, weight, layer.bias)  # type: ignore[no-any-return]
        dims = weight.dim() - 2
        size = rest[0] if rest else None
        padding = layer._output_padding(
            *(x, size, layer.stride, layer.padding, layer.kernel_size, dims, layer.dilation)
        )
        by_dims: Any = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)
        return by_dims[dims - 1](  # type: ignore[no-any-return]
            *(x, weight, layer.bias, layer.stride, layer.padding, padding, layer.groups),
            layer.dilation,
        )


_KINDS: Kinds = (nn.Linear, *CONVOLUTIONS)


_classes: dict[type, type] = {}


def _class_of(before: type[nn.Module]) -> type[Any]:
    if before not in _classes:
        _classes[before] = type(f"Adaptive{before.__name__}", (Adaptive, before), {})
    return _classes[before]


def _revive(before: type[nn.Module]) -> nn.Module:
    return cast(nn.Module, object.__new__(_class_of(before)))


def adaptive_quantize(
    model: nn.Module,
    steps_per_epoch: int,
    bitwidth: int = 8,
    inplace: bool = False,
    *,
    process_group: Any = None,
    log: str | Path | None = None,
) -> nn.Module:
    """`model` with the numbers of its convolutions and linear layers in fixed point, for training.

    Parameters keep their names, so checkpoints of the float model load with `strict=False`, and one
    of this model goes on exactly: bits and statistics are part of `state_dict`. Sums are computed
    in floating point.

    Args:
        model: Any module.
        steps_per_epoch: Batches of an epoch: `len(loader)`.
        bitwidth: What streams begin with: 8, 16 or 31.
        inplace: Change `model` itself.
        process_group: Whose ranks look at their numbers together, where torch.distributed is
            initialized; None: all. False: each rank by itself.
        log: A file that gets a line for each look at a stream, of the first rank alone; a run that
            goes on adds to it. `causeway quantize --log FILE` shows it.

    Raises:
        ConfigError: another bitwidth, or a number of steps below 1.
    """
    if bitwidth not in (8, 16, MOST_BITS):
        raise ConfigError(f"bitwidth is 8, 16 or 31, not {bitwidth!r}")
    if not isinstance(steps_per_epoch, int) or steps_per_epoch < 1:
        raise ConfigError(
            f"steps_per_epoch is the number of batches of an epoch, at least 1, not "
            f"{steps_per_epoch!r}: len(loader)"
        )
    if not inplace:
        model = copy.deepcopy(model)
    found = {id(m): m for m in layers_of(model, _KINDS).values()}
    if not found:
        raise ConfigError("the model has no convolution and no linear layer to quantize")
    if log is not None and not Path(log).absolute().parent.is_dir():
        raise ConfigError(f"log={str(log)!r}: there is no such folder")
    names = {id(m): n for n, m in model.named_modules()}
    for module in found.values():
        threshold = 0.01 if isinstance(module, nn.Linear) else 0.03
        before = type(module)
        module.__class__ = _class_of(before)
        adaptive = cast(Adaptive, module)
        adaptive._before = before
        adaptive._begin(bitwidth, threshold, steps_per_epoch, process_group)
        if log is not None:
            for kind, stream in zip(STREAMS, adaptive._streams, strict=True):
                stream.log = (str(Path(log).absolute()), names[id(module)] or "(the model)", kind)
    close_fused_paths(model)
    return model


def dequantize(model: nn.Module) -> nn.Module:
    """The layers of `model` as they were before `adaptive_quantize`, in place: their weights are in
    floating point. Returns it.
    """
    for module in model.modules():
        if isinstance(module, Adaptive):
            before = module._before
            for name in ("_streams", "_step", "_number", "_before"):
                del module.__dict__[name]
            module.__class__ = before  # type: ignore[assignment]
    return model


@dataclass(frozen=True)
class Bits:
    """How a stream of a layer was held: in how many steps by 8, 16, 24 and 31 bits."""

    layer: str
    stream: str
    bits: int  # now
    shift: int
    steps: tuple[int, int, int, int]
    looks: int  # steps in which the numbers were looked at


def bits_of(model: nn.Module) -> list[Bits]:
    """A row for each stream of `model`, three for each layer that is in fixed point."""
    return [
        Bits(name, kind, s.bits, s.shift, cast(Any, tuple(s.steps)), s.looks)
        for name, module in model.named_modules()
        if isinstance(module, Adaptive)
        for kind, s in zip(STREAMS, module._streams, strict=True)
    ]
