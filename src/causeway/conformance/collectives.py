"""Level 3: comm.v1, asked by several processes at once, each with a device of its own.

Every rank runs every check; what the ranks found becomes one answer in ranks.py. Checks whose last
rank ends on purpose are in `ENDING`. What is right is known without another implementation: small
whole numbers, which every reduction gives exactly.
"""

from __future__ import annotations

import math
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from causeway.conformance.abi import answered
from causeway.conformance.chip import Check, Skipped, expect, in_threads, same
from causeway.conformance.comm import (
    BYTE,
    CHECKED,
    FLOATS,
    NUMBERS,
    OPERATIONS,
    Buffer,
    Comm,
    CommTable,
    Rank,
    Task,
    has_meaning,
    pack,
    reduced,
    unpack,
)
from causeway.conformance.table import DTYPES, Library, TableError, u64

LEVEL = 3
COUNTS = (1, 7, 1000, 262_147)  # elements; the last is more than a chunk of most, and odd
SOON = 60.0  # seconds within which what failed must have ended


def comm_table_is_whole(rank: Rank) -> None:
    """Are create, destroy, abort and error there, pairs whole, and the reductions declared?"""
    table = rank.table
    missing = [e for e in ("create", "destroy", "abort", "error") if not getattr(table, e)]
    expect(not missing, "create, destroy, abort and error", f"missing: {', '.join(missing)}")
    for pair in (("send", "recv"), ("group_start", "group_end")):
        offered = [e for e in pair if getattr(table, e)]
        expect(len(offered) in (0, 2), f"both of {' and '.join(pair)}, or none", offered)
    expect(
        table.operations < 1 << len(OPERATIONS),
        "operations that comm.h names",
        hex(table.operations),
    )
    if any(getattr(table, e) for e in ("all_reduce", "reduce", "reduce_scatter")):
        expect(table.operations & 1 == 1, "a reduction that can sum", hex(table.operations))
        expect(table.dtypes != 0, "dtypes of the reductions", table.dtypes)


def ranks_connect_again_and_again(rank: Rank) -> None:
    """Can communicators be made one after another, and several live at once?"""
    for _ in range(3):
        with rank.comm() as comm:
            comm.call("error")
    with rank.comm() as one, rank.comm() as two:
        for comm in (two, one):
            _gather_bytes(rank, comm)


def some_ranks_connect(rank: Rank) -> None:
    """Can a part of the ranks, in another order, make a communicator?"""
    some = list(range(rank.size))[::-1][: max(1, rank.size - 1)]
    if rank.rank in some:
        with rank.comm(some) as comm:
            _gather_bytes(rank, comm)
    rank.meet("some")


def _gather_bytes(rank: Rank, comm: Comm) -> None:
    """Something that shows who is in the communicator, by whichever entry there is."""
    marks = [bytes([65 + r]) * 100 for r in range(comm.size)]
    if rank.table.all_gather:
        with rank.memory(marks[comm.at], b"\0" * 100 * comm.size) as (a, b):
            comm.call("all_gather", a.at, b.at, 100, BYTE, None)
            comm.wait()
            same(b.read(), b"".join(marks), "all_gather of bytes")
    elif rank.table.broadcast:
        with rank.memory(marks[comm.at]) as (a,):
            comm.call("broadcast", a.at, 100, BYTE, 0, None)
            comm.wait()
            same(a.read(), marks[0], "broadcast of bytes")


def _reductions(table: CommTable) -> list[tuple[str, str]]:
    return [
        (operation, dtype)
        for bit, operation in enumerate(OPERATIONS)
        for dtype in NUMBERS
        if table.operations >> bit & 1
        and table.dtypes >> DTYPES[dtype][2] & 1
        and has_meaning(operation, dtype)
    ]


def all_reduce_computes(rank: Rank) -> None:
    """Does all_reduce give each operation of each dtype, in place and not, for odd counts?"""
    rank.offers("all_reduce")
    with rank.comm() as comm:
        for operation, dtype in _reductions(rank.table):
            for n in COUNTS if (operation, dtype) == ("SUM", "float32") else COUNTS[:3]:
                given, total = reduced(operation, dtype, n, rank.size)
                mine = given[rank.rank]
                how = (n, DTYPES[dtype][2], OPERATIONS.index(operation))
                with rank.memory(mine, b"\0" * len(mine), mine) as (a, b, c):
                    comm.call("all_reduce", a.at, b.at, *how, None)
                    comm.call("all_reduce", c.at, c.at, *how, None)
                    comm.wait()
                    what = f"{operation} of {n} {dtype} over {rank.size} ranks"
                    same(b.read(), total, what)
                    same(c.read(), total, f"{what}, in place")
                    same(a.read(), mine, f"the input of {what}")


def all_reduce_gives_all_ranks_the_same_bits(rank: Rank) -> None:
    """Is a sum of random floats the same bits on every rank, and near the exact one?"""
    rank.offers("all_reduce")
    with rank.comm() as comm:
        for dtype in (d for d in FLOATS if ("SUM", d) in _reductions(rank.table)):
            n = 5003
            numbers = [random.Random(1000 + r) for r in range(rank.size)]
            given = [pack(dtype, [g.uniform(-1, 1) for _ in range(n)]) for g in numbers]
            with rank.memory(given[rank.rank]) as (a,):
                comm.call("all_reduce", a.at, a.at, n, DTYPES[dtype][2], 0, None)
                comm.wait()
                found = a.read()
            rank.tell(dtype, found)
            for r in range(rank.size):
                same(
                    rank.hear(dtype, r),
                    found,
                    f"the sum of {dtype} on rank {r}, as on rank {rank.rank}",
                )
            # Each addition rounds once: by at most half a unit of the largest that can come up.
            unit = {"float16": 2**-11, "bfloat16": 2**-8, "float32": 2**-24, "float64": 2**-53}[
                dtype
            ]
            columns = zip(*(unpack(dtype, g) for g in given), unpack(dtype, found), strict=True)
            for i, (*parts, came) in enumerate(columns):
                bound = rank.size * unit * sum(abs(p) for p in parts) * 1.01
                exact = math.fsum(parts)
                expect(
                    abs(came - exact) <= bound, f"element {i} of {dtype}: {exact} ± {bound}", came
                )


def reduce_gives_the_root_alone(rank: Rank) -> None:
    """Does reduce give each root the result, and leave the others' memory as it was?"""
    rank.offers("reduce")
    with rank.comm() as comm:
        for operation, dtype in _reductions(rank.table)[:12]:
            for root in range(rank.size):
                given, total = reduced(operation, dtype, 1001, rank.size)
                mine = given[rank.rank]
                how = (1001, DTYPES[dtype][2], OPERATIONS.index(operation), root)
                with rank.memory(mine, b"\xa7" * len(mine)) as (a, b):
                    comm.call("reduce", a.at, b.at, *how, None)
                    comm.wait()
                    kept = b"\xa7" * len(mine)
                    same(b.read(), total if rank.rank == root else kept,
                         f"{operation} of {dtype} to rank {root}, on rank {rank.rank}")  # fmt: skip
                    same(a.read(), mine, "the input of reduce")


def broadcast_comes_from_each_root(rank: Rank) -> None:
    """Does broadcast give what the root has, for every root and odd counts of wide elements?"""
    rank.offers("broadcast")
    with rank.comm() as comm:
        for dtype, n in (("uint8", 1), ("int16", 7), ("float64", 1000), ("uint8", 3_000_001)):
            for root in range(rank.size):
                size = n * DTYPES[dtype][1] // 8
                contents = [_bytes_of(r, size) for r in range(rank.size)]
                with rank.memory(contents[rank.rank]) as (a,):
                    comm.call("broadcast", a.at, n, DTYPES[dtype][2], root, None)
                    comm.wait()
                    same(a.read(), contents[root], f"broadcast of {n} {dtype} from rank {root}")


def _bytes_of(rank: int, size: int) -> bytes:
    period = bytes((i * 31 + i // 17 + rank * 101) % 256 for i in range(997))
    return (period * (size // 997 + 1))[:size]


def all_gather_keeps_the_order_of_ranks(rank: Rank) -> None:
    """Does all_gather put every rank's part at its place?"""
    rank.offers("all_gather")
    with rank.comm() as comm:
        for dtype, n in (("uint8", 1), ("bfloat16", 7), ("int64", 1000), ("float32", 500_003)):
            size = n * DTYPES[dtype][1] // 8
            parts = [_bytes_of(r, size) for r in range(rank.size)]
            with rank.memory(parts[rank.rank], b"\0" * size * rank.size) as (a, b):
                comm.call("all_gather", a.at, b.at, n, DTYPES[dtype][2], None)
                comm.wait()
                same(b.read(), b"".join(parts), f"all_gather of {n} {dtype}")


def reduce_scatter_gives_each_rank_its_part(rank: Rank) -> None:
    """Does reduce_scatter give each rank its own part of the result?"""
    rank.offers("reduce_scatter")
    with rank.comm() as comm:
        for operation, dtype in _reductions(rank.table):
            for n in COUNTS[:3] if (operation, dtype) != ("SUM", "float32") else COUNTS:
                given, total = reduced(operation, dtype, n * rank.size, rank.size)
                size = len(total) // rank.size
                with rank.memory(given[rank.rank], b"\0" * size) as (a, b):
                    comm.call(
                        "reduce_scatter",
                        a.at,
                        b.at,
                        n,
                        DTYPES[dtype][2],
                        OPERATIONS.index(operation),
                        None,
                    )
                    comm.wait()
                    mine = total[rank.rank * size : (rank.rank + 1) * size]
                    same(b.read(), mine, f"{operation} of {dtype}, {n} to each rank")


def all_to_all_takes_any_lengths(rank: Rank) -> None:
    """Does all_to_all move parts of different lengths, none among them?"""
    rank.offers("all_to_all")
    with rank.comm() as comm:
        for dtype, unit in (("uint8", 1), ("float32", 333), ("int64", 70_001)):
            item = DTYPES[dtype][1] // 8
            # From rank r to rank s: (r + 2 s) mod 3 units, so some have nothing for each other.
            length = [[(r + 2 * s) % 3 * unit for s in range(rank.size)] for r in range(rank.size)]
            part = [
                [_bytes_of(7 * r + s, length[r][s] * item) for s in range(rank.size)]
                for r in range(rank.size)
            ]
            ins, outs = length[rank.rank], [length[r][rank.rank] for r in range(rank.size)]
            expected = b"".join(part[r][rank.rank] for r in range(rank.size))

            def numbers(values: list[int]) -> tuple[Any, Any]:
                offsets = [sum(values[:k]) for k in range(len(values))]
                return (u64 * len(values))(*values), (u64 * len(values))(*offsets)

            with rank.memory(b"".join(part[rank.rank]), b"\0" * len(expected)) as (a, b):
                comm.call(
                    "all_to_all", a.at, *numbers(ins), b.at, *numbers(outs), DTYPES[dtype][2], None
                )
                comm.wait()
                same(b.read(), expected, f"all_to_all of {dtype}")


def barrier_holds_all_until_the_last(rank: Rank) -> None:
    """Does nobody pass a barrier before everybody is there?"""
    rank.offers("barrier")
    with rank.comm() as comm:
        for last in range(rank.size):
            rank.meet(f"before{last}")
            if rank.rank == last:
                time.sleep(0.2)
                rank.tell(f"here{last}")
            comm.call("barrier", None)
            comm.wait()
            there = (rank.folder.path / f"here{last}/{last}".encode().hex()).exists()
            expect(
                there, f"rank {last} is at the barrier when rank {rank.rank} passes", "it is not"
            )


def messages_keep_their_order(rank: Rank) -> None:
    """Do sends and receives in a group go round, large and small, in the order they were put?"""
    rank.offers("send", "recv", "group_start", "group_end")
    to, source = (rank.rank + 1) % rank.size, (rank.rank - 1) % rank.size
    with rank.comm() as comm:
        for sizes in ((1, 5), (1000, 3_000_001), (700_001, 64)):
            mine = [_bytes_of(3 * rank.rank + k, n) for k, n in enumerate(sizes)]
            theirs = [_bytes_of(3 * source + k, n) for k, n in enumerate(sizes)]
            with rank.memory(*mine, *[b"\0" * n for n in sizes]) as (a, b, c, d):
                comm.call("group_start")
                for buffer in (a, b):
                    comm.call("send", buffer.at, buffer.bytes, BYTE, to, None)
                for buffer in (c, d):
                    comm.call("recv", buffer.at, buffer.bytes, BYTE, source, None)
                comm.call("group_end")
                comm.wait()
                for k, buffer in enumerate((c, d)):
                    same(
                        buffer.read(), theirs[k], f"message {k} of rank {source}, {sizes[k]} bytes"
                    )


def collectives_keep_the_order_of_a_stream(rank: Rank) -> None:
    """Does a collective come after what its stream has, and before what is put there next?"""
    rank.offers("all_reduce")
    dtype, n = _summed(rank), 100_003
    stream = None
    if rank.chip.library.offers("stream_create", "stream_destroy"):
        stream = rank.chip.library.stream(rank.device)
    given, total = reduced("SUM", dtype, n, rank.size)
    other = b"\xee" * len(total)
    with rank.comm() as comm, rank.memory(given[rank.rank], *[other] * 4) as (good, bad, a, b, c):

        def copy(to: Buffer, source: Buffer) -> None:
            places = (to.at, rank.device, source.at, rank.device)
            rank.chip.library.call("mem_copy", *places, len(total), stream)

        for round in range(12):
            for source in (bad, bad, bad, good):  # the last one counts
                copy(a, source)
            comm.call("all_reduce", a.at, b.at, n, DTYPES[dtype][2], 0, stream)
            copy(c, b)
            copy(b, bad)
            copy(a, bad)
            if round % 3 == 2:  # the others go on without a wait
                same(c.read(stream), total, f"round {round}")
        comm.wait(stream)
    if stream is not None:
        rank.chip.library.call("stream_destroy", rank.device, stream)


def _summed(rank: Rank) -> str:
    """A dtype that the reductions can sum."""
    found = next((d for o, d in _reductions(rank.table) if o == "SUM"), None)
    if found is None:
        raise Skipped("no dtype that this asks for can be summed")
    return found


def many_are_under_way(rank: Rank) -> None:
    """Can a hundred collectives be put on a stream before anybody waits?"""
    rank.offers("all_reduce")
    dtype = _summed(rank)
    given, total = reduced("SUM", dtype, 501, rank.size)
    with rank.comm() as comm, rank.memory(*[given[rank.rank]] * 100) as buffers:
        for buffer in buffers:
            comm.call("all_reduce", buffer.at, buffer.at, 501, DTYPES[dtype][2], 0, None)
        comm.wait()
        for k, buffer in enumerate(buffers):
            same(buffer.read(), total, f"collective {k} of 100")


def wrong_calls_are_refused(rank: Rank) -> None:
    """Is a root or a peer that is not there refused with words, and the communicator still good?"""
    with rank.comm() as comm:
        wrong = [("broadcast", (64, BYTE, rank.size))] if rank.table.broadcast else []
        wrong += [("send", (64, BYTE, rank.size + 3))] if rank.table.send else []
        if not wrong:
            raise Skipped("neither broadcast nor send is offered")
        with rank.memory(b"\1" * 64) as (a,):
            for entry, (n, dtype, peer) in wrong:
                status = comm.answer(entry, a.at, n, dtype, peer, None)
                words = rank.chip.library.words()
                expect(status != "OK", f"{entry} with rank {peer} of {rank.size} fails", status)
                expect(bool(words.strip()), "last_error gives words", f"{status}, no words")
        _gather_bytes(rank, comm)


# --- what goes wrong ------------------------------------------------------------------------------


def _something(rank: Rank, buffer: Buffer, root: int = 0) -> tuple[str, tuple[Any, ...]]:
    """A collective that the vendor has, as (entry, arguments without the stream)."""
    if rank.table.all_reduce and rank.table.dtypes >> DTYPES["float32"][2] & 1:
        return "all_reduce", (buffer.at, buffer.at, 16, DTYPES["float32"][2], 0)
    if rank.table.broadcast:
        return "broadcast", (buffer.at, 64, BYTE, root)
    if rank.table.barrier:
        return "barrier", ()
    raise Skipped("none of all_reduce, broadcast and barrier is offered")


def a_late_rank_ends_in_a_timeout(rank: Rank) -> None:
    """Does a collective that a rank never comes to end with an error after its timeout?"""
    with rank.comm(timeout_ms=1500) as comm, rank.memory_that_may_fail() as a:
        entry, args = _something(rank, a, root=rank.size - 1)
        rank.meet("made")
        if rank.rank != rank.size - 1:
            start = time.monotonic()
            comm.fails(entry, *args)
            took = time.monotonic() - start
            expect(1.0 <= took < SOON, "an end after its 1.5 seconds", f"{took:.1f} s")
            expect(comm.answer(entry, *args, None) != "OK" or comm.answer("error") != "OK",
                   "no work after an error", "OK")  # fmt: skip
        rank.meet("over")


def abort_ends_what_is_under_way(rank: Rank) -> None:
    """Does abort, from another thread, end a collective long before its timeout?"""
    with rank.comm(timeout_ms=600_000) as comm, rank.memory_that_may_fail() as a:
        entry, args = _something(rank, a, root=rank.size - 1)
        rank.meet("made")
        if rank.rank == 0:
            timer = threading.Timer(0.5, lambda: comm.answer("abort"))
            timer.start()
            start = time.monotonic()
            comm.fails(entry, *args)
            took = time.monotonic() - start
            timer.join()
            expect(took < SOON, "an end soon after abort", f"{took:.1f} s")
        rank.meet("over")


def different_collectives_are_noticed(rank: Rank) -> None:
    """With CW_COMM_CHECKED: do ranks that call different things get an error?"""
    rank.offers("all_gather", "broadcast")
    with (
        rank.comm(timeout_ms=2000, flags=CHECKED) as comm,
        rank.memory_that_may_fail() as a,
        rank.memory_that_may_fail() as b,
    ):
        rank.meet("made")
        few = 64 // rank.size
        if rank.rank == 0:
            said = comm.answer("all_gather", a.at, b.at, few, BYTE, None)
        else:
            said = comm.answer("broadcast", a.at, few, BYTE, 0, None)
        rank.chip.status_of_sync(rank.device)
        rank.tell("said", (said + "/" + comm.answer("error")).encode())
        all_said = [rank.hear("said", r).decode() for r in range(rank.size)]
        expect(any(s != "OK/OK" for s in all_said), "an error on some rank", ", ".join(all_said))


def a_dead_rank_ends_what_waits_for_it(rank: Rank) -> None:
    """Does a collective with a rank that was killed end with an error, and not hang?"""
    with rank.comm(timeout_ms=3000) as comm, rank.memory_that_may_fail() as a:
        entry, args = _something(rank, a, root=rank.size - 1)
        rank.meet("made")
        if rank.rank == rank.size - 1:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.2)
        start = time.monotonic()
        comm.fails(entry, *args)
        took = time.monotonic() - start
        expect(took < SOON, "an end within the timeout of 3 seconds", f"{took:.1f} s")


def threads_have_communicators(rank: Rank) -> None:
    """Do two threads, each with a communicator of its own, work side by side?"""
    rank.offers("all_gather")
    n = 4001
    parts = [[_bytes_of(10 * k + r, n) for r in range(rank.size)] for k in range(2)]
    mine, all_of = [p[rank.rank] for p in parts], [b"\0" * n * rank.size] * 2
    streams: list[int | None] = [None, None]
    if rank.chip.library.offers("stream_create", "stream_destroy"):
        streams = [rank.chip.library.stream(rank.device) for _ in range(2)]
    with rank.comm() as one, rank.comm() as two, rank.memory(*mine, *all_of) as buffers:
        comms = (one, two)

        def work(k: int) -> None:
            if rank.chip.library.offers("bind"):
                rank.chip.library.call("bind", rank.device)
            for _ in range(20):
                comms[k].call("all_gather", buffers[k].at, buffers[2 + k].at, n, BYTE, streams[k])
            found = buffers[2 + k].read(streams[k])
            same(found, b"".join(parts[k]), f"all_gather of thread {k}")

        in_threads(2, work)
    for stream in streams:
        if stream is not None:
            rank.chip.library.call("stream_destroy", rank.device, stream)


CHECKS: tuple[Callable[[Rank], None], ...] = (
    comm_table_is_whole,
    ranks_connect_again_and_again,
    some_ranks_connect,
    all_reduce_computes,
    all_reduce_gives_all_ranks_the_same_bits,
    reduce_gives_the_root_alone,
    broadcast_comes_from_each_root,
    all_gather_keeps_the_order_of_ranks,
    reduce_scatter_gives_each_rank_its_part,
    all_to_all_takes_any_lengths,
    barrier_holds_all_until_the_last,
    messages_keep_their_order,
    collectives_keep_the_order_of_a_stream,
    many_are_under_way,
    threads_have_communicators,
    wrong_calls_are_refused,
    different_collectives_are_noticed,
    a_late_rank_ends_in_a_timeout,
    abort_ends_what_is_under_way,
    a_dead_rank_ends_what_waits_for_it,
)
# The last rank's process ends in these, as it should.
ENDING = ("a_dead_rank_ends_what_waits_for_it",)


def plan() -> list[Check]:
    """The checks of level 3, in their order, none of them run yet."""
    return [Check(LEVEL, f.__name__, (f.__doc__ or "").splitlines()[0], "planned") for f in CHECKS]


def _run(check: Check, rank: Rank) -> Check:
    function = next(f for f in CHECKS if f.__name__ == check.name)

    def ask() -> None:
        rank.begins(check.name)
        function(rank)

    return answered(check, ask)


def main() -> None:
    """Read {library, settings_of, rank, size, folder, checks}; write lines, for `ranks`."""
    from causeway import vendor
    from causeway.conformance.pipe import begin

    task, say = begin()
    try:
        library = Library(task["library"], vendor.Settings(task["settings_of"]))
        rank = Rank(library, Task(task["rank"], task["size"], task["folder"]))
    except Skipped as why:
        say(skipped=str(why))
        return
    except (OSError, AttributeError, TableError) as error:
        say(broken=f"{type(error).__name__}: {error}")
        return
    for check in task["checks"]:
        say(ended=asdict(_run(Check(**check), rank)))
