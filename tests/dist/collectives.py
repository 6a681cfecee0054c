"""Every collective of torch.distributed on tensors of the device, against what it must give."""

from __future__ import annotations

import os
import sys

import dist_checks
import torch
import torch.distributed as dist

DEVICE = torch.accelerator.current_accelerator()
RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
BACKEND = sys.argv[1] if len(sys.argv) > 1 else None
DTYPES = [
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8,
    torch.int16, torch.int32, torch.int64, torch.bool, torch.complex64, torch.complex128,
]  # fmt: skip
MOVED = [*DTYPES, torch.uint16, torch.float8_e5m2, torch.complex32]
Op = dist.ReduceOp


def host_of(rank, dtype=torch.float32, n=7):
    """What `rank` brings: small whole numbers, exact in every dtype."""
    numbers = torch.arange(n) % 3 + rank + 1
    if dtype == torch.bool:
        return (torch.arange(n) + rank) % 2 == 0
    if dtype.is_complex:
        return torch.complex(numbers.float(), -numbers.float() - 1).to(dtype)
    return numbers.float().to(dtype)


def mine(dtype=torch.float32, n=7):
    return host_of(RANK, dtype, n).to(DEVICE)


def all_of(dtype=torch.float32, n=7):
    return [host_of(r, dtype, n) for r in range(SIZE)]


def same(actual, expected):
    assert actual.device.type == DEVICE.type, actual.device
    assert actual.dtype == expected.dtype and actual.shape == expected.shape
    a, b = actual.cpu().contiguous(), expected.contiguous()
    assert torch.equal(a.view(torch.uint8), b.view(torch.uint8)), (
        f"{actual.cpu()} is not {expected}"
    )


def reduced(op, dtype, n=7):
    parts = [
        p.to(torch.complex128 if dtype.is_complex else torch.float64) for p in all_of(dtype, n)
    ]
    stack = torch.stack(parts)
    if op == Op.SUM:
        return stack.sum(0).to(dtype)
    if op == Op.PRODUCT:
        return stack.prod(0).to(dtype)
    if op == Op.AVG:
        mean = stack.mean(0)
        whole = not (dtype.is_complex or dtype.is_floating_point)
        return (mean.trunc() if whole else mean).to(dtype)
    if op == Op.MIN:
        return stack.amin(0).to(dtype)
    if op == Op.MAX:
        return stack.amax(0).to(dtype)
    total = all_of(dtype, n)[0]
    for part in all_of(dtype, n)[1:]:
        total = {Op.BAND: total & part, Op.BOR: total | part, Op.BXOR: total ^ part}[op.op]
    return total


def ops_of(dtype):
    ops = [Op.SUM]
    if not dtype.is_complex:  # torch hands them on as pairs of real numbers
        ops += [Op.PRODUCT, Op.MIN, Op.MAX]
    if dtype != torch.bool:
        ops.append(Op.AVG)
    if not (dtype.is_complex or dtype.is_floating_point):
        ops += [Op.BAND, Op.BOR, Op.BXOR]
    return [Op(op) for op in ops]


def all_reduce_gives_every_operation_of_every_dtype():
    for dtype in DTYPES:
        for op in ops_of(dtype):
            t = mine(dtype)
            dist.all_reduce(t, op)
            same(t, reduced(op, dtype))


def all_reduce_of_large_and_strided_tensors():
    for n in (1 << 10, (1 << 20) + 3):
        t = mine(n=n)
        dist.all_reduce(t)
        same(t, reduced(Op.SUM, torch.float32, n))
    base = torch.zeros(6, 8, device=DEVICE)
    base[:, ::2] = RANK + 1.0
    dist.all_reduce(base[:, ::2])
    expected = torch.zeros(6, 8)
    expected[:, ::2] = sum(range(1, SIZE + 1))
    same(base, expected)
    image = (torch.ones(2, 3, 4, 4, device=DEVICE) * (RANK + 1)).to(
        memory_format=torch.channels_last
    )
    dist.all_reduce(image)
    same(image, torch.full((2, 3, 4, 4), float(sum(range(1, SIZE + 1)))))
    empty = torch.empty(0, device=DEVICE)
    dist.all_reduce(empty)


def all_reduce_in_order_with_work_on_the_device():
    t = mine(n=1 << 16)
    for _ in range(5):
        t.mul_(2)
        dist.all_reduce(t)
        t.div_(2 * SIZE)
    expected = torch.stack(all_of(n=1 << 16)).mean(0)
    torch.testing.assert_close(t.cpu(), expected)


def premultiplied_sum():
    factor = 0.5
    t = mine()
    dist.all_reduce(t, dist._make_nccl_premul_sum(factor))
    same(t, sum(p * factor for p in all_of()))


def meaningless_reductions_are_refused():
    for op, dtype in ((Op.BAND, torch.float32), (Op.MAX, torch.complex64), (Op.AVG, torch.bool)):
        try:
            dist.all_reduce(mine(dtype), op)
        except (RuntimeError, ValueError) as error:
            assert "ReduceOp" in str(error) or "complex" in str(error), error
        else:
            raise AssertionError(f"{op} of {dtype} was taken")


def broadcast_and_reduce_from_and_to_each_rank():
    for dtype in MOVED:
        for root in range(SIZE):
            t = mine(dtype)
            dist.broadcast(t, root)
            same(t, host_of(root, dtype))
    for dtype in (torch.float32, torch.bool, torch.int16, torch.complex64):
        for root in range(SIZE):
            t = mine(dtype)
            dist.reduce(t, root, Op.SUM)
            same(t, reduced(Op.SUM, dtype) if root == RANK else host_of(RANK, dtype))


def all_gather_in_all_forms():
    for dtype in MOVED:
        places = [torch.empty(7, dtype=dtype, device=DEVICE) for _ in range(SIZE)]
        dist.all_gather(places, mine(dtype))
        for place, expected in zip(places, all_of(dtype), strict=True):
            same(place, expected)
        whole = torch.empty(7 * SIZE, dtype=dtype, device=DEVICE)
        dist.all_gather_into_tensor(whole, mine(dtype))
        same(whole, torch.cat([p.view(torch.uint8) for p in all_of(dtype)]).view(dtype))
    uneven = [torch.empty(r + 1, device=DEVICE) for r in range(SIZE)]
    dist.all_gather(uneven, torch.full((RANK + 1,), float(RANK), device=DEVICE))
    for r, place in enumerate(uneven):
        same(place, torch.full((r + 1,), float(r)))


def gather_and_scatter():
    for root in range(SIZE):
        places = [torch.empty(7, device=DEVICE) for _ in range(SIZE)] if root == RANK else None
        dist.gather(mine(), places, root)
        for r, place in enumerate(places or ()):
            same(place, host_of(r))
        parts = [p.to(DEVICE) for p in all_of()] if root == RANK else None
        out = torch.empty(7, device=DEVICE)
        dist.scatter(out, parts, root)
        same(out, host_of(RANK))


def reduce_scatter_in_all_forms():
    for dtype in DTYPES:
        for op in ops_of(dtype):
            n = 4 * SIZE
            out = torch.empty(4, dtype=dtype, device=DEVICE)
            dist.reduce_scatter_tensor(out, mine(dtype, n), op)
            expected = reduced(op, dtype, n).view(SIZE, 4)[RANK]
            same(out, expected)
            dist.reduce_scatter(out.zero_(), list(mine(dtype, n).chunk(SIZE)), op)
            same(out, expected)
    parts = [torch.full((r + 1,), RANK + 1.0, device=DEVICE) for r in range(SIZE)]
    out = torch.empty(RANK + 1, device=DEVICE)
    dist.reduce_scatter(out, parts)
    same(out, torch.full((RANK + 1,), float(sum(range(1, SIZE + 1)))))


def all_to_all_in_all_forms():
    out = torch.empty(3 * SIZE, device=DEVICE)
    send = torch.arange(3.0 * SIZE) + 100 * RANK
    dist.all_to_all_single(out, send.to(DEVICE))
    expected = [torch.arange(3.0 * RANK, 3.0 * RANK + 3) + 100 * r for r in range(SIZE)]
    same(out, torch.cat(expected))
    # This rank sends r + 1 rows to rank r, and so gets RANK + 1 rows from each.
    ins = [r + 1 for r in range(SIZE)]
    outs = [RANK + 1] * SIZE
    rows = torch.full((sum(ins), 2), float(RANK), dtype=torch.bfloat16, device=DEVICE)
    got = torch.empty(sum(outs), 2, dtype=torch.bfloat16, device=DEVICE)
    dist.all_to_all_single(got, rows, outs, ins)
    same(got, torch.arange(SIZE).repeat_interleave(RANK + 1)[:, None].expand(-1, 2).bfloat16())
    parts = [torch.full((r + 1, 2), RANK, device=DEVICE) for r in range(SIZE)]
    places = [torch.empty(RANK + 1, 2, dtype=torch.int64, device=DEVICE) for _ in range(SIZE)]
    dist.all_to_all(places, parts)
    for r, place in enumerate(places):
        same(place, torch.full((RANK + 1, 2), r))


def point_to_point():
    peer = RANK ^ 1
    for dtype in MOVED:
        t, got = mine(dtype), torch.empty(7, dtype=dtype, device=DEVICE)
        if RANK % 2 == 0:
            dist.send(t, peer)
            dist.recv(got, peer)
        else:
            dist.recv(got, peer)
            dist.send(t, peer)
        same(got, host_of(peer, dtype))
    got = torch.empty(7, device=DEVICE)
    batch = [dist.P2POp(dist.irecv, got, peer), dist.P2POp(dist.isend, mine(), peer)]
    for work in dist.batch_isend_irecv(batch):
        work.wait()
    same(got, host_of(peer))
    if BACKEND is not None and "native" in BACKEND:
        return
    if RANK == 0:
        assert dist.recv(got) == 1
        same(got, host_of(1))
    elif RANK == 1:
        dist.send(mine(), 0)


def a_rank_sends_to_itself():
    got = [torch.empty(7, device=DEVICE) for _ in range(2)]
    send, take = (dist.P2POp(dist.isend, mine(), RANK) for _ in range(2)), []
    take += [dist.P2POp(dist.irecv, got[0], RANK), *send, dist.P2POp(dist.irecv, got[1], RANK)]
    for work in dist.batch_isend_irecv(take):  # received before it is sent, and after
        work.wait()
    same(got[0], host_of(RANK))
    same(got[1], host_of(RANK))


def tensors_without_elements():
    none = torch.empty(0, 3, device=DEVICE)
    places = [torch.empty(0, 3, device=DEVICE) for _ in range(SIZE)]
    dist.broadcast(none, 0)
    dist.reduce(none, 0)
    dist.all_gather(places, none)
    dist.all_gather_into_tensor(none, none)
    dist.reduce_scatter_tensor(none, none)
    dist.all_to_all_single(none, none)
    dist.all_to_all(places, [none.clone() for _ in range(SIZE)])
    dist.gather(none, places if RANK == 0 else None, 0)
    dist.scatter(none, places if RANK == 0 else None, 0)
    # Nothing to rank 0, one to rank 1, and so on.
    out = torch.empty(RANK * SIZE, device=DEVICE)
    dist.all_to_all_single(out, mine(n=sum(range(SIZE))), [RANK] * SIZE, list(range(SIZE)))
    assert out.shape == (RANK * SIZE,)


def sums_of_narrow_dtypes():
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2, torch.uint16, torch.uint32, torch.uint64):
        t = torch.ones(5, device=DEVICE, dtype=dtype)
        dist.all_reduce(t)
        same(t, torch.full((5,), float(SIZE)).to(dtype))


def gradients_go_through_collectives():
    import torch.distributed._functional_collectives as funcol

    world = dist.group.WORLD

    def gradient(call, n=4):
        x = mine(n=n).requires_grad_()
        out = call(x)
        funcol.wait_tensor(out).sum().backward()
        return x.grad

    same(gradient(lambda x: funcol.all_gather_tensor_autograd(x, 0, world)), torch.full((4,), float(SIZE)))
    n = 2 * SIZE
    same(gradient(lambda x: funcol.reduce_scatter_tensor_autograd(x, "sum", 0, world), n), torch.ones(n))
    same(gradient(lambda x: funcol.all_to_all_single_autograd(x, None, None, world), n), torch.ones(n))
    import torch.distributed.nn.functional as older

    same(gradient(older.all_reduce), torch.full((4,), float(SIZE)))
    same(gradient(lambda x: older.broadcast(x, 0)), torch.full((4,), float(SIZE) * (RANK == 0)))
    same(gradient(lambda x: older.all_to_all_single(torch.empty_like(x), x), n), torch.ones(n))


def receive_posted_before_its_send():
    peer = RANK ^ 1
    got = torch.empty(1 << 16, device=DEVICE)
    waiting = [dist.irecv(got, peer), dist.isend(mine(n=1 << 16), peer)]
    for work in reversed(waiting):
        work.wait()
    same(got, host_of(peer, n=1 << 16))


def coalesced():
    group = dist.group.WORLD
    ts = [mine(n=n) for n in (3, 5, 1000)]
    with dist._coalescing_manager(device=DEVICE, async_ops=True) as manager:
        for t in ts:
            dist.all_reduce(t)
    manager.wait()
    for t in ts:
        same(t, reduced(Op.SUM, torch.float32, t.numel()))
    ins = [mine(n=n) for n in (4, 6)]
    outs = [torch.empty(n * SIZE, device=DEVICE) for n in (4, 6)]
    with dist._coalescing_manager(device=DEVICE):
        for o, i in zip(outs, ins, strict=True):
            dist.all_gather_into_tensor(o, i)
    for o, n in zip(outs, (4, 6), strict=True):
        same(o, torch.cat(all_of(n=n)))
    ins = [mine(n=n * SIZE) for n in (4, 6)]
    outs = [torch.empty(n, device=DEVICE) for n in (4, 6)]
    with dist._coalescing_manager(device=DEVICE):
        for o, i in zip(outs, ins, strict=True):
            dist.reduce_scatter_tensor(o, i)
    for o, n in zip(outs, (4, 6), strict=True):
        same(o, reduced(Op.SUM, torch.float32, n * SIZE).view(SIZE, n)[RANK])
    work = group.allreduce_coalesced(ts)
    work.wait()


def sparse_all_reduce():
    index = torch.tensor([[RANK, SIZE]])
    t = torch.sparse_coo_tensor(index, torch.ones(2, 3), (SIZE + 1, 3), device=DEVICE)
    dist.all_reduce(t)
    expected = torch.ones(SIZE + 1, 3)
    expected[SIZE] = SIZE
    assert t.is_sparse and t.device.type == DEVICE.type
    torch.testing.assert_close(t.to_dense().cpu(), expected)


def barriers():
    dist.barrier()
    dist.barrier(async_op=True).wait()
    dist.group.WORLD.monitored_barrier()


def tensors_of_the_cpu_in_the_same_group():
    t = host_of(RANK)
    dist.all_reduce(t)
    assert t.device.type == "cpu" and torch.equal(t, reduced(Op.SUM, torch.float32))
    places = [torch.empty(7) for _ in range(SIZE)]
    dist.all_gather(places, host_of(RANK))
    assert torch.equal(torch.stack(places), torch.stack(all_of()))
    outs = [torch.empty(r + 1) for _ in range(SIZE) for r in [RANK]]
    dist.all_to_all(outs, [torch.full((r + 1,), float(RANK)) for r in range(SIZE)])
    assert all(torch.equal(o, torch.full((RANK + 1,), float(r))) for r, o in enumerate(outs))


def objects():
    got = [None] * SIZE
    dist.all_gather_object(got, {"rank": RANK, "tensor": mine()})
    assert [g["rank"] for g in got] == list(range(SIZE))
    box = [["from", 0] if RANK == 0 else None]
    dist.broadcast_object_list(box, 0)
    assert box == [["from", 0]]
    out = [None]
    dist.scatter_object_list(out, list(range(SIZE)) if RANK == 0 else None, 0)
    assert out == [RANK]


def groups_of_some_ranks():
    alone = [dist.new_group([r]) for r in range(SIZE)]
    t = mine()
    dist.all_reduce(t, group=alone[RANK])
    same(t, host_of(RANK))
    turned = dist.new_group(list(range(SIZE)))
    dist.all_reduce(t, group=turned)
    same(t, reduced(Op.SUM, torch.float32))
    only = dist.new_group(backend="gloo")
    dist.monitored_barrier(only)


def work_is_real():
    t = mine(n=1 << 18)
    work = dist.all_reduce(t, async_op=True)
    values = []
    future = work.get_future().then(lambda f: values.append(f.value()[0].sum().item()) or 3)
    assert work.wait() and work.is_success()
    torch.accelerator.synchronize()  # a wait is the stream's, as NCCL's
    assert work.is_completed()
    assert future.wait() == 3
    same(t, reduced(Op.SUM, torch.float32, 1 << 18))
    assert values == [t.sum().item()]
    assert work.result()[0].data_ptr() == t.data_ptr()
    # As NCCL's, which hooks of DistributedDataParallel index by the rank.
    places = [torch.empty(7, device=DEVICE) for _ in range(SIZE)]
    (stacked,) = dist.all_gather(places, mine(), async_op=True).get_future().wait()
    same(stacked, torch.stack(all_of()))
    several = [dist.all_reduce(mine(), async_op=True) for _ in range(40)]
    for work in reversed(several):
        work.wait()


def functional_collectives():
    import torch.distributed._functional_collectives as funcol

    out = funcol.all_reduce(mine(), "sum", dist.group.WORLD)
    same(funcol.wait_tensor(out), reduced(Op.SUM, torch.float32))
    out = funcol.all_gather_tensor(mine(), 0, dist.group.WORLD)
    same(funcol.wait_tensor(out), torch.cat(all_of()))
    out = funcol.reduce_scatter_tensor(mine(n=4 * SIZE), "avg", 0, dist.group.WORLD)
    same(funcol.wait_tensor(out), reduced(Op.AVG, torch.float32, 4 * SIZE).view(SIZE, 4)[RANK])


def streams_of_the_callers_choice():
    t = mine(n=1 << 16)
    side = torch.Stream(DEVICE)
    side.wait_stream(torch.accelerator.current_stream())
    with side:
        t.add_(1)
        work = dist.all_reduce(t, async_op=True)
        work.wait()
        t.sub_(SIZE)
    torch.accelerator.current_stream().wait_stream(side)
    same(t, reduced(Op.SUM, torch.float32, 1 << 16))


def misuse_has_words():
    for call, words in (
        (lambda: dist.all_gather([mine()], mine()), "one for each rank"),
        (lambda: dist.all_gather_into_tensor(mine(), mine()), "the output needs"),
        (lambda: dist.reduce_scatter_tensor(mine(), mine()), "the input needs"),
        (lambda: dist.all_reduce(mine(n=1).expand(5)), "elements share memory"),
    ):
        try:
            call()
        except (RuntimeError, ValueError) as error:
            assert words in str(error) or "Invalid" in str(error), error
        else:
            raise AssertionError(f"{words}: taken")
    dist.all_reduce(mine())  # the group is none the worse for it


CHECKS = [
    value
    for name, value in list(globals().items())
    if callable(value) and getattr(value, "__module__", "") == "__main__"
    and name not in ("host_of", "mine", "all_of", "same", "reduced", "ops_of")
]  # fmt: skip

if __name__ == "__main__":
    dist_checks.run(CHECKS, BACKEND)
