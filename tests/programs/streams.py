"""Streams, events, memory statistics, properties, NVTX, graphs, random states."""

import torch
from torch.cuda import Event, Stream

assert torch.cuda.device_count() > 0
assert torch.version.cuda is not None
props = torch.cuda.get_device_properties(torch.device("cuda:0"))
assert props.total_memory > 0
assert props.name == torch.cuda.get_device_name(0)
torch.cuda.set_device("cuda:0")
torch.cuda.reset_peak_memory_stats()

torch.manual_seed(0)
a = torch.randn(64, 64).cuda()
start, end = Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
side = Stream()
side.wait_stream(torch.cuda.current_stream())
start.record()
with torch.cuda.stream(side):
    assert torch.cuda.current_stream() == side
    b = a @ a
    b.record_stream(side)
torch.cuda.current_stream().wait_stream(side)
end.record()
torch.cuda.synchronize()
assert start.elapsed_time(end) >= 0
print(f"loss {b.sum().item():.4f}")

assert torch.cuda.memory_allocated() <= torch.cuda.max_memory_allocated()
free, total = torch.cuda.mem_get_info()
assert 0 < free <= total
assert isinstance(torch.cuda.memory_summary(), str)
torch.cuda.empty_cache()

torch.cuda.nvtx.range_push("step")
with torch.cuda.nvtx.range("inner {}", 1):
    c = a.relu()
torch.cuda.nvtx.range_pop()

static_input = torch.zeros(4, device="cuda")
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    static_output = (static_input * 2 + 1).relu().sum()
static_input.fill_(3.0)
graph.replay()
print(f"loss {static_output.item():.4f}")

state = torch.cuda.get_rng_state()
first = torch.rand(3, device="cuda")
torch.cuda.set_rng_state(state)
assert torch.equal(first, torch.rand(3, device="cuda"))
with torch.random.fork_rng(devices=[0]):
    torch.rand(3, device="cuda")
with torch.cuda.device(0):
    assert torch.cuda.current_device() == 0
if torch.cuda.device_count() > 1:
    d = a.cuda(1)
    assert d.device == torch.device("cuda:1")
    assert d.get_device() == 1
print(f"loss {c.sum().item():.4f}")
