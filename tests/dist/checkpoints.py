"""Distributed checkpoints: `checkpoints.py save FOLDER` on some ranks, `load` on fewer, and `cpu` in
one process that has no device.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_state_dict,
)

MODE, FOLDER = sys.argv[1], Path(sys.argv[2])


def model():
    torch.manual_seed(0)
    # 13 and 7 rows: no number of ranks here shares them evenly.
    return nn.Sequential(nn.Linear(6, 13), nn.Tanh(), nn.Linear(13, 7))


def trained(net, optim, place, steps=3):
    """The same batch on every rank, so that the result is that of one process."""
    for step in range(steps):
        g = torch.Generator().manual_seed(step)
        x, y = torch.randn(4, 6, generator=g).to(place), torch.randn(4, 7, generator=g).to(place)
        optim.zero_grad()
        nn.functional.mse_loss(net(x), y).backward()
        optim.step()


def expected(steps=3):
    net = model()
    trained(net, torch.optim.AdamW(net.parameters(), lr=0.05), "cpu", steps)
    return net.state_dict()


def same(state, wanted):
    assert state.keys() == wanted.keys()
    for name, value in wanted.items():
        got = state[name].full_tensor() if hasattr(state[name], "full_tensor") else state[name]
        torch.testing.assert_close(got.cpu(), value, rtol=1e-4, atol=1e-5)


def sharded(mesh):
    from torch.distributed.fsdp import fully_shard

    net = model().to(torch.accelerator.current_accelerator())
    for layer in net:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(net, mesh=mesh)
    return net, torch.optim.AdamW(net.parameters(), lr=0.05)


def start():
    index = int(os.environ["LOCAL_RANK"]) % torch.accelerator.device_count()
    torch.accelerator.set_device_index(index)
    place = torch.accelerator.current_accelerator()
    # The CPU's part is what async_save wants of a group.
    dist.init_process_group(f"cpu:gloo,{place.type}:cwcl")
    return place, dist.init_device_mesh(place.type, (dist.get_world_size(),))


def save():
    place, mesh = start()
    net, optim = sharded(mesh)
    trained(net, optim, place)
    state, optim_state = get_state_dict(net, optim)
    saved = {"model": state, "optim": optim_state, "step": 3}
    dcp.save(saved, checkpoint_id=FOLDER / "now")
    done = dcp.async_save(saved, checkpoint_id=FOLDER / "later")
    trained(net, optim, place, 2)  # what is written is what there was at the call
    done.result()
    from torch.distributed.tensor import Shard, distribute_tensor

    whole = torch.arange(91.0).view(13, 7)
    table = {"table": distribute_tensor(whole, mesh, [Shard(1)])}
    dcp.save(table, checkpoint_id=FOLDER / "columns")
    full = get_model_state_dict(net, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if dist.get_rank() == 0:
        torch.save(full, FOLDER / "full.pt")


def load():
    place, mesh = start()
    for name in ("now", "later"):
        net, optim = sharded(mesh)
        state, optim_state = get_state_dict(net, optim)
        read = {"model": state, "optim": optim_state, "step": 0}
        dcp.load(read, checkpoint_id=FOLDER / name)
        set_state_dict(net, optim, model_state_dict=read["model"], optim_state_dict=read["optim"])
        assert read["step"] == 3
        same(net.state_dict(), expected())
        for step in (3, 4):  # and goes on as if nothing had been
            g = torch.Generator().manual_seed(step)
            x, y = torch.randn(4, 6, generator=g), torch.randn(4, 7, generator=g)
            optim.zero_grad()
            nn.functional.mse_loss(net(x.to(place)), y.to(place)).backward()
            optim.step()
        same(net.state_dict(), expected(5))
    from torch.distributed.tensor import Shard, distribute_tensor

    # Columns, saved by four; rows, read by two.
    table = {"table": distribute_tensor(torch.zeros(13, 7), mesh, [Shard(0)])}
    dcp.load(table, checkpoint_id=FOLDER / "columns")
    assert torch.equal(table["table"].full_tensor().cpu(), torch.arange(91.0).view(13, 7))


def cpu():
    assert "causeway" not in sys.modules
    assert not torch.accelerator.is_available()
    for name in ("now", "later"):
        net = model()
        state = {"model": net.state_dict(), "step": 0}
        dcp.load(state, checkpoint_id=FOLDER / name, no_dist=True)
        assert state["step"] == 3
        same(state["model"], expected())
    table = {"table": torch.zeros(13, 7)}
    dcp.load(table, checkpoint_id=FOLDER / "columns", no_dist=True)
    assert torch.equal(table["table"], torch.arange(91.0).view(13, 7))
    net = model()
    net.load_state_dict(torch.load(FOLDER / "full.pt", weights_only=True))
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

    dcp_to_torch_save(FOLDER / "now", FOLDER / "now.pt")
    same(torch.load(FOLDER / "now.pt", weights_only=True)["model"], expected())


if __name__ == "__main__":
    {"save": save, "load": load, "cpu": cpu}[MODE]()
    if dist.is_initialized():
        dist.destroy_process_group()
    print(f"{MODE} is well", flush=True)
