"""Whole models on the device of this process against stock torch on the CPU, in turn.

    make bench-models                                  on the simulated chip and on OpenCL
    python benchmarks/models.py training inference     some, on the device that is here

Speeds, medians of rounds; results in benchmarks/results/models-<device>.json. A call that goes to
the host is named on the error stream: then a number is not the device's own. The simulated chip
leaves most of these to the CPU's kernels, on the same memory.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import torch
from run import Figure, compare, device, main, seconds
from torch import nn
from torch.nn import functional as F

import causeway
from programs import (
    Block,
    Residual,
    encoder,
    gpt_block_step,
    gpt_step,
    gru_step,
    lstm_step,
    mlp,
    mnist_step,
    resnet,
    resnet18,
    resnet_inference,
    rnn_step,
)

PAUSE = 0.05  # seconds
Make = Callable[[torch.device], Callable[[], object]]


class Bottleneck(nn.Module):
    """ResNet-50's block: 1x1, 3x3 and 1x1 convolutions and a way around them."""

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        after = 4 * width
        self.inner = nn.Sequential(
            nn.Conv2d(before, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, after, 1, bias=False), nn.BatchNorm2d(after),
        )  # fmt: skip
        self.around: nn.Module = nn.Identity()
        if stride > 1 or before != after:
            self.around = nn.Sequential(
                nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.inner(x) + self.around(x))


def resnet50() -> nn.Sequential:
    return resnet(Bottleneck, (3, 4, 6, 3), grows=4)


class ConvNeXtBlock(nn.Module):
    """A 7x7 convolution of single channels, LayerNorm and two products (Liu et al. 2022)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.conv(x).permute(0, 2, 3, 1))
        return x + self.down(F.gelu(self.up(y))).permute(0, 3, 1, 2)


class Inverted(nn.Module):
    """MobileNetV2's block: wide in the middle, where channels are convolved by themselves."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        wide = 6 * before
        self.inner = nn.Sequential(
            nn.Conv2d(before, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU6(),
            nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False), nn.BatchNorm2d(wide),
            nn.ReLU6(), nn.Conv2d(wide, after, 1, bias=False), nn.BatchNorm2d(after),
        )  # fmt: skip
        self.adds = stride == 1 and before == after

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.inner(x) if self.adds else self.inner(x)


class GroupNormBlock(nn.Module):
    """A diffusion UNet's block: GroupNorm, SiLU and a 3x3 convolution, twice, and a way around."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(8, before), nn.Conv2d(before, after, 3, padding=1)
        self.norm2, self.conv2 = nn.GroupNorm(8, after), nn.Conv2d(after, after, 3, padding=1)
        self.around = nn.Conv2d(before, after, 1) if before != after else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv1(F.silu(self.norm1(x)))
        return self.around(x) + self.conv2(F.silu(self.norm2(y)))


class UNet(nn.Module):
    """Two levels, with a convolution down, a transposed one up and a way across."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.first, self.left = nn.Conv2d(3, width, 3, padding=1), GroupNormBlock(width, width)
        self.down = nn.Conv2d(width, width, 3, 2, 1)
        self.deep = GroupNormBlock(width, 2 * width)
        self.up = nn.ConvTranspose2d(2 * width, width, 2, 2)
        self.right = GroupNormBlock(2 * width, width)
        self.last = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        across = self.left(self.first(x))
        up = self.up(self.deep(self.down(across)))
        return self.last(self.right(torch.cat([across, up], 1)))


class Patches(nn.Module):
    """A small vision transformer: patches of 16 x 16, four blocks, a head."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, 192, 16, 16)
        self.blocks = nn.Sequential(*(Block(192, 3) for _ in range(4)))
        self.head = nn.Linear(192, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.patch(x).flatten(2).transpose(1, 2)).mean(1))


class Text(nn.Module):
    """Sequences classified by convolutions of three widths over an embedding (Kim 2014)."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(5000, 128)
        self.convs = nn.ModuleList(nn.Conv1d(128, 100, k) for k in (3, 4, 5))
        self.head = nn.Linear(300, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.embed(x).transpose(1, 2)
        return self.head(torch.cat([F.relu(c(y)).amax(2) for c in self.convs], 1))


def training(
    net: Callable[[], nn.Module], *shape: int, optimizer: str = "SGD", tokens: int = 0
) -> Make:
    """Makes a step on `shape`: random numbers, or random tokens below `tokens`."""

    def make(where: torch.device) -> Callable[[], object]:
        torch.manual_seed(0)
        model = net().to(where)
        step_of = getattr(torch.optim, optimizer)(model.parameters(), lr=1e-3)
        x = (torch.randint(tokens, shape) if tokens else torch.randn(shape)).to(where)

        def step() -> None:
            step_of.zero_grad()
            model(x).square().mean().backward()
            step_of.step()
            torch.accelerator.synchronize()

        return step

    return make


def decoding(where: torch.device) -> Callable[[], object]:
    """16 tokens, one at a time, six layers of 384 with a cache of 256 positions."""
    torch.manual_seed(0)
    width, heads, length, layers = 384, 6, 256, 6
    blocks = nn.ModuleList(Block(width, heads) for _ in range(layers)).eval().to(where)
    embed, head = nn.Embedding(1000, width).to(where), nn.Linear(width, 1000).to(where)
    cache = torch.zeros(2, layers, 1, heads, length, width // heads).to(where)
    places = torch.arange(length).to(where)

    def decode() -> None:
        token = torch.zeros(1, dtype=torch.int64, device=where)
        with torch.no_grad():
            for at in range(100, 116):
                x, mask = embed(token)[:, None], (places <= at)[None, None, None]
                for i, b in enumerate(blocks):
                    qkv = b.qkv(b.norm1(x)).view(1, 1, 3, heads, -1).permute(2, 0, 3, 1, 4)
                    cache[0, i, :, :, at : at + 1] = qkv[1]
                    cache[1, i, :, :, at : at + 1] = qkv[2]
                    y = F.scaled_dot_product_attention(qkv[0], cache[0, i], cache[1, i], mask)
                    x = x + b.out(y.transpose(1, 2).reshape(1, 1, width))
                    x = x + b.down(F.gelu(b.up(b.norm2(x))))
                token = head(x)[:, 0].argmax(1)
        torch.accelerator.synchronize()

    return decode


def inference(net: Callable[[], nn.Module], *shape: int) -> Make:
    def make(where: torch.device) -> Callable[[], object]:
        torch.manual_seed(0)
        model, x = net().eval().to(where), torch.randn(shape).to(where)

        def forward() -> None:
            with torch.no_grad():
                model(x)
            torch.accelerator.synchronize()

        return forward

    return make


def vgg() -> nn.Sequential:
    """Six of VGG-11's eight convolutions, for small images."""
    layers: list[nn.Module] = []
    before = 3
    for width in (64, 0, 128, 0, 256, 256, 0, 512, 512, 0):
        if width:
            layers += [nn.Conv2d(before, width, 3, padding=1), nn.ReLU()]
            before = width
        else:
            layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, nn.Flatten(), nn.LazyLinear(10))


def autoencoder() -> nn.Sequential:
    down = [nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU()]
    up = [nn.ConvTranspose2d(32, 16, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(16, 1, 4, 2, 1)]
    return nn.Sequential(*down, *up)


def convnext() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(3, 96, 4, 4), ConvNeXtBlock(96), ConvNeXtBlock(96))


def mobile() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU6(),
        Inverted(32, 32, 1), Inverted(32, 64, 2), Inverted(64, 64, 1),
    )  # fmt: skip


def volume() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv3d(1, 16, 3, padding=1), nn.BatchNorm3d(16), nn.ReLU(), nn.MaxPool3d(2),
        nn.Conv3d(16, 32, 3, padding=1), nn.BatchNorm3d(32), nn.ReLU(),
    )  # fmt: skip


TRAINING: dict[str, tuple[Make, float]] = {
    "MNIST, batch 64, SGD": (mnist_step, 0.95),
    "2 GPT blocks, AdamW": (gpt_step, 0.95),
    "GPT block of 384, AdamW": (gpt_block_step, 0.95),
    "LSTM of 2 layers, Adam": (lstm_step, 0.95),
    "GRU of 2 layers, Adam": (gru_step, 0.95),
    "RNN of 2 layers (tanh), Adam": (rnn_step, 0.95),
    "ResNet-18, 4 x 128 x 128": (training(resnet18, 4, 3, 128, 128), 0.9),
    "ResNet-50, 2 x 128 x 128": (training(resnet50, 2, 3, 128, 128), 0.9),
    "ConvNeXt blocks, 4 x 128 x 128": (training(convnext, 4, 3, 128, 128, optimizer="AdamW"), 0.9),
    "UNet with GroupNorm, 4 x 64 x 64": (training(UNet, 4, 3, 64, 64, optimizer="AdamW"), 0.9),
    "VGG of 6 convolutions, 8 x 32 x 32": (training(vgg, 8, 3, 32, 32), 0.9),
    "MobileNetV2 blocks, 4 x 96 x 96": (training(mobile, 4, 3, 96, 96), 0.9),
    "autoencoder, 32 x 28 x 28": (training(autoencoder, 32, 1, 28, 28), 0.9),
    "volumes, 2 x 24 x 24 x 24": (training(volume, 2, 1, 24, 24, 24), 0.9),
    "vision transformer, 8 x 96 x 96": (training(Patches, 8, 3, 96, 96, optimizer="AdamW"), 0.9),
    "text by convolutions, 32 x 64": (training(Text, 32, 64, optimizer="Adam", tokens=5000), 0.9),
    "MLP, batch 128": (training(mlp, 128, 784), 0.9),
}

INFERENCE: dict[str, tuple[Make, float]] = {
    "ResNet-18, 8 x 224 x 224": (resnet_inference, 1.1),
    "ResNet-50, 2 x 224 x 224": (inference(resnet50, 2, 3, 224, 224), 1.1),
    "ConvNeXt blocks, 4 x 128 x 128": (inference(convnext, 4, 3, 128, 128), 1.1),
    "residual block of 64, 4 x 56 x 56": (
        inference(lambda: Residual(64, 64, 1), 4, 64, 56, 56),
        1.1,
    ),
    "encoder of 4 layers, 2 x 128 x 384": (inference(encoder, 2, 128, 384), 0.95),
    "decoding, 6 layers of 384": (decoding, 1.2),
}


def programs_against_stock(group: str, cases: dict[str, tuple[Make, float]]) -> Iterator[Figure]:
    for name, (make, bar) in cases.items():
        cpu, dev = make(torch.device("cpu")), make(device())
        seconds(cpu, 2), seconds(dev, 20)  # products are measured in the first calls
        with causeway.ledger() as ledger:
            dev()
        rows = [r for r in ledger.rows if r.rung == "host"]
        if rows and device().type != "sim":  # which has the CPU's kernels on the same memory
            operators = ", ".join(sorted({r.operator for r in rows}))
            print(f"{name}: on the host rung: {operators}", file=sys.stderr)
        pause = 0 if device().type == "sim" else PAUSE  # the simulated chip has torch's threads
        stock, ours, ratio = compare(cpu, dev, calls=1, rounds=9, pause=pause)
        yield Figure(group, name, "ms", stock * 1e3, ours * 1e3, 1 / ratio, bar, "higher")


GROUPS = {
    "training": lambda: programs_against_stock("training", TRAINING),
    "inference": lambda: programs_against_stock("inference", INFERENCE),
}

if __name__ == "__main__":
    name = f"models-{device().type}"
    sys.exit(main(GROUPS, name, "Speed of whole models on the device against stock torch."))
