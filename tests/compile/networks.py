"""Recurrent networks, compiled on the device, against eager on the CPU.

python tests/compile/networks.py [NAME ...]     # all, or some; says what differs

Each, small and with random weights, is compared in its outputs, its gradients and the losses of
three steps of AdamW. Then a batch of another size is taken through the same, and must make no new
kernels.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import causeway

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


RECURRENT = {"allow_rnn": True}
NETWORKS = {
    "lstm": Network(lambda: Recurrent(nn.LSTM), sequences, settings=RECURRENT),
    "gru": Network(lambda: Recurrent(nn.GRU), sequences, settings=RECURRENT),
    "rnn": Network(lambda: Recurrent(nn.RNN), sequences, settings=RECURRENT),
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
