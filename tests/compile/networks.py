"""Networks of torch, timm, diffusers and PyTorch Geometric, compiled on the device, against eager
on the CPU.

python tests/compile/networks.py [NAME ...]     # all, or some; says what differs

Each, small and with random weights, is compared in its outputs, its gradients and the losses of
three steps of AdamW. Then a batch of another size is taken through the same, and must make no new
kernels. The libraries lie beside the environment: `make test-libraries` puts them there, and what
is missing is left out with a word.
"""

from __future__ import annotations

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

BUILD = Path(__file__).parents[2] / "build"
SIZES = (
    5,
    6,
)  # of batches; torch takes equal sizes of inputs for one, and no other is one of these


@dataclass(frozen=True)
class Network:
    """How a network is made, and what it is called with for a batch of a size."""

    make: Callable[[], nn.Module]
    inputs: Callable[[int], tuple[Tensor, ...]]
    package: str = ""  # its folder in build/
    settings: dict[str, Any] = field(default_factory=dict)  # of torch._dynamo.config
    fullgraph: bool = True


def images(size: int) -> tuple[Tensor, ...]:
    return (torch.randn(size, 3, 32, 32, generator=torch.Generator().manual_seed(size)),)


def sequences(size: int) -> tuple[Tensor, ...]:
    return (torch.randn(size, 11, 8, generator=torch.Generator().manual_seed(size)),)


def noisy(size: int) -> tuple[Tensor, ...]:
    made = torch.Generator().manual_seed(size)
    return (
        torch.randn(size, 3, 16, 16, generator=made),
        torch.randint(0, 100, (size,), generator=made),
    )


def graphs(size: int) -> tuple[Tensor, ...]:
    """As many graphs as one, without edges between them; a node has about three neighbours."""
    made = torch.Generator().manual_seed(size)
    nodes = 7 * size
    edges = torch.randint(0, nodes, (2, 3 * nodes), generator=made)
    return torch.randn(nodes, 8, generator=made), edges[:, edges[0] != edges[1]]


def of_timm(name: str, **more: Any) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        # timm imports torchvision, whose operators are in a library for CUDA's torch.
        if not hasattr(torch.ops.torchvision, "nms"):
            operators = torch.library.Library("torchvision", "FRAGMENT")
            of_timm.__dict__["operators"] = operators
            for operator in ("nms", "qnms"):
                given = "Tensor dets, Tensor scores, float iou_threshold"
                operators.define(f"{operator}({given}) -> Tensor")
        import timm

        return timm.create_model(name, pretrained=False, num_classes=4, drop_rate=0.0, **more)

    return make


def unet() -> nn.Module:
    import diffusers

    made = diffusers.UNet2DModel(
        sample_size=16, in_channels=3, out_channels=3, layers_per_block=1,
        block_out_channels=(8, 16), norm_num_groups=4, attention_head_dim=4,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    )  # fmt: skip
    return Called(made, lambda model, x, steps: model(x, steps, return_dict=False)[0])


class Called(nn.Module):
    """A network of a library whose call needs more than tensors."""

    def __init__(self, model: nn.Module, call: Callable[..., Any]) -> None:
        super().__init__()
        self.model, self.call = model, call

    def forward(self, *given: Tensor) -> Any:
        return self.call(self.model, *given)


def gcn() -> nn.Module:
    from torch_geometric.nn import models

    return models.GCN(in_channels=8, hidden_channels=16, num_layers=2, out_channels=4)


class Recurrent(nn.Module):
    """Layers of one kind, and a classifier of the last step."""

    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.layers = kind(8, 16, num_layers=2, batch_first=True)
        self.head = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        steps, _ = self.layers(x)
        return self.head(functional.gelu(steps[:, -1]))


class Detector(nn.Module):
    """A head of scores and boxes at each place of an image; how many places are kept depends on
    the scores, and what overlaps a better one is put aside."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 16, 3, 2, 1), nn.GroupNorm(4, 16), nn.ReLU(),
            nn.Conv2d(16, 16, 3, 2, 1), nn.GroupNorm(4, 16), nn.ReLU(),
        )  # fmt: skip
        self.scores = nn.Conv2d(16, 1, 1)
        self.boxes = nn.Conv2d(16, 4, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        found = self.body(x)
        scores = self.scores(found).flatten().sigmoid()
        places = self.boxes(found).permute(0, 2, 3, 1).reshape(-1, 4)
        kept = (scores > scores.mean()).nonzero().squeeze(1)
        corner, size = places[kept].tanh().split(2, -1)
        boxes, kept_scores = torch.cat([corner, corner + size.exp()], -1), scores[kept]
        overlap = self.overlap(boxes)
        better = kept_scores[None, :] > kept_scores[:, None]
        clear = ((overlap > 0.7) & better).sum(1) == 0
        return scores.mean(), boxes * kept_scores[:, None], kept_scores * clear

    @staticmethod
    def overlap(boxes: Tensor) -> Tensor:
        """What two boxes share, of what they cover, for each pair: (n, n)."""
        area = (boxes[:, 2:] - boxes[:, :2]).prod(1)
        low = torch.maximum(boxes[:, None, :2], boxes[None, :, :2])
        high = torch.minimum(boxes[:, None, 2:], boxes[None, :, 2:])
        both = (high - low).clamp(min=0).prod(2)
        return both / (area[:, None] + area[None, :] - both)


RECURRENT = {"allow_rnn": True}
NETWORKS = {
    "lstm": Network(lambda: Recurrent(nn.LSTM), sequences, settings=RECURRENT),
    "gru": Network(lambda: Recurrent(nn.GRU), sequences, settings=RECURRENT),
    "rnn": Network(lambda: Recurrent(nn.RNN), sequences, settings=RECURRENT),
    "lstm-eager": Network(lambda: Recurrent(nn.LSTM), sequences, fullgraph=False),
    "detector": Network(Detector, images, settings={"capture_dynamic_output_shape_ops": True}),
    "detector-broken": Network(Detector, images, fullgraph=False),
    "resnet18": Network(of_timm("resnet18"), images, "timm"),
    "vit": Network(
        of_timm("vit_tiny_patch16_224", img_size=32, patch_size=8, depth=2), images, "timm"
    ),
    "convnext": Network(of_timm("convnext_atto", depths=(1, 1, 1, 1)), images, "timm"),
    "unet": Network(unet, noisy, "diffusers"),
    "gcn": Network(gcn, graphs, "torch_geometric"),
}


def made(network: Network, device: torch.device) -> nn.Module:
    torch.manual_seed(0)
    return network.make().to(device)


def tensors(value: Any) -> list[Tensor]:
    return [value] if isinstance(value, Tensor) else list(value)


def trained(
    model: nn.Module, inputs: Sequence[Tensor], device: torch.device, steps: int = 3
) -> dict[str, Any]:
    """What the first pass gives, and the losses of some steps."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    given = [value.to(device) for value in inputs]
    found: dict[str, Any] = {}
    losses = []
    for step in range(steps):
        outputs = tensors(model(*given))
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
        there.compile(dynamic=True, fullgraph=network.fullgraph)
        counts = []
        for size in SIZES:
            before = len(causeway.compile_report().graphs)
            if counts:  # else rounding adds up over the batches
                there.load_state_dict(here.state_dict())
            inputs = network.inputs(size)
            expected, found = (
                trained(here, inputs, torch.device("cpu")),
                trained(there, inputs, device),
            )
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
        package = NETWORKS[name].package
        if package and not (BUILD / package).exists():
            print(f"{name}: left out: {package} is not there: `make test-libraries` gets it")
            continue
        if package and str(BUILD / package) not in sys.path:
            sys.path.append(str(BUILD / package))
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
