"""Graphs: what a stream was given, captured once and replayed.

They need kernels for what they capture, so a vendor with a compiler, or one with graphs of its own:
tests/graphs runs this file on the simulated chip with a compiler, in several set-ups.
"""

from __future__ import annotations

import gc
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

pytestmark = pytest.mark.usefixtures("captures")


@pytest.fixture
def capture(module) -> Callable[..., tuple[Any, Any]]:
    """capture(f): a graph of f(), after a warm-up, and what f() returned in the capture."""

    def capture(f: Callable[[], Any], warm_up: bool = True, **options: Any) -> tuple[Any, Any]:
        if warm_up:
            side = module.Stream()
            side.wait_stream(module.current_stream())
            with module.stream(side):
                f()
            module.current_stream().wait_stream(side)
        graph = module.CUDAGraph()
        with module.graph(graph, **options):
            result = f()
        return graph, result

    return capture


# --- numbers ------------------------------------------------------------------------------------


def test_torchs_own_graph_runs_nothing_before_its_replay(device, warmed) -> None:
    x = torch.zeros(2000, device=device)
    warmed(lambda: x.clone().add_(1))
    graph = torch.accelerator.Graph()
    with torch.Stream(device), graph:
        x += 1
    assert x.sum().item() == 0
    graph.replay()
    graph.replay()
    assert x.sum().item() == 4000


def test_replays_read_inputs_anew_and_write_results_in_place(device, capture) -> None:
    x, w = torch.randn(8, 16, device=device), torch.randn(16, 4, device=device)
    graph, y = capture(lambda: torch.softmax(x @ w, -1).sum(0))
    place = y.data_ptr()
    for _ in range(3):
        x.copy_(torch.randn(8, 16))
        graph.replay()
        torch.testing.assert_close(y, torch.softmax(x @ w, -1).sum(0))
    assert y.data_ptr() == place


class Block(nn.Module):
    def __init__(self, d: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.one, self.two = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.wide = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))
        self.drop, self.heads = nn.Dropout(0.1), heads

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, d = x.shape
        q, k, v = self.qkv(self.one(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        p = 0.1 if self.training else 0.0
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=p)
        x = x + self.out(seen.transpose(1, 2).reshape(b, t, d))
        return x + self.drop(self.wide(self.two(x)))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cells, self.out = nn.LSTM(8, 16, 2, batch_first=True, dropout=0.1), nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.cells(x)[0][:, -1])


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], torch.Tensor], int]] = {
    "mlp": (
        lambda: nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, 10)),
        lambda: torch.randn(32, 20),
        32,
    ),
    "cnn": (
        lambda: nn.Sequential(
            *(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(8, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(1)),
            *(nn.Flatten(), nn.Dropout(0.2), nn.Linear(16, 10)),
        ),
        lambda: torch.randn(16, 1, 16, 16),
        16,
    ),
    "gpt": (
        lambda: nn.Sequential(
            nn.Embedding(50, 32),
            Block(),
            Block(),
            nn.LayerNorm(32),
            nn.Flatten(0, 1),
            nn.Linear(32, 10),
        ),
        lambda: torch.randint(0, 50, (4, 16)),
        64,
    ),
    "lstm": (Recurrent, lambda: torch.randn(6, 5, 8), 6),
}


@pytest.mark.parametrize("model", MODELS)
def test_training_by_replays_gives_eagers_numbers(model: str, module, device) -> None:
    make, inputs, rows = MODELS[model]
    torch.manual_seed(1)
    data = [(inputs().to(device), torch.randint(0, 10, (rows,)).to(device)) for _ in range(20)]

    def begin() -> tuple[nn.Module, torch.optim.Optimizer]:
        torch.manual_seed(0)
        net = make().to(device)
        return net, torch.optim.AdamW(net.parameters(), lr=1e-2, capturable=True)

    def step(net: nn.Module, optimizer: torch.optim.Optimizer, x: Any, y: Any) -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        return loss

    net, optimizer = begin()
    torch.manual_seed(7)
    expected = [step(net, optimizer, x, y).item() for x, y in data]

    replayed, optimizer = begin()
    torch.manual_seed(7)
    side, got = module.Stream(), []
    side.wait_stream(module.current_stream())
    with module.stream(side):
        got += [step(replayed, optimizer, x, y).item() for x, y in data[:3]]
    module.current_stream().wait_stream(side)
    x, y = (t.clone() for t in data[0])
    graph = module.CUDAGraph()
    optimizer.zero_grad()
    with module.graph(graph):
        loss = step(replayed, optimizer, x, y)
    for now in data[3:]:
        x.copy_(now[0])
        y.copy_(now[1])
        graph.replay()
        got.append(loss.item())
    assert got == expected
    for a, b in zip(net.parameters(), replayed.parameters(), strict=True):
        assert torch.equal(a, b)


def test_random_numbers_go_on_from_replay_to_replay(device, module, capture, warmed) -> None:
    warmed(lambda: (torch.rand(1, device=device), torch.randn(1, device=device)))
    own = torch.Generator(device)
    own.manual_seed(3)
    torch.manual_seed(5)
    expected = [
        (torch.rand(10, device=device), torch.randn(7, device=device, generator=own))
        for _ in range(4)
    ]
    own.manual_seed(3)
    torch.manual_seed(5)
    graph, (a, b) = capture(
        lambda: (torch.rand(10, device=device), torch.randn(7, device=device, generator=own)),
        warm_up=False,
    )
    for x, y in expected[:3]:
        graph.replay()
        assert torch.equal(a, x)
        assert torch.equal(b, y)
    assert torch.equal(torch.rand(10, device=device), expected[3][0])


def test_dropout_is_another_one_in_each_replay(device, capture) -> None:
    x = torch.ones(1000, device=device)
    graph, y = capture(lambda: F.dropout(x, 0.5))
    seen = set()
    for _ in range(4):
        graph.replay()
        seen.add(tuple(y.cpu().tolist()))
    assert len(seen) == 4


def _heads(x: torch.Tensor) -> list[torch.Tensor]:
    return [x.view(1, 2, 16, 8)] * 3


RANDOM: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "rand": torch.rand_like,
    "randn": torch.randn_like,
    "uniform": lambda x: x.clone().uniform_(2, 3),
    "normal": lambda x: x.clone().normal_(1, 2),
    "exponential": lambda x: x.clone().exponential_(),
    "bernoulli number": lambda x: x.clone().bernoulli_(0.3),
    "bernoulli": lambda x: torch.bernoulli(torch.full_like(x, 0.4)),
    "randint": lambda x: torch.randint(0, 1000, (50,), device=x.device),
    "random": lambda x: torch.zeros(40, dtype=torch.int64, device=x.device).random_(),
    "randperm": lambda x: torch.randperm(30, device=x.device),
    "multinomial": lambda x: torch.multinomial(torch.ones(20, device=x.device), 15),
    "multinomial again": lambda x: torch.multinomial(torch.ones(9, device=x.device), 30, True),
    "dropout": lambda x: F.dropout(x + 1, 0.4),
    "feature dropout": lambda x: F.dropout2d(x.view(1, 8, 4, 8) + 1, 0.4),
    "attention": lambda x: F.scaled_dot_product_attention(
        *[x.view(1, 2, 16, 8)] * 3, dropout_p=0.3
    ),
    "attention without": lambda x: F.scaled_dot_product_attention(*[x.view(1, 2, 16, 8)] * 3),
}


@pytest.mark.parametrize("operator", RANDOM)
def test_each_random_operator_draws_in_replays_what_eager_draws(
    operator: str, device, capture, warmed
) -> None:
    f, x = RANDOM[operator], torch.linspace(-1, 1, 256).to(device)
    warmed(lambda: f(x))
    torch.manual_seed(11)
    expected = [f(x).cpu() for _ in range(4)]
    graph, y = capture(lambda: f(x))
    torch.manual_seed(11)
    for one in expected[:3]:
        graph.replay()
        assert torch.equal(y.cpu(), one)
    assert torch.equal(f(x).cpu(), expected[3])


def test_a_checkpointed_part_draws_the_same_again(device, module) -> None:
    def train(captured: bool) -> list[float]:
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, 8))
        head = nn.Sequential(nn.Dropout(0.3), nn.Linear(8, 2))
        net, head = net.to(device), head.to(device)
        optimizer = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=0.1)
        x = torch.randn(16, 8, device=device)

        def step() -> torch.Tensor:
            optimizer.zero_grad()
            seen = torch.utils.checkpoint.checkpoint(net, x, use_reentrant=False)
            loss = head(seen).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        torch.manual_seed(4)
        side = module.Stream()
        side.wait_stream(module.current_stream())
        with module.stream(side):
            losses = [step().item() for _ in range(2)]
        module.current_stream().wait_stream(side)
        if not captured:
            return losses + [step().item() for _ in range(5)]
        graph = module.CUDAGraph()
        with module.graph(graph):
            loss = step()
        for _ in range(5):
            graph.replay()
            losses.append(loss.item())
        return losses

    assert train(True) == train(False)


def test_results_outlive_their_graph(device, module, capture) -> None:
    x = torch.ones(1000, device=device)
    graph, y = capture(lambda: x * 3 + 1)
    graph.replay()
    del graph
    gc.collect()
    module.empty_cache()
    others = [torch.zeros(1000, device=device) for _ in range(8)]
    assert y.sum().item() == 4000
    assert all(t.sum().item() == 0 for t in others)


def test_a_graph_reads_what_one_before_it_in_the_same_pool_wrote(device, module, capture) -> None:
    x, pool = torch.zeros(256, device=device), module.graph_pool_handle()
    first, y = capture(lambda: (x + 1) * 2, pool=pool)
    second, z = capture(lambda: (y * 3).sum() + (y - 1).sum(), pool=pool)
    for n in range(4):
        x.fill_(n)
        first.replay()
        second.replay()
        assert z.item() == 256 * (4 * (2 * (n + 1)) - 1)


def test_scaled_gradients_are_captured_and_the_step_is_outside(device, module) -> None:
    def train(captured: bool) -> list[float]:
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).to(device)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler(device.type, init_scale=128.0)
        x = torch.randn(16, 8, device=device)

        def backward() -> torch.Tensor:
            with torch.autocast(device.type, torch.bfloat16, cache_enabled=False):
                loss = net(x).float().square().mean()
            scaler.scale(loss).backward()
            return loss

        losses, graph = [], module.CUDAGraph()
        for i in range(6):
            if captured and i == 2:
                loss = None  # its nodes are of the default stream
                optimizer.zero_grad()
                with module.graph(graph):
                    loss = backward()
            if captured and i >= 2:
                graph.replay()
            else:
                optimizer.zero_grad()
                loss = backward()
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.item())
        return losses

    assert train(True) == train(False)


def test_an_index_out_of_range_in_a_replay_is_an_error_at_the_next_wait(run) -> None:
    """In a process of its own: a chip whose kernel fails may be lost by it."""
    done = run(
        """
        import torch, torch.nn.functional as F
        module = torch.get_device_module("DEVICE")
        table = torch.randn(4, 3, device="DEVICE")
        at = torch.tensor([1, 2], device="DEVICE")
        F.embedding(at, table)
        graph = module.CUDAGraph()
        with module.graph(graph):
            y = F.embedding(at, table)
        graph.replay()
        torch.testing.assert_close(y, table[1:3])
        at.fill_(9)
        try:
            graph.replay()  # a vendor that works at once says it here
            torch.accelerator.synchronize()
        except (IndexError, RuntimeError) as error:
            print(error)
        """
    )
    assert re.search("index 9 is (out of range|outside)", done.stdout)


# --- what a capture refuses ---------------------------------------------------------------------


REFUSED: dict[str, tuple[Callable[[torch.Tensor], Any], str]] = {
    "item": (lambda x: x.sum().item(), "the host reads"),
    "condition": (lambda x: bool(x.sum() > 0), "the host reads"),
    "size": (torch.nonzero, "depends on data|runs on the host"),
    "mask": (lambda x: x[x > 0], "depends on data|runs on the host"),
    "to the host": (lambda x: x.cpu(), "a copy to the host"),
    "from the host": (lambda x: torch.ones(3).to(x.device), "a copy from the host"),
    "on the host": (lambda x: torch.linalg.svd(x.view(1, -1)), "runs on the host"),
    "device": (lambda x: torch.accelerator.synchronize(), "a wait of the host"),
    "stream": (lambda x: torch.accelerator.current_stream().synchronize(), "a wait of the host"),
    "query": (lambda x: torch.accelerator.current_stream().query(), "whether the stream is done"),
    "seed": (lambda x: torch.manual_seed(3), "seed, offset or state"),
    "state": (
        lambda x: torch.get_device_module().set_rng_state(torch.zeros(16, dtype=torch.uint8)),
        "seed, offset or state",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
@pytest.mark.parametrize("by_torch", [False, True])
def test_what_a_replay_could_not_repeat_is_refused(
    what: str, by_torch: bool, device, module, warmed
) -> None:
    f, said = REFUSED[what]
    x = torch.randn(16, device=device)
    warmed(lambda: (x > 0, (x * 2).sum() > 0))
    module.synchronize()
    module.empty_cache()
    before = module.memory_allocated()
    graph: Any = torch.accelerator.Graph() if by_torch else module.CUDAGraph()
    body = graph if by_torch else module.graph(graph)
    with pytest.raises(RuntimeError, match=said) as raised, torch.Stream(device), body:  # noqa: PT012
        y = x * 2
        f(y)
    assert "a graph is being captured on" in str(raised.value)
    del y, raised
    gc.collect()
    assert module.memory_allocated() == before
    # The same stream, and the same graph, can capture what is left.
    with torch.Stream(device), body if by_torch else module.graph(graph):
        y = x * 2
    graph.replay()
    torch.testing.assert_close(y, x * 2)


@pytest.mark.parametrize(
    ("optimizer", "options", "advice"),
    [
        (torch.optim.AdamW, {}, "capturable=True"),
        (torch.optim.Adagrad, {}, "Step outside"),
    ],
)
def test_an_optimizer_that_counts_on_the_host_is_refused(
    optimizer, options, advice, device, module
) -> None:
    net = nn.Linear(3, 3).to(device)
    made = optimizer(net.parameters(), **options)
    net(torch.ones(1, 3, device=device)).sum().backward()
    made.step()
    with (
        pytest.raises(RuntimeError, match=f"count of steps.*{advice}"),
        module.graph(module.CUDAGraph()),
    ):
        made.step()


def test_misuse_is_an_error(device, module, has_streams) -> None:
    graph = module.CUDAGraph()
    with pytest.raises(RuntimeError, match="is empty"):
        graph.replay()
    with pytest.raises(RuntimeError, match="no capture of this graph has begun"):
        graph.capture_end()
    with pytest.raises(ValueError, match="capture_error_mode"):
        graph.capture_begin(capture_error_mode="globl")
    if has_streams:
        with pytest.raises(RuntimeError, match="default stream"):
            graph.capture_begin()
    x = torch.ones(3, device=device)
    with module.graph(graph):
        _ = x + 1
    with pytest.raises(RuntimeError, match=r"reset\(\) it"), module.stream(module.Stream()):
        graph.capture_begin()
    other = module.CUDAGraph()
    with pytest.raises(RuntimeError, match="the replay of another graph"), module.graph(other):
        graph.replay()
    with pytest.raises(RuntimeError, match="enable_debug_mode"):
        graph.debug_dump("nowhere.dot")


def test_an_error_of_the_program_ends_the_capture_and_stays_itself(device, module) -> None:
    graph = module.CUDAGraph()
    with pytest.raises(KeyError, match="mine"), module.graph(graph):
        raise KeyError("mine")
    with pytest.raises(RuntimeError, match="is empty"):
        graph.replay()


# --- streams ------------------------------------------------------------------------------------


@pytest.fixture
def streams(has_streams: bool) -> None:
    if not has_streams:
        pytest.skip("one stream")


def test_a_capture_goes_over_streams_that_wait_for_each_other(
    streams, device, module, capture
) -> None:
    x = torch.zeros(512, 512, device=device)
    other = module.Stream()

    def work() -> torch.Tensor:
        here = module.current_stream()
        y = x + 1
        other.wait_stream(here)
        with module.stream(other):
            z = (y * 2) @ y
        y2 = y - 3
        here.wait_stream(other)
        return z + y2

    graph, result = capture(work)
    for n in range(3):
        x.fill_(n)
        graph.replay()
        torch.testing.assert_close(result, work())


def test_work_that_is_not_joined_is_an_error(streams, device, module) -> None:
    x, other = torch.ones(3, device=device), module.Stream()
    with pytest.raises(RuntimeError, match="did not wait for"), module.graph(module.CUDAGraph()):  # noqa: PT012
        other.wait_stream(module.current_stream())
        with module.stream(other):
            _ = x + 1
    with module.stream(other):
        assert (x + 1).sum().item() == 6


def test_events_of_a_capture_are_its_edges_alone(streams, device, module) -> None:
    event, x = module.Event(), torch.ones(3, device=device)
    with module.graph(module.CUDAGraph()):
        _ = x + 1
        event.record()
    with pytest.raises(RuntimeError, match="an edge of the graph"):
        event.synchronize()
    with pytest.raises(RuntimeError, match="the capture of a graph that is over"):
        module.current_stream().wait_event(event)
    event.record()
    event.synchronize()


def test_other_threads_work_while_one_captures(streams, device, module, warmed) -> None:
    x, done = torch.ones(100, device=device), []
    warmed(lambda: x * 2 + 1)

    def work() -> None:
        done.append((torch.ones(50, device=device) * 3).sum().item())

    graph = module.CUDAGraph()
    with module.graph(graph):
        y = x * 2
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        z = y + 1
    graph.replay()
    assert done == [150.0]
    assert z.sum().item() == 300


def test_replays_on_other_streams_come_one_after_the_other(
    streams, device, module, capture
) -> None:
    x = torch.zeros(300, 300, device=device)
    one = torch.eye(300, device=device)

    def work() -> None:
        x.copy_((x @ one) + 1)

    graph, _ = capture(work)
    x.zero_()
    module.synchronize()
    for _ in range(10):
        with module.stream(module.Stream()):
            graph.replay()
    module.synchronize()
    assert x.unique().tolist() == [10.0]


# --- memory -------------------------------------------------------------------------------------


def test_a_graphs_memory_is_its_own_until_it_is_reset(device, module, capture) -> None:
    x = torch.ones(1 << 20, device=device)
    module.empty_cache()
    before = module.memory_reserved()
    graph, y = capture(lambda: (x * 2) * 3 + x)
    held = module.memory_reserved()
    assert held > before
    others = [torch.full((1 << 20,), 5.0, device=device) for _ in range(4)]
    graph.replay()
    assert y.sum().item() == 7 << 20
    assert all(t.sum().item() == 5 << 20 for t in others)
    del others
    module.empty_cache()
    graph.replay()
    assert y.sum().item() == 7 << 20
    del y
    graph.reset()
    module.empty_cache()
    assert module.memory_reserved() <= held - (4 << 20)


def test_graphs_that_share_a_pool_use_the_same_memory(device, module, capture) -> None:
    x = torch.ones(1 << 20, device=device)

    def reserved(pool: Any) -> int:
        module.empty_cache()
        before = module.memory_reserved()
        graphs = []
        for _ in range(3):
            graph, y = capture(lambda: torch.sum(x * 2 * 3), pool=pool)
            graphs.append((graph, y))
        for graph, y in graphs:
            graph.replay()
            assert y.item() == 6 << 20
        module.empty_cache()
        return module.memory_reserved() - before

    assert reserved(module.graph_pool_handle()) < reserved(None)


def test_pinned_memory_is_copied_anew_and_kept_for_the_graph(device, capture, warmed) -> None:
    warmed(lambda: torch.ones(8, device=device) * 2)
    held = [torch.arange(8.0).pin_memory()]
    graph, y = capture(lambda: held[0].to(device, non_blocking=True) * 2, warm_up=False)
    graph.replay()
    assert y.tolist() == [2.0 * n for n in range(8)]
    held[0].add_(1)
    graph.replay()
    assert y.tolist() == [2.0 * n + 2 for n in range(8)]
    place = held.pop().data_ptr()
    fresh = [torch.zeros(8).pin_memory() for _ in range(4)]
    assert place not in [t.data_ptr() for t in fresh]
    del fresh
    graph.reset()


def test_memory_that_two_streams_use_is_free_after_the_capture(
    streams, device, module, warmed
) -> None:
    other, graph = module.Stream(), module.CUDAGraph()
    x = torch.ones(1000, device=device)
    warmed(lambda: x * 2 + (x + 1))
    with module.graph(graph):
        here = module.current_stream()
        y = x * 2
        other.wait_stream(here)
        with module.stream(other):
            z = y + 1
        y.record_stream(other)
        del y
        w = x * 5
        here.wait_stream(other)
        result = z + w
    graph.replay()
    assert result.sum().item() == 8000


# --- the rest of the interface --------------------------------------------------------------------


def test_a_kept_graph_is_made_ready_by_its_first_replay(device, module, warmed) -> None:
    x, graph = torch.zeros(4, device=device), module.CUDAGraph(keep_graph=True)
    warmed(lambda: x.clone().add_(1))
    with module.graph(graph):
        x += 1
    graph.replay()
    graph.instantiate()
    graph.replay()
    assert x.tolist() == [2.0] * 4


def test_the_steps_of_a_graph_are_written_for_people(
    device, module, warmed, tmp_path: Path
) -> None:
    x, graph = torch.ones(4, device=device), module.CUDAGraph()
    warmed(lambda: torch.exp(x) * 2)
    graph.enable_debug_mode()
    with module.graph(graph):
        _ = torch.exp(x) * 2
    graph.debug_dump(str(tmp_path / "graph.dot"))
    text = (tmp_path / "graph.dot").read_text()
    assert text.startswith("digraph")
    assert "aten::exp" in text
    assert len(graph) == 2


def test_a_replay_is_seen_in_a_trace(device, module, capture) -> None:
    x = torch.ones(4, device=device)
    graph, _ = capture(lambda: torch.exp(x) * 2)
    with torch.profiler.profile() as trace:
        graph.replay()
        module.synchronize()
    names = [e.name for e in trace.events()]
    assert sum("exp" in n for n in names) >= 1


def test_graphed_callables_train_as_without(device, module) -> None:
    def train(graphed: bool) -> list[float]:
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4)).to(device)
        head = nn.Linear(4, 2).to(device)
        x = torch.randn(5, 6, device=device)
        if graphed:
            h = torch.randn(5, 4, device=device, requires_grad=True)
            net, head = module.make_graphed_callables((net, head), ((x,), (h,)))
        optimizer = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=0.1)
        torch.manual_seed(9)
        losses = []
        for _ in range(6):
            optimizer.zero_grad()
            data = torch.randn(5, 6).to(device)
            loss = F.mse_loss(head(net(data)), torch.ones(5, 2, device=device))
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        net.eval()
        losses.append(net(x).sum().item())
        return losses

    assert train(True) == pytest.approx(train(False), abs=1e-6)


def test_graphed_callables_say_what_they_cannot_take(device, module) -> None:
    net, x = nn.Linear(3, 3).to(device), torch.ones(2, 3, device=device)
    with pytest.raises(ValueError, match="must be tensors"):
        module.make_graphed_callables(net, (x, 3))
    graphed = module.make_graphed_callables(net, (x,))
    with pytest.raises(ValueError, match=r"argument 0 was captured as torch.float32 \(2, 3\)"):
        graphed(torch.ones(4, 3, device=device))
    hooked = nn.Linear(3, 3).to(device)
    hooked.register_forward_hook(lambda *a: None)
    with pytest.raises(ValueError, match="forward_hooks"):
        module.make_graphed_callables(hooked, (x,))
