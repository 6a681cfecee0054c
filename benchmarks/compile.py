"""Speed of torch.compile on the device, against the device's own eager and stock torch.compile.

    make bench-compile                        on PoCL; keeps its results
    python benchmarks/compile.py pointwise    some (groups as `--help` lists them)

All three sides are in one process and take turns, so every figure is a ratio of speeds: `(eager)`
rows have the device's eager as `stock`, `(cpu)` rows stock torch.compile on the CPU, with
Inductor's C++ code. Each side is warm: what compiles, compiles before the first round.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from run import Figure, compare, device, main, seconds
from torch import nn
from torch.nn import functional as F

from programs import Block, Chain, mnist, resnet18

PAUSE = 0.03  # seconds: see opencl.py

Make = Callable[[torch.device, Any], Callable[[], object]]


def _synchronized(f: Callable[[], object], where: torch.device) -> Callable[[], object]:
    def call() -> None:
        f()
        if where.type != "cpu":
            torch.accelerator.synchronize()

    return call


def _figures(group: str, name: str, make: Make, bars: tuple[float, float], calls: int = 1,
             rounds: int = 11, mode: str = "default") -> Iterator[Figure]:  # fmt: skip
    """`make(where, compile)` against the device's eager and stock torch.compile."""
    torch._dynamo.reset()
    there, cpu = device(), torch.device("cpu")
    ours = _synchronized(make(there, functools.partial(torch.compile, mode=mode)), there)
    eager = _synchronized(make(there, lambda f: f), there)
    stock = make(cpu, torch.compile)
    for f in (ours, eager, stock):
        seconds(f, 6)  # a graph is captured at its third or fourth call
    for side, other, bar in (("eager", eager, bars[0]), ("cpu", stock, bars[1])):
        theirs, mine, ratio = compare(other, ours, calls=calls, rounds=rounds, pause=PAUSE)
        yield Figure(
            group, f"{name} ({side})", "ms", theirs * 1e3, mine * 1e3, 1 / ratio, bar, "higher"
        )


def _function(f: Callable[..., object], *given: torch.Tensor) -> Make:
    def make(where: torch.device, compile_: Any) -> Callable[[], object]:
        args = [g.to(where) for g in given]
        made = compile_(f)

        def call() -> object:
            with torch.no_grad():
                return made(*args)

        return call

    return make


def pointwise() -> Iterator[Figure]:
    """Chains of pointwise operators and rows. Bars: 2 against eager, 1 against stock compile."""

    def norm(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.gelu(F.layer_norm(x, (512,), w, w))

    def masked(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return F.dropout(torch.softmax(x.masked_fill(mask, -1e9), -1), 0.1)

    big = torch.randn(2 << 20), torch.randn(2 << 20)
    yield from _figures("pointwise", "chain of 8, 2 M floats", _function(Chain(), *big), (2, 1), 3)
    rows = torch.randn(4096, 512), torch.randn(512)
    yield from _figures("pointwise", "LayerNorm+GELU 4096 x 512", _function(norm, *rows), (2, 1), 3)
    scores = torch.randn(4096, 512), torch.rand(4096, 512) < 0.1
    yield from _figures(
        "pointwise", "softmax, mask, dropout 4096 x 512", _function(masked, *scores), (2, 1), 3
    )


def _inference(model: Callable[[], nn.Module], x: torch.Tensor) -> Make:
    def make(where: torch.device, compile_: Any) -> Callable[[], object]:
        torch.manual_seed(0)
        net = model().eval().to(where)
        return _function(net, x)(where, compile_)

    return make


def inference() -> Iterator[Figure]:
    """Networks forward. Bars: 1.15 against eager, 0.8 against stock compile."""
    x = torch.randn(64, 1, 28, 28)
    yield from _figures("inference", "MNIST, batch 64", _inference(mnist, x), (1.15, 0.8))
    x = torch.randn(4, 3, 224, 224)
    yield from _figures(
        "inference", "ResNet-18, batch 4", _inference(resnet18, x), (1.15, 0.8), 1, 7
    )
    x = torch.randn(2, 128, 384)
    encoder = lambda: nn.Sequential(*(Block(384, 6) for _ in range(4)))  # noqa: E731
    yield from _figures("inference", "4 blocks, 2 x 128 x 384", _inference(encoder, x), (1.15, 0.8))


def _training(model: Callable[[], nn.Module], optimizer: Any, given: Any, loss: Any) -> Make:
    def make(where: torch.device, compile_: Any) -> Callable[[], object]:
        torch.manual_seed(0)
        net = model().to(where)
        made, steps = compile_(net), optimizer(net.parameters())
        args = [g.to(where) for g in given]

        def step() -> None:
            steps.zero_grad()
            loss(made(args[0]), *args[1:]).backward()
            steps.step()

        return step

    return make


def training() -> Iterator[Figure]:
    """Steps with an optimizer. Bars: 1.1 against eager, 1 against stock compile."""

    def sgd(p: Any) -> torch.optim.Optimizer:
        return torch.optim.SGD(p, lr=0.01)

    def adamw(p: Any) -> torch.optim.Optimizer:
        return torch.optim.AdamW(p, lr=1e-4)

    given = torch.randn(64, 1, 28, 28), torch.randint(10, (64,))
    digits = _training(mnist, sgd, given, F.nll_loss)
    yield from _figures("training", "MNIST, SGD", digits, (1.1, 1), 1, 9)
    given = torch.randn(4, 3, 128, 128), torch.randint(10, (4,))
    resnet = _training(resnet18, sgd, given, F.cross_entropy)
    yield from _figures("training", "ResNet-18 at 128 x 128, SGD", resnet, (1.1, 1), 1, 7)
    given = torch.randn(8, 128, 256), torch.randn(8, 128, 256)
    gpt = _training(lambda: Block(256, 4), adamw, given, F.mse_loss)
    yield from _figures("training", "GPT block, AdamW", gpt, (1.1, 1), 1, 9)


def tiny() -> Iterator[Figure]:
    """A graph of 100 tiny operators: what a call costs. Bars: 5 and 1."""

    def chain(x: torch.Tensor) -> torch.Tensor:
        for _ in range(50):
            x = torch.relu(x + 1)
        return x

    def small() -> nn.Module:
        return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())

    yield from _figures(
        "tiny", "100 operators of 4 floats", _function(chain, torch.randn(4)), (5, 1), 20, 21
    )
    for mode in ("default", "reduce-overhead"):
        x = torch.randn(1, 64)
        name = f"2 layers of 64, batch 1, {mode}"
        yield from _figures("tiny", name, _inference(small, x), (1, 1), 20, 21, mode)


def graphs() -> Iterator[Figure]:
    """A captured chain of 200 operators against stock eager: time. Bar: 0.5."""
    there, module = device(), torch.get_device_module(device())
    given = torch.randn(16), torch.randn(16)

    def chain(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        for _ in range(50):
            x = torch.relu((x + y) * y - 1.0)
        return x

    with torch.no_grad():
        args = [g.to(there) for g in given]
        chain(*args)
        graph = module.CUDAGraph()
        with module.graph(graph):
            chain(*args)
        stock, ours, ratio = compare(
            lambda: chain(*given), _synchronized(graph.replay, there), calls=20, rounds=21
        )
    yield Figure(
        "graphs", "200 operators replayed", "ms", stock * 1e3, ours * 1e3, ratio, 0.5, "lower"
    )


GROUPS = {
    "pointwise": pointwise,
    "tiny": tiny,
    "graphs": graphs,
    "inference": inference,
    "training": training,
}

if __name__ == "__main__":
    sys.exit(
        main(GROUPS, "compile", "Speed of torch.compile on the device against eager and stock.")
    )
