"""Runs of small launches of a graph are one launch on CPUs, and compute what they did alone."""

from __future__ import annotations

import pytest

from causeway import config
from causeway.device.small_launches import NAME, merged_source

BEGIN = """
import warnings
import torch, causeway
warnings.simplefilter("error")
device = torch.get_device_module("opencl")

def captured(work, *given, stream=None):
    with torch.no_grad():
        work(*given)
        graph = device.CUDAGraph()
        with device.graph(graph):
            result = work(*given)
    return graph, result

def chain(x, y):
    for _ in range(20):
        x = torch.relu((x + y) * y - 1.0)
    return x

x, y = torch.randn(16, device="opencl"), torch.rand(16, device="opencl") + 1
"""

CHAIN = """
graph, result = captured(chain, x, y)
assert len(graph) == graph._graph.merged() == 80, graph._graph.merged()
for _ in range(3):
    x.normal_()
    graph.replay()
    assert torch.equal(result, chain(x, y))
big = torch.randn(1 << 20, device="opencl")

def parts(x, y):  # what has several items stays as it is, in its place
    x = chain(x, y)
    z = big * x[0]
    return chain(x + z[:16], y), z.sum()

graph, (result, total) = captured(parts, x, y)
assert 160 <= graph._graph.merged() < len(graph)
x.normal_()
graph.replay()
want, sum = parts(x, y)
assert torch.equal(result, want) and torch.equal(total, sum)

def dropped(x, y):  # another mask in each replay, as without a graph
    return chain(torch.dropout(chain(x, y), 0.5, True), y)

graph, result = captured(dropped, x, y)
assert 0 < graph._graph.merged() < len(graph)
torch.manual_seed(3)
found = []
for _ in range(3):
    graph.replay()
    found.append(result.clone())
torch.manual_seed(3)
assert all(torch.equal(f, dropped(x, y)) for f in found)

rows = [torch.randn(8, device="opencl") for _ in range(300)]  # more addresses than a kernel takes

def many(y):
    return torch.stack([r + y for r in rows]).sum(0)

graph, result = captured(many, y[:8])
assert graph._graph.merged() >= 300
graph.replay()
assert torch.equal(result, many(y[:8]))
"""

KINDS = """
import torch.nn.functional as F
table = torch.randn(10, 16, device="opencl")
picks = torch.tensor([3, 1, 4, 1, 5], device="opencl")

def kinds(x):
    for _ in range(3):
        x = F.layer_norm(F.embedding(picks, table) + x, (16,))
        x = torch.softmax(x, -1) @ table.T @ table
        x = torch.where(x > 0, x, x.double().exp().float()).cumsum(-1)
        order = x.argsort(-1)
        x = x.gather(-1, order).half().float() + (order % 3) / 2 + x.mean(0, keepdim=True)
        x = torch.cat([x[:, 8:], x[:, :8]], 1).contiguous()
    return x, order, x.isnan().any()

x = torch.randn(5, 16, device="opencl")
graph, found = captured(kinds, x)
assert graph._graph.merged() > 30
for _ in range(2):
    x.normal_()
    graph.replay()
    assert all(torch.equal(f, w) for f, w in zip(found, kinds(x)))
picks[2] = 11
graph.replay()
try:
    torch.accelerator.synchronize()
    raise SystemExit("an index out of range was not told")
except IndexError as error:
    assert "11" in str(error), error
"""

STREAMS = """
def two(x, y):
    other = device.Stream()
    other.wait_stream(device.current_stream())
    with other:
        a = chain(x, y)
    b = chain(y, x)
    device.current_stream().wait_stream(other)
    return chain(a, b)

graph, result = captured(two, x, y)
assert graph._graph.merged() == 240
for _ in range(5):
    x.normal_()
    graph.replay()
    assert torch.equal(result, two(x, y))
"""

TRACE = """
from torch.profiler import ProfilerActivity, profile
graph, result = captured(chain, x, y)
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as trace:
    graph.replay()
    torch.accelerator.synchronize()
names = {e.name for e in trace.events() if e.device_type != torch.autograd.DeviceType.CPU}
assert not any("as one" in n for n in names) and len(names) >= 4, names
assert torch.equal(result, chain(x, y))
"""

OFF = """
graph, result = captured(chain, x, y)
assert graph._graph.merged() == 0
causeway.config.set("graph_merge", True)
graph, result = captured(chain, x, y)
assert graph._graph.merged() == 80
"""

FAILS = """
from causeway import _C
from causeway.device.small_launches import merged_source

def broken(functions, addresses, split):
    source, name, numbers = merged_source(functions, addresses, split)
    return source.replace("switch", "swich"), name, numbers

_C.set_merger(broken)
graph, result = captured(chain, x, y)
assert graph._graph.merged() == 0
graph.replay()
assert torch.equal(result, chain(x, y))
"""


@pytest.mark.parametrize("memory", ["fine", "buffer"])
@pytest.mark.parametrize("program", [CHAIN, KINDS, STREAMS], ids=["chain", "kinds", "streams"])
def test_a_replay_has_eagers_bits(on_opencl, program: str, memory: str) -> None:
    on_opencl(BEGIN + program, CAUSEWAY_OPENCL_MEMORY_MODEL=memory)


def test_a_trace_has_each_launch(on_opencl) -> None:
    on_opencl(BEGIN + TRACE)


def test_it_can_be_turned_off(on_opencl) -> None:
    on_opencl(BEGIN + OFF, CAUSEWAY_GRAPH_MERGE="0")


def test_a_source_that_is_not_built_costs_speed_alone_and_is_told(on_opencl) -> None:
    done = on_opencl(BEGIN + FAILS)
    assert "given one by one, which is slower" in done.stderr
    assert "swich" in done.stderr


FRONT = "typedef long idx; typedef ulong u64; typedef float f32;\n\n"
ADD = """typedef struct {
  idx n;
} Values;
__kernel void kernel_main(GLOBAL f32* p0, GLOBAL const f32* p1, const Values values_) {
  idx n = values_.n;
  p0[0] = p1[n] + OTHER;
}
"""


def _source(other: str) -> tuple[str, str]:
    return "kernel_main", f"{FRONT}#define OTHER {other}\n{ADD}"


def test_each_function_is_called_with_what_the_table_has_of_it() -> None:
    made = merged_source([_source("1"), _source("2")], 3, split=False)
    assert made is not None
    source, name, numbers = made
    assert (name, numbers) == (NAME, [0, 1])
    kernel = source.partition(f"__kernel void {NAME}(")[2]
    assert kernel.startswith(
        "GLOBAL const u64* table_, GLOBAL char* a0_, GLOBAL char* a1_, GLOBAL char* a2_, idx "
    )
    assert (
        "case 1: source1_kernel_main((GLOBAL f32*)of_[w_[2]], (GLOBAL const f32*)of_[w_[3]], "
        "*(GLOBAL const source1_Values*)(w_ + 4)); break;" in kernel
    )


def test_an_address_may_be_two_parameters() -> None:
    text = ADD.replace("GLOBAL f32* p0", "GLOBAL char* p0_base, u64 p0_begin").replace(
        "GLOBAL const f32* p1", "GLOBAL char* p1_base, u64 p1_begin"
    )
    made = merged_source([("kernel_main", FRONT + text)], 2, split=True)
    assert made is not None
    assert (
        "kernel_main((GLOBAL char*)of_[w_[2]], far_[w_[2]], (GLOBAL char*)of_[w_[3]], "
        "far_[w_[3]], *(GLOBAL const Values*)(w_ + 4));" in made[0]
    )


@pytest.mark.parametrize(
    "kept_out",
    [
        FRONT + ADD.replace("  p0[0]", "  LOCAL f32 cells[4];\n  p0[0]"),
        FRONT + ADD.replace("GLOBAL const f32* p1", "image2d_t p1"),
        FRONT + ADD.replace("Values;", "Others;"),
        FRONT + ADD.replace("kernel_main", "another"),
    ],
    ids=["memory of a group", "a parameter of another kind", "no such structure", "no such kernel"],
)
def test_a_function_whose_text_is_another_stays_alone(kept_out: str) -> None:
    assert merged_source([("kernel_main", kept_out)], 2, split=False) is None
    made = merged_source([_source("1"), ("kernel_main", kept_out), _source("2")], 2, split=False)
    assert made is not None
    assert made[2] == [0, -1, 1]


def test_nothing_is_written_where_it_is_off() -> None:
    with config.using(graph_merge=False):
        assert merged_source([_source("1"), _source("2")], 2, split=False) is None
