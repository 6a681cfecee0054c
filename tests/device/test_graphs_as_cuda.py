"""Graphs do what torch asks of CUDA's: the checks of torch's own test/test_cuda.py, in our form.

tests/graphs runs this file on the simulated chip with a compiler, in several set-ups.
"""

from __future__ import annotations

import gc
import threading
import warnings
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

pytestmark = pytest.mark.usefixtures("captures")


@pytest.fixture
def streams(has_streams: bool) -> None:
    if not has_streams:
        pytest.skip("one stream")


def beside(module, f: Callable[[], Any]) -> Any:
    """f() on a stream of its own, before and after what the current one is given."""
    side = module.Stream()
    side.wait_stream(module.current_stream())
    with module.stream(side):
        result = f()
    module.current_stream().wait_stream(side)
    return result


def doubled(t: torch.Tensor, value: float) -> torch.Tensor:
    x = t.clone() + value
    y = t.clone() + value
    return x + y


# --- the capture itself -------------------------------------------------------------------------


def test_a_stream_says_that_it_is_captured(device, module) -> None:
    torch.ones(3, device=device).add_(1)
    one, other = module.Stream(), torch.Stream(device)
    graph, by_torch = module.CUDAGraph(), torch.accelerator.Graph()
    with module.stream(one):
        assert not one.is_capturing()
        graph.capture_begin()
        assert one.is_capturing()
        torch.ones(3, device=device).add_(1)
        graph.capture_end()
    assert not one.is_capturing()
    with other, by_torch:
        assert other.is_capturing()
        torch.ones(3, device=device).add_(1)
    assert not torch.accelerator.current_stream().is_capturing()


def test_a_graph_is_reset_and_captures_again(device, module, warmed) -> None:
    graph, a = module.CUDAGraph(), torch.ones(1000, device=device)
    warmed(lambda: a.clone().fill_(2) + 2)

    def first() -> torch.Tensor:
        graph.capture_begin()
        b = a + 1 + 1
        graph.capture_end()
        return b

    b = beside(module, first)
    graph.replay()
    assert b.sum().item() == 3000
    graph.reset()

    def second() -> torch.Tensor:
        graph.capture_begin()
        b.fill_(2)  # memory of the capture that is gone
        c = b + 2 + 2
        graph.capture_end()
        return c

    c = beside(module, second)
    graph.replay()
    assert c.sum().item() == 6000


@pytest.mark.parametrize("by_torch", [False, True])
def test_a_capture_of_nothing_warns(by_torch: bool, device, module) -> None:
    graph: Any = torch.accelerator.Graph() if by_torch else module.CUDAGraph()
    with torch.Stream(device):
        graph.capture_begin()
        with pytest.warns(UserWarning, match="nothing was captured"):
            graph.capture_end()
    graph.replay()


@pytest.mark.parametrize("by_torch", [False, True])
def test_a_graph_that_is_not_kept_is_not_made_ready_by_hand(
    by_torch: bool, device, module, warmed
) -> None:
    x = torch.zeros(4, device=device)
    warmed(lambda: x.clone().add_(1))
    graph: Any = torch.accelerator.Graph() if by_torch else module.CUDAGraph()
    with torch.Stream(device), graph if by_torch else module.graph(graph):
        x += 1
    with pytest.raises(RuntimeError, match="keep_graph=True"):
        graph.instantiate()
    graph.replay()
    assert x.tolist() == [1.0] * 4


def test_a_kept_graph_is_made_ready_more_than_once(device, module, warmed) -> None:
    graph = module.CUDAGraph(keep_graph=True)
    warmed(lambda: torch.zeros(4, device=device).add_(1.0))
    for value in (1.0, 2.0):
        x = torch.zeros(4, device=device)
        with module.graph(graph, capture_error_mode="relaxed"):
            x += value
        for n in (1, 2, 3):
            graph.instantiate()
            graph.replay()
            assert x.tolist() == [n * value] * 4
        graph.reset()


def test_out_of_memory_in_a_capture_ends_it(device, module) -> None:
    with pytest.raises(torch.OutOfMemoryError), module.graph(module.CUDAGraph()):
        torch.zeros(2**40, device=device)


@pytest.mark.parametrize("mode", ["global", "thread_local", "relaxed"])
def test_other_threads_allocate_while_one_captures(mode: str, streams, device, module) -> None:
    x = torch.ones(2000, device=device)
    _ = x + x

    def allocate() -> None:
        with module.stream(module.Stream()):
            module.caching_allocator_delete(module.caching_allocator_alloc(1024))

    graph = module.CUDAGraph()
    with module.graph(graph, capture_error_mode=mode):
        y = x + x
        thread = threading.Thread(target=allocate)
        thread.start()
        thread.join()
    graph.replay()
    assert y.sum().item() == 4000


def test_inputs_that_are_gone_are_told_at_a_replay(device, module, warmed) -> None:
    kept, x = torch.ones(100, device=device), torch.ones(100, device=device)
    warmed(lambda: (kept + kept) * 2)
    graph = module.CUDAGraph()
    with module.graph(graph, check_input_liveness=True):
        y = (x + kept) * 2
    graph.replay()
    assert y.sum().item() == 400
    del x
    with pytest.raises(RuntimeError, match=r"1 tensors that are gone: \(100,\).*aten.add.Tensor"):
        graph.replay()
    graph.reset()
    with module.graph(graph):
        y = kept * 2
    graph.replay()


# --- operators that the host would take ---------------------------------------------------------


LOSSES: dict[str, Callable[..., torch.Tensor]] = {
    "mse": F.mse_loss,
    "smooth l1": F.smooth_l1_loss,
    "huber": F.huber_loss,
    "bce": lambda x, y: F.binary_cross_entropy(torch.sigmoid(x), torch.sigmoid(y)),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_an_operator_with_a_decomposition_is_captured_by_it(loss: str, device, module) -> None:
    f = LOSSES[loss]
    x, y = torch.randn(6, 10, device=device), torch.randn(6, 10, device=device)
    w = torch.ones(10, device=device, requires_grad=True)

    def work() -> tuple[torch.Tensor, torch.Tensor]:
        value = f(x * w, y)
        return value, torch.autograd.grad(value, w)[0]

    beside(module, work)
    graph = module.CUDAGraph()
    with module.graph(graph):
        got = work()
    for _ in range(2):
        x.copy_(torch.randn(6, 10))
        graph.replay()
        torch.testing.assert_close(got, work())


# --- random numbers -----------------------------------------------------------------------------


def test_states_of_a_generator_go_on_apart(device, module, warmed) -> None:
    warmed(lambda: torch.rand(5, device=device, generator=module.default_generators[0]))

    def states(generator: torch.Generator) -> tuple[Any, ...]:
        torch.rand(1, device=device)
        generator.manual_seed(0)
        return generator, generator.graphsafe_get_state(), generator.clone_state()

    def draw(of: tuple[Any, ...]) -> list[torch.Tensor]:
        generator, old, new = of
        generator.graphsafe_set_state(new)
        values = [torch.rand(5, device=device, generator=generator)]
        generator.graphsafe_set_state(old)
        return values + [torch.rand(5, device=device, generator=generator) for _ in range(2)]

    eager, captured = states(torch.Generator(device)), states(module.default_generators[0])
    graph = module.CUDAGraph()
    for state in captured[1:]:
        graph.register_generator_state(state)
    with module.graph(graph):
        values = draw(captured)
    for _ in range(3):
        expected = draw(eager)
        graph.replay()
        assert [s.get_offset() for s in eager[1:]] == [s.get_offset() for s in captured[1:]]
        for a, b in zip(expected, values, strict=True):
            assert torch.equal(a, b)


def test_generators_and_graphs_leave_no_memory(empty_cache, device, module, warmed) -> None:
    warmed(lambda: torch.rand(1, device=device))
    module.empty_cache()

    def active() -> tuple[int, int]:
        stats = module.memory_stats()
        return stats["active.all.current"], stats["active_bytes.all.current"]

    before = active()
    graphs = [module.CUDAGraph() for _ in range(4)]
    for graph in graphs:
        with module.graph(graph):
            torch.rand(1, device=device)
        graph.replay()
    del graph, graphs
    gc.collect()
    module.empty_cache()
    assert active() == before


@pytest.mark.parametrize("name", ["cauchy_", "geometric_", "log_normal_", "random_"])
def test_distributions_follow_the_seed_of_the_replay(name: str, device, module, warmed) -> None:
    options = (0.3,) if name == "geometric_" else ()
    first, second = torch.zeros(1000, device=device), torch.zeros(1000, device=device)
    warmed(lambda: getattr(first, name)(*options))
    graph = module.CUDAGraph()
    with module.graph(graph):
        getattr(first, name)(*options)
        getattr(second, name)(*options)
    for seed in (6, 314):
        torch.manual_seed(seed)
        expected = [getattr(torch.zeros(1000, device=device), name)(*options) for _ in range(3)]
        torch.manual_seed(seed)
        getattr(torch.zeros(1000, device=device), name)(*options)
        graph.replay()
        assert torch.equal(first, expected[1])
        assert torch.equal(second, expected[2])


def test_graphs_and_eager_draw_in_turn(device, module) -> None:
    a = torch.randn(1000, device=device)
    torch.manual_seed(5)
    expected = a
    for _ in range(6):
        expected = F.dropout(expected, 0.1)
    x, graph = a.clone(), module.CUDAGraph()
    torch.manual_seed(5)
    with module.graph(graph):
        y = F.dropout(F.dropout(x, 0.1), 0.1)
    graph.replay()
    x.copy_(F.dropout(F.dropout(y, 0.1), 0.1))
    graph.replay()
    assert torch.equal(y, expected)


# --- events -------------------------------------------------------------------------------------


def test_external_events_time_a_part_of_a_replay(streams, device, module) -> None:
    x = torch.randn(300, 300, device=device)
    _ = x @ x
    begin, end = (module.Event(enable_timing=True, external=True) for _ in range(2))
    graph = module.CUDAGraph()
    with module.graph(graph):
        begin.record()
        y = x @ x
        end.record()
        _ = y + 1
    with pytest.raises(RuntimeError, match="two recorded events"):
        begin.elapsed_time(end)
    graph.replay()
    module.synchronize()
    first = begin.elapsed_time(end)
    assert first > 0
    graph.replay()
    end.synchronize()
    assert end.query()
    torch.testing.assert_close(y, x @ x)


def test_a_replay_waits_for_an_external_event_as_it_then_is(
    streams, device, module, warmed
) -> None:
    events = {name: module.Event(external=True) for name in ("ready", "done")}
    x, one = torch.zeros(200, 200, device=device), torch.eye(200, device=device)
    warmed(lambda: x + 1)
    producer, graph = module.Stream(), module.CUDAGraph()

    def produce(value: float) -> None:
        with module.stream(producer):
            events["done"].wait()
            x.fill_(value)
            for _ in range(5):
                x.copy_(x @ one)
            events["ready"].record()

    produce(0)
    with module.graph(graph):
        events["ready"].wait()
        y = x + 1
        events["done"].record()
    for value in (1.0, 2.0, 3.0):
        produce(value)
        graph.replay()
        assert y.unique().tolist() == [value + 1]
    events.clear()  # the graph keeps its events
    gc.collect()
    graph.replay()
    module.synchronize()


def test_memory_used_across_streams_before_and_in_a_capture_is_given_back_after_it(
    streams, device, module
) -> None:
    a, before = torch.zeros(3, device=device), torch.zeros(3, device=device)
    a.clone().fill_(1)
    one, two, graph = module.Stream(), module.Stream(), module.CUDAGraph()
    with module.stream(one):
        before.record_stream(one)
        before.fill_(1)
    del before
    with module.graph(graph):
        here = module.current_stream()
        b = a.clone()
        two.wait_stream(here)
        with module.stream(two):
            b.fill_(1)
            b.record_stream(two)
            del b
        here.wait_stream(two)
    graph.replay()
    module.synchronize()
    torch.zeros(3, device=device)


def test_the_steps_of_several_streams_are_written_for_people(streams, device, module, tmp_path):
    x, other, graph = torch.ones(8, device=device), module.Stream(), module.CUDAGraph()
    _ = x + x
    graph.enable_debug_mode()
    with module.graph(graph):
        here = module.current_stream()
        y = x + x
        with module.stream(other):
            other.wait_stream(here)
            _ = y + x
        here.wait_stream(other)
    graph.debug_dump(str(tmp_path / "graph.dot"))
    text = (tmp_path / "graph.dot").read_text()
    assert "stream 0: aten::add" in text
    assert "stream 1: aten::add" in text


# --- memory -------------------------------------------------------------------------------------


@pytest.mark.parametrize("shared", ["", "pool", "handle"])
def test_graphs_in_turn_with_eager_work_between_them(
    shared: str, empty_cache, device, module
) -> None:
    a = torch.ones(1000, device=device)
    doubled(a, 1)
    handle = module.graph_pool_handle() if shared == "handle" else None
    first, second = module.CUDAGraph(), module.CUDAGraph()
    with module.graph(first, pool=handle):
        b = a.clone()
        for _ in range(5):
            b = doubled(b, 1)
    with module.graph(second, pool=first.pool() if shared == "pool" else handle):
        for _ in range(5):
            b = doubled(b, 1)
    c = a.clone()
    for graph in (first, second, None):
        for _ in range(2):
            c = doubled(c, 3)
        if graph:
            graph.replay()
    assert b.sum().item() == 1000 * 3070
    assert c.sum().item() == 1000 * 442
    pools = {s["segment_pool_id"] for s in module.memory_snapshot()} - {(0, 0)}
    assert len(pools) == (1 if shared else 2)


@pytest.mark.parametrize("shared", [False, True])
def test_memory_that_was_freed_between_two_captures_is_the_next_ones(
    shared: bool, device, module
) -> None:
    a = torch.ones(1000, device=device)
    _ = a + 1
    pool = module.graph_pool_handle() if shared else None
    graphs = [module.CUDAGraph() for _ in range(3)]
    with module.graph(graphs[0], pool=pool):
        b = a.clone()
        c, d = b + 1, b + 2
    with module.graph(graphs[1], pool=pool):
        e = c + 3
        del c
    with module.graph(graphs[2], pool=pool):
        f = d + 4
    for graph in graphs:
        graph.replay()
    assert (e.sum().item(), f.sum().item()) == (5000, 7000)
    # Out of turn, the third has written over what the second reads where they share memory.
    for i in (0, 2, 1):
        graphs[i].replay()
    assert (e.sum().item(), f.sum().item()) == (10000 if shared else 5000, 7000)


@pytest.mark.parametrize(
    ("bytes_", "segments", "segment", "kind"),
    [
        (512, 1, 2 << 20, "small"),
        (1 << 20, 2, 2 << 20, "small"),
        ((10 << 20) + 512, 3, 12 << 20, "large"),
    ],
)
def test_a_result_keeps_its_own_segment_of_a_graph_that_is_gone(
    bytes_: int, segments: int, segment: int, kind: str, empty_cache, device, module
) -> None:
    def stats() -> list[int]:
        names = ("segment", "reserved_bytes", "active", "active_bytes")
        now = module.memory_stats()
        return [now[f"{name}.{kind}_pool.current"] for name in names]

    def since(before: list[int]) -> list[int]:
        return [b - a for a, b in zip(before, stats(), strict=True)]

    n = (bytes_ - module.get_device_properties().padding) // 4
    graph, side = module.CUDAGraph(), module.Stream()
    with module.stream(side):
        a = torch.ones(n, device=device)
        _ = a.clone() + 1
        del _
        module.synchronize()
        module.empty_cache()
        before = stats()
        graph.capture_begin()
        b = a.clone()
        for _ in range(5):
            b = b.clone() + 1
        graph.capture_end()
    assert since(before) == [segments, segments * segment, 1, bytes_]
    graph.replay()
    module.empty_cache()
    graph.replay()
    assert b.sum().item() == 6 * n
    del graph
    gc.collect()
    assert b.sum().item() == 6 * n
    module.empty_cache()
    assert since(before) == [1, segment, 1, bytes_]


def test_all_streams_of_a_capture_use_its_pool(streams, empty_cache, device, module) -> None:
    x = torch.ones(1 << 20, device=device)
    _ = x + x
    before = {s["segment_pool_id"] for s in module.memory_snapshot()} | {(0, 0)}
    graph, other = module.CUDAGraph(), module.Stream()
    with module.graph(graph):
        here = module.current_stream()
        y = x + x
        other.wait_stream(here)
        with module.stream(other):
            _ = y + x
        here.wait_stream(other)
    ids = [s["segment_pool_id"] for s in module.memory_snapshot()]
    assert [i for i in ids if i not in before] == [graph.pool()] * 2


def test_a_pool_counts_the_graphs_that_use_it(device, module) -> None:
    pool, x = module.MemPool(), torch.ones(100, device=device)
    _ = x + 1
    graphs = [module.CUDAGraph() for _ in range(2)]
    for i, graph in enumerate(graphs):
        with module.graph(graph, pool=pool.id):
            _ = x + 1
        assert pool.use_count() == 2 + i
    graphs[0].reset()
    assert pool.use_count() == 2
    del graph, graphs
    gc.collect()
    assert pool.use_count() == 1


# --- callables ----------------------------------------------------------------------------------


class Part(nn.Module):
    def __init__(self, inputs: int, outputs: int, key: str | None = None) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(inputs, 20), nn.Dropout(0.1), nn.Linear(20, outputs))
        self.key = key

    def forward(self, x: Any) -> torch.Tensor:
        return self.layers(x[self.key] if self.key else x)


class Picks(nn.Module):
    """Without parameters, and with a dict as its result."""

    def forward(self, x: Any) -> dict[str, torch.Tensor]:
        x = x["x"] if isinstance(x, dict) else x
        index = torch.arange(x.size(0), device=x.device).view(-1, 1).repeat(1, x.size(1))
        return {"output": torch.gather(x, 0, index)}


@pytest.mark.parametrize("half", [False, True])
def test_modules_and_functions_are_graphed_together(half: bool, device, module) -> None:
    torch.manual_seed(5)
    net = nn.Sequential(Part(40, 20, "x"), Part(20, 10), Picks()).to(device)
    net[0].layers[0].weight.requires_grad_(False)
    expected, kind = deepcopy(net), torch.bfloat16
    x, unused, target = (torch.randn(64, n, device=device) for n in (40, 20, 10))
    unused.requires_grad_()
    wide, narrow = (torch.randn(64, n, device=device, requires_grad=True) for n in (20, 10))

    def autocast() -> Any:
        return torch.autocast(device.type, kind, enabled=half, cache_enabled=False)

    with autocast():
        *parts, relu, loss_of = module.make_graphed_callables(
            (*net, F.relu, F.mse_loss),
            (({"x": x, "unused": unused},), (wide,), (narrow,), (narrow,), (narrow, target)),
            allow_unused_input=True,
        )
    data = [(torch.rand_like(x), torch.rand_like(target)) for _ in range(4)]

    def train(net: nn.Module, relu: Any, loss_of: Any) -> None:
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        torch.manual_seed(5)
        for x, target in data:
            optimizer.zero_grad()
            with autocast():
                loss = loss_of(relu(net({"x": x, "unused": unused})["output"]), target)
            loss.backward()
            optimizer.step()

    train(nn.Sequential(*parts), relu, loss_of)
    train(expected, F.relu, F.mse_loss)
    for a, b in zip(net.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(a, b)
    net.eval()
    expected.eval()
    torch.testing.assert_close(net({"x": x}), expected({"x": x}))


def test_a_module_without_gradients_is_graphed(device, module) -> None:
    x, unused = torch.randn(64, 40, device=device), torch.randn(64, 20, device=device)
    graphed = module.make_graphed_callables(Picks(), ({"x": x, "unused": unused},))
    for _ in range(2):
        now = torch.rand_like(x, requires_grad=True)
        assert torch.equal(graphed({"x": now, "unused": unused})["output"], now)


def test_modules_graphed_one_by_one_share_a_pool(device, module) -> None:
    torch.manual_seed(5)
    nets = [nn.Sequential(nn.Linear(32, 16), nn.ReLU()).to(device) for _ in range(3)]
    pool, x = module.graph_pool_handle(), torch.randn(8, 32, device=device)
    graphed = [module.make_graphed_callables(deepcopy(n), (x,), pool=pool) for n in nets]
    for net, same in zip(nets, graphed, strict=True):
        x = torch.randn(8, 32, device=device)
        net(x).norm().backward()
        same(x).norm().backward()
        for p, q in zip(net.parameters(), same.parameters(), strict=True):
            torch.testing.assert_close(p.grad, q.grad)
            assert p.grad.data_ptr() != q.grad.data_ptr()


def test_callables_that_would_be_wrong_are_refused(device, module) -> None:
    net, x = nn.Linear(3, 3).to(device), torch.ones(2, 3, device=device)
    with torch.autocast(device.type, torch.bfloat16), pytest.raises(ValueError, match="cache"):
        module.make_graphed_callables(net, (x,))
    unused = torch.ones(2, device=device, requires_grad=True)
    with pytest.raises(RuntimeError, match="allow_unused"):
        module.make_graphed_callables(lambda a, b: a * 2, (x.clone().requires_grad_(), unused))
    graphed = module.make_graphed_callables(net, (x.bfloat16().float(),))
    graphed(x.bfloat16())
    with pytest.raises(ValueError, match="complex64"):  # every chip can hold one
        graphed(x.to(torch.complex64))


# --- optimizers ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["Adam", "AdamW", "ASGD", "Adamax", "NAdam", "RAdam", "Adadelta", "RMSprop", "Rprop"],
)
def test_capturable_optimizers_step_in_replays(name: str, device, module) -> None:
    make = getattr(torch.optim, name)
    gradients = [(torch.randn(3, device=device), torch.randn(3, device=device)) for _ in range(5)]

    def begin(first: bool, second: bool) -> tuple[list[nn.Parameter], Any]:
        both = [nn.Parameter(torch.ones(3, device=device)) for _ in range(2)]
        groups = [
            {"params": [p], "capturable": c} for p, c in zip(both, (first, second), strict=True)
        ]
        return both, make(groups)

    expected, optimizer = begin(False, False)
    for now in gradients:
        for p, g in zip(expected, now, strict=True):
            p.grad = g.clone()
        optimizer.step()
    for second in (True, False):
        both, optimizer = begin(True, second)
        for now in gradients[:3]:
            for p, g in zip(both, now, strict=True):
                p.grad = g.clone()
            optimizer.step()
        graph = module.CUDAGraph()
        if not second:
            with pytest.raises(RuntimeError, match="capturable=True"), module.graph(graph):
                optimizer.step()
            continue
        with module.graph(graph):
            optimizer.step()
        for now in gradients[3:]:
            for p, g in zip(both, now, strict=True):
                p.grad.copy_(g)
            graph.replay()
        torch.testing.assert_close(both, expected)


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW"])
def test_a_fused_step_of_scaled_gradients_is_captured(name: str, device, module, warmed) -> None:
    make, first = getattr(torch.optim, name), [torch.randn(n, n, device=device) for n in (5, 6)]
    gradients = [[torch.randn_like(p) for p in first] for _ in range(5)]
    options: dict[str, Any] = {} if name == "SGD" else {"capturable": True}

    def run(captured: bool) -> list[torch.Tensor]:
        params = [p.clone().requires_grad_() for p in first]
        scaler = torch.amp.GradScaler(device.type, init_scale=128.0)
        scaler.scale(torch.ones(1, device=device))
        optimizer = make(params, lr=0.1, fused=True, **(options if captured else {}))

        def step() -> None:
            scaler.step(optimizer)
            scaler.update()

        graph = module.CUDAGraph()
        for i, now in enumerate(gradients):
            for p, g in zip(params, now, strict=True):
                p.grad = g.clone() if p.grad is None else p.grad.copy_(g)
            if captured and i == 3:
                with module.graph(graph):
                    step()
            if captured and i >= 3:
                graph.replay()
            else:
                step()
        return params

    expected = warmed(lambda: run(False))
    torch.testing.assert_close(run(True), expected)


@pytest.mark.parametrize("options", [{}, {"foreach": True}, {"fused": True}], ids=str)
def test_the_scale_follows_overflows_of_replays(options: dict[str, bool], device, module) -> None:
    weight = torch.ones(100, device=device, requires_grad=True)
    scaler = torch.amp.GradScaler(device.type, init_scale=4.0)
    optimizer = torch.optim.SGD([weight], lr=0.1, **options)
    x, graph = torch.ones_like(weight), module.CUDAGraph()

    def backward() -> None:
        scaler.scale((weight.half() * x).sum()).backward()

    beside(module, backward)
    optimizer.zero_grad()
    with module.graph(graph):
        backward()
    for value, gradient, scale, growth in (
        (5, 20.0, 4, 1),
        (20000, float("inf"), 2, 0),
        (5, 10.0, 2, 1),
        (40000, float("inf"), 1, 0),
    ):
        x.fill_(value)
        graph.replay()
        assert weight.grad.unique().tolist() == [gradient]
        scaler.step(optimizer)
        scaler.update()
        assert (scaler._scale.item(), scaler._growth_tracker.item()) == (scale, growth)


def test_a_recurrent_network_with_dropout_is_captured_and_called(device, module) -> None:
    net, x = nn.LSTM(16, 16, 2, dropout=0.5).to(device), torch.ones(5, 3, 16, device=device)
    net(x)
    graph = module.CUDAGraph()
    with module.graph(graph):
        y = net(x)[0]
    torch.manual_seed(3)
    graph.replay()
    torch.manual_seed(3)
    assert torch.equal(y, net(x)[0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        graph.replay()
