"""Speed of layers in integers on the device, against its own float32 and stock torch on the CPU.

    make bench-quant                   on PoCL; keeps its results
    python benchmarks/quant.py linear  some (groups as `--help` lists them)

All sides are in one process and take turns, so every figure is a ratio of speeds: `(f32)` rows have
the device's float32 as `stock`, `(cpu)` rows stock torch in float32. Group `files` has model files
in int8 against what three other products make of the same networks in int8 on the CPU, each in a
process of its own, as `make bench-ship` has it for float32. Bars are for CPUs with VNNI.
Without, a product of int8 has half as many instructions as one of float32: the limit is 2, and bars
that ask for more are missed.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterable, Iterator

import numpy as np
import torch
from run import Figure, compare, device, main, seconds
from ship_side import WORKS, inputs, network
from torch import nn

import ship
from causeway.quant import (
    convert,
    fold_norms,
    integer_sums,
    quantize_dynamic,
    quantize_weights,
)
from programs import resnet18

PAUSE = 0.03  # seconds: see opencl.py
LEAST_SIGNAL = 20  # dB, to the noise of 8 bits


def _called(net: nn.Module, x: torch.Tensor) -> Callable[[], object]:
    def call() -> None:
        with torch.no_grad():
            net(x)
        if x.device.type != "cpu":
            torch.accelerator.synchronize()

    return call


def _figures(
    group: str,
    name: str,
    integers: nn.Module,
    floats: nn.Module,
    x: torch.Tensor,
    bars: tuple[float, float],
    calls: int = 1,
    compiled: bool = False,
) -> Iterator[Figure]:
    there = device()
    wrap = torch.compile if compiled else lambda f: f
    ours = _called(wrap(integers.to(there)), x.to(there))
    own = _called(wrap(copy.deepcopy(floats).to(there)), x.to(there))
    stock = _called(wrap(floats), x)
    for f in (ours, own, stock):
        seconds(f, 3)
    for side, other, bar in (("f32", own, bars[0]), ("cpu", stock, bars[1])):
        theirs, mine, ratio = compare(other, ours, calls=calls, rounds=11, pause=PAUSE)
        yield Figure(
            group, f"{name} ({side})", "ms", theirs * 1e3, mine * 1e3, 1 / ratio, bar, "higher"
        )


def _integers(net: nn.Module, x: torch.Tensor) -> nn.Module:
    q = quantize_dynamic(net, {"per_channel": True}, gen_quant=True)
    with torch.no_grad():
        q(x)
    return integer_sums(convert(q))


def linear() -> Iterator[Figure]:
    """int8 of 1024 x 1024, inputs quantized too. Bar: 3 of the device's float32."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(1024, 1024)).eval()
    for rows in (1, 64, 256):
        x = torch.randn(rows, 1024)
        yield from _figures(
            "linear", f"1024 x 1024, {rows} rows", _integers(net, x), net, x, (3.0, 1.0),
            max(1, 64 // rows),
        )  # fmt: skip


def conv() -> Iterator[Figure]:
    """int8 of 3 x 3, inputs quantized too. Bar: 2.5 of the device's float32."""
    torch.manual_seed(0)
    for channels, size in ((64, 56), (256, 14)):
        net = nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1)).eval()
        x = torch.randn(4, channels, size, size)
        name = f"3 x 3 of {channels}, {size} x {size}"
        yield from _figures("conv", name, _integers(net, x), net, x, (2.5, 1.0))


def models() -> Iterator[Figure]:
    """ResNet-18 of batch 4, norms folded, compiled: integers from layer to layer. Bar: 1.8."""
    torch.manual_seed(0)
    net = fold_norms(resnet18().eval())
    x = torch.randn(4, 3, 224, 224)
    integers = _integers(net, x)
    yield from _figures("models", "ResNet-18, batch 4", integers, net, x, (1.8, 1.0), compiled=True)


def weights() -> Iterator[Figure]:
    """Weights alone in 8 and 4 bits, a row at a time. Bar: 2.5 of the device's float32."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2048, 2048)).eval()
    for bits in (8, 4):
        for rows in (1, 4):
            x = torch.randn(rows, 2048)
            packed = quantize_weights(net, bits)
            name = f"2048 x 2048 in {bits} bits, {rows} row{'s' * (rows > 1)}"
            bars = (2.5, 1.0) if rows == 1 else (1.0, 1.0)
            yield from _figures("weights", name, packed, net, x, bars, 8)


def files() -> Iterator[Figure]:
    """Files in int8, inputs of layers quantized too, against onnxruntime and openvino with static
    quantization and torchao's PT2E, compiled. Bar: 0.6 of the fastest of the three.
    """
    works = {name: work for name, work in WORKS.items() if work.integers}

    def ours(name: str) -> nn.Module:
        args = [torch.from_numpy(a) for a in inputs(ship.FOLDER, name)]
        return _integers(fold_norms(network(name)), *args)

    def check(name: str, sides: Iterable[str]) -> None:
        """Each side's results are those of float32, but for the noise of 8 bits."""
        args = [torch.from_numpy(a) for a in inputs(ship.FOLDER, name)]
        with torch.no_grad():
            wanted = network(name)(*args).numpy()
        for side in sides:
            noise = np.load(ship.FOLDER / f"{name}.{side}.npy") - wanted
            ratio = 10 * np.log10((wanted**2).sum() / (noise**2).sum())
            if not ratio > LEAST_SIGNAL:
                sys.exit(f"{name}: {side} is {ratio:.1f} dB of float32")

    ship.write_works(works, ours)
    sides = [*ship.FILES, "onnxruntime", "openvino", "torchao"]
    yield from ship.turns("files", works, sides, check)


GROUPS = {"linear": linear, "conv": conv, "models": models, "weights": weights, "files": files}

if __name__ == "__main__":
    sys.exit(main(GROUPS, "quant", "Speed of layers in integers against float32."))
