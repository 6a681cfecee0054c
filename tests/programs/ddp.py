"""DistributedDataParallel with NCCL, for torchrun with any number of processes."""

import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank % torch.cuda.device_count())
    dist.init_process_group(backend="nccl", init_method="env://")
    rank, world = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", local_rank % torch.cuda.device_count())
    torch.manual_seed(0)
    x = torch.randn(64, 8)
    y = x.sum(1, keepdim=True)
    sampler = DistributedSampler(TensorDataset(x, y), shuffle=False)
    loader = DataLoader(TensorDataset(x, y), batch_size=16 // world, sampler=sampler)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)).to(device)
    model = DDP(model, device_ids=[device.index], output_device=device.index)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for data, target in loader:
        data, target = data.cuda(non_blocking=True), target.cuda(non_blocking=True)
        loss = nn.functional.mse_loss(model(data), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dist.all_reduce(loss)
        if rank == 0:
            print(f"loss {loss.item() / world:.6f}", flush=True)
    total = torch.tensor([float(rank)], device="cuda")
    dist.all_reduce(total, op=dist.ReduceOp.SUM)
    assert total.item() == world * (world - 1) / 2
    parts = [torch.zeros(1, device="cuda") for _ in range(world)]
    dist.all_gather(parts, torch.ones(1, device="cuda") * rank)
    assert [p.item() for p in parts] == list(range(world))
    objects = [{"rank": 0}] if rank == 0 else [None]
    dist.broadcast_object_list(objects, src=0)
    assert objects == [{"rank": 0}]
    dist.barrier()
    assert dist.get_backend() in ("nccl", "gloo")
    dist.destroy_process_group()
    if rank == 0:
        print("done", flush=True)


if __name__ == "__main__":
    main()
