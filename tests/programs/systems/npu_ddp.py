"""DistributedDataParallel over hccl, as started by torchrun; alone here."""

import os

import torch
import torch.distributed as dist
import torch_npu
from torch.nn.parallel import DistributedDataParallel as DDP


def main():
    rank = int(os.environ.get("LOCAL_RANK", 0))
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ["MASTER_PORT"] = os.environ["PORT"]
    if torch.npu.is_available():
        torch_npu.npu.set_device(f"npu:{rank}")
    dist.init_process_group(backend="hccl", rank=rank, world_size=1)
    torch.manual_seed(3)
    model = torch.nn.Linear(4, 1)
    data, target = torch.randn(16, 4), torch.randn(16, 1)
    model = DDP(model.npu(), device_ids=[rank] if torch.npu.is_available() else None)
    print("device", next(model.parameters()).device.type)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(5):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(data.to(f"npu:{rank}")), target.to(f"npu:{rank}"))
        loss.backward()
        optimizer.step()
        dist.all_reduce(loss.detach())
        print("loss", loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
