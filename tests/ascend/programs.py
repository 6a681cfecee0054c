"""Programs that run on the stand-in: `python programs.py NAME`. Each prints what its test reads."""

from __future__ import annotations

import copy
import ctypes
import json
import os
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile

import causeway

sys.path.append(str(Path(__file__).parents[1]))

from small_gpt import Block

Step = Callable[[nn.Module, torch.Tensor, torch.Tensor], torch.Tensor]


def train(
    net: nn.Module,
    x: torch.Tensor,
    y: torch.Tensor,
    loss: Step,
    make: Callable[..., torch.optim.Optimizer],
) -> None:
    """The losses of some steps on the CPU and on the device, and which rungs served, as JSON."""

    def losses(device: str) -> list[float]:
        mine = copy.deepcopy(net).to(device)
        optimizer = make(mine.parameters())
        found = []
        for _ in range(4):
            optimizer.zero_grad()
            value = loss(mine, x.to(device), y.to(device))
            value.backward()
            optimizer.step()
            found.append(value.item())
        return found

    cpu = losses("cpu")
    with causeway.ledger() as ledger:
        ours = losses("ascend")
    rungs = {rung: ledger.total(rung=rung) for rung in ("native", "derived", "decomposed", "host")}
    print(json.dumps({"cpu": cpu, "ascend": ours} | rungs))


def digits() -> None:
    net = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 5 * 5, 10),
    )  # fmt: skip
    x, y = torch.randn(32, 1, 14, 14), torch.randint(0, 10, (32,))
    train(
        net,
        x,
        y,
        lambda n, x, y: F.cross_entropy(n(x), y),
        lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
    )


def gpt() -> None:
    x, y = torch.randint(0, 17, (4, 8)), torch.randint(0, 17, (4, 8))
    train(
        Block(), x, y, lambda n, x, y: F.cross_entropy(n(x).flatten(0, 1), y.flatten()),
        lambda p: torch.optim.AdamW(p, lr=1e-2),
    )  # fmt: skip


def lstm() -> None:
    class Reader(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = nn.LSTM(6, 12, batch_first=True)
            self.head = nn.Linear(12, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.cell(x)[0][:, -1])

    x, y = torch.randn(8, 5, 6), torch.randint(0, 3, (8,))
    train(
        Reader(),
        x,
        y,
        lambda n, x, y: F.cross_entropy(n(x), y),
        lambda p: torch.optim.Adam(p, lr=1e-2),
    )


def rungs_of(ledger: causeway.Ledger, part: str) -> str:
    """The rungs of the operators with this in their name, as JSON."""
    found: dict[str, set[str]] = {}
    for row in ledger.rows:
        if part in row.operator:
            found.setdefault(row.operator, set()).add(row.rung)
    return json.dumps({name: sorted(rungs) for name, rungs in found.items()})


def attention() -> None:
    """Its kernel and its gradient, and what it has no word for: a mask, dropout."""
    sdpa = F.scaled_dot_product_attention
    with causeway.ledger() as ledger:
        attention_as_on_the_cpu()
    q, mask = torch.randn(1, 2, 4, 8), torch.tensor([[True, False, True, True]]).expand(4, 4)
    expected = sdpa(q, q, q, attn_mask=mask)
    moved = q.to("ascend")
    torch.testing.assert_close(
        sdpa(moved, moved, moved, attn_mask=mask.to("ascend")).cpu(), expected
    )
    print(rungs_of(ledger, "attention"))


def attention_as_on_the_cpu() -> None:
    sdpa = F.scaled_dot_product_attention
    for heads, keys, rows, columns, options in (
        (2, 2, 5, 5, {}),
        (2, 2, 5, 5, {"is_causal": True}),
        (4, 4, 3, 7, {"is_causal": True, "scale": 0.3}),
        (4, 2, 6, 6, {"enable_gqa": True, "is_causal": True}),
        (1, 1, 9, 4, {"scale": 2.0}),
    ):
        for dtype in (torch.float32, torch.bfloat16):
            shapes = ((2, heads, rows, 8), (2, keys, columns, 8), (2, keys, columns, 8))
            plain = [torch.randn(s).to(dtype).requires_grad_() for s in shapes]
            moved = [t.detach().to("ascend").requires_grad_() for t in plain]
            expected, found = sdpa(*plain, **options), sdpa(*moved, **options)
            grad = torch.randn_like(expected)
            expected.backward(grad)
            found.backward(grad.to("ascend"))
            near = {} if dtype == torch.float32 else {"rtol": 2e-2, "atol": 2e-2}
            torch.testing.assert_close(found.cpu(), expected, **near)
            for a, b in zip(plain, moved, strict=True):
                torch.testing.assert_close(b.grad.cpu(), a.grad, **near)


def layers() -> None:
    """LSTMs of all forms, in training and without gradients."""
    with causeway.ledger() as ledger:
        layers_as_on_the_cpu()
    print(rungs_of(ledger, "lstm"))


def layers_as_on_the_cpu() -> None:
    for options in (
        {}, {"bias": False}, {"num_layers": 2, "batch_first": True}, {"bidirectional": True},
        {"num_layers": 2, "bidirectional": True, "bias": False},
    ):  # fmt: skip
        plain = nn.LSTM(6, 8, **options)
        moved = nn.LSTM(6, 8, **options).to("ascend")
        moved.load_state_dict(plain.state_dict())
        places = options.get("num_layers", 1) * (2 if options.get("bidirectional") else 1)
        states = [torch.randn(places, 3 if not options.get("batch_first") else 5, 8) for _ in "hc"]
        x = torch.randn(5, 3, 6)
        results = []
        for net, device in ((plain, "cpu"), (moved, "ascend")):
            inputs = [t.detach().to(device).requires_grad_() for t in (x, *states)]
            output, (h, c) = net(inputs[0], tuple(inputs[1:]))
            (output.sum() + (h * 2).sum() + (c * c).sum()).backward()
            with torch.no_grad():
                again = net(inputs[0], tuple(inputs[1:]))[0]
            grads = [t.grad for t in (*inputs, *net.parameters())]
            results.append([t.detach().cpu() for t in (output, h, c, again, *grads)])
        for a, b in zip(*results, strict=True):
            torch.testing.assert_close(b, a)


def numbers() -> None:
    """A number on either side, of either kind, with and without a call of its own."""
    x = torch.tensor([1.5, -2.0, 4.0])
    i = torch.tensor([3, -4, 5])
    y, j = x.to("ascend"), i.to("ascend")
    for a, b in ((x, y), (i, j)):
        for f in (
            lambda t: t + 2, lambda t: 2 + t, lambda t: 2 - t, lambda t: t - 2, lambda t: t * 3,
            lambda t: 3 * t, lambda t: t > 1, lambda t: t < 1,
            lambda t: torch.maximum(t, t * 0 + 1), lambda t: torch.where(t > 0, t, 7),
        ):  # fmt: skip
            torch.testing.assert_close(f(b).cpu(), f(a))
    torch.testing.assert_close((2 / y).cpu(), 2 / x)
    torch.testing.assert_close((y**2).cpu(), x**2)
    # Whole numbers beyond what a double holds, and a bound that is NaN.
    most = torch.iinfo(torch.int64)
    i = torch.tensor([most.max - 1, most.min + 1, 3])
    for f in (lambda t: t.clamp_min(3), lambda t: t.clamp_max(3), lambda t: t.cumprod(0)):
        torch.testing.assert_close(f(i.to("ascend")).cpu(), f(i), rtol=0, atol=0)
    for f in (lambda t: t.clamp(float("nan"), 2), lambda t: t.clamp_max(float("nan"))):
        torch.testing.assert_close(f(y).cpu(), f(x), equal_nan=True)
    print("equal")


def kept() -> None:
    """Calls that come again: with inputs elsewhere, with one memory twice, with other numbers."""
    w = torch.randn(16, 16)
    given = [torch.randn(16, 16) for _ in range(12)]
    there, matrix = [x.to("ascend") for x in given], w.to("ascend")
    for x, y in zip(given, there, strict=True):
        torch.testing.assert_close((y @ matrix).cpu(), x @ w)
        torch.testing.assert_close((y + y).cpu(), x + x)
        torch.testing.assert_close((y + matrix).cpu(), x + w)
        torch.testing.assert_close(y.add(matrix, alpha=2).cpu(), x.add(w, alpha=2))
        torch.testing.assert_close(y[1:, 1:].exp().cpu(), x[1:, 1:].exp())
    # A result that is a part of something larger, whose rest the chip must not write to.
    row, many = given[0][0].to("ascend"), torch.full((4, 16), 7.0, device="ascend")
    for _ in range(3):
        torch.cos(row)
    for at in (0, 2):
        for _ in range(3):
            torch.cos(row, out=many[at])
    torch.testing.assert_close(many[::2].cpu(), given[0][0].cos().expand(2, 16))
    assert (many[1::2] == 7).all()
    for _ in range(12):
        assert (torch.dropout(torch.ones_like(matrix), 0.5, True) == 0).any()
    print("equal")


def kept_lent() -> None:
    """Calls that come again and use memory beside their workspace, or lists: attention, a layer of
    an LSTM, a batch norm in training, each with its gradients. Inputs lie elsewhere each time, and
    in every other turn somebody else has the memory that was lent to attention in the one before.
    """
    net, norm = nn.LSTM(6, 8), nn.BatchNorm1d(3)
    mine, moved = copy.deepcopy(net).to("ascend"), copy.deepcopy(norm).to("ascend")
    given = [(torch.randn(5, 8, 6), torch.randn(11, 100, 32, 4)) for _ in range(12)]
    there = [(x.to("ascend"), q.to("ascend")) for x, q in given]

    def step(x: torch.Tensor, q: torch.Tensor) -> list[torch.Tensor]:
        lstm, batch_norm = (net, norm) if x.device.type == "cpu" else (mine, moved)
        x, q = x.detach().requires_grad_(), q.detach().requires_grad_()
        y = F.scaled_dot_product_attention(q, q, q, is_causal=True)
        z, n = lstm(x)[0], batch_norm(x[:, :3])
        grads = torch.autograd.grad(y.square().sum() + z.square().sum() + n.pow(3).sum(), (x, q))
        return [y, z, n, *grads, *torch._foreach_mul([x, q], [x, q])]

    for turn, (plain, ours) in enumerate(zip(given, there, strict=True)):
        # As large as what is lent, and larger than the results, which lie where they did.
        others = [torch.full((300_000,), 7.0, device="ascend") for _ in range(4 * (turn % 2))]
        found = [t.detach().cpu() for t in step(*ours)]
        assert all((other == 7).all() for other in others)
        del others
        for a, b in zip(found, step(*plain), strict=True):
            torch.testing.assert_close(a, b.detach(), rtol=1e-4, atol=1e-4)
    print("equal")


def formats() -> None:
    """Products whose weight is read again: from the chip's format from the second use on, in both
    dtypes that have one, with sides that fill no block, transposed and not; and what has none.
    """
    module = torch.get_device_module("ascend")
    for dtype, (m, k, n) in (
        (torch.float16, (3, 70, 33)), (torch.bfloat16, (16, 64, 48)), (torch.float16, (5, 2, 1041)),
    ):  # fmt: skip
        w, t, bias, u = (torch.randn(s).to(dtype) for s in ((k, n), (n, k), (n,), (k, n)))
        mine = [x.to("ascend") for x in (w, t, bias, u)]
        given = [torch.randn(m, k).to(dtype) for _ in range(5)]
        for x in given:
            y = x.to("ascend")
            for ours, right in (
                (y @ mine[0], x @ w), (y @ mine[3], x @ u),
                (F.linear(y, mine[1], mine[2]), F.linear(x, t, bias)),
                (torch.addmm(mine[2], y, mine[0], beta=0.5, alpha=2), (x @ w) * 2 + bias / 2),
            ):  # fmt: skip
                torch.testing.assert_close(ours.cpu(), right, rtol=2e-2, atol=6e-2)
        # What is written to is read anew.
        mine[0].neg_(), mine[1].data.mul_(2)
        y = given[0].to("ascend")
        for _ in range(3):
            torch.testing.assert_close((y @ mine[0]).cpu(), -(given[0] @ w), rtol=2e-2, atol=6e-2)
            right = F.linear(given[0], t * 2)
            torch.testing.assert_close(F.linear(y, mine[1]).cpu(), right, rtol=2e-2, atol=6e-2)
    stats = module.layout_stats()
    # No format: float32, a side of 1, a part of a matrix.
    for dtype, k, n in ((torch.float32, 64, 64), (torch.float16, 64, 1), (torch.float16, 1, 64)):
        w, x = torch.randn(k, n).to(dtype), torch.randn(4, k).to(dtype)
        mine = w.to("ascend")
        for _ in range(3):
            torch.testing.assert_close((x.to("ascend") @ mine).cpu(), x @ w, rtol=1e-2, atol=1e-2)
    w, x = torch.randn(64, 64).half(), torch.randn(4, 32).half()
    part = w.to("ascend")[32:, 16:]
    for _ in range(3):
        found = (x.to("ascend") @ part).cpu()
        torch.testing.assert_close(found, x @ w[32:, 16:], rtol=2e-2, atol=6e-2)
    assert module.layout_stats()["converted"] == stats["converted"]
    print(json.dumps({key: stats[key] for key in ("converted", "used")}))


def kept_losses() -> None:
    """A loss without weights that comes again, in each type, for more classes, and in a capture."""
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        for classes in (10, 3000):
            x = torch.randn(4, classes).log_softmax(1).to(dtype).requires_grad_()
            target = torch.randint(0, classes, (4,))
            mine, places = x.detach().to("ascend").requires_grad_(), target.to("ascend")
            for _ in range(20):
                x.grad = mine.grad = None
                loss, found = F.nll_loss(x, target), F.nll_loss(mine, places)
                loss.backward()
                found.backward()
                torch.testing.assert_close(found.cpu(), loss)
                torch.testing.assert_close(mine.grad.cpu(), x.grad)
    x = mine.detach()
    module = torch.get_device_module("ascend")
    made = module.CUDAGraph() if hasattr(module, "CUDAGraph") else module.Graph()

    def steps() -> torch.Tensor:
        return F.nll_loss(x.neg().neg().neg().neg(), places)

    expected = steps()
    with module.graph(made):
        found = steps()
    made.replay()
    torch.testing.assert_close(found, expected)
    print("equal")


def collectives(rank: int) -> None:
    """Raises where one of them, over two ranks, does not give what it has to."""
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.uint8):
        base = torch.arange(200_000).remainder(7).to(dtype)
        both = [base, base + 1]

        def here(t: torch.Tensor = both[rank]) -> torch.Tensor:
            return t.to("ascend", copy=True)

        def same(found: torch.Tensor, right: torch.Tensor) -> None:
            torch.testing.assert_close(found.cpu(), right, rtol=0, atol=0)

        for op, right in (
            (dist.ReduceOp.SUM, both[0] + both[1]),
            (dist.ReduceOp.MAX, both[1]),
            (dist.ReduceOp.MIN, both[0]),
            (dist.ReduceOp.PRODUCT, both[0] * both[1]),
        ):
            x = here()
            dist.all_reduce(x, op=op)
            same(x, right)
        x = here()
        dist.broadcast(x, 1)
        same(x, both[1])
        x = here()
        dist.reduce(x, 1)
        if rank == 1:
            same(x, both[0] + both[1])
        x = torch.empty(400_000, dtype=dtype, device="ascend")
        dist.all_gather_into_tensor(x, here())
        same(x, torch.cat(both))
        x = torch.empty(100_000, dtype=dtype, device="ascend")
        dist.reduce_scatter_tensor(x, here())
        same(x, (both[0] + both[1]).chunk(2)[rank])
        x = torch.empty(200_000, dtype=dtype, device="ascend")
        dist.all_to_all_single(x, here())
        same(x, torch.cat([each.chunk(2)[rank] for each in both]))
        x, y = (torch.empty(200_000, dtype=dtype, device="ascend") for _ in range(2))
        ops = [dist.P2POp(dist.isend, here(), 1 - rank), dist.P2POp(dist.irecv, x, 1 - rank)]
        ops += [dist.P2POp(dist.isend, here(base), 1 - rank), dist.P2POp(dist.irecv, y, 1 - rank)]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        same(x, both[1 - rank])
        same(y, both[0])
    # What HCCL lacks is done with what it has: an average, and operations on bits.
    x = torch.full((5,), float(rank), device="ascend")
    dist.all_reduce(x, op=dist.ReduceOp.AVG)
    same(x, torch.full((5,), 0.5))
    x = torch.tensor([6 - rank, 3], device="ascend")
    dist.all_reduce(x, op=dist.ReduceOp.BAND)
    same(x, torch.tensor([4, 3]))


def rank_of_two(rank: int, store: str) -> None:
    if log := os.environ.get("ASCEND_STAND_IN_CALLS"):
        os.environ["ASCEND_STAND_IN_CALLS"] = f"{log}.{rank}"
    torch.manual_seed(0)
    torch.set_num_threads(1)
    device = torch.device("ascend", rank)
    torch.accelerator.set_device_index(rank)
    dist.init_process_group(
        init_method=f"file://{store}", rank=rank, world_size=2, device_id=device
    )
    collectives(rank)
    net = nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(72, 10)
    )
    x, y = torch.randn(32, 1, 8, 8), torch.randint(0, 10, (32,))

    def losses(net: nn.Module, x: torch.Tensor, y: torch.Tensor) -> list[float]:
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
        found = []
        for _ in range(4):
            optimizer.zero_grad()
            loss = F.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
            value = loss.detach().clone()
            if x.device.type != "cpu":
                dist.all_reduce(value, op=dist.ReduceOp.AVG)
            found.append(value.item())
        return found

    ours = DistributedDataParallel(copy.deepcopy(net).to(device), device_ids=[rank])
    said = {"ascend": losses(ours, x.chunk(2)[rank].to(device), y.chunk(2)[rank].to(device))}
    if rank == 0:
        print(json.dumps(said | {"cpu": losses(net, x, y)}))
    dist.destroy_process_group()


def ddp() -> None:
    """Two processes, each with a device: collectives, and DDP's losses beside one CPU's."""
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(rank_of_two, (f"{folder}/store",), nprocs=2)


def graph() -> None:
    """A captured step that is replayed with other inputs, and one that waits within its capture."""
    w, given = torch.randn(16, 16), [torch.randn(16, 16) for _ in range(4)]
    x, matrix = given[0].to("ascend"), w.to("ascend")

    def step(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return ((x @ w).relu() + x).softmax(-1)

    module = torch.get_device_module("ascend")
    step(x, matrix)
    made = module.CUDAGraph() if hasattr(module, "CUDAGraph") else module.Graph()
    with module.graph(made):
        out = step(x, matrix)
    for each in given:
        x.copy_(each)
        made.replay()
        torch.testing.assert_close(out.cpu(), step(each, w))
    print("equal")


def trace_of(work: Callable[[], object]) -> list[dict[str, object]]:
    """What a trace of `work` has of the device, each with its operator and what was launched."""
    activities = [ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]
    with profile(activities=activities) as p:
        work()
    with tempfile.TemporaryDirectory() as folder:
        p.export_chrome_trace(f"{folder}/trace.json")
        events = json.loads(Path(f"{folder}/trace.json").read_text())["traceEvents"]
    launches = {
        e["args"]["correlation"]: e["name"] for e in events if e.get("cat") == "privateuse1_runtime"
    }
    operators = {e["args"]["External id"]: e["name"] for e in events if e.get("cat") == "cpu_op"}
    return [
        {"name": e["name"], "kind": e["cat"], "us": e["dur"], "ts": e["ts"]}
        | {"operator": operators.get(e["args"].get("External id"))}
        | {"launch": launches[e["args"]["correlation"]]}
        for e in events
        if e.get("cat") in ("kernel", "gpu_memcpy")
    ]


def profiled() -> None:
    """A trace of a step, its gradients, and copies of each kind."""
    x = torch.randn(96, 96).to("ascend").requires_grad_()
    pinned = torch.ones(1 << 16).pin_memory()

    def work() -> None:
        (x @ x).relu().sum().backward()
        x.detach().clone()
        pinned.to("ascend", non_blocking=True)
        x.detach().cpu()

    work()
    print(json.dumps(trace_of(work)))


def profiled_long() -> None:
    """How many copies a trace of 600 has, each over before the next."""
    x = torch.ones(4, device="ascend")

    def work() -> None:
        for _ in range(600):
            x.clone()
            torch.accelerator.synchronize()

    print(json.dumps(trace_of(work)))


def profiled_threads() -> None:
    """A trace of two threads that launch different operators at one time."""
    x = torch.ones(4, 4, device="ascend")
    both = threading.Barrier(2)

    def many(function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        both.wait()
        for _ in range(200):
            function(x)

    def work() -> None:
        threads = [threading.Thread(target=many, args=(f,)) for f in (torch.exp, torch.relu)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    torch.exp(x), torch.relu(x)
    print(json.dumps(trace_of(work)))


def profiled_graph() -> None:
    """A trace of three replays of a captured step."""
    x = torch.ones(16, 16, device="ascend")
    module = torch.get_device_module("ascend")
    ((x @ x).relu() + x).softmax(-1)
    made = module.CUDAGraph() if hasattr(module, "CUDAGraph") else module.Graph()
    with module.graph(made):
        ((x @ x).relu() + x).softmax(-1)
    made.replay()
    print(json.dumps(trace_of(lambda: [made.replay() for _ in range(3)])))


def rank_in_a_trace(rank: int, store: str) -> None:
    torch.set_num_threads(1)
    device = torch.device("ascend", rank)
    torch.accelerator.set_device_index(rank)
    dist.init_process_group(
        init_method=f"file://{store}", rank=rank, world_size=2, device_id=device
    )
    x = torch.ones(400_000, device=device)
    parts = torch.empty(800_000, device=device)

    def work() -> None:
        y = x + 1
        dist.all_reduce(y)
        dist.broadcast(y, 0)
        dist.all_gather_into_tensor(parts, y)
        both = [dist.P2POp(dist.isend, x, 1 - rank), dist.P2POp(dist.irecv, y, 1 - rank)]
        for one in dist.batch_isend_irecv(both):
            one.wait()
        torch.accelerator.synchronize()

    work()
    if rank == 0:
        print(json.dumps(trace_of(work)))
    else:
        work()
    dist.destroy_process_group()


def profiled_collectives() -> None:
    """A trace of one of two processes: a kernel, collectives behind it, a message each way."""
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(rank_in_a_trace, (f"{folder}/store",), nprocs=2)


def batch_norm() -> None:
    """Results, saved values and gradients of a training batch norm, and which rungs served."""
    x, weight, bias = torch.randn(6, 3, 4), torch.randn(3), torch.randn(3)
    x[:, 1] *= 1e-4  # a variance that is small against eps
    grad = torch.randn_like(x)

    def results(device: str) -> list[torch.Tensor]:
        a, w, b, g = (t.to(device) for t in (x, weight, bias, grad))
        mean, variance = torch.zeros(3, device=device), torch.ones(3, device=device)
        out = torch.native_batch_norm(a, w, b, mean, variance, True, 0.1, 1e-5)
        back = torch.ops.aten.native_batch_norm_backward(
            g, a, w, mean, variance, out[1], out[2], True, 1e-5, [True, True, True]
        )
        return [t.cpu() for t in (*out, mean, variance, *back)]

    with causeway.ledger() as ledger:
        ours = results("ascend")
    torch.testing.assert_close(ours, results("cpu"), rtol=1e-4, atol=1e-4)
    norms = [row for row in ledger.rows if "batch_norm" in row.operator]
    print(json.dumps({"rungs": [row.rung for row in norms]}))


def narrow_batch_norm() -> None:
    """A training batch norm's gradients in 16 bits, of saved values that a forward gave."""
    for dtype in (torch.float16, torch.bfloat16):
        x, grad = torch.randn(6, 3, 4), torch.randn(6, 3, 4)
        x[:, 1] *= 1000  # whose variance float16 does not hold
        x[:, 2] *= 3e-3  # and one of about eps
        _, mean, deviation = torch.native_batch_norm(x, None, None, None, None, True, 0.1, 1e-5)
        given = [t.to(dtype) for t in (grad, x, mean, deviation)]

        def gradient(device: str, as_dtype: torch.dtype, given: list = given) -> torch.Tensor:
            g, x, mean, deviation = (t.to(as_dtype).to(device) for t in given)
            return torch.ops.aten.native_batch_norm_backward(
                g, x, None, None, None, mean, deviation, True, 1e-5, [True, False, False]
            )[0].cpu()

        exact = gradient("cpu", torch.float64)
        error = (gradient("ascend", dtype).double() - exact).abs().amax(dim=(0, 2))
        allowed = torch.finfo(dtype).eps * exact.abs().amax(dim=(0, 2))
        assert bool((error <= allowed).all()), (dtype, error, allowed)


def log_sigmoid() -> None:
    """Its result and the buffer, which another rung may read; each as often as is kept."""
    for dtype in (torch.float32, torch.float16):
        x = torch.linspace(-9, 9, 40).to(dtype)
        for _ in range(3):
            ours = torch.ops.aten.log_sigmoid_forward(x.to("ascend"))
            expected = torch.ops.aten.log_sigmoid_forward(x)
            torch.testing.assert_close([t.cpu() for t in ours], list(expected))


def nearest() -> None:
    """Nearest neighbours by scales: those of the sizes, and others, forward and backward."""
    for height, width, by, scales in (
        (4, 4, 1.7, (1.7, 1.7)),
        (9, 17, 1.7, (1.7, 1.7)),
        (4, 4, 1.7, (None, 1.7)),
        (9, 18, 5 / 3, (5 / 3, 5 / 3)),
        (3, 5, 2, (2.0, 2.0)),
        (4, 4, 1.5, (0.25, 2.0)),  # beyond the end of the input, where the CPU stops
    ):
        x = torch.randn(2, 3, height, width)
        size = [int(height * by), int(width * by)]

        def both(device: str, x: torch.Tensor = x, size: list = size, scales: tuple = scales):
            out = torch.ops.aten.upsample_nearest2d(x.to(device), size, *scales)
            back = torch.ops.aten.upsample_nearest2d_backward(out, size, x.shape, *scales)
            return [out.cpu(), back.cpu()]

        torch.testing.assert_close(both("ascend"), both("cpu"))


def fewer_bits() -> None:
    """How far products and convolutions are from the CPU's, before, with and after the switch."""
    x, w = torch.randn(40, 64), torch.randn(64, 8)
    image, kernel = torch.randn(2, 4, 9, 9), torch.randn(8, 4, 3, 3)

    def errors() -> list[float]:
        found = []
        for f, given in ((torch.mm, (x, w)), (F.conv2d, (image, kernel))):
            right, ours = f(*given), f(*[t.to("ascend") for t in given])
            found.append(float((ours.cpu() - right).abs().max() / right.abs().max()))
        return found

    said = [errors() for _ in range(3)]  # the third by kept executors
    torch.set_float32_matmul_precision("high")
    said += [errors() for _ in range(3)]
    torch.set_float32_matmul_precision("highest")
    print(json.dumps([*said, errors()]))


def determinism() -> None:
    """What AscendCL's switch is after each of torch's."""
    library = ctypes.CDLL(os.environ["CAUSEWAY_ASCEND_LIBRARIES"] + "/libascendcl.so")
    x, value, said = torch.ones(4, device="ascend"), ctypes.c_int64(-1), []
    for asked in (False, True, True, False):
        torch.use_deterministic_algorithms(asked)
        x.add_(1)
        library.aclrtGetSysParamOpt(0, ctypes.byref(value))
        said.append(value.value)
    print(json.dumps(said))


def kernels() -> None:
    """A kernel or two of each family on both devices, and the rungs that served beside moving."""
    x, square, odd = torch.randn(3, 70), torch.randn(70, 40), torch.randint(-9, 9, (3, 70))
    image, at = torch.randn(2, 4, 9, 9), torch.randint(0, 70, (3, 20))
    heads = torch.randn(1, 2, 33, 16)
    families: dict[str, Callable[[Callable[[torch.Tensor], torch.Tensor]], torch.Tensor]] = {
        "pointwise": lambda to: torch.erfinv(torch.tanh(to(x)) * 0.9) + to(x).bfloat16(),
        "whole numbers": lambda to: to(odd) // 4 + (to(odd) << 2),
        "reductions": lambda to: to(x).var(1) + to(x).argmax(1),
        "classes": lambda to: to(x).log_softmax(1),
        "scans": lambda to: to(x).half().cumsum(1),
        "sorting": lambda to: to(x).sort(1).indices,
        "products": lambda to: to(x) @ to(square),
        "convolution": lambda to: F.conv2d(to(image), to(image)[:, :, :3, :3], padding=1),
        "norms": lambda to: F.layer_norm(to(x), (70,)),
        "attention": lambda to: F.scaled_dot_product_attention(*[to(heads)] * 3, is_causal=True),
        "pooling": lambda to: F.max_pool2d(to(image), 2),
        "upsampling": lambda to: F.interpolate(to(image), scale_factor=2, mode="bilinear"),
        "index": lambda to: torch.zeros_like(to(x)).scatter_add(1, to(at), to(x)),
    }
    served: dict[str, list[str]] = {}
    for name, family in families.items():
        with causeway.ledger() as ledger:
            ours = family(lambda t: t.to("ascend"))
        served[name] = sorted(
            {row.rung for row in ledger.rows if row.rung not in ("native", "decomposed")}
        )
        torch.testing.assert_close(ours.cpu(), family(lambda t: t), rtol=1e-4, atol=1e-4)
    print(json.dumps(served))


def float64() -> None:
    """The rungs that served what the 950's threads do not have."""
    x = torch.linspace(-1, 1, 300, dtype=torch.float64).reshape(3, 100)
    mine, drawn = x.to("ascend"), torch.empty(5, device="ascend")
    served: dict[str, list[str]] = {}
    for name, run in {"logsumexp": lambda: mine.logsumexp(1), "normal_": drawn.normal_}.items():
        with causeway.ledger() as ledger:
            found = run()
        rows = [row.rung for row in ledger.rows if "copy" not in row.operator]
        served[name] = sorted(set(rows) - {"native"})
        if name == "logsumexp":
            torch.testing.assert_close(found.cpu(), x.logsumexp(1))
    # The first call finds out that no kernel takes it, the second knows.
    strides = [torch.abs(mine.t()).stride() for _ in range(2)]
    print(json.dumps(served | {"strides": strides}))


if __name__ == "__main__":
    torch.manual_seed(0)
    globals()[sys.argv[1]]()
