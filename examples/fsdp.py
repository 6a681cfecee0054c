"""Shard a model over several devices: `torchrun --nproc-per-node 2 examples/fsdp.py`.

Stock torch: fully_shard (FSDP2) with mixed precision, and a checkpoint that each rank writes its
part of and that is read again as one. Exits with 1 where it is not what was saved.
"""

from __future__ import annotations

import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from torch import nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


def build(mesh: object) -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(*[nn.TransformerEncoderLayer(32, 4, 64, 0.0) for _ in range(2)])
    model.to(torch.accelerator.current_accelerator())
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model:
        fully_shard(layer, mesh=mesh, mp_policy=policy)  # type: ignore[call-overload]
    return fully_shard(model, mesh=mesh, mp_policy=policy)  # type: ignore[no-any-return, call-overload]


def main() -> int:
    index = int(os.environ["LOCAL_RANK"]) % torch.accelerator.device_count()
    torch.accelerator.set_device_index(index)
    place = torch.accelerator.current_accelerator()
    assert place is not None
    dist.init_process_group()
    mesh = init_device_mesh(place.type, (dist.get_world_size(),))

    model = build(mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    torch.manual_seed(dist.get_rank())
    x = torch.randn(10, 4, 32, device=place)
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = (model(x).float() - x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

    box = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(box)
    saved = get_model_state_dict(model)
    checkpoint.save(saved, checkpoint_id=box[0])
    again = get_model_state_dict(build(mesh))
    checkpoint.load(again, checkpoint_id=box[0])
    same = all(torch.equal(a.to_local(), saved[k].to_local()) for k, a in again.items())
    if dist.get_rank() == 0:
        print(f"loss {losses[0]:.4f}, then {losses[-1]:.4f}; checkpoint in {box[0]}")
    dist.destroy_process_group()
    return 0 if same and losses[-1] < losses[0] else 1


if __name__ == "__main__":
    sys.exit(main())
