"""Networks of many kinds, compiled on the device, against eager on the CPU.

python tests/compile/networks.py [NAME ...]     # all, or some; says what differs

Each, small and with random weights, is compared in its outputs, its gradients and the losses of
three steps of AdamW. Then a batch of another size is taken through the same, and must make no new
kernels.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import causeway

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))  # before models.py of this folder
larger: Any = importlib.import_module("models")  # what is measured, here with fewer channels

SIZES = (
    5,
    6,
)  # of batches; torch takes equal sizes of inputs for one, and no other is one of these


@dataclass(frozen=True)
class Network:
    """How a network is made, and what it is called with for a batch of a size."""

    make: Callable[[], nn.Module]
    inputs: Callable[[int], tuple[Tensor, ...]]
    settings: dict[str, Any] = field(default_factory=dict)  # of torch._dynamo.config
    fullgraph: bool = True


def sequences(size: int) -> tuple[Tensor, ...]:
    return (torch.randn(size, 11, 8, generator=torch.Generator().manual_seed(size)),)


class Recurrent(nn.Module):
    """Layers of one kind, and a classifier of the last step."""

    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.layers = kind(8, 16, num_layers=2, batch_first=True)
        self.head = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        steps, _ = self.layers(x)
        return self.head(functional.gelu(steps[:, -1]))


def numbers(size: int, *shape: int) -> Tensor:
    return torch.randn(size, *shape, generator=torch.Generator().manual_seed(size))


def images(channels: int = 3, side: int = 16) -> Callable[[int], tuple[Tensor, ...]]:
    return lambda size: (numbers(size, channels, side, side),)


class Digits(nn.Module):
    """Two convolutions with batch norm, dropout that is off, and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.conv2, self.norm2 = nn.Conv2d(8, 12, 3, padding=1), nn.BatchNorm2d(12)
        self.drop, self.head = nn.Dropout(0.0), nn.Linear(12 * 4, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.max_pool2d(functional.relu(self.norm1(self.conv1(x))), 2)
        x = functional.max_pool2d(functional.relu(self.norm2(self.conv2(x))), 2)
        return functional.log_softmax(self.head(self.drop(x.flatten(1))), -1)


def residual() -> nn.Module:
    """ResNet-18's blocks, and one of ResNet-50's."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
        larger.Residual(8, 8, 1), larger.Residual(8, 16, 2), larger.Bottleneck(16, 4, 1),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 5),
    )  # fmt: skip


class VisionTransformer(nn.Module):
    """Patches with places and a token of the class, encoder layers and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.patch, self.place = nn.Conv2d(3, 16, 4, 4), nn.Parameter(torch.randn(17, 16) / 9)
        self.first = nn.Parameter(torch.zeros(1, 1, 16))
        layer = nn.TransformerEncoderLayer(
            16, 2, 32, 0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        patches = self.patch(x).flatten(2).transpose(1, 2)
        first = self.first.expand(len(x), -1, -1)
        return self.head(self.blocks(torch.cat([first, patches], 1) + self.place)[:, 0])


class GraphNetwork(nn.Module):
    """A graph convolution (Kipf & Welling 2017), means of neighbours, a softmax over neighbours."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 12), nn.Linear(12, 12)
        self.score, self.head = nn.Linear(24, 1), nn.Linear(12, 3)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        source, target = edges
        n = x.shape[0]
        degree = torch.ones(n, device=x.device).index_add(0, target, torch.ones_like(x[source, 0]))
        scale = (degree[source] * degree[target]).rsqrt()[:, None]
        h = self.first(x)
        h = functional.relu(torch.zeros_like(h).index_add(0, target, h[source] * scale) + h)
        sent = self.second(h)[source]
        mean = torch.zeros_like(h).scatter_reduce(
            0, target[:, None].expand_as(sent), sent, "mean", include_self=False
        )
        score = functional.leaky_relu(self.score(torch.cat([h[source], h[target]], -1)), 0.2)[:, 0]
        most = torch.full((n,), -9.0, device=x.device).scatter_reduce(0, target, score, "amax")
        weight = (score - most[target]).exp()
        total = torch.zeros(n, device=x.device).index_add(0, target, weight)
        weight = weight / (total[target] + 1e-9)
        return self.head(mean + torch.zeros_like(h).index_add(0, target, sent * weight[:, None]))


def graph(size: int) -> tuple[Tensor, ...]:
    nodes = 3 * size + 1  # no size of a layer
    found = torch.randint(
        0, nodes, (2, 7 * size + 2), generator=torch.Generator().manual_seed(size)
    )
    return numbers(nodes, 6), found


class Detector(nn.Module):
    """A head that keeps boxes above a score: how many depends on the data."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Conv2d(3, 8, 3, 2, 1)
        self.score, self.box = nn.Conv2d(8, 2, 1), nn.Conv2d(8, 8, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        y = functional.silu(self.body(x))
        score = self.score(y).flatten(1).sigmoid()
        box = self.box(y).unflatten(1, (2, 4)).movedim(2, -1).flatten(1, 3)
        low, wide = box[..., :2].tanh(), functional.softplus(box[..., 2:])
        corners = torch.cat([low, low + wide], -1)
        kept = score > score.mean()
        found, best = corners[kept], score[kept]
        order = best.argsort(descending=True, stable=True)[:40]
        found, best = found[order], best[order]
        over = torch.minimum(found[:, None, 2:], found[None, :, 2:])
        over = (over - torch.maximum(found[:, None, :2], found[None, :, :2])).clamp(min=0).prod(-1)
        area = (found[:, 2:] - found[:, :2]).prod(-1)
        alike = over / (area[:, None] + area[None] - over)
        return found, best * torch.exp(-alike.triu(1).amax(0))


class Experts(nn.Module):
    """Each token goes to the best two of four experts."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(8, 4)
        self.up, self.down = (nn.Parameter(torch.randn(4, 8, 8) / 3) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.flatten(0, 1)
        weights, chosen = self.gate(tokens).softmax(-1).topk(2)
        weights = weights / weights.sum(-1, keepdim=True)
        out = torch.zeros_like(tokens)
        for k in range(4):
            mask = chosen == k
            share = (weights * mask).sum(-1, keepdim=True)
            out = out + share * (functional.gelu(tokens @ self.up[k]) @ self.down[k])
        return out.view_as(x)


class Diffusion(nn.Module):
    """A UNet with a step that is embedded by sines, and attention over its deepest level."""

    def __init__(self) -> None:
        super().__init__()
        self.net, self.step = larger.UNet(8), nn.Linear(8, 3)
        self.to_qkv, self.norm = nn.Conv2d(3, 24, 1), nn.GroupNorm(3, 3)
        self.back = nn.Conv2d(8, 3, 1)

    def forward(self, x: Tensor, step: Tensor) -> Tensor:
        angles = step[:, None] * torch.exp(-torch.arange(4, device=x.device) * 2.3)
        x = x + self.step(torch.cat([angles.sin(), angles.cos()], -1))[:, :, None, None]
        q, k, v = self.to_qkv(self.norm(x)).flatten(2).transpose(1, 2).chunk(3, -1)
        mixed = functional.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None])[:, 0]
        x = x + self.back(mixed.transpose(1, 2).unflatten(2, x.shape[2:]))
        return functional.interpolate(self.net(x), scale_factor=2.0, mode="bilinear")


RECURRENT = {"allow_rnn": True}
NETWORKS = {
    "lstm": Network(lambda: Recurrent(nn.LSTM), sequences, settings=RECURRENT),
    "gru": Network(lambda: Recurrent(nn.GRU), sequences, settings=RECURRENT),
    "rnn": Network(lambda: Recurrent(nn.RNN), sequences, settings=RECURRENT),
    "digits": Network(Digits, images(1, 8)),
    "residual": Network(residual, images()),
    "mobile": Network(
        lambda: nn.Sequential(larger.Inverted(3, 6, 2), larger.Inverted(6, 6, 1)), images()
    ),
    "convnext": Network(
        lambda: nn.Sequential(nn.Conv2d(3, 12, 4, 4), larger.ConvNeXtBlock(12)), images()
    ),
    "vision transformer": Network(VisionTransformer, images()),
    "unet": Network(lambda: larger.UNet(8), images()),
    "diffusion": Network(Diffusion, lambda n: (numbers(n, 3, 8, 8), numbers(n) * 9)),
    "autoencoder": Network(larger.autoencoder, images(1, 28)),
    "volume": Network(larger.volume, lambda n: (numbers(n, 1, 8, 8, 8),)),
    "graph": Network(GraphNetwork, graph),
    "detector": Network(Detector, images(), fullgraph=False),
    "experts": Network(Experts, lambda n: (numbers(n, 11, 8),)),
}


def made(network: Network, device: torch.device) -> nn.Module:
    torch.manual_seed(0)
    return network.make().to(device)


def tensors(value: Any) -> list[Tensor]:
    return [value] if isinstance(value, Tensor) else list(value)


def trained(
    model: nn.Module,
    call: Callable[..., Any],
    inputs: Sequence[Tensor],
    device: torch.device,
    steps: int = 3,
) -> dict[str, Any]:
    """What the first pass of a model gives, called by `call`, and the losses of some steps."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    given = [value.to(device) for value in inputs]
    found: dict[str, Any] = {}
    losses = []
    for step in range(steps):
        outputs = tensors(call(*given))
        loss = torch.stack([(out - 0.5).square().mean() for out in outputs]).sum()
        optimizer.zero_grad()
        loss.backward()
        if step == 0:
            found["outputs"] = [out.detach().cpu() for out in outputs]
            gradients = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
            found["gradients"] = {n: g.cpu().clone() for n, g in gradients.items()}
        optimizer.step()
        losses.append(loss.item())
    return found | {"losses": torch.tensor(losses)}


def differences(
    name: str, device: torch.device, changed: Callable[[nn.Module], None] | None = None
) -> Iterator[str]:
    """What differs between the compiled network and the CPU's, a line each.

    `changed` is given the device's network first: a fault that has to be found.
    """
    network = NETWORKS[name]
    torch._dynamo.reset()
    with torch._dynamo.config.patch(network.settings):
        here, there = made(network, torch.device("cpu")), made(network, device)
        if changed is not None:
            changed(there)
        call = torch.compile(there, dynamic=True, fullgraph=network.fullgraph)
        counts = []
        for size in SIZES:
            before = len(causeway.compile_report().graphs)
            if counts:  # else rounding adds up over the batches
                there.load_state_dict(here.state_dict())
            inputs = network.inputs(size)
            expected = trained(here, here, inputs, torch.device("cpu"))
            found = trained(there, call, inputs, device)
            yield from compared(f"{name}, a batch of {size}", expected, found)
            new = causeway.compile_report().graphs[before:]
            counts.append(sum(len(graph.kernels) for graph in new))
        if not counts[0]:
            yield f"{name}: no kernel was made"
        if any(counts[1:]):
            again = "; ".join(causeway.compile_report().recompiles)
            yield f"{name}: kernels made by batches of {SIZES}: {counts}: {again}"


def compared(what: str, expected: dict[str, Any], found: dict[str, Any]) -> Iterator[str]:
    for key, value in expected.items():
        try:
            torch.testing.assert_close(found[key], value, rtol=1e-3, atol=1e-4)
        except AssertionError as error:
            yield f"{what}: {key}: {error}"


def main(names: list[str]) -> int:
    """Compare the networks; 1 where one differs or fails."""
    device = torch.accelerator.current_accelerator()
    assert device is not None, "there is no device"
    failed = 0
    for name in names or list(NETWORKS):
        try:
            lines = list(differences(name, device))
        except Exception as error:  # goes on with the next network
            lines = [f"{name}: {type(error).__name__}: {error}"]
        failed += bool(lines)
        print("\n".join(lines) if lines else f"{name}: equal", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.exit(main(sys.argv[1:]))
