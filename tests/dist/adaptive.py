"""Adaptive fixed point under DDP: ranks with other data choose the same bits, and stay equal."""

from __future__ import annotations

import dist_checks
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

from causeway.quant import adaptive_quantize, bits_of


def trained(group: object) -> nn.Module:
    rank = dist.get_rank()
    device = torch.device(torch.accelerator.current_accelerator().type, rank)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    net = adaptive_quantize(net, 6, process_group=group).to(device)
    ddp = nn.parallel.DistributedDataParallel(net, device_ids=[rank])
    optimizer = torch.optim.SGD(ddp.parameters(), 0.01)
    torch.manual_seed(rank)
    for _ in range(18):
        x = torch.randn(16, 8) * (1 + 7 * rank)
        optimizer.zero_grad()
        F.mse_loss(ddp(x.to(device)), torch.zeros(16, 4, device=device)).backward()
        optimizer.step()
    return net


def choices(net: nn.Module) -> list[tuple[int, int]]:
    return [(row.bits, row.shift) for row in bits_of(net)]


def ranks_choose_the_same_bits() -> None:
    net = trained(None)
    mine = choices(net)
    all_of_them: list[object] = [None, None]
    dist.all_gather_object(all_of_them, mine)
    assert all_of_them[0] == all_of_them[1], all_of_them
    for p in net.parameters():
        low, high = p.detach().clone(), p.detach().clone()
        dist.all_reduce(low, dist.ReduceOp.MIN)
        dist.all_reduce(high, dist.ReduceOp.MAX)
        assert torch.equal(low, high)


def by_itself_each_chooses_its_own() -> None:
    """What statistics of one rank only would give: the check above tells it apart."""
    all_of_them: list[object] = [None, None]
    dist.all_gather_object(all_of_them, choices(trained(False)))
    assert all_of_them[0] != all_of_them[1], all_of_them


if __name__ == "__main__":
    dist_checks.run([ranks_choose_the_same_bits, by_itself_each_chooses_its_own])
