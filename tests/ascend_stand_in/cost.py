"""What a training step costs the host, by torch_npu or by Causeway: `cost.py PROGRAM STEPS`.

Whichever of the two is installed has the device. Prints the median over the steps behind the first
eight, in nanoseconds of processor time of all threads but the stand-in's own, which stand for the
chip. What the stand-in's functions take on the caller's thread is the same for both, and counted.
"""

from __future__ import annotations

import statistics
import sys
from importlib.util import find_spec
from itertools import cycle, islice
from pathlib import Path

import torch
from torch.nn import functional

import programs

WARM = 8


def host_ns() -> int:
    """Processor time of this process so far, without the stand-in's streams."""
    spent = 0
    for thread in Path("/proc/self/task").iterdir():
        try:
            if (thread / "comm").read_text().strip() != "ascend-stream":
                spent += int((thread / "schedstat").read_text().split()[0])
        except FileNotFoundError:
            continue  # a thread that has ended
    return spent


def main(name: str, steps: int) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    device = "npu" if find_spec("torch_npu") else "ascend"
    net, batches, _ = getattr(programs, name)()
    net = net.to(device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2, eps=1e-4)
    given = [(x.to(device), target.to(device)) for x, target in batches]
    spent, loss = [], None
    for x, target in islice(cycle(given), steps):
        before = host_ns()
        optimizer.zero_grad()
        loss = functional.cross_entropy(net(x), target)
        loss.backward()
        optimizer.step()
        spent.append(host_ns() - before)
        loss.item()  # the chip is done: no step waits for the one before
    print(int(statistics.median(spent[WARM:] or spent)), loss.item())


if __name__ == "__main__":
    if find_spec("torch_npu"):
        import torch_npu  # noqa: F401
    main(sys.argv[1], int(sys.argv[2]))
