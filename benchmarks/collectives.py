"""Both sides of the figures of torch.distributed, in two processes: run.py starts this by torchrun.

In each round the device's tensors and the CPU's, through gloo, have their turn. Rank 0 prints the
seconds of both as JSON.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

ROUNDS = 9


def in_turn(stock: Callable[[], object], ours: Callable[[], object]) -> list[tuple[float, float]]:
    pairs = []
    for r in range(-2, ROUNDS):  # the first two warm up
        both = {}
        for side in (stock, ours) if r % 2 else (ours, stock):
            dist.barrier()
            start = time.perf_counter()
            side()
            both[side] = time.perf_counter() - start
        if r >= 0:
            pairs.append((both[stock], both[ours]))
    return pairs


def all_reduce(tensor: torch.Tensor) -> Callable[[], object]:
    def run() -> None:
        dist.all_reduce(tensor)
        tensor.view(-1)[0].item()  # it is there

    return run


def step(place: torch.device | str) -> Callable[[], object]:
    torch.manual_seed(0)
    layers = [layer for _ in range(6) for layer in (nn.Linear(512, 512), nn.ReLU())]
    model = DistributedDataParallel(nn.Sequential(*layers).to(place), bucket_cap_mb=2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    x = torch.randn(64, 512).to(place)

    def run() -> None:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        loss.item()

    return run


def main() -> None:
    index = int(os.environ["LOCAL_RANK"]) % torch.accelerator.device_count()
    torch.accelerator.set_device_index(index)
    place = torch.accelerator.current_accelerator()
    assert place is not None
    dist.init_process_group("cwcl")
    n = 64 << 18  # 64 MiB of float32
    figures = {
        "all_reduce": in_turn(all_reduce(torch.zeros(n)), all_reduce(torch.zeros(n, device=place))),
        "ddp": in_turn(step("cpu"), step(place)),
    }
    if dist.get_rank() == 0:
        print("figures " + json.dumps(figures), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
