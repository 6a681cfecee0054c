"""Training over processes on the device: the same numbers as one process gets from all the data."""

from __future__ import annotations

import contextlib
import copy
import functools
import os
import tempfile
import warnings
from pathlib import Path

import dist_checks
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

DEVICE = torch.accelerator.current_accelerator()
RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
BATCH = 4  # of each rank

warnings.filterwarnings("ignore", message=".*deprecated.*")


def model(norm=False):
    torch.manual_seed(0)
    layers = [nn.Linear(6, 12), nn.BatchNorm1d(12) if norm else nn.Identity(), nn.Tanh()]
    return nn.Sequential(*layers, nn.Linear(12, 12), nn.ReLU(), nn.Linear(12, 3))


def batch(step, rank=None):
    """Of one rank, or of all, on the CPU."""
    g = torch.Generator().manual_seed(step)
    x, y = torch.randn(SIZE * BATCH, 6, generator=g), torch.randn(SIZE * BATCH, 3, generator=g)
    if rank is None:
        return x, y
    return x[rank * BATCH : (rank + 1) * BATCH], y[rank * BATCH : (rank + 1) * BATCH]


def here(step):
    return tuple(t.to(DEVICE) for t in batch(step, RANK))


@functools.cache
def reference(norm=False, steps=3, optimizer="Adam", place="cpu"):
    """Parameters after training in one process, on all the data."""
    net = model(norm).to(place)
    optim = getattr(torch.optim, optimizer)(net.parameters(), lr=0.05)
    for step in range(steps):
        x, y = batch(step)
        optim.zero_grad()
        nn.functional.mse_loss(net(x.to(place)), y.to(place)).backward()
        optim.step()
    return {k: v.detach().cpu() for k, v in net.state_dict().items()}


def train(net, steps=3, optimizer="Adam", first=0):
    optim = getattr(torch.optim, optimizer)(net.parameters(), lr=0.05)
    for step in range(first, first + steps):
        x, y = here(step)
        optim.zero_grad()
        nn.functional.mse_loss(net(x), y).backward()
        optim.step()
    return optim


def close(state, expected, **tolerance):
    assert state.keys() == expected.keys(), (state.keys(), expected.keys())
    for name, value in expected.items():
        got = state[name]
        got = got.full_tensor() if hasattr(got, "full_tensor") else got
        torch.testing.assert_close(
            got.detach().cpu(), value, **(tolerance or {"rtol": 1e-4, "atol": 1e-5})
        )


def plain(net):
    return {k.removeprefix("module."): v for k, v in net.state_dict().items()}


# --- DistributedDataParallel ----------------------------------------------------------------------


def ddp_trains_as_one_process():
    for options in (
        {},
        {"bucket_cap_mb": 0.0001},
        {"gradient_as_bucket_view": True},
        {"static_graph": True},
        {"find_unused_parameters": True},
        {"device_ids": [torch.accelerator.current_device_index()]},
    ):
        net = DDP(model().to(DEVICE), **options)
        train(net)
        close(plain(net), reference())


def ddp_accumulates_with_no_sync():
    net, alone = DDP(model().to(DEVICE)), model()
    for step in range(3):
        with net.no_sync() if step < 2 else contextlib.nullcontext():
            x, y = here(step)
            nn.functional.mse_loss(net(x), y).backward()
        x, y = batch(step)
        nn.functional.mse_loss(alone(x), y).backward()
    for p, q in zip(net.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(p.grad.cpu(), q.grad, rtol=1e-4, atol=1e-5)


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.used, self.other = nn.Linear(6, 3), nn.Linear(6, 3)

    def forward(self, x, other=False):
        return self.other(x) if other else self.used(x)


def ddp_finds_unused_parameters():
    net = DDP(Branches().to(DEVICE), find_unused_parameters=True)
    x, y = here(0)
    nn.functional.mse_loss(net(x, other=RANK == 1), y).backward()
    alone = Branches()
    losses = [
        nn.functional.mse_loss(alone(batch(0, r)[0], other=r == 1), batch(0, r)[1])
        for r in range(SIZE)
    ]
    (sum(losses) / SIZE).backward()
    for p, q in zip(net.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(p.grad.cpu(), q.grad, rtol=1e-4, atol=1e-5)


def ddp_takes_hooks_of_communication():
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    default = default_hooks
    for hook in (default.allreduce_hook, default.fp16_compress_hook, default.bf16_compress_hook):
        net = DDP(model().to(DEVICE))
        net.register_comm_hook(None, hook)
        train(net, optimizer="SGD")
        close(plain(net), reference(optimizer="SGD"), rtol=2e-2, atol=2e-2)
    net = DDP(model().to(DEVICE))
    state = powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=2)
    net.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    train(net, steps=4, optimizer="SGD")
    assert all(p.isfinite().all() for p in net.parameters())

    def own(_, bucket):
        work = dist.all_reduce(bucket.buffer(), async_op=True)
        return work.get_future().then(lambda f: f.value()[0].div_(SIZE))

    net = DDP(model().to(DEVICE))
    net.register_comm_hook(None, own)
    train(net)
    close(plain(net), reference())


def ddp_under_autocast_and_with_a_scaler():
    net = DDP(model().to(DEVICE))
    optim = torch.optim.SGD(net.parameters(), lr=0.05)
    scaler = torch.amp.GradScaler(DEVICE.type)
    for step in range(3):
        x, y = here(step)
        optim.zero_grad()
        with torch.autocast(DEVICE.type, torch.float16):
            loss = nn.functional.mse_loss(net(x), y)
        scaler.scale(loss).backward()
        scaler.step(optim)
        scaler.update()
    close(plain(net), reference(optimizer="SGD"), rtol=5e-2, atol=5e-2)


def ddp_of_sparse_gradients():
    torch.manual_seed(0)
    alone = nn.Embedding(5, 3, sparse=True)
    net = DDP(copy.deepcopy(alone).to(DEVICE))
    index = [torch.tensor([0, 1, 1]), torch.tensor([1, 4, 4])]
    net(index[RANK % 2].to(DEVICE)).sum().backward()
    sum(alone(index[r % 2]).sum() / SIZE for r in range(SIZE)).backward()
    torch.testing.assert_close(
        net.module.weight.grad.to_dense().cpu(), alone.weight.grad.to_dense()
    )


def sync_batch_norm_sees_the_whole_batch():
    net = nn.SyncBatchNorm.convert_sync_batchnorm(model(norm=True)).to(DEVICE)
    net = DDP(net)
    train(net, optimizer="SGD")
    close(plain(net), reference(norm=True, optimizer="SGD"))


def zero_redundancy_optimizer():
    from torch.distributed.optim import ZeroRedundancyOptimizer

    def trained(make):
        net = DDP(model().to(DEVICE))
        optim = make(net.parameters())
        for step in range(10):
            x, y = here(step)
            optim.zero_grad()
            nn.functional.mse_loss(net(x), y).backward()
            optim.step()
        return plain(net)

    for kind in (torch.optim.Adam, torch.optim.AdamW):
        whole = trained(functools.partial(kind, lr=0.05))
        for options in ({}, {"parameters_as_bucket_view": True}):
            shared = trained(
                lambda p, kind=kind, options=options: ZeroRedundancyOptimizer(
                    p, kind, lr=0.05, **options
                )
            )
            # Each parameter is stepped on one rank and sent to the others: the same bits.
            assert all(torch.equal(shared[k], v) for k, v in whole.items()), kind
    close(trained(functools.partial(torch.optim.Adam, lr=0.05)), reference(steps=10))


def join_of_uneven_inputs():
    net = DDP(model().to(DEVICE))
    optim = torch.optim.SGD(net.parameters(), lr=0.05)
    with net.join():
        for step in range(2 + RANK):
            x, y = here(step)
            optim.zero_grad()
            nn.functional.mse_loss(net(x), y).backward()
            optim.step()
    t = torch.cat([p.detach().flatten() for p in net.parameters()])
    first = t.clone()
    dist.broadcast(first, 0)
    torch.testing.assert_close(t, first)


# --- FSDP2, DTensor and their kind -----------------------------------------------------------------


def mesh(*shape, names):
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh(DEVICE.type, shape, mesh_dim_names=names)


def shard(net, **options):
    from torch.distributed.fsdp import fully_shard

    for layer in net:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, **options)
    return fully_shard(net, **options)


def fsdp2_trains_as_one_process():
    net = shard(model().to(DEVICE), mesh=mesh(SIZE, names=("dp",)))
    train(net)
    close(net.state_dict(), reference())
    norm = nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    assert norm.full_tensor().isfinite()


def fsdp2_shards_within_and_replicates_across():
    net = shard(model().to(DEVICE), mesh=mesh(1, SIZE, names=("replicate", "shard")))
    train(net)
    close(net.state_dict(), reference())


def fsdp2_with_mixed_precision():
    from torch.distributed.fsdp import MixedPrecisionPolicy

    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    net = shard(model().to(DEVICE), mp_policy=policy)
    x, _ = here(0)
    assert net(x).dtype == torch.bfloat16
    train(net, optimizer="SGD")
    assert all(p.dtype == torch.float32 for p in net.parameters())
    close(net.state_dict(), reference(optimizer="SGD"), rtol=5e-2, atol=5e-2)
    policy = MixedPrecisionPolicy(param_dtype=torch.float16, reduce_dtype=torch.float16)
    net = shard(model().to(DEVICE), mp_policy=policy)
    train(net, optimizer="SGD")
    close(net.state_dict(), reference(optimizer="SGD"), rtol=5e-2, atol=5e-2)


def fsdp2_with_parameters_on_the_cpu():
    from torch.distributed.fsdp import CPUOffloadPolicy

    net = shard(model(), mesh=mesh(SIZE, names=("dp",)), offload_policy=CPUOffloadPolicy())
    train(net)
    assert all(p.device.type == "cpu" for p in net.parameters())
    close(net.state_dict(), reference())
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)


def fsdp1_trains_as_one_process():
    from torch.distributed.fsdp import FullyShardedDataParallel, StateDictType

    net = FullyShardedDataParallel(
        model().to(DEVICE), device_id=torch.accelerator.current_device_index()
    )
    train(net)
    with FullyShardedDataParallel.state_dict_type(net, StateDictType.FULL_STATE_DICT):
        close(net.state_dict(), reference())


def dtensor_computes_and_moves():
    from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor

    m = mesh(SIZE, names=("x",))
    a, b = torch.randn(8, 8, generator=torch.manual_seed(1)), torch.eye(8) * 2
    left, right = distribute_tensor(a, m, [Shard(0)]), distribute_tensor(b, m, [Replicate()])
    assert left.to_local().device.type == DEVICE.type
    torch.testing.assert_close((left @ right).full_tensor().cpu(), a @ b)
    columns = left.redistribute(m, [Shard(1)])
    assert columns.to_local().shape == (8, 8 // SIZE)
    torch.testing.assert_close(columns.full_tensor().cpu(), a)
    product = columns @ distribute_tensor(b, m, [Shard(0)])
    assert isinstance(product.placements[0], Partial)
    torch.testing.assert_close(product.redistribute(m, [Shard(0)]).full_tensor().cpu(), a @ b)
    torch.testing.assert_close(left.sum().full_tensor().cpu(), a.sum())


def tensor_parallel_computes_as_one_process():
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        SequenceParallel,
        loss_parallel,
        parallelize_module,
    )

    m = mesh(SIZE, names=("tp",))
    alone = model()
    plan = {"0": ColwiseParallel(), "3": RowwiseParallel()}
    net = parallelize_module(model().to(DEVICE), m, plan)
    x, y = batch(0)
    nn.functional.mse_loss(alone(x), y).backward()
    nn.functional.mse_loss(net(x.to(DEVICE)), y.to(DEVICE)).backward()
    for p, q in zip(net.parameters(), alone.parameters(), strict=True):
        grad = p.grad.full_tensor() if hasattr(p.grad, "full_tensor") else p.grad
        torch.testing.assert_close(grad.cpu(), q.grad, rtol=1e-4, atol=1e-5)
    norm = parallelize_module(nn.LayerNorm(6).to(DEVICE), m, SequenceParallel(sequence_dim=0))
    out = norm(batch(0, RANK)[0].to(DEVICE))
    torch.testing.assert_close(out.full_tensor().cpu(), nn.LayerNorm(6)(x))
    head = parallelize_module(
        nn.Linear(6, 8, bias=False).to(DEVICE), m, ColwiseParallel(use_local_output=False)
    )
    with loss_parallel():
        labels = torch.arange(len(x), device=DEVICE) % 8
        loss = nn.functional.cross_entropy(head(x.to(DEVICE)), labels)
        loss.backward()
    weight = head.weight.full_tensor().detach().cpu()
    torch.testing.assert_close(
        loss.full_tensor().detach().cpu(),
        nn.functional.cross_entropy(x @ weight.T, torch.arange(len(x)) % 8),
    )


def pipeline_schedules_compute_as_one_process():
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

    if SIZE != 2:
        return
    x, y = batch(0)
    x, y = torch.cat([x] * 2)[:8], torch.cat([y] * 2)[:8]
    alone = model()
    expected = alone(x)
    nn.functional.mse_loss(expected, y).backward()
    for schedule in (ScheduleGPipe, Schedule1F1B):
        whole = model()
        part = nn.Sequential(*(whole[:3] if RANK == 0 else whole[3:])).to(DEVICE)
        place = torch.device(DEVICE.type, torch.accelerator.current_device_index())
        stage = PipelineStage(part, RANK, 2, place)
        run = schedule(stage, n_microbatches=4, loss_fn=nn.functional.mse_loss)
        if RANK == 0:
            run.step(x.to(place))
        else:
            losses = []
            out = run.step(target=y.to(place), losses=losses)
            torch.testing.assert_close(out.cpu(), expected.detach(), rtol=1e-4, atol=1e-5)
        ours = alone[:3] if RANK == 0 else alone[3:]
        for p, q in zip(part.parameters(), ours.parameters(), strict=True):
            torch.testing.assert_close(p.grad.cpu(), q.grad, rtol=1e-4, atol=1e-5)


def device_mesh_has_groups():
    if SIZE % 2:
        return
    m = mesh(SIZE // 2, 2, names=("dp", "tp"))
    t = torch.ones(3, device=DEVICE) * RANK
    dist.all_reduce(t, group=m.get_group("tp"))
    assert t[0].item() == 2 * (RANK // 2 * 2) + 1
    assert m["dp"].size() == SIZE // 2


# --- checkpoints ------------------------------------------------------------------------------------


def checkpoint_folder():
    box = [tempfile.mkdtemp() if RANK == 0 else None]
    dist.broadcast_object_list(box, 0)
    return box[0]


def distributed_checkpoint_saves_and_loads():
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    folder = os.environ.get("CHECKPOINT") or checkpoint_folder()
    net = shard(model().to(DEVICE))
    if not Path(folder, ".metadata").exists():
        optim = train(net)
        state, optim_state = get_state_dict(net, optim)
        dcp.save({"model": state, "optim": optim_state}, checkpoint_id=folder)
    dist.barrier()
    other = shard(model().to(DEVICE))
    optim = torch.optim.Adam(other.parameters(), lr=0.05)
    state, optim_state = get_state_dict(other, optim)
    state = {"model": state, "optim": optim_state}
    dcp.load(state, checkpoint_id=folder)
    set_state_dict(other, optim, model_state_dict=state["model"], optim_state_dict=state["optim"])
    if "CHECKPOINT" not in os.environ:
        close(other.state_dict(), reference())
    for step in (3, 4):
        x, y = here(step)
        optim.zero_grad()
        nn.functional.mse_loss(other(x), y).backward()
        optim.step()
    if "CHECKPOINT" not in os.environ:
        close(other.state_dict(), reference(steps=5))


def compiled_ddp():
    net = DDP(model().to(DEVICE))
    train(torch.compile(net, backend="aot_eager"))
    close(plain(net), reference())


CHECKS = [
    ddp_trains_as_one_process,
    ddp_accumulates_with_no_sync,
    ddp_finds_unused_parameters,
    ddp_takes_hooks_of_communication,
    ddp_under_autocast_and_with_a_scaler,
    ddp_of_sparse_gradients,
    sync_batch_norm_sees_the_whole_batch,
    zero_redundancy_optimizer,
    join_of_uneven_inputs,
    fsdp2_trains_as_one_process,
    fsdp2_shards_within_and_replicates_across,
    fsdp2_with_mixed_precision,
    fsdp2_with_parameters_on_the_cpu,
    fsdp1_trains_as_one_process,
    dtensor_computes_and_moves,
    tensor_parallel_computes_as_one_process,
    pipeline_schedules_compute_as_one_process,
    device_mesh_has_groups,
    distributed_checkpoint_saves_and_loads,
    compiled_ddp,
]

if __name__ == "__main__":
    only = os.environ.get("ONLY")
    dist_checks.run([c for c in CHECKS if not only or c.__name__ in only.split(",")])
