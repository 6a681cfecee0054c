"""Digits by DistributedDataParallel over cncl; alone here."""

import os
import tempfile

import torch
import torch.distributed as dist
import torch_mlu
from sklearn.datasets import load_digits

os.environ.setdefault("MLU_VISIBLE_DEVICES", "0")


def run(rank, world, store):
    if torch.mlu.is_available():
        torch.mlu.set_device(rank)
    dist.init_process_group(
        backend="cncl", init_method=f"file://{store}", rank=rank, world_size=world
    )
    torch.manual_seed(16)
    digits = load_digits()
    images = torch.tensor(digits.data[rank::world], dtype=torch.float32) / 16
    labels = torch.tensor(digits.target[rank::world])
    model = torch.nn.Sequential(torch.nn.Linear(64, 16), torch.nn.ELU(), torch.nn.Linear(16, 10))
    model = torch.nn.parallel.DistributedDataParallel(model.mlu())
    print("device", next(model.parameters()).device.type)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)
    for x, y in zip(images.split(300), labels.split(300)):
        loss = torch.nn.functional.multi_margin_loss(model(x.mlu()), y.mlu())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        gathered = [torch.zeros_like(loss) for _ in range(world)]
        dist.all_gather(gathered, loss.detach())
        print("loss", torch.stack(gathered).mean().item())
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        run(0, 1, os.path.join(folder, "store"))
