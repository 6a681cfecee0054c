"""What redirecting CUDA's calls costs: a program of CUDA's against the same written for the device.

`python benchmarks/transfer.py` prints ratios of times, both sides in one process, in turns; 1.00 is
no cost. Absolute times are not told, since they are of the machine.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from statistics import median

import torch
import torch.nn as nn

from causeway import transfer

ROUNDS = 15


def per_call(function: Callable[[], object], calls: int) -> float:
    """Seconds of this thread on a CPU for one round of calls; others do not disturb them."""
    begin = time.thread_time()
    for _ in range(calls):
        function()
    return time.thread_time() - begin


def cases(device: str) -> dict[str, tuple[Callable[[], object], int]]:
    """What is measured, for a program that calls its device `device`."""
    x = torch.ones(4, device=device)
    host = torch.ones(4)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    module = getattr(torch, device)

    def step() -> None:
        data = torch.randn(32, 64).to(device)
        target = torch.zeros(32, dtype=torch.long, device=device)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(data), target).backward()
        optimizer.step()

    return {
        "an operator: x + x": (lambda: x + x, 2000),
        "a factory: torch.zeros(4, device=...)": (lambda: torch.zeros(4, device=device), 1000),
        "a copy: x.to(...)": (lambda: host.to(device), 500),
        "a question: x.device": (lambda: x.device, 5000),
        "torch.cuda.current_device()": (module.current_device, 2000),
        "a training step of two layers": (step, 30),
    }


def measure() -> dict[str, float]:
    """Ratios by what was measured: median of the rounds."""
    name = torch.accelerator.current_accelerator()
    assert name is not None, "no device: see `causeway doctor`"
    ratios: dict[str, list[float]] = {}
    plain = cases(name.type)
    with transfer.enable():
        redirected = cases("cuda")
    for _ in range(ROUNDS):
        before = {what: per_call(*case) for what, case in plain.items()}
        with transfer.enable():
            after = {what: per_call(*case) for what, case in redirected.items()}
        again = {what: per_call(*case) for what, case in plain.items()}
        for what in plain:
            ratios.setdefault(what, []).append(2 * after[what] / (before[what] + again[what]))
    return {what: round(median(values), 2) for what, values in ratios.items()}


if __name__ == "__main__":
    torch.set_num_threads(1)
    found = measure()
    if "--json" in sys.argv:
        print(json.dumps(found, indent=1))
    else:
        for what, ratio in found.items():
            print(f"{ratio:5.2f}  {what}")
