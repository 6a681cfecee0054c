"""Programs that run on a library of DIOPI's functions: `python programs.py NAME`. Each prints what
its test reads.
"""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

import causeway

sys.path.append(str(Path(__file__).parents[1]))

from small_gpt import Block

DEVICE = "diopi"


def rungs(ledger: causeway.Ledger) -> dict[str, int]:
    """How many calls each rung served."""
    return {
        rung: ledger.total(rung=rung)
        for rung in ("native", "derived", "portable", "decomposed", "host")
    }


def digits() -> None:
    """scikit-learn's digits, learned on the CPU and on the device: accuracies, rungs as JSON."""
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    x = torch.tensor(pixels, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16
    y = torch.tensor(labels)
    torch.manual_seed(0)
    mixed = torch.randperm(len(x))
    x, y = x[mixed], y[mixed]
    net = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(128, 10),
    )  # fmt: skip

    def accuracy(device: str) -> float:
        mine = copy.deepcopy(net).to(device)
        optimizer = torch.optim.SGD(mine.parameters(), lr=0.1, momentum=0.9)
        for images, targets in zip(x[:1344].split(64), y[:1344].split(64), strict=True):
            optimizer.zero_grad()
            F.cross_entropy(mine(images.to(device)), targets.to(device)).backward()
            optimizer.step()
        mine.eval()
        found = mine(x[1344:].to(device)).argmax(1)
        return (found == y[1344:].to(device)).float().mean().item()

    cpu = accuracy("cpu")
    with causeway.ledger() as ledger:
        ours = accuracy(DEVICE)
    print(json.dumps({"cpu": cpu, "ours": ours} | rungs(ledger)))


def gpt() -> None:
    """Losses of some steps with AdamW, on the CPU and on the device, and rungs, as JSON."""
    torch.manual_seed(0)
    x, y = torch.randint(0, 17, (4, 8)), torch.randint(0, 17, (4, 8))
    net = Block()

    def losses(device: str) -> list[float]:
        mine = copy.deepcopy(net).to(device)
        optimizer = torch.optim.AdamW(mine.parameters(), lr=1e-2, fused=True)
        found = []
        for _ in range(6):
            optimizer.zero_grad()
            value = F.cross_entropy(mine(x.to(device)).flatten(0, 1), y.to(device).flatten())
            value.backward()
            optimizer.step()
            found.append(value.item())
        return found

    cpu = losses("cpu")
    with causeway.ledger() as ledger:
        ours = losses(DEVICE)
    adamw = [r.rung for r in ledger.rows if r.operator == "aten::_fused_adamw_"]
    print(json.dumps({"cpu": cpu, "ours": ours, "adamw": adamw} | rungs(ledger)))


def numbers() -> None:
    """A number on either side, in place, with and without a function of its own; other strides."""
    x, i = torch.tensor([1.5, -2.0, 4.0]), torch.tensor([3, -4, 5])
    calls: list[Callable[[torch.Tensor], torch.Tensor]] = [
        lambda t: t + 2, lambda t: 2 + t, lambda t: 2 - t, lambda t: t - 2, lambda t: t * 3,
        lambda t: 3 * t, lambda t: t > 1, lambda t: t < 1, lambda t: t / 2, lambda t: 2 / t,
        lambda t: t.clone().add_(2).mul_(t), lambda t: t.clone().clamp_(min=0),
        lambda t: torch.maximum(t, t * 0 + 1), lambda t: torch.where(t > 0, t, 7),
        lambda t: t.sum(dtype=torch.float64), lambda t: t.double().to(torch.int32),
        lambda t: t.expand(2, 3).t().contiguous(), lambda t: t.nonzero(), lambda t: t[t > 2],
        lambda t: torch.stack([t, t], -1).flip(0), lambda t: t.sort(descending=True).values,
    ]  # fmt: skip
    for a in (x, i):
        for k, f in enumerate(calls):
            torch.testing.assert_close(f(a.to(DEVICE)).cpu(), f(a), msg=lambda m, k=k: f"{k}: {m}")
    print("equal")


def random() -> None:
    """The same seed draws the same numbers, the next call others, in the range that was asked."""
    torch.manual_seed(3)
    first, second = torch.rand(4000, device=DEVICE), torch.rand(4000, device=DEVICE)
    torch.manual_seed(3)
    assert torch.equal(first, torch.rand(4000, device=DEVICE))
    assert (first != second).float().mean() > 0.9
    assert abs(first.mean().item() - 0.5) < 0.03
    assert torch.randint(2, 5, (1000,), device=DEVICE).unique().tolist() == [2, 3, 4]
    assert torch.equal(torch.randperm(50, device=DEVICE).sort().values.cpu(), torch.arange(50))
    mask = F.dropout(torch.ones(4000, device=DEVICE), 0.25)
    assert abs((mask == 0).float().mean().item() - 0.25) < 0.03
    print("drawn")


def refused() -> None:
    """What goes to the host, and the words of what fails."""
    x = torch.ones(3, dtype=torch.complex64, device=DEVICE)
    mask, t = torch.tensor([True, False, True], device=DEVICE), torch.arange(3.0, device=DEVICE)
    with causeway.ledger() as ledger:
        _ = t[mask]  # the library declines it by diopiDtypeNotSupported
        _ = x + x  # no function takes complex numbers
    print(sorted({r.operator for r in ledger.rows if r.rung == "host"}))
    try:
        F.nll_loss(torch.zeros(2, 3, device=DEVICE), torch.tensor([0, 7]).to(DEVICE))
    except RuntimeError as error:
        print(error)


def few() -> None:
    numbers()
    random()
    refused()


if __name__ == "__main__":
    {f.__name__: f for f in (digits, gpt, few)}[sys.argv[1]]()
