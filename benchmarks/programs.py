"""Networks and steps that the benchmarks time; they need nothing but torch, so that a torch without
Causeway can run them too.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn


class Block(nn.Module):
    """A transformer block of GPT's kind: attention and a feed-forward net, pre-norm."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.heads = heads

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(n, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(n, t, c))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


def mnist_step(where: torch.device) -> Callable[[], object]:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Dropout(0.25), nn.Flatten(), nn.Linear(9216, 128), nn.ReLU(), nn.Dropout(0.5),
        nn.Linear(128, 10), nn.LogSoftmax(1),
    ).to(where)  # fmt: skip
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    x, y = torch.randn(64, 1, 28, 28).to(where), torch.randint(10, (64,)).to(where)

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.nll_loss(net(x), y).backward()
        optimizer.step()
        torch.accelerator.synchronize()

    return step


def gpt_step(where: torch.device) -> Callable[[], object]:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Embedding(256, 256), Block(256, 4), Block(256, 4), nn.Linear(256, 256))
    net.to(where)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    x = torch.randint(256, (8, 128)).to(where)

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x).flatten(0, 1), x.flatten()).backward()
        optimizer.step()
        torch.accelerator.synchronize()

    return step


def recurrent_step(where: torch.device, kind: type[nn.RNNBase]) -> Callable[[], object]:
    """Two layers of 64 to 128, 50 steps of 16 sequences, with Adam."""
    torch.manual_seed(0)
    net = kind(64, 128, 2).to(where)
    optimizer = torch.optim.Adam(net.parameters())
    x = torch.randn(50, 16, 64).to(where)

    def step() -> None:
        optimizer.zero_grad()
        net(x)[0].square().mean().backward()
        optimizer.step()
        torch.accelerator.synchronize()

    return step


def lstm_step(where: torch.device) -> Callable[[], object]:
    return recurrent_step(where, nn.LSTM)


def gru_step(where: torch.device) -> Callable[[], object]:
    return recurrent_step(where, nn.GRU)


def rnn_step(where: torch.device) -> Callable[[], object]:
    return recurrent_step(where, nn.RNN)


class Residual(nn.Module):
    """ResNet's basic block: two 3x3 convolutions and a way around them."""

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, width, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(width), nn.BatchNorm2d(width)
        self.around: nn.Module = nn.Identity()
        if stride > 1 or before != width:
            self.around = nn.Sequential(
                nn.Conv2d(before, width, 1, stride, bias=False), nn.BatchNorm2d(width)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(self.norm2(self.conv2(y)) + self.around(x))


def resnet(
    block: Callable[[int, int, int], nn.Module], depths: tuple[int, ...], *, grows: int = 1
) -> nn.Sequential:
    """A ResNet with a head for 1,000 classes (He et al. 2015, table 1). `depths`: blocks of each
    stage; `grows`: what a block gives, in widths.
    """
    stages: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
    ]  # fmt: skip
    before = 64
    for width, stride, depth in zip((64, 128, 256, 512), (1, 2, 2, 2), depths, strict=True):
        for i in range(depth):
            stages.append(block(before, width, stride if i == 0 else 1))
            before = grows * width
    return nn.Sequential(*stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, 1000))


def resnet18() -> nn.Sequential:
    return resnet(Residual, (2, 2, 2, 2))


def resnet_inference(where: torch.device) -> Callable[[], object]:
    torch.manual_seed(0)
    net = resnet18().eval().to(where)
    x = torch.randn(8, 3, 224, 224).to(where)

    def infer() -> None:
        with torch.no_grad():
            net(x)
        torch.accelerator.synchronize()

    return infer


def gpt_block_step(where: torch.device) -> Callable[[], object]:
    """Forward, backward and AdamW of one block: batch 4, 128 tokens, width 384, 6 heads."""
    torch.manual_seed(0)
    net = Block(384, 6).to(where)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    x = torch.randn(4, 128, 384).to(where)

    def step() -> None:
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()
        torch.accelerator.synchronize()

    return step


class Chain(nn.Module):
    """A chain of pointwise operators."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.tanh(torch.relu(a * b + 1) - a * 0.5).mul(b).add(a).abs().sqrt()


def mnist() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(9216, 128), nn.ReLU(), nn.Linear(128, 10), nn.LogSoftmax(1),
    )  # fmt: skip


def mlp() -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
    )


def wide() -> nn.Sequential:
    return nn.Sequential(nn.Linear(1024, 1024))


def three_by_three(channels: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1))


def encoder() -> nn.TransformerEncoder:
    layer = nn.TransformerEncoderLayer(384, 6, 1536, batch_first=True, activation="gelu")
    return nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
