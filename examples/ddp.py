"""Train on several devices, a process each: `torchrun --nproc-per-node 2 examples/ddp.py`.

Stock torch.distributed and DistributedDataParallel; nothing here is Causeway's. The same file runs
on CUDA. Prints the loss of the last step, which is the one that a single process with all of the
data gets, and exits with 1 where the ranks' parameters differ.
"""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def main() -> int:
    index = int(os.environ["LOCAL_RANK"]) % torch.accelerator.device_count()
    torch.accelerator.set_device_index(index)
    place = torch.accelerator.current_accelerator()
    dist.init_process_group()

    torch.manual_seed(0)
    x = torch.randn(256, 16)
    data = TensorDataset(x, x.sin().sum(1, keepdim=True))
    sampler: DistributedSampler[tuple[torch.Tensor, ...]] = DistributedSampler(data, seed=0)
    loader = DataLoader(data, batch_size=32, sampler=sampler)

    model = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 1)).to(place)
    parallel = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(parallel.parameters(), lr=1e-2)
    for epoch in range(10):
        sampler.set_epoch(epoch)
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(parallel(inputs.to(place)), targets.to(place))
            loss.backward()
            optimizer.step()

    mean = loss.detach()
    dist.all_reduce(mean, dist.ReduceOp.AVG)
    flat = torch.cat([p.detach().flatten() for p in model.parameters()])
    first = flat.clone()
    dist.broadcast(first, 0)
    same = torch.equal(flat, first)
    if dist.get_rank() == 0:
        print(f"loss {mean.item():.4f} on {dist.get_world_size()} x {place}")
    dist.destroy_process_group()
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
