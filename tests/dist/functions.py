"""Every public function of torch.distributed, on tensors of the device: it works, or refuses with
words. In a group that was made with device_id=, as `split_group` needs it.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from datetime import timedelta

import dist_checks
import torch
import torch.distributed as dist

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
PLACE = torch.device(
    torch.accelerator.current_accelerator().type, RANK % torch.accelerator.device_count()
)
PEER = RANK ^ 1
TOTAL = float(sum(range(1, SIZE + 1)))


def ours(n=4):
    return torch.full((n,), RANK + 1.0, device=PLACE)


def is_full(t, value):
    assert t.device == PLACE and torch.equal(t.cpu(), torch.full(t.shape, value)), t


def refuses(call, *words):
    try:
        call()
    except (RuntimeError, ValueError, TypeError) as error:
        assert any(w in str(error) for w in words), error
    else:
        raise AssertionError(f"{words}: taken")


def all_gather(gather=dist.all_gather):
    places = [torch.empty(4, device=PLACE) for _ in range(SIZE)]
    gather(places, ours())
    for r, place in enumerate(places):
        is_full(place, r + 1.0)


def all_gather_coalesced():
    places = [[torch.empty(n, device=PLACE) for n in (4, 6)] for _ in range(SIZE)]
    dist.all_gather_coalesced(places, [ours(4), ours(6)])
    for r, place in enumerate(places):
        is_full(place[1], r + 1.0)


def into_one(gather):
    whole = torch.empty(4 * SIZE, device=PLACE)
    gather(whole, ours())
    for r, place in enumerate(whole.chunk(SIZE)):
        is_full(place, r + 1.0)


def all_gather_object():
    got = [None] * SIZE
    dist.all_gather_object(got, RANK)
    assert got == list(range(SIZE))


def all_reduce():
    t = ours()
    dist.all_reduce(t)
    is_full(t, TOTAL)


def all_reduce_coalesced():
    ts = [ours(3), ours(5)]
    dist.all_reduce_coalesced(ts)
    is_full(ts[1], TOTAL)


def all_to_all():
    places = [torch.empty(4, device=PLACE) for _ in range(SIZE)]
    dist.all_to_all(places, [ours() for _ in range(SIZE)])
    is_full(places[PEER], PEER + 1.0)


def all_to_all_single():
    out = torch.empty(4 * SIZE, device=PLACE)
    dist.all_to_all_single(out, ours(4 * SIZE))
    is_full(out[4 * PEER : 4 * PEER + 4], PEER + 1.0)


def batch_isend_irecv():
    got = torch.empty(4, device=PLACE)
    both = [dist.P2POp(dist.irecv, got, PEER), dist.P2POp(dist.isend, ours(), PEER)]
    for work in dist.batch_isend_irecv(both):
        work.wait()
    is_full(got, PEER + 1.0)


def broadcast():
    t = ours()
    dist.broadcast(t, 1)
    is_full(t, 2.0)


def broadcast_object_list():
    box = [{"from": RANK}]
    dist.broadcast_object_list(box, 1)
    assert box == [{"from": 1}]


def gather():
    places = [torch.empty(4, device=PLACE) for _ in range(SIZE)] if RANK == 1 else None
    dist.gather(ours(), places, 1)
    if places:
        is_full(places[0], 1.0)


def gather_object():
    got = [None] * SIZE if RANK == 0 else None
    dist.gather_object(RANK, got, 0)
    assert got is None or got == list(range(SIZE))


def what_a_group_is():
    assert dist.get_backend() == "cwcl" and "cwcl" in dist.get_backend_config()
    assert dist.get_default_backend_for_device(PLACE.type) == "cwcl"
    assert dist.is_backend_available("cwcl") and dist.is_initialized()
    assert dist.get_rank() == RANK and dist.get_world_size() == SIZE
    assert dist.get_process_group_ranks(None) == list(range(SIZE))
    assert dist.get_global_rank(dist.group.WORLD, RANK) == RANK == dist.get_group_rank(dist.group.WORLD, RANK)
    assert dist.get_pg_count() >= 1 and dist.get_node_local_rank() == RANK
    assert dist.group.WORLD.bound_device_id == PLACE
    assert dist.group.WORLD._get_backend(PLACE).options.backend == "cwcl"


def init_device_mesh():
    mesh = dist.init_device_mesh(PLACE.type, (SIZE // 2, 2), mesh_dim_names=("a", "b"))
    t = ours()
    dist.all_reduce(t, group=mesh.get_group("b"))
    is_full(t, 2.0 * (RANK // 2 * 2) + 3.0)


def send_and_recv():
    for send, recv in ((dist.send, dist.recv), (dist.isend, dist.irecv)):
        got = torch.empty(4, device=PLACE)
        works = [send(ours(), PEER), recv(got, PEER)] if RANK % 2 == 0 else [recv(got, PEER), send(ours(), PEER)]
        for work in works:
            if hasattr(work, "wait"):
                work.wait()
        is_full(got, PEER + 1.0)


def send_and_recv_of_objects():
    box = [None]
    if RANK % 2 == 0:
        dist.send_object_list([RANK], PEER)
    else:
        dist.recv_object_list(box, PEER)
        assert box == [PEER]


def groups():
    group = dist.new_group([0, 1])
    if RANK < 2:
        t = ours()
        dist.all_reduce(t, group=group)
        is_full(t, 3.0)
        got = torch.empty(4, device=PLACE)
        both = [dist.P2POp(dist.irecv, got, PEER, group), dist.P2POp(dist.isend, ours(), PEER, group)]
        for work in dist.batch_isend_irecv(both):
            work.wait()
        is_full(got, PEER + 1.0)
    mine, every = dist.new_subgroups(2)
    t = ours()
    dist.all_reduce(t, group=mine)
    is_full(t, 2.0 * (RANK // 2 * 2) + 3.0)
    pairs = [[r, r + 1] for r in range(0, SIZE, 2)]
    mine, _ = dist.new_subgroups_by_enumeration(pairs)
    dist.broadcast(t, RANK // 2 * 2, group=mine)
    alone = dist.new_group([RANK], use_local_synchronization=True)
    dist.all_reduce(t, group=alone)
    dist.destroy_process_group(alone)
    assert len(every) == SIZE // 2


def split_group():
    group = dist.split_group(split_ranks=[[r, r + 1] for r in range(0, SIZE, 2)])
    t = ours()
    dist.all_reduce(t, group=group)
    is_full(t, 2.0 * (RANK // 2 * 2) + 3.0)
    host = torch.ones(2)
    dist.all_reduce(host, group=group)
    assert host[0] == 2
    some = dist.split_group(split_ranks=[[0]])
    assert (some is None) == (RANK != 0)
    again = dist.split_group(parent_pg=group, split_ranks=[[0], [1]])
    dist.all_reduce(t, group=again)
    assert dist.get_world_size(again) == 1


def monitored_barrier():
    # torch looks at the group's name, as it does with NCCL; the group's own method has it.
    refuses(dist.monitored_barrier, "only implemented for GLOO")
    dist.group.WORLD.monitored_barrier(timedelta(seconds=60))
    if RANK != SIZE - 1:
        # Every rank but the last; rank 0 says who is missing.
        try:
            dist.group.WORLD.monitored_barrier(timedelta(seconds=2))
        except RuntimeError as error:
            assert RANK != 0 or f"ank {SIZE - 1} failed" in str(error), error
        else:
            raise AssertionError("a rank was missing")


def reduce():
    t = ours()
    dist.reduce(t, 1)
    is_full(t, TOTAL if RANK == 1 else RANK + 1.0)


def reduce_scatter():
    out = torch.empty(4, device=PLACE)
    dist.reduce_scatter(out, [ours() for _ in range(SIZE)])
    is_full(out, TOTAL)


def reduce_scatter_of_one(call):
    out = torch.empty(4, device=PLACE)
    call(out, ours(4 * SIZE))
    is_full(out, TOTAL)


def scatter():
    out = torch.empty(4, device=PLACE)
    dist.scatter(out, [ours() * (r + 1) for r in range(SIZE)] if RANK == 0 else None, 0)
    is_full(out, RANK + 1.0)


def scatter_object_list():
    out = [None]
    dist.scatter_object_list(out, list(range(SIZE)) if RANK == 0 else None, 0)
    assert out == [RANK]


def shrink_group():
    refuses(lambda: dist.shrink_group([SIZE - 1]), "hrink")


def an_asynchronous_sparse_all_reduce_does_not_hold_the_caller():
    store = dist.distributed_c10d._get_default_store()
    t = torch.sparse_coo_tensor(torch.tensor([[0]]), torch.ones(1), (2,), device=PLACE)
    if RANK == 0:
        work = dist.all_reduce(t, async_op=True)
        store.set("began", b"1")  # the others come only then
    else:
        store.wait(["began"], timedelta(seconds=60))
        work = dist.all_reduce(t, async_op=True)
    work.wait()
    assert t.to_dense()[0].item() == SIZE


def the_report_says_what_goes_where():
    from causeway.dist import backend

    line = backend.report()
    if os.environ.get("CAUSEWAY_SIM_COMM") == "none":
        assert line.endswith("through the host (gloo), as the vendor offers none"), line
    else:
        assert f"{SIZE} ranks on host" in line and line.endswith("by the vendor"), line


def quietly(name: str) -> Callable[[], None]:
    """A function that asks only about this build or process."""

    def call():
        assert isinstance(getattr(dist, name)(), bool)

    return call


# Each public function of torch.distributed: the check that calls it.
TABLE: dict[str, Callable[[], None] | str] = {
    "all_gather": all_gather,
    "all_gather_coalesced": all_gather_coalesced,
    "all_gather_into_tensor": lambda: into_one(dist.all_gather_into_tensor),
    "all_gather_single": lambda: into_one(dist.all_gather_single),
    "all_gather_object": all_gather_object,
    "all_reduce": all_reduce,
    "all_reduce_coalesced": all_reduce_coalesced,
    "all_to_all": all_to_all,
    "all_to_all_single": all_to_all_single,
    "barrier": dist.barrier,
    "batch_isend_irecv": batch_isend_irecv,
    "breakpoint": "a debugger for people",
    "broadcast": broadcast,
    "broadcast_object_list": broadcast_object_list,
    "destroy_process_group": groups,
    "gather": gather,
    "gather_object": gather_object,
    "init_device_mesh": init_device_mesh,
    "init_process_group": what_a_group_is,
    "irecv": send_and_recv,
    "isend": send_and_recv,
    "monitored_barrier": monitored_barrier,
    "new_group": groups,
    "new_subgroups": groups,
    "new_subgroups_by_enumeration": groups,
    "record_comm": "of the flight recorder, which has NCCL's collectives",
    "recv": send_and_recv,
    "recv_object_list": send_and_recv_of_objects,
    "reduce": reduce,
    "reduce_scatter": reduce_scatter,
    "reduce_scatter_single": lambda: reduce_scatter_of_one(dist.reduce_scatter_single),
    "reduce_scatter_tensor": lambda: reduce_scatter_of_one(dist.reduce_scatter_tensor),
    "register_rendezvous_handler": "no group takes part",
    "rendezvous": what_a_group_is,
    "scatter": scatter,
    "scatter_object_list": scatter_object_list,
    "send": send_and_recv,
    "send_object_list": send_and_recv_of_objects,
    "set_debug_level": "no group takes part",
    "set_debug_level_from_env": "no group takes part",
    "shrink_group": shrink_group,
    "split_group": split_group,
    "supports_complex": "no group takes part",
} | {
    name: what_a_group_is
    for name in (
        "get_backend", "get_backend_config", "get_default_backend_for_device", "get_global_rank",
        "get_group_rank", "get_node_local_rank", "get_pg_count", "get_process_group_ranks",
        "get_rank", "get_world_size", "is_backend_available", "is_initialized",
    )
} | {
    name: quietly(name)
    for name in (
        "is_available", "is_gloo_available", "is_mpi_available", "is_nccl_available",
        "is_torchelastic_launched", "is_ucc_available", "is_xccl_available",
    )
}  # fmt: skip


def the_table_has_every_public_function():
    there = {
        name
        for name in dir(dist)
        if inspect.isfunction(getattr(dist, name)) and not name.startswith("_")
    }
    missing = {n for n in there if n not in TABLE and hasattr(dist, n)}
    assert not missing, f"torch.distributed has {sorted(missing)}, which no check calls"


def named(name: str, check: Callable[[], None]) -> Callable[[], None]:
    def call():
        check()

    call.__name__ = name
    return call


OTHERS = [
    the_table_has_every_public_function,
    an_asynchronous_sparse_all_reduce_does_not_hold_the_caller,
    the_report_says_what_goes_where,
]
CHECKS = [
    *OTHERS,
    # A barrier that a rank does not come to is the last thing that a group sees.
    *(named(n, c) for n, c in TABLE.items() if callable(c) and n != "monitored_barrier" and hasattr(dist, n)),
    monitored_barrier,
]

if __name__ == "__main__":
    dist_checks.run(CHECKS, device_id=PLACE)
