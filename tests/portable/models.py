"""Trains small models a few steps on the CPU and on the device of this process, and compares.

`python models.py NAME...`: a line for each that differs or used the host rung, then "models N".
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

import causeway

DEVICE = torch.accelerator.current_accelerator()


class Digits(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 8, 3, padding=1)
        self.linear = nn.Linear(8 * 2 * 2, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.linear(F.dropout(x.flatten(1), 0.0))


class Basic(nn.Module):
    """ResNet's basic block."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(after)
        self.down = None
        if stride != 1 or before != after:
            self.down = nn.Sequential(
                nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        beside = x if self.down is None else self.down(x)
        x = F.relu(self.bn1(self.conv1(x)), inplace=True)
        return F.relu(self.bn2(self.conv2(x)) + beside, inplace=True)


def resnet18(width: int = 8, classes: int = 10) -> nn.Module:
    layers: list[nn.Module] = [
        nn.Conv2d(3, width, 7, 2, 3, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1),
    ]
    before = width
    for stage in range(4):
        after = width << stage
        for block in range(2):
            layers.append(Basic(before, after, 2 if stage and not block else 1))
            before = after
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, classes))


class GptBlock(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.heads = heads

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, n, w = x.shape
        q, k, v = (
            t.view(b, n, self.heads, w // self.heads).transpose(1, 2)
            for t in self.qkv(self.ln1(x)).split(w, 2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(y.transpose(1, 2).reshape(b, n, w))
        return x + self.down(F.gelu(self.up(self.ln2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, words: int = 17, length: int = 12, width: int = 32) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(GptBlock(width, 4), GptBlock(width, 4))
        self.ln, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        places = torch.arange(x.shape[1], device=x.device)
        x = self.blocks(self.words(x) + self.places(places))
        return self.head(self.ln(x)).flatten(0, 1)


class Lstm(nn.Module):
    def __init__(self, cell: type[nn.Module] = nn.LSTM) -> None:
        super().__init__()
        self.words = nn.Embedding(11, 6)
        self.cells = cell(6, 9, num_layers=2, batch_first=True)
        self.head = nn.Linear(9, 11)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.cells(self.words(x))[0]).flatten(0, 1)


class Unet(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.down = self.block(3, width)
        self.middle = self.block(width, 2 * width)
        self.up = nn.ConvTranspose2d(2 * width, width, 2, 2)
        self.join = self.block(3 * width + width, width)
        self.head = nn.Conv2d(width, 4, 1)

    @staticmethod
    def block(before: int, after: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(before, after, 3, padding=1), nn.GroupNorm(4, after), nn.SiLU()
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = self.down(x)
        b = self.middle(F.avg_pool2d(a, 2))
        smooth = F.interpolate(b, scale_factor=2.0, mode="bilinear")
        return self.head(self.join(torch.cat([a, self.up(b), smooth], 1)))


def images(size: int, channels: int = 3, batch: int = 2) -> torch.Tensor:
    return torch.randn(batch, channels, size, size, generator=torch.Generator().manual_seed(1))


def whole(most: int, *shape: int) -> torch.Tensor:
    return torch.randint(most, shape, generator=torch.Generator().manual_seed(2))


sgd = lambda p: torch.optim.SGD(p, 0.01, momentum=0.9)  # noqa: E731
adamw = lambda p: torch.optim.AdamW(p, 1e-3, weight_decay=0.1)  # noqa: E731
Model = tuple[
    Callable[[], nn.Module], torch.Tensor, torch.Tensor, Callable[..., torch.optim.Optimizer]
]
MODELS: dict[str, Model] = {
    "digits": (Digits, images(8, 1), whole(10, 2), sgd),
    "resnet18": (resnet18, images(64, batch=4), whole(10, 4), sgd),
    "gpt": (Gpt, whole(17, 2, 12), whole(17, 24), adamw),
    "lstm": (Lstm, whole(11, 2, 5), whole(11, 10), adamw),
    "gru": (lambda: Lstm(nn.GRU), whole(11, 2, 5), whole(11, 10), adamw),
    "unet": (Unet, images(8), whole(4, 2, 8, 8), adamw),
}


def train(model: nn.Module, x: torch.Tensor, y: torch.Tensor, optimizer) -> list[float]:
    """The losses of two steps and of an evaluation afterwards."""
    steps = optimizer(model.parameters())
    losses = []
    for _ in range(2):
        steps.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        steps.step()
        losses.append(loss.item())
    model.eval()
    with torch.no_grad():
        losses.append(F.cross_entropy(model(x), y).item())
    return losses


def main() -> None:
    names = sys.argv[1:] or list(MODELS)
    for name in names:
        make, x, y, optimizer = MODELS[name]
        torch.manual_seed(0)
        model = make()
        there = copy.deepcopy(model).to(DEVICE)
        wanted = train(model, x, y, optimizer)
        x, y = x.to(DEVICE), y.to(DEVICE)
        with causeway.ledger() as ledger:
            got = train(there, x, y, optimizer)
        host = sorted({row.operator for row in ledger.rows if row.rung == "host"})
        if host:
            print(f"{name}: on the host: {' '.join(host)}", flush=True)
        if not ledger.total(rung="portable"):
            print(f"{name}: no portable kernel", flush=True)
        if not torch.allclose(torch.tensor(got), torch.tensor(wanted), rtol=2e-4, atol=2e-4):
            print(f"{name}: losses {got}, not {wanted}", flush=True)
    print("models", len(names), flush=True)


if __name__ == "__main__":
    main()
