"""Random calls of causeway::quantize, qlinear, qconv and qconv_add, and what they compute, written
once more: sums in float64, which holds these integers exactly, and each step after them in
numpy's float32.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

BOUNDS = {
    torch.int8: (-128, 128),
    torch.uint8: (0, 256),
    torch.int16: (-32768, 32768),
}


def integers(shape: list[int], dtype: torch.dtype) -> torch.Tensor:
    return torch.randint(*BOUNDS[dtype], shape, dtype=dtype)


@dataclass
class Layer:
    """The arguments of one call: of qlinear where `geometry` is empty, and of qconv_add where there
    is a residual, which comes with its scale and its zero point.
    """

    x: torch.Tensor
    weight: torch.Tensor
    scale: torch.Tensor
    bias: torch.Tensor | None
    taps: torch.Tensor | None
    shift: int
    geometry: list[Any]
    relu: bool
    inverse: torch.Tensor
    zero: torch.Tensor | None
    low: int
    high: int
    dtype: torch.dtype
    residual: list[torch.Tensor | None] = field(default_factory=list)

    def __call__(self, device: str = "cpu") -> torch.Tensor:
        given = [
            *(self.x, self.weight, self.scale, self.bias, self.taps, self.shift, *self.geometry),
            *self.residual,
            *(self.relu, self.inverse, self.zero, self.low, self.high, self.dtype),
        ]
        moved = [a.to(device) if isinstance(a, torch.Tensor) else a for a in given]
        return self.operator()(*moved)

    def operator(self) -> Any:
        if self.residual:
            return torch.ops.causeway.qconv_add
        return torch.ops.causeway.qconv if self.geometry else torch.ops.causeway.qlinear

    def again(self, fault: str = "") -> np.ndarray[Any, Any]:
        """The same, independently; `fault` is a mistake that a hurried colleague would make."""
        sums = self._sums(self.x, self.weight, fault)
        taps = self.taps
        if taps is not None:
            each = self._each_tap()  # [taps, *output]: 1 where it lies inside
            if fault == "taps at a border":
                each = torch.ones_like(each)
            sums = sums * 2**self.shift
            axis = [1, -1, *[1] * (sums.dim() - 2)] if self.geometry else [-1]
            for t in range(taps.shape[1]):
                sums = sums - taps[:, t].long().view(axis) * each[t]
            if taps.dtype == torch.int32:
                sums = sums.to(torch.int32).long()
        channel = 1 if self.geometry else -1
        across = [1] * sums.dim()
        across[channel] = -1

        def of(t: torch.Tensor) -> np.ndarray[Any, Any]:
            if fault == "another channel's scale" and t is self.scale:
                t = t.roll(1)
            return t.numpy().reshape(across if t.numel() > 1 else [1] * sums.dim())

        y = sums.numpy().astype(np.float32) * of(self.scale)
        if self.bias is not None:
            y = y + of(self.bias)
        if self.residual:
            r = self._added(of, fault)
            y = np.maximum(y, np.float32(0)) + r if fault == "relu before the sum" else y + r
        if self.relu and fault != "no relu":
            y = np.maximum(y, np.float32(0))
        if self.dtype.is_floating_point:
            with np.errstate(over="ignore"):
                return y.astype(np.float16) if self.dtype == torch.float16 else y
        v = y * of(self.inverse)
        q = np.floor(v + np.float32(0.5)) if fault == "half up" else np.rint(v)
        if self.zero is not None:
            zero = self.zero + 1 if fault == "wrong zero point" else self.zero
            q = q + of(zero).astype(np.float32)
        return np.clip(q, self.low, self.high)

    def _added(self, of: Any, fault: str) -> Any:
        numbers, scale, zero = self.residual
        assert numbers is not None
        r = numbers.numpy().astype(np.float32)
        if scale is None:
            return r
        if zero is not None and fault != "no zero point of the residual":
            r = r - of(zero).astype(np.float32)
        return r * of(scale)

    def _sums(self, x: torch.Tensor, weight: torch.Tensor, fault: str = "") -> torch.Tensor:
        if fault == "pairs saturate":  # as vpmaddubsw adds two products up in 16 bits
            products = x.long().unsqueeze(-2) * weight.long()
            pairs = F.pad(products, (0, products.shape[-1] % 2)).unflatten(-1, (-1, 2)).sum(-1)
            return pairs.clamp(-32768, 32767).sum(-1)
        if not self.geometry:
            return (x.double() @ weight.double().t()).round().long()
        stride, padding, dilation, transposed, output_padding, groups = self.geometry
        d = len(stride) - 1
        if transposed:
            f: Any = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[d]
            args = (None, stride, padding, output_padding, groups, dilation)
        else:
            f = (F.conv1d, F.conv2d, F.conv3d)[d]
            args = (None, stride, padding, dilation, groups)  # type: ignore[assignment]
        return f(x.double().contiguous(), weight.double().contiguous(), *args).round().long()

    def _each_tap(self) -> torch.Tensor:
        assert self.taps is not None
        n = self.taps.shape[1]
        if not self.geometry:
            return torch.ones(n, 1, dtype=torch.long)
        stride, padding, dilation, transposed, output_padding, _ = self.geometry
        found = []
        for t in range(n):
            one = torch.zeros(1, 1, n)
            one[0, 0, t] = 1
            lonely = Layer(
                *(self.x[:, :1] * 0 + 1, one.view(1, 1, *self.weight.shape[2:]), self.scale),
                *(None, None, 0, [stride, padding, dilation, transposed, output_padding, 1]),
                *(False, self.inverse, None, 0, 0, torch.float32),
            )
            found.append(lonely._sums(lonely.x, lonely.weight))
        return torch.stack(found)


@dataclass
class Sizes:
    """What random layers are made of: each list is what is chosen from. Channels and outputs of
    convolutions are those of a group.
    """

    depths: list[int]
    linear_outputs: list[int]
    rows: list[list[int]]
    channels: list[int]
    outputs: list[int]
    kernels: list[int]
    images: dict[int, list[int]]  # by the number of dimensions
    channels_last: float  # how often


SMALL = Sizes(
    *([1, 3, 16, 33, 64], [1, 2, 5, 16, 67], [[], [3], [70], [2, 3]]),
    *([1, 2, 3, 8, 16], [1, 3, 4], [1, 2, 3]),
    *({d: [5, 7, 8, 12] for d in (1, 2, 3)}, 0.4),
)
# Such as a CPU multiplies in tiles: at least 16 outputs, and more positions than a tile has.
WIDE = Sizes(
    *([1, 16, 64, 100, 257], [16, 17, 40, 64, 100], [[9], [97], [300], [2, 40]]),
    *([1, 3, 16, 21, 64], [16, 17, 33, 70], [1, 2, 3, 3]),
    *({1: [40, 130], 2: [7, 12, 19, 27], 3: [5, 7]}, 0.7),
)


def random_layer(seed: int, sizes: Sizes = SMALL) -> Layer:
    r = random.Random(seed)
    torch.manual_seed(seed)
    x_dtype = r.choice([torch.int8] * 3 + [torch.uint8, torch.int16])
    w_dtype = r.choice([torch.int8] * 3 + [torch.int16])
    out = r.choice([torch.float32, torch.int8, torch.int16, torch.uint8, torch.float16])
    kind = r.choice(["linear", "conv", "conv", "transposed"])
    geometry: list[Any] = []
    taps = 1
    if kind == "linear":
        depth, outputs = r.choice(sizes.depths), r.choice(sizes.linear_outputs)
        x = integers([*r.choice(sizes.rows), depth], x_dtype)
        weight = integers([outputs, depth], w_dtype)
    else:
        d, groups = r.choice([1, 2, 2, 3]), r.choice([1, 1, 2, 4])
        channels, outputs = r.choice(sizes.channels) * groups, r.choice(sizes.outputs) * groups
        if r.random() < 0.2:
            channels = outputs = groups = r.choice([3, 16, 20])
        kernel = [r.choice(sizes.kernels) for _ in range(d)]
        stride, dilation = (
            [r.choice([1, 1, 2, 3]) for _ in kernel],
            [r.choice([1, 1, 2]) for _ in kernel],
        )
        padding = [r.choice([0, 1, 2]) for _ in kernel]
        image = [r.choice(sizes.images[d]) for _ in kernel]
        x = integers([r.choice([1, 2]), channels, *image], x_dtype)
        if d == 2 and r.random() < sizes.channels_last:
            x = x.to(memory_format=torch.channels_last)
        if r.random() < 0.2:
            x = x.transpose(-1, 0).contiguous().transpose(-1, 0)
        transposed = kind == "transposed"
        shape = [channels, outputs // groups] if transposed else [outputs, channels // groups]
        weight = integers(shape + kernel, w_dtype)
        if d == 2 and r.random() < 0.5:
            weight = weight.to(memory_format=torch.channels_last)
        more = [
            r.randrange(max(a, b)) if transposed else 0
            for a, b in zip(stride, dilation, strict=True)
        ]
        geometry = [stride, padding, dilation, transposed, more, groups]
        for k in kernel:
            taps *= k
    less = r.choice(
        [
            None,
            torch.randint(-100000, 100000, (outputs, taps)),
            torch.randint(-10000, 10000, (outputs, taps), dtype=torch.int32),
        ]
    )
    low, high = {torch.int8: (-128, 127), torch.uint8: (0, 255)}.get(out, (-32767, 32767))
    zero = torch.randint(-100, 100, (r.choice([1, outputs]),), dtype=torch.int32)
    return Layer(
        *(x, weight, torch.rand(r.choice([1, outputs])) * r.choice([1e-3, 1.0, 30.0])),
        *(r.choice([None, torch.randn(outputs) * 100]), less),
        *(r.choice([0, 8]) if less is not None else 0, geometry, r.random() < 0.5),
        *(torch.rand(r.choice([1, outputs])) * r.choice([1e-3, 1e-2, 1.0]), r.choice([None, zero])),
        *(low, high, out),
    )


def random_sum(seed: int, sizes: Sizes = SMALL) -> Layer:
    """A convolution with a residual."""
    layer = random_layer(seed, sizes)
    while not layer.geometry:
        seed += 1_000_003
        layer = random_layer(seed, sizes)
    r = random.Random(seed + 1)
    shape = list(layer(device="cpu").shape)
    dtype = r.choice([torch.float32, torch.int8, torch.int8, torch.uint8, torch.int16])
    count = r.choice([1, shape[1]])
    if dtype == torch.float32:
        numbers, factors = torch.randn(shape) * 100, [None, None]
    else:
        numbers = integers(shape, dtype)
        zero = torch.randint(-100, 100, (r.choice([1, shape[1]]),), dtype=torch.int32)
        factors = [torch.rand(count) * r.choice([1e-2, 3.0]), r.choice([None, zero])]
    if r.random() < 0.4:  # not as the result lies
        numbers = numbers.transpose(1, -1).contiguous().transpose(1, -1)
    layer.residual = [numbers, *factors]
    return layer


def random_numbers(seed: int) -> list[Any]:
    """The arguments of causeway::quantize."""
    r = random.Random(seed)
    torch.manual_seed(seed)
    x = torch.randn(3, 4, 5) * r.choice([1.0, 1e3, 1e9])
    if r.random() < 0.3:
        x.view(-1)[7:10] = torch.tensor([float("nan"), float("inf"), float("-inf")])
    if r.random() < 0.5:
        x = x.transpose(0, 2)
    axis = r.randrange(3)
    channels = x.shape[axis]
    dtype = r.choice([torch.int8, torch.uint8, torch.int16])
    low, high = {torch.int8: (-128, 127), torch.uint8: (0, 255)}.get(dtype, (-32767, 32767))
    zero = torch.randint(-9, 9, (r.choice([1, channels]),), dtype=torch.int32)
    x = x.to(r.choice([torch.float32, torch.float16, torch.float64]))
    inverse = torch.rand(r.choice([1, channels])) * 50
    return [x, inverse, r.choice([None, zero]), axis, low, high, dtype]
