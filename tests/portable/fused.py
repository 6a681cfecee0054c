"""Fused optimizers and gradient scaling by Causeway's kernels; prints "agree" if as on the CPU."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.optim import SGD, Adagrad, Adam, AdamW, Optimizer

import causeway

CPU = torch.device("cpu")
DEVICE = torch.accelerator.current_accelerator()
SHAPES = [(3, 4), (5,), (1030, 3), (7, 7)] * 6  # more than one launch takes
Make = Callable[[list[torch.nn.Parameter]], Optimizer]
MAKERS: dict[str, Make] = {
    "Adam": lambda p: Adam(p, fused=True, weight_decay=0.1, amsgrad=True),
    "Adam, lr a tensor": lambda p: Adam(p, lr=torch.tensor(0.01), fused=True, maximize=True),
    "AdamW": lambda p: AdamW(p, fused=True),
    "SGD": lambda p: SGD(p, lr=0.1, fused=True),
    "SGD, momentum": lambda p: SGD(p, lr=0.1, momentum=0.9, nesterov=True, fused=True),
    "Adagrad": lambda p: Adagrad(p, fused=True, lr_decay=0.1),
}


def steps(make: Make, device: torch.device) -> list[torch.Tensor]:
    random = torch.Generator().manual_seed(0)
    params = [torch.nn.Parameter(torch.randn(s, generator=random).to(device)) for s in SHAPES]
    optimizer = make(params)
    for _ in range(3):
        for param in params:
            param.grad = torch.randn(param.shape, generator=random).to(device)
        with causeway.ledger() as ledger:
            optimizer.step()
        assert not ledger.total(rung="host"), ledger.table()
    return [param.detach().cpu() for param in params]


def scaled(device: torch.device, last: float) -> tuple[torch.Tensor, float]:
    """A parameter and the scale after one step; an infinite gradient leaves the step out."""
    param = torch.nn.Parameter(torch.ones(5, device=device))
    scaler = torch.amp.GradScaler(device.type, init_scale=4.0, growth_interval=1)
    optimizer = AdamW([param], fused=True)
    weights = torch.tensor([1.0, 2.0, 3.0, 4.0, last], device=device)
    scaler.scale((param * weights).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    return param.detach().cpu(), scaler.get_scale()


assert DEVICE is not None
for name, make in MAKERS.items():
    for there, here in zip(steps(make, DEVICE), steps(make, CPU), strict=True):
        torch.testing.assert_close(there, here, rtol=1e-5, atol=2e-6, msg=name)
for last in (5.0, float("inf")):
    there, here = scaled(DEVICE, last), scaled(CPU, last)
    torch.testing.assert_close(there[0], here[0])
    assert there[1] == here[1]
print("agree")
