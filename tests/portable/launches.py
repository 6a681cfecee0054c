"""Counts the kernels that steps of optimizers launch, by the byte that each leaves in a file.

`python launches.py FILE`: for lists of 20 and of 60 tensors, a line of the launches of AdamW's, of
SGD's and of clip_grad_norm_'s second call, and what they did as on the CPU.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

FILE = Path(sys.argv[1])
DEVICE = torch.accelerator.current_accelerator()
assert DEVICE is not None


def parameters(count: int, device: torch.device) -> list[torch.nn.Parameter]:
    random = torch.Generator().manual_seed(0)
    made = []
    for k in range(count):
        made.append(torch.nn.Parameter(torch.randn(3 + k, 5, generator=random).to(device)))
        made[-1].grad = torch.randn(3 + k, 5, generator=random).to(device)
    return made


def launched() -> int:
    torch.accelerator.synchronize()
    return FILE.stat().st_size if FILE.exists() else 0


for count in (20, 60):
    line = []
    for make in (
        lambda p: torch.optim.AdamW(p, foreach=True).step,
        lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, foreach=True).step,
        lambda p: lambda: torch.nn.utils.clip_grad_norm_(p, 0.1, foreach=True),
    ):
        here, there = parameters(count, torch.device("cpu")), parameters(count, DEVICE)
        on_cpu, on_device = make(here), make(there)
        on_cpu(), on_device()
        before = launched()
        on_device()
        line.append(launched() - before)
        on_cpu()
        for h, t in zip(here, there, strict=True):
            torch.testing.assert_close(t.detach().cpu(), h.detach(), rtol=1e-5, atol=2e-6)
            torch.testing.assert_close(t.grad.cpu(), h.grad, rtol=1e-5, atol=2e-6)
    print(count, *line)
