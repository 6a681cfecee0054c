"""A program that asks for gloo, as many do, and hands it tensors of the device."""

from __future__ import annotations

import copy
import os

import dist_checks
import torch
import torch.distributed as dist

DEVICE = torch.device(torch._C._get_privateuse1_backend_name())
RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def the_cpu_has_torchs_own_gloo() -> None:
    assert dist.get_backend() == "gloo"
    group = dist.group.WORLD
    assert group is not None
    assert isinstance(group._get_backend(torch.device("cpu")), dist.ProcessGroupGloo)
    t = torch.full((3,), RANK + 1.0)
    dist.all_reduce(t)
    assert t.tolist() == [sum(range(1, SIZE + 1))] * 3


def collectives_of_both_between_each_other() -> None:
    """What the device does later does not meet what the CPU does now."""
    for k in range(20):
        here, there = torch.full((5,), float(RANK + k)), torch.full((5,), RANK * 2.0 + k)
        there = there.to(DEVICE)
        works = [dist.all_reduce(there, async_op=True), dist.all_reduce(here, async_op=True)]
        for work in works:
            assert work is not None
            work.wait()
        ranks = sum(range(SIZE))
        assert here.tolist() == [float(ranks + k * SIZE)] * 5
        assert there.tolist() == [float(2 * ranks + k * SIZE)] * 5


def objects_and_barriers() -> None:
    dist.barrier()
    found: list[object] = [None] * SIZE
    dist.all_gather_object(found, {"rank": RANK})
    assert found == [{"rank": r} for r in range(SIZE)]
    dist.barrier()


def groups_of_the_group() -> None:
    group = dist.new_group(list(range(SIZE)))
    assert dist.get_backend(group) == "gloo"
    t = torch.ones(4, device=DEVICE)
    dist.all_reduce(t, group=group)
    assert t.tolist() == [float(SIZE)] * 4
    named = dist.new_group(list(range(SIZE)), backend=f"cpu:gloo,{DEVICE.type}:gloo")
    dist.broadcast(t.fill_(RANK + 7.0), 0, group=named)
    assert t.tolist() == [7.0] * 4


def a_replica_trains_as_on_the_cpu() -> None:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    losses = []
    for device in (torch.device("cpu"), DEVICE):
        replica = torch.nn.parallel.DistributedDataParallel(copy.deepcopy(net).to(device))
        optimizer = torch.optim.SGD(replica.parameters(), lr=0.1)
        data = torch.randn(4, 6, generator=torch.Generator().manual_seed(RANK)).to(device)
        for _ in range(3):
            optimizer.zero_grad()
            loss = replica(data).square().mean()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        losses.append(loss.item())
    assert abs(losses[0] - losses[1]) < 1e-5, losses


def the_report_counts() -> None:
    from causeway.dist import backend

    before = backend.report()
    dist.all_reduce(torch.ones(2, device=DEVICE))
    assert "through the host (gloo), as the program asked for gloo" in before
    counts = [int(text.rsplit("; ", 1)[1].split()[0]) for text in (before, backend.report())]
    assert counts[1] == counts[0] + 1
    assert set(backend.routes().values()) == {"host"}


if __name__ == "__main__":
    dist_checks.run(
        [
            the_cpu_has_torchs_own_gloo,
            collectives_of_both_between_each_other,
            objects_and_barriers,
            groups_of_the_group,
            a_replica_trains_as_on_the_cpu,
            the_report_counts,
        ],
        "gloo",
    )
