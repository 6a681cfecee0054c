"""Programs that run on the stand-in: `python programs.py NAME`. Each prints what its test reads."""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

import causeway

Step = Callable[[nn.Module, torch.Tensor, torch.Tensor], torch.Tensor]


def train(
    net: nn.Module,
    x: torch.Tensor,
    y: torch.Tensor,
    loss: Step,
    make: Callable[..., torch.optim.Optimizer],
) -> None:
    """The losses of some steps on the CPU and on the device, and which rungs served, as JSON."""

    def losses(device: str) -> list[float]:
        mine = copy.deepcopy(net).to(device)
        optimizer = make(mine.parameters())
        found = []
        for _ in range(4):
            optimizer.zero_grad()
            value = loss(mine, x.to(device), y.to(device))
            value.backward()
            optimizer.step()
            found.append(value.item())
        return found

    cpu = losses("cpu")
    with causeway.ledger() as ledger:
        ours = losses("ascend")
    rungs = {rung: ledger.total(rung=rung) for rung in ("native", "derived", "decomposed", "host")}
    print(json.dumps({"cpu": cpu, "ascend": ours} | rungs))


def digits() -> None:
    net = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 5 * 5, 10),
    )  # fmt: skip
    x, y = torch.randn(32, 1, 14, 14), torch.randint(0, 10, (32,))
    train(
        net,
        x,
        y,
        lambda n, x, y: F.cross_entropy(n(x), y),
        lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
    )


def gpt() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens = nn.Embedding(17, 16)
            self.norm = nn.LayerNorm(16)
            self.query = nn.Linear(16, 48)
            self.out = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 17))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = self.tokens(x)
            q, k, v = self.query(self.norm(h)).chunk(3, -1)
            seen = torch.ones(8, 8, device=x.device).tril().bool()
            scores = (q @ k.transpose(1, 2) / 4).masked_fill(~seen, float("-inf"))
            return self.out(h + scores.softmax(-1) @ v)

    x, y = torch.randint(0, 17, (4, 8)), torch.randint(0, 17, (4, 8))
    train(
        Block(), x, y, lambda n, x, y: F.cross_entropy(n(x).flatten(0, 1), y.flatten()),
        lambda p: torch.optim.AdamW(p, lr=1e-2),
    )  # fmt: skip


def lstm() -> None:
    class Reader(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = nn.LSTM(6, 12, batch_first=True)
            self.head = nn.Linear(12, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.cell(x)[0][:, -1])

    x, y = torch.randn(8, 5, 6), torch.randint(0, 3, (8,))
    train(
        Reader(),
        x,
        y,
        lambda n, x, y: F.cross_entropy(n(x), y),
        lambda p: torch.optim.Adam(p, lr=1e-2),
    )


def numbers() -> None:
    """A number on either side, of either kind, with and without a call of its own."""
    x = torch.tensor([1.5, -2.0, 4.0])
    i = torch.tensor([3, -4, 5])
    y, j = x.to("ascend"), i.to("ascend")
    for a, b in ((x, y), (i, j)):
        for f in (
            lambda t: t + 2, lambda t: 2 + t, lambda t: 2 - t, lambda t: t - 2, lambda t: t * 3,
            lambda t: 3 * t, lambda t: t > 1, lambda t: t < 1,
            lambda t: torch.maximum(t, t * 0 + 1), lambda t: torch.where(t > 0, t, 7),
        ):  # fmt: skip
            torch.testing.assert_close(f(b).cpu(), f(a))
    torch.testing.assert_close((2 / y).cpu(), 2 / x)
    torch.testing.assert_close((y**2).cpu(), x**2)
    print("equal")


def batch_norm() -> None:
    """Results, saved values and gradients of a training batch norm, and which rungs served."""
    x, weight, bias = torch.randn(6, 3, 4), torch.randn(3), torch.randn(3)
    x[:, 1] *= 1e-4  # a variance that is small against eps
    grad = torch.randn_like(x)

    def results(device: str) -> list[torch.Tensor]:
        a, w, b, g = (t.to(device) for t in (x, weight, bias, grad))
        mean, variance = torch.zeros(3, device=device), torch.ones(3, device=device)
        out = torch.native_batch_norm(a, w, b, mean, variance, True, 0.1, 1e-5)
        back = torch.ops.aten.native_batch_norm_backward(
            g, a, w, mean, variance, out[1], out[2], True, 1e-5, [True, True, True]
        )
        return [t.cpu() for t in (*out, mean, variance, *back)]

    with causeway.ledger() as ledger:
        ours = results("ascend")
    torch.testing.assert_close(ours, results("cpu"), rtol=1e-4, atol=1e-4)
    norms = [row for row in ledger.rows if "batch_norm" in row.operator]
    print(json.dumps({"rungs": [row.rung for row in norms]}))


if __name__ == "__main__":
    torch.manual_seed(0)
    globals()[sys.argv[1]]()
