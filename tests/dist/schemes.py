"""Schemes of training that fewer programs choose than those of training.py, each against one process."""

from __future__ import annotations

import copy
import functools
import os
import warnings

import dist_checks
import torch
import torch.distributed as dist
import training
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from training import DEVICE, RANK, SIZE, close, here, mesh, model, plain, reference, train

PLACE = torch.device(DEVICE.type, RANK % torch.accelerator.device_count())
SGD = functools.partial(torch.optim.SGD, lr=0.05)

warnings.filterwarnings("ignore", message=".*deprecated.*")
warnings.filterwarnings("ignore", category=FutureWarning)


def steps(net, optim, count=3):
    for step in range(count):
        x, y = here(step)
        optim.zero_grad()
        nn.functional.mse_loss(net(x), y).backward()
        optim.step()


def plainly(name, tolerance=1e-4):
    """That a module has what one process gets by SGD."""
    return functools.partial(close, expected=reference(optimizer="SGD"), rtol=tolerance, atol=tolerance)(name)


def alike(t):
    first = t.clone()
    dist.broadcast(first, 0)
    torch.testing.assert_close(t, first)


# --- DistributedDataParallel ----------------------------------------------------------------------


def hooks_that_quantize_or_cast():
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, quantization_hooks

    def bf16(state, bucket):  # the hook itself is refused by its name
        return default_hooks.bf16_compress_hook(state, bucket)

    hooks = [
        (quantization_hooks.quantization_pertensor_hook, 0.2),
        (quantization_hooks.quantization_perchannel_hook, 0.2),
        (bf16, 0.05),
    ]
    for hook, tolerance in hooks:
        net = DDP(model().to(DEVICE))
        net.register_comm_hook(dist.group.WORLD, hook)
        steps(net, SGD(net.parameters()))
        plainly(plain(net), tolerance)
    for kind in (dist.BuiltinCommHookType.ALLREDUCE, dist.BuiltinCommHookType.FP16_COMPRESS):
        net = DDP(model().to(DEVICE))
        net._register_builtin_comm_hook(kind)
        steps(net, SGD(net.parameters()))
        plainly(plain(net), 0.05)


def optimizers_that_step_in_the_backward_pass():
    from torch.distributed.optim import _apply_optimizer_in_backward

    net = model().to(DEVICE)
    _apply_optimizer_in_backward(torch.optim.SGD, net.parameters(), {"lr": 0.05})
    net = DDP(net)
    for step in range(3):
        x, y = here(step)
        nn.functional.mse_loss(net(x), y).backward()
    plainly(plain(net))


def local_sgd_averages_now_and_then():
    from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import (
        PostLocalSGDState,
        post_localSGD_hook,
    )
    from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
    from torch.distributed.optim import PostLocalSGDOptimizer

    net = DDP(model().to(DEVICE))
    alone, _ = dist.new_subgroups(1)
    net.register_comm_hook(PostLocalSGDState(None, alone, start_localSGD_iter=2), post_localSGD_hook)
    steps(net, PostLocalSGDOptimizer(SGD(net.parameters()), PeriodicModelAverager(2, warmup_steps=1)), 4)
    alike(torch.cat([p.detach().flatten() for p in net.parameters()]))


def zero_steps_in_hooks_and_joins():
    from torch.distributed.algorithms.ddp_comm_hooks.ddp_zero_hook import hook_with_zero_step
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
    from torch.distributed.algorithms.join import Join
    from torch.distributed.optim import ZeroRedundancyOptimizer

    net = DDP(model().to(DEVICE))
    optim = ZeroRedundancyOptimizer(net.parameters(), torch.optim.SGD, lr=0.05)
    with Join([net, optim]):
        steps(net, optim, 2 + RANK)
    alike(torch.cat([p.detach().flatten() for p in net.parameters()]))
    optim.consolidate_state_dict(0)
    net = DDP(model().to(DEVICE))
    optim = ZeroRedundancyOptimizer(
        net.parameters(), torch.optim.SGD, lr=0.05, overlap_with_ddp=True
    )
    net.register_comm_hook(None, hook_with_zero_step(allreduce_hook, net, optim))
    for step in range(5):
        x, y = here(step)
        net.zero_grad()
        nn.functional.mse_loss(net(x), y).backward()
    alike(torch.cat([p.detach().flatten() for p in net.parameters()]))


class Checkpointed(nn.Module):
    def __init__(self, reentrant):
        super().__init__()
        self.net, self.reentrant = model(), reentrant

    def forward(self, x):
        from torch.utils.checkpoint import checkpoint

        return checkpoint(self.net, x.requires_grad_(), use_reentrant=self.reentrant)


def checkpointed_activations():
    for reentrant, static in ((True, True), (False, False), (False, True)):
        net = DDP(Checkpointed(reentrant).to(DEVICE), static_graph=static)
        steps(net, SGD(net.parameters()))
        plainly({k.removeprefix("module.net."): v for k, v in net.state_dict().items()})


def the_log_has_the_times_of_a_step():
    net = DDP(model().to(DEVICE))
    net._set_ddp_runtime_logging_sample_rate(1)
    steps(net, SGD(net.parameters()))
    log = net._get_ddp_logging_data()
    for part in ("forward_compute", "backward_compute", "backward_comm"):
        assert log[f"avg_{part}_time"] > 0, log


def an_overflow_on_one_rank_is_one_on_all():
    from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision
    from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

    half = MixedPrecision(param_dtype=torch.float16, reduce_dtype=torch.float16)
    for net, scaler in (
        (DDP(model().to(DEVICE)), torch.amp.GradScaler(DEVICE.type, init_scale=8.0)),
        (
            FullyShardedDataParallel(model().to(DEVICE), mixed_precision=half, device_id=PLACE),
            ShardedGradScaler(DEVICE.type, init_scale=8.0),
        ),
    ):
        optim, scales = SGD(net.parameters()), []
        for spoilt in (True, False):
            before = [p.detach().clone() for p in net.parameters()]
            x, y = here(0)
            x = x * float("inf") if spoilt and RANK == SIZE - 1 else x
            optim.zero_grad()
            with torch.autocast(DEVICE.type, torch.float16):
                loss = nn.functional.mse_loss(net(x).float(), y)
            scaler.scale(loss).backward()
            scaler.step(optim)
            scaler.update()
            scales.append(scaler.get_scale())
            kept = all(map(torch.equal, before, net.parameters()))
            assert kept == spoilt
        assert scales == [4.0, 4.0], scales


# --- FSDP, DTensor, pipelines ---------------------------------------------------------------------


def fsdp1_in_its_strategies():
    from torch.distributed.fsdp import CPUOffload, ShardingStrategy, StateDictType
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
    from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy

    policy = functools.partial(size_based_auto_wrap_policy, min_num_params=50)
    for options in (
        {"sharding_strategy": ShardingStrategy.SHARD_GRAD_OP},
        {"sharding_strategy": ShardingStrategy.NO_SHARD},
        {"cpu_offload": CPUOffload(True)},
        {"use_orig_params": True},
    ):
        net = model() if "cpu_offload" in options else model().to(DEVICE)
        net = FSDP(net, auto_wrap_policy=policy, device_id=PLACE, **options)
        optim = SGD(net.parameters(), momentum=0.1)
        steps(net, optim, 1)
        net.clip_grad_norm_(100.0)
        with FSDP.state_dict_type(net, StateDictType.FULL_STATE_DICT):
            plain_state = net.state_dict()
        expected = model()
        own = SGD(expected.parameters(), momentum=0.1)
        x, y = training.batch(0)
        nn.functional.mse_loss(expected(x), y).backward()
        own.step()
        close(plain_state, expected.state_dict())
    with FSDP.state_dict_type(net, StateDictType.SHARDED_STATE_DICT):
        whole = FSDP.optim_state_dict(net, optim)
        net.load_state_dict(net.state_dict())
        optim.load_state_dict(FSDP.optim_state_dict_to_load(net, optim, whole))


def attention():
    torch.manual_seed(0)
    parts = [torch.randn(4, 4, 8, 8, requires_grad=True) for _ in range(3)]
    out = nn.functional.scaled_dot_product_attention(*parts, is_causal=True)
    out.square().sum().backward()
    return parts, out.detach()


def dtensors_of_attention():
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    m = mesh(SIZE, names=("x",))
    parts, expected = attention()
    for placement in (Shard(1), Shard(0), Replicate()):
        ours = [distribute_tensor(p.detach().to(DEVICE), m, [placement]) for p in parts]
        for t in ours:
            t.requires_grad_()
        out = nn.functional.scaled_dot_product_attention(*ours, is_causal=True)
        assert out.placements == (placement,)
        torch.testing.assert_close(out.full_tensor().detach().cpu(), expected)
        out.square().sum().backward()
        for t, p in zip(ours, parts, strict=True):
            torch.testing.assert_close(t.grad.full_tensor().cpu(), p.grad)
    heads = [distribute_tensor(p.detach().to(DEVICE), m, [Shard(1)]) for p in parts]
    for shape, of_mask in (((8, 8), Replicate()), ((4, 1, 8, 8), Replicate()), ((4, 4, 8, 8), Shard(1))):
        mask = torch.randn(shape)
        out = nn.functional.scaled_dot_product_attention(
            *heads, distribute_tensor(mask.to(DEVICE), m, [of_mask])
        )
        assert out.placements == (Shard(1),), out.placements
        wanted = nn.functional.scaled_dot_product_attention(*(p.detach() for p in parts), mask)
        torch.testing.assert_close(out.full_tensor().cpu(), wanted)


def a_sequence_over_ranks_in_context_parallel():
    from torch.distributed.tensor.experimental import context_parallel
    from torch.distributed.tensor.experimental._attention import context_parallel_unshard

    parts, expected = attention()
    m = mesh(SIZE, names=("x",))
    ours = [p.detach().clone().to(DEVICE) for p in parts]
    with context_parallel(m, buffers=ours, buffer_seq_dims=[2, 2, 2]):
        assert ours[0].shape[2] == 8 // SIZE
        for t in ours:
            t.requires_grad_()
        out = nn.functional.scaled_dot_product_attention(*ours, is_causal=True)
        out.square().sum().backward()
        wholes = context_parallel_unshard(m, [out.detach(), *(t.grad for t in ours)], [2] * 4)
        for t in ours:
            t.requires_grad_(False)
    for whole, wanted in zip(wholes, [expected, *(p.grad for p in parts)], strict=True):
        torch.testing.assert_close(whole.cpu(), wanted)


def random_numbers_of_dtensors():
    from torch.distributed.tensor import Replicate, Shard, randn

    m = mesh(SIZE, names=("x",))
    torch.manual_seed(3)
    parts = randn(4 * SIZE, 4, device_mesh=m, placements=[Shard(0)]).full_tensor()
    assert not torch.equal(*parts.chunk(SIZE)[:2])  # a part is not a copy of another
    alike(randn(4, 4, device_mesh=m, placements=[Replicate()]).to_local())
    alike(torch.randn(4, device=DEVICE))  # and the generators go on together


def pipelines_with_several_stages_a_rank():
    from torch.distributed import pipelining

    if SIZE != 2:
        return
    torch.manual_seed(5)
    whole = nn.Sequential(*(nn.Sequential(nn.Linear(6, 6), nn.Tanh()) for _ in range(4)))
    x, y = torch.randn(8, 6), torch.randn(8, 6)
    ours = copy.deepcopy(whole)
    nn.functional.mse_loss(whole(x), y).backward()
    loop, turn = [RANK, RANK + 2], [RANK, 3 - RANK]
    for schedule, mine in (
        (pipelining.ScheduleInterleaved1F1B, loop),
        (pipelining.ScheduleLoopedBFS, loop),
        (pipelining.ScheduleInterleavedZeroBubble, loop),
        (pipelining.ScheduleZBVZeroBubble, turn),
        (pipelining.ScheduleDualPipeV, turn),
    ):
        net = copy.deepcopy(ours).to(PLACE)
        stages = [pipelining.PipelineStage(net[i], i, 4, PLACE) for i in mine]
        run = schedule(stages, n_microbatches=4, loss_fn=nn.functional.mse_loss)
        inputs = [x.to(PLACE)] if 0 in mine else []
        run.step(*inputs, **({"target": y.to(PLACE)} if 3 in mine else {}))
        for i in mine:
            for p, q in zip(net[i].parameters(), whole[i].parameters(), strict=True):
                torch.testing.assert_close(p.grad.cpu(), q.grad, rtol=1e-3, atol=1e-5)


CHECKS = [
    hooks_that_quantize_or_cast,
    optimizers_that_step_in_the_backward_pass,
    local_sgd_averages_now_and_then,
    zero_steps_in_hooks_and_joins,
    checkpointed_activations,
    the_log_has_the_times_of_a_step,
    an_overflow_on_one_rank_is_one_on_all,
    fsdp1_in_its_strategies,
    dtensors_of_attention,
    a_sequence_over_ranks_in_context_parallel,
    random_numbers_of_dtensors,
    pipelines_with_several_stages_a_rank,
]

if __name__ == "__main__":
    only = os.environ.get("ONLY")
    dist_checks.run([c for c in CHECKS if not only or c.__name__ in only.split(",")])
