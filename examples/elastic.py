"""Train on through the death of a process:
`torchrun --nproc-per-node 2 --max-restarts 10 examples/elastic.py --folder checkpoints`.

Stock torch.distributed. When a worker dies torchrun ends the others and starts all anew; each then
reads the last checkpoint and goes on from its step. With `--nnodes 1:2` a node may go for good:
those that are left begin again with fewer. Every step has the same batch however many share it, so
the losses are those of a run that nothing disturbed, up to the order of additions.

Four things make it so, and are worth copying: a checkpoint is written beside its place and moved
there whole, so that a death while writing loses nothing; all ranks agree on the step to go on from,
which rank 0 alone reads; what is random depends on the step, not on how often it was begun; the
timeout is short, for one who waits for a dead rank in vain.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

BATCH = 12  # of all ranks together; 1, 2, 3, 4, 6 and 12 ranks share it evenly


def save(state: dict[str, object], path: Path) -> None:
    """Write `state` to `path`: the file there is the old one or the new one, and always whole."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=path.name, delete=False) as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(file.name, path)


def main() -> int:
    parser = argparse.ArgumentParser(description="train, and train on after a death")
    parser.add_argument("--folder", type=Path, default=Path("checkpoints"))
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--every", type=int, default=5, help="steps from checkpoint to checkpoint")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    path = arguments.folder / "checkpoint.pt"

    index = int(os.environ["LOCAL_RANK"]) % torch.accelerator.device_count()
    torch.accelerator.set_device_index(index)
    place = torch.accelerator.current_accelerator()
    # A rank that waits longer for the others fails, and torchrun starts all anew.
    dist.init_process_group(timeout=timedelta(minutes=2))
    rank, size = dist.get_rank(), dist.get_world_size()

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1)).to(place)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    first = 0
    if rank == 0 and path.exists():
        state = torch.load(path, map_location="cpu", weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["step"]
    # From rank 0 to all: the others' disks may have an older file, or none.
    box = [first, optimizer.state_dict()]
    dist.broadcast_object_list(box)
    first = box[0]
    if rank != 0 and first:
        optimizer.load_state_dict(box[1])
    parallel = DistributedDataParallel(model)  # sends rank 0's parameters to all
    if rank == 0 and first:
        print(f"goes on from step {first} with {size} ranks", flush=True)

    loss = torch.zeros((), device=place)
    for step in range(first, arguments.steps):
        g = torch.Generator().manual_seed(step)
        x = torch.randn(BATCH, 16, generator=g)
        y = x.sin().sum(1, keepdim=True)
        part = slice(rank * BATCH // size, (rank + 1) * BATCH // size)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(parallel(x[part].to(place)), y[part].to(place))
        loss.backward()
        optimizer.step()
        done = step + 1
        if rank == 0 and (done % arguments.every == 0 or done == arguments.steps):
            state = {"step": done, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
            save(state, path)

    mean = loss.detach()
    dist.all_reduce(mean, dist.ReduceOp.AVG)
    if rank == 0:
        print(f"loss {mean.item():.6f} after step {arguments.steps}, {size} x {place}", flush=True)
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
