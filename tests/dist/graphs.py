"""Graphs and collectives: a graph holds the vendor's, and the host's come between replays."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import dist_checks
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

BY_HOST = os.environ.get("CAUSEWAY_SIM_COMM") == "none"


def device() -> torch.device:
    return torch.device(torch.accelerator.current_accelerator().type, dist.get_rank())


def refused(f: Callable[[], Any], words: str) -> None:
    module = torch.get_device_module()
    try:
        with module.graph(module.CUDAGraph()):
            f()
    except RuntimeError as error:
        assert words in str(error), error
    else:
        raise AssertionError("it was captured")


def a_collective_of_the_host_in_a_capture_is_refused() -> None:
    x = torch.ones(4, device=device())
    dist.all_reduce(x)
    if BY_HOST:
        refused(lambda: dist.all_reduce(x * 2), "a collective (all_reduce), in which the host")
    refused(dist.barrier, "a collective (barrier), in which the host")
    dist.all_reduce(x)
    assert x.tolist() == [4.0] * 4, x


def the_first_collective_of_a_group_in_a_capture_is_refused() -> None:
    if BY_HOST:
        return
    group, x = dist.new_group([0, 1]), torch.ones(4, device=device())
    refused(lambda: dist.all_reduce(x, group=group), "Call one before the capture")
    dist.all_reduce(x, group=group)
    assert x.tolist() == [2.0] * 4, x


def a_group_of_sends_in_a_capture_is_refused() -> None:
    """At its end: torch would take what comes later for a part of one that throws in between."""
    rank = dist.get_rank()
    x, y = torch.full((4,), float(rank), device=device()), torch.zeros(4, device=device())
    by_host = "a collective (send), in which the host takes part"
    vendors = by_host if BY_HOST else "a group of sends and receives"
    # Only a communicator that all ranks made at once serves sends.
    for group, words in (None, by_host), (dist.new_group([0, 1], device_id=device()), vendors):

        def swap(group: Any = group) -> None:
            y.zero_()
            ops = [dist.P2POp(f, t, 1 - rank, group) for f, t in ((dist.isend, x), (dist.irecv, y))]
            for work in dist.batch_isend_irecv(ops):
                work.wait()

        swap()
        refused(swap, words)
        refused(swap, "Capture what comes before it and after it")
        total = torch.ones(2, device=device())
        dist.all_reduce(total, group=group)
        assert total.tolist() == [2.0] * 2, total
        swap()
        assert y.tolist() == [1.0 - rank] * 4, y


def collectives_are_replayed() -> None:
    if BY_HOST:
        return
    module, rank = torch.get_device_module(), dist.get_rank()
    x, whole = torch.zeros(6, device=device()), torch.zeros(12, device=device())

    def work() -> tuple[torch.Tensor, ...]:
        total, mean, part = x * 2, x + 1, torch.empty(3, device=device())
        later = dist.all_reduce(total, async_op=True)
        dist.all_reduce(mean, op=dist.ReduceOp.AVG)
        dist.all_gather_into_tensor(whole, x + 1)
        dist.reduce_scatter_tensor(part, x * 3)
        first = x.clone()
        dist.broadcast(first, src=1)
        swapped = torch.empty(6, device=device())
        dist.all_to_all_single(swapped, x - 1)
        later.wait()
        return total + 1, mean, whole.clone(), part, first, swapped

    work()
    graph = module.CUDAGraph()
    with module.graph(graph):
        got = work()
    for n in range(3):
        x.fill_(10 * n + rank)
        graph.replay()
        dist.all_reduce(torch.ones(2, device=device()))  # between two of them
        for a, b in zip(got, work(), strict=True):
            assert torch.equal(a, b), (n, a, b)


def a_step_of_distributed_data_parallel_is_replayed() -> None:
    """With new data, as eager's: forward, backward with its all_reduces, and the optimizer."""
    if BY_HOST:
        return
    module = torch.get_device_module()
    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(8, 64), nn.GELU(), nn.Linear(64, 64), nn.Linear(64, 4))
    state = {k: v.clone() for k, v in net.state_dict().items()}
    torch.manual_seed(dist.get_rank())
    data = [(torch.randn(16, 8), torch.randint(0, 4, (16,))) for _ in range(16)]

    def train(captured: bool) -> tuple[list[float], dict[str, torch.Tensor]]:
        net.load_state_dict(state)
        side = module.Stream()
        x, y = data[0][0].to(device()), data[0][1].to(device())
        module.synchronize()
        with module.stream(side):
            ddp = DistributedDataParallel(net.to(device()), bucket_cap_mb=0.005)
            optimizer = torch.optim.AdamW(ddp.parameters(), lr=1e-2, capturable=True)

            def step() -> torch.Tensor:
                optimizer.zero_grad()
                loss = F.cross_entropy(ddp(x), y)
                loss.backward()
                optimizer.step()
                return loss

            losses, graph, loss = [], module.CUDAGraph(), None
            for i, (now_x, now_y) in enumerate(data):
                if captured and i == 11:  # before, DistributedDataParallel measures itself
                    del loss
                    optimizer.zero_grad()
                    with module.graph(graph, stream=side):
                        loss = step()
                x.copy_(now_x)
                y.copy_(now_y)
                if captured and i >= 11:
                    graph.replay()
                else:
                    loss = step()
                losses.append(loss.item())
            steps = len(graph)
        assert steps > 50 if captured else steps == 0, steps
        return losses, {k: v.cpu() for k, v in ddp.module.state_dict().items()}

    expected, got = train(False), train(True)
    assert expected[0] == got[0], (expected[0], got[0])
    for k, v in expected[1].items():
        assert torch.equal(v, got[1][k]), k


def collectives_come_between_replays() -> None:
    module, x = torch.get_device_module(), torch.full((8,), 1.0 + dist.get_rank(), device=device())
    w = torch.ones(8, device=device(), requires_grad=True)
    before, after = module.CUDAGraph(), module.CUDAGraph()
    (w * x).sum().backward()
    w.grad.zero_()
    w.data.mul_(1)
    with module.graph(before):
        gradient = torch.autograd.grad((w * x).sum(), w)[0]
    with module.graph(after):
        w.data.sub_(gradient, alpha=0.5)
    for _ in range(2):
        before.replay()
        dist.all_reduce(gradient)
        after.replay()
    assert w.tolist() == [1 - 2 * 0.5 * 3.0] * 8, w


if __name__ == "__main__":
    dist_checks.run(
        [
            a_collective_of_the_host_in_a_capture_is_refused,
            the_first_collective_of_a_group_in_a_capture_is_refused,
            a_group_of_sends_in_a_capture_is_refused,
            collectives_are_replayed,
            a_step_of_distributed_data_parallel_is_replayed,
            collectives_come_between_replays,
        ]
    )
