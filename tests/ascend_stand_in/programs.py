"""What the judge trains through torch_npu on the stand-ins, and on the CPU: one program a process.

    python programs.py digits

prints a line of JSON: losses, and how far losses and weights are apart on the two devices.
"""

from __future__ import annotations

import copy
import json
import sys
import tempfile

import torch
from torch import Tensor, distributed, nn
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
        q, k, v = (
            t.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for t in self.qkv(self.first(x)).chunk(3, -1)
        )
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.down(functional.gelu(self.up(self.second(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(
        self, words: int = 40, width: int = 32, heads: int = 4, layers: int = 2, length: int = 16
    ):
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
    return (
        Gpt(),
        [(tokens[i : i + 8, :-1], tokens[i : i + 8, 1:]) for i in (0, 8, 16, 24)] * 3,
        {"tolerance": 1e-4},
    )


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
    return (
        Reader(),
        [(x[i : i + 16], target[i : i + 16]) for i in (0, 16, 32, 48)] * 4,
        {"tolerance": 1e-4},
    )


class Dropped(nn.Module):
    """A layer behind a dropout whose mask comes along, so that the CPU can have the same."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 64), nn.Linear(64, 4)
        self.masks: list[Tensor] = []
        self.step = 0

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x).tanh()
        if h.device.type == "cpu":
            self.step += 1
            return self.second(h * self.masks[self.step - 1])
        kept = functional.dropout(h, 0.25)
        self.masks.append((kept.detach() / h.detach()).cpu())
        return self.second(kept)


def dropout() -> tuple[nn.Module, list[tuple[Tensor, Tensor]], dict]:
    """Dropout and its gradient, with the device's masks on the CPU too; `check` looks at them."""
    x = torch.randn(64, 8)
    target = x[:, :4].argmax(-1)
    return (
        Dropped(),
        [(x[i : i + 16], target[i : i + 16]) for i in (0, 16, 32, 48)] * 4,
        {"tolerance": 1e-4},
    )


class Formatted(nn.Module):
    """A first layer in float16 that stays as it is, its weight on the NPU in FRACTAL_NZ."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(24, 70).half().requires_grad_(False), nn.Linear(70, 4)

    def cast(self) -> None:
        import torch_npu

        self.first.weight.data = torch_npu.npu_format_cast(self.first.weight.data, 29)
        found = torch_npu.get_npu_format(self.first.weight)
        if found != 29:
            raise AssertionError(f"the weight has format {found}, not 29")

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x.half()) + x.half() @ self.first.weight.T
        return self.second(h.float().tanh())


def formats() -> tuple[nn.Module, list[tuple[Tensor, Tensor]], dict]:
    """A layer whose weight torch_npu casts to a private format, with and without its bias."""
    x = torch.randn(64, 24)
    target = x[:, :4].argmax(-1)
    return (
        Formatted(),
        [(x[i : i + 16], target[i : i + 16]) for i in (0, 16, 32, 48)] * 4,
        {"tolerance": 5e-3},
    )


def check(masks: list[Tensor]) -> None:
    """Raises where a mask is none of a dropout of a quarter."""
    every = torch.cat(masks).round(decimals=3)
    share = (every == 0).float().mean().item()
    if every.unique().numel() != 2 or not torch.allclose(
        every.unique(), torch.tensor([0, 4 / 3]), atol=1e-3
    ):
        raise AssertionError(f"a mask has the values {every.unique().tolist()}")
    if not 0.22 < share < 0.28 or torch.equal(masks[0], masks[1]):
        raise AssertionError(f"a share of {share} is dropped, or all steps drop the same")


def train(
    device: str, net: nn.Module, batches: list[tuple[Tensor, Tensor]]
) -> tuple[list[float], list[Tensor]]:
    given = net
    net = copy.deepcopy(net).to(device)
    if device != "cpu" and isinstance(net, Formatted):
        net.cast()
    # The eps is large: where the gradient is 0 but for rounding, the CPU's step would be noise.
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2, eps=1e-4)
    losses = []
    for x, target in batches:
        optimizer.zero_grad()
        loss = functional.cross_entropy(net(x.to(device)), target.to(device))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    if device != "cpu" and isinstance(net, Dropped):
        given.masks = net.masks
        check(net.masks)
    return losses, [tensor.detach().cpu() for tensor in net.state_dict().values()]


def collectives(rank: int, device: str) -> None:
    """Raises where one of HCCL's collectives differs from what it has to give, over two ranks."""
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.int64):
        base = torch.arange(200_000).remainder(7).to(dtype)
        own, other = base + rank, base + 1 - rank
        both = [own, other] if rank == 0 else [other, own]
        x = own.to(device)
        distributed.all_reduce(x)
        assert torch.equal(x.cpu(), own + other), dtype
        x = own.to(device)
        distributed.all_reduce(x, op=distributed.ReduceOp.MAX)
        assert torch.equal(x.cpu(), torch.maximum(own, other)), dtype
        x = own.to(device)
        distributed.broadcast(x, 1)
        assert torch.equal(x.cpu(), both[1]), dtype
        parts = [torch.empty_like(x) for _ in range(2)]
        distributed.all_gather(parts, own.to(device))
        assert all(torch.equal(part.cpu(), want) for part, want in zip(parts, both, strict=True)), (
            dtype
        )
        x = torch.empty(100_000, dtype=dtype, device=device)
        distributed.reduce_scatter_tensor(x, own.to(device))
        assert torch.equal(x.cpu(), (own + other).chunk(2)[rank]), dtype
        x = torch.empty_like(own, device=device)
        distributed.all_to_all_single(x, own.to(device))
        assert torch.equal(x.cpu(), torch.cat([each.chunk(2)[rank] for each in both])), dtype
        if rank == 0:
            distributed.send(own.to(device), 1)
        else:
            distributed.recv(x, 0)
            assert torch.equal(x.cpu(), other), dtype


def rank_of_two(rank: int, store: str) -> None:
    """One process of DDP: half of each batch, the whole batch's loss on the CPU to compare with."""
    import torch_npu  # noqa: F401

    torch.npu.set_device(rank)
    device = f"npu:{rank}"
    distributed.init_process_group("hccl", init_method=f"file://{store}", rank=rank, world_size=2)
    collectives(rank, device)
    torch.manual_seed(0)
    _, batches, options = digits()
    net = nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(72, 10)
    )
    expected, weights = train("cpu", net, batches)
    parallel = nn.parallel.DistributedDataParallel(copy.deepcopy(net).to(device), device_ids=[rank])
    optimizer = torch.optim.AdamW(parallel.parameters(), lr=1e-2, eps=1e-4)
    losses = []
    for x, target in batches:
        x, target = x.chunk(2)[rank].to(device), target.chunk(2)[rank].to(device)
        optimizer.zero_grad()
        loss = functional.cross_entropy(parallel(x), target)
        loss.backward()
        optimizer.step()
        distributed.all_reduce(loss := loss.detach())
        losses.append(loss.item() / 2)
    own = [tensor.detach().cpu() for tensor in parallel.module.state_dict().values()]
    distributed.destroy_process_group()
    if rank == 0:
        report(losses, expected, own, weights, options)


def ddp() -> None:
    """The digits over two processes, each with its device."""
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(rank_of_two, (f"{folder}/store",), nprocs=2)


def report(
    losses: list[float],
    expected: list[float],
    own: list[Tensor],
    weights: list[Tensor],
    options: dict,
) -> None:
    apart = max(abs(a - b) for a, b in zip(expected, losses, strict=True))
    far = max((a - b).abs().max().item() for a, b in zip(weights, own, strict=True))
    print(
        json.dumps(
            {
                "first": losses[0],
                "last": losses[-1],
                "cpu": expected[-1],
                "losses": apart,
                "weights": far,
            }
            | options
        )
    )


def main() -> None:
    if sys.argv[1] == "ddp":
        ddp()
        return
    import torch_npu  # noqa: F401

    torch.manual_seed(0)
    net, batches, options = globals()[sys.argv[1]]()
    losses, own = train("npu", net, batches)
    expected, weights = train("cpu", net, batches)
    report(losses, expected, own, weights, options)


if __name__ == "__main__":
    main()
