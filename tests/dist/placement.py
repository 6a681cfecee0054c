"""Where the ranks of a program end that never names its device, in each of the ways to begin one.

A process chooses its device once, so each way is a launch of its own: torchrun ... placement.py WAY.
"""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

RANK = int(os.environ["RANK"])
DEVICE = torch.accelerator.current_accelerator().type
MODULE = torch.get_device_module(DEVICE)


def with_device_id() -> None:
    """As the example of FSDP2 in torch's own repository begins: the group opens the device."""
    dist.init_process_group(device_id=torch.device(DEVICE, RANK))
    torch.manual_seed(0)
    assert not MODULE.is_initialized()
    # Any call that waits for the device is made now, and leaves it so.
    state = MODULE.default_generators[1].manual_seed(3).get_state()
    MODULE.default_generators[1].manual_seed(4)
    MODULE.set_rng_state(state, 1)
    assert torch.equal(MODULE.default_generators[1].get_state(), state)
    MODULE.seed()
    assert not MODULE.is_initialized()


def without_device_id() -> None:
    """A barrier has no tensor that names a device, and objects go as the host's tensors."""
    dist.init_process_group()
    torch.manual_seed(0)
    dist.barrier()
    found = [None, None]
    dist.all_gather_object(found, RANK)
    assert found == [0, 1]


def all_on_one() -> None:
    """What NCCL refuses as a duplicate GPU."""
    dist.init_process_group()
    net = nn.parallel.DistributedDataParallel(nn.Linear(4, 4).to(DEVICE))
    net(torch.randn(2, 4, device=DEVICE)).sum().backward()


def train() -> None:
    """One step of FSDP2 on a mesh over all ranks."""
    init_device_mesh(DEVICE, (dist.get_world_size(),))
    net = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    for layer in net:
        fully_shard(layer)
    fully_shard(net)
    optimizer = torch.optim.Adam(net.parameters())
    net(torch.randn(4, 8, device=DEVICE)).sum().backward()
    optimizer.step()
    places = {str(p.to_local().device) for p in net.parameters()}
    assert places == {f"{DEVICE}:{RANK}"}, places
    assert torch.empty(0, device=DEVICE).device.index == RANK


if __name__ == "__main__":
    globals()[sys.argv[1]]()
    if sys.argv[1] != "all_on_one":
        train()
    dist.destroy_process_group()
