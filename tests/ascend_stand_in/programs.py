"""What the judge trains through torch_npu on the stand-in libraries, and on the CPU: one program a process.

    python programs.py digits

prints a line of JSON: losses and the largest differences of losses and weights between the two devices.
"""

from __future__ import annotations

import copy
import json
import sys

import torch
import torch_npu  # noqa: F401
from torch import Tensor, nn
from torch.nn import functional


def digits() -> tuple[nn.Module, list[tuple[Tensor, Tensor]], dict]:
    """scikit-learn's handwritten digits, a small CNN with batch norm and a pool."""
    from sklearn.datasets import load_digits

    data = load_digits()
    images = torch.tensor(data.images, dtype=torch.float32).unsqueeze(1) / 16
    targets = torch.tensor(data.target)
    net = nn.Sequential(
        *[nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)],
        *[nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()],
        nn.Linear(64, 10),
    )
    batches = [(images[i : i + 64], targets[i : i + 64]) for i in range(0, 1280, 64)]
    return net, batches, {"tolerance": 1e-4}


class Block(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(self.first(x)).chunk(3, -1))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.down(functional.gelu(self.up(self.second(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, words: int = 40, width: int = 32, heads: int = 4, layers: int = 2, length: int = 16):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        return self.head(self.norm(self.blocks(x))).transpose(1, 2)


def gpt() -> tuple[nn.Module, list[tuple[Tensor, Tensor]], dict]:
    """A GPT of two blocks by AdamW: attention by FlashAttentionScore."""
    rows = [torch.arange(17) * step % 40 for step in range(1, 33)]
    tokens = torch.stack(rows)
    return Gpt(), [(tokens[i : i + 8, :-1], tokens[i : i + 8, 1:]) for i in (0, 8, 16, 24)] * 3, {"tolerance": 1e-4}


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(8, 16, batch_first=True)
        self.head = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(x)[0][:, -1])


def lstm() -> tuple[nn.Module, list[tuple[Tensor, Tensor]], dict]:
    """An LSTM that names which of four places had the largest sum."""
    x = torch.randn(64, 10, 8)
    target = x[..., :4].sum(1).argmax(-1)
    return Reader(), [(x[i : i + 16], target[i : i + 16]) for i in (0, 16, 32, 48)] * 4, {"tolerance": 1e-4}


def train(device: str, net: nn.Module, batches: list[tuple[Tensor, Tensor]]) -> tuple[list[float], list[Tensor]]:
    net = copy.deepcopy(net).to(device)
    # The eps is large: where the gradient is 0 but for rounding, the CPU's step would be noise.
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2, eps=1e-4)
    losses = []
    for x, target in batches:
        optimizer.zero_grad()
        loss = functional.cross_entropy(net(x.to(device)), target.to(device))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, [tensor.detach().cpu() for tensor in net.state_dict().values()]


def main() -> None:
    torch.manual_seed(0)
    net, batches, options = globals()[sys.argv[1]]()
    expected, weights = train("cpu", net, batches)
    losses, own = train("npu", net, batches)
    apart = max(abs(a - b) for a, b in zip(expected, losses, strict=True))
    far = max((a - b).abs().max().item() for a, b in zip(weights, own, strict=True))
    print(json.dumps({"first": losses[0], "last": losses[-1], "cpu": expected[-1], "losses": apart, "weights": far} | options))


if __name__ == "__main__":
    main()
