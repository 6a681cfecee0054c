"""Data parallel training in two processes, as torchrun starts them; sums by hand and by DDP."""
import argparse
import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn


def setup(rank, world, port, backend):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(port)
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "0,1")
    if torch.cuda.is_available():
        torch.cuda.set_device(rank % torch.cuda.device_count())
    dist.init_process_group(backend, rank=rank, world_size=world)


def worker(rank, world, args, out):
    setup(rank, world, args.port, args.backend)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 1))
    local = f"cuda:{rank % max(torch.cuda.device_count(), 1)}" if torch.cuda.is_available() else "cpu"
    model = model.to(local)
    if dist.get_backend() == "nccl":
        model = nn.parallel.DistributedDataParallel(model, device_ids=[rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(rank)
    losses = []
    for _ in range(3):
        x = torch.randn(8, 6, generator=generator)
        y = x.sum(1, keepdim=True)
        if torch.cuda.is_available():
            x, y = x.cuda(), y.cuda()
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        for p in model.parameters():
            # gloo takes tensors of the CPU
            total = p.grad.cpu() if dist.get_backend() == "gloo" else p.grad
            dist.all_reduce(total)
            p.grad.copy_((total / world).to(p.grad.device))
        optimizer.step()
        mean = loss.detach().cpu()
        dist.all_reduce(mean)
        losses.append(mean.item() / world)
    if rank == 0:
        with open(out, "w") as file:
            file.writelines([f"device {x.device}\n", *(f"loss {loss}\n" for loss in losses)])
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--gloo", action="store_true", help="not nccl, also with CUDA")
    parser.add_argument("--port", type=int, default=29511)
    parser.add_argument("--out", default="losses.txt")
    args = parser.parse_args()
    args.backend = "gloo" if args.gloo else "nccl"
    mp.spawn(worker, args=(2, args, args.out), nprocs=2)
    print(open(args.out).read())
