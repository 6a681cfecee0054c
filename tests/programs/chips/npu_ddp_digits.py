"""Digits by DistributedDataParallel over hccl, as torchrun starts it; alone here."""

import os

import torch
import torch.distributed as dist
import torch_npu
from sklearn.datasets import load_digits
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

os.environ.setdefault("HCCL_CONNECT_TIMEOUT", "600")


def setup():
    rank = int(os.environ.get("RANK", 0))
    local_rank = int(os.environ.get("LOCAL_RANK", 0))
    world = int(os.environ.get("WORLD_SIZE", 1))
    if torch.npu.is_available():
        torch.npu.set_device(local_rank)
    dist.init_process_group(
        "hccl", init_method="tcp://127.0.0.1:" + os.environ["PORT"], rank=rank, world_size=world
    )
    return rank, local_rank, world


def reduce_mean(tensor, world):
    tensor = tensor.detach().clone()
    dist.all_reduce(tensor, op=dist.ReduceOp.SUM)
    return tensor / world


def main():
    rank, local_rank, world = setup()
    torch.manual_seed(7)
    digits = load_digits()
    data = TensorDataset(
        torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
    )
    sampler = DistributedSampler(data, num_replicas=world, rank=rank, seed=7)
    loader = DataLoader(data, batch_size=256, sampler=sampler)
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 32), torch.nn.GELU(), torch.nn.Linear(32, 10)
    ).to(f"npu:{local_rank}")
    print("device", next(model.parameters()).device.type)
    model = DDP(model, device_ids=[local_rank] if torch.npu.is_available() else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    sampler.set_epoch(0)
    for images, labels in loader:
        images, labels = images.to(f"npu:{local_rank}"), labels.to(f"npu:{local_rank}")
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print("loss", reduce_mean(loss, world).item())
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
