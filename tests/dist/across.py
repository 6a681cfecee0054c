"""What runs on two hosts with two ranks each: collectives, DDP, FSDP2, and groups within a host."""

from __future__ import annotations

import os
import socket

import dist_checks
import torch
import torch.distributed as dist
import training
from training import DEVICE, SIZE, close, mesh, model, reference, shard, train

from causeway.dist import backend

RANK, LOCAL = int(os.environ["RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])


def collectives_reach_the_other_host():
    t = torch.full((1000,), RANK + 1.0, device=DEVICE)
    dist.all_reduce(t)
    assert t[0].item() == sum(range(1, SIZE + 1))
    whole = torch.empty(3 * SIZE, device=DEVICE)
    dist.all_gather_into_tensor(whole, torch.full((3,), float(RANK), device=DEVICE))
    assert whole.cpu().tolist() == [float(r) for r in range(SIZE) for _ in range(3)]
    names = [None] * SIZE
    dist.all_gather_object(names, socket.gethostname())
    assert names == ["alder"] * LOCAL + ["birch"] * LOCAL, names
    large = torch.ones((1 << 20) + 3, device=DEVICE)
    dist.all_reduce(large)
    assert large.min().item() == SIZE


def the_report_names_the_hosts_and_the_reason():
    line = backend.report()
    low, high = ("0, 1", "2, 3") if LOCAL == 2 else ("0", "1")
    assert f"{SIZE} ranks on 2 hosts (alder: rank {low}; birch: rank {high})" in line, line
    assert "through the host (gloo)" in line, line
    assert "no memory that this process can share" in line, line
    assert set(backend.routes().values()) == {"host"}


def a_group_within_a_host_goes_by_the_vendor():
    m = mesh(SIZE // LOCAL, LOCAL, names=("across", "within"))
    t = torch.full((8,), RANK + 1.0, device=DEVICE)
    dist.all_reduce(t, group=m.get_group("within"))
    first = RANK // LOCAL * LOCAL
    assert t[0].item() == sum(range(first + 1, first + LOCAL + 1))
    dist.all_reduce(t, group=m.get_group("across"))
    assert t[0].item() == sum(range(1, SIZE + 1))
    assert "by the vendor" in backend.report(m.get_group("within"))
    if SIZE > LOCAL:
        assert "through the host" in backend.report(m.get_group("across"))


def ddp_trains_across_hosts():
    net = training.DDP(model().to(DEVICE))
    train(net)
    close(training.plain(net), reference())


def fsdp2_trains_across_hosts():
    net = shard(model().to(DEVICE), mesh=mesh(SIZE, names=("dp",)))
    train(net)
    close(net.state_dict(), reference())


def fsdp2_shards_within_a_host_and_replicates_across():
    net = shard(model().to(DEVICE), mesh=mesh(SIZE // LOCAL, LOCAL, names=("across", "within")))
    train(net)
    close(net.state_dict(), reference())


CHECKS = [
    collectives_reach_the_other_host,
    the_report_names_the_hosts_and_the_reason,
    a_group_within_a_host_goes_by_the_vendor,
    ddp_trains_across_hosts,
    fsdp2_trains_across_hosts,
    fsdp2_shards_within_a_host_and_replicates_across,
]

if __name__ == "__main__":
    dist_checks.run(CHECKS)
