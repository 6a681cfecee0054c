"""Mixed precision trains as well as float32: a network on digits and a small GPT, in every way."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from causeway.apex import amp, optimizers

pytestmark = [pytest.mark.once, pytest.mark.slow]
WAYS = ["bfloat16", "float16", "O1", "O2"]
OVERFLOW = 10  # the step whose loss is made infinite


class Block(nn.Module):
    """Attention and a feed-forward net, pre-norm."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(n, t, 3, 2, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(n, t, c))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    def __init__(self, words: int, length: int, width: int = 32) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(Block(width), Block(width))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        places = self.places(torch.arange(tokens.shape[1], device=tokens.device))
        return self.head(self.norm(self.blocks(self.words(tokens) + places)))


def digits(device: torch.device) -> tuple[nn.Module, Callable[..., Any], Callable[..., Any]]:
    load = pytest.importorskip("sklearn.datasets").load_digits
    pixels, labels = load(return_X_y=True)
    x = torch.tensor(pixels, dtype=torch.float32).reshape(-1, 1, 8, 8).div(8).sub(1).to(device)
    y = torch.tensor(labels).to(device)
    net = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(128, 10),
    )  # fmt: skip

    def loss(model: Any, step: int) -> torch.Tensor:
        batch = slice(64 * (step % 20), 64 * (step % 20) + 64)
        return F.cross_entropy(model(x[batch]), y[batch])

    def quality(model: Any) -> float:
        model.eval()
        return (model(x[1400:]).argmax(1) == y[1400:]).float().mean().item()

    return net.to(device), loss, quality


def gpt(device: torch.device) -> tuple[nn.Module, Callable[..., Any], Callable[..., Any]]:
    text = "peter piper picked a peck of pickled peppers; a peck of pickled peppers he picked. " * 8
    known = sorted(set(text))
    tokens = torch.tensor([known.index(c) for c in text]).to(device)
    length = 32

    def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
        starts = [(step * 8 + i) * 7 % (len(text) - length - 1) for i in range(8)]
        rows = torch.stack([tokens[s : s + length + 1] for s in starts])
        return rows[:, :-1], rows[:, 1:]

    def loss(model: Any, step: int) -> torch.Tensor:
        x, y = batch(step)
        return F.cross_entropy(model(x).flatten(0, 1), y.flatten())

    def quality(model: Any) -> float:
        with torch.no_grad():
            return math.exp(-loss(model, 999).item())  # the probability of the right letter

    return GPT(len(known), length).to(device), loss, quality


def train(task: Any, way: str, device: torch.device, steps: int) -> tuple[float, float]:
    """(quality, the scale at the end) after training in one way, with an infinite loss in it."""
    torch.manual_seed(0)
    net, loss_of, quality = task(device)
    optimizer: Any = optimizers.FusedAdam(net.parameters(), lr=3e-3)
    apex_level = way[:2] if way.startswith("O") else ""
    half = getattr(torch, way) if way in ("bfloat16", "float16") else None
    scaler = torch.amp.GradScaler(device.type, init_scale=1024.0, enabled=way == "float16")
    if apex_level:
        net, optimizer = amp.initialize(
            net, optimizer, opt_level=apex_level, verbosity=0, combine_grad="combined" in way,
            max_loss_scale=1024.0,
        )  # fmt: skip
    scaled = scaler.is_enabled() or apex_level in ("O1", "O2")
    for step in range(steps):
        optimizer.zero_grad()
        region = torch.autocast(device.type, dtype=half) if half else nullcontext()
        with region:
            loss = loss_of(net, step)
        if step == OVERFLOW and scaled:
            loss = loss * float("inf")
        if apex_level:
            with amp.scale_loss(loss, optimizer) as given:
                given.backward()
            optimizer.step()
        else:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    with torch.autocast(device.type, dtype=half) if half else nullcontext():
        found = quality(net)
    scale = amp._amp_state.loss_scalers[0].loss_scale() if apex_level else scaler.get_scale()
    amp.deactivate()
    return found, scale if scaled else 512.0


@pytest.mark.parametrize(("task", "steps", "least"), [(digits, 160, 0.85), (gpt, 100, 0.8)])
def test_every_way_reaches_the_quality_of_float32(device, task, steps, least):
    full, _ = train(task, "float32", device, steps)
    assert full > least
    for way in [*WAYS, *(["O2 combined", "O5"] if task is digits else [])]:
        found, scale = train(task, way, device, steps)
        assert found > full - 0.03, way
        assert scale == 512.0, way  # halved once, by the infinite loss


def test_the_comparison_notices_training_that_goes_wrong(device, monkeypatch):
    """A test of the test: gradients that are not unscaled for the masters."""
    from causeway.apex.amp.scaler import LossScaler

    monkeypatch.setattr(LossScaler, "unscale", lambda self, grads, scale=None: None)
    found, _ = train(digits, "O2", device, 40)
    full, _ = train(digits, "float32", device, 40)
    assert found < full - 0.03
