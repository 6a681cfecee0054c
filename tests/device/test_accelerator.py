"""torch.accelerator, complete: code that names no device."""

import pytest
import torch

acc = torch.accelerator


def test_it_is_the_current_accelerator(name):
    assert acc.current_accelerator() == torch.device(name)
    assert acc.current_accelerator(check_available=True) == torch.device(name)
    assert acc.is_available()
    assert acc.device_count() >= 1


def test_every_public_name_is_tried_here():
    tried = {
        "Graph",
        "current_accelerator",
        "current_device_idx",
        "current_device_index",
        "current_stream",
        "device_count",
        "device_index",
        "empty_cache",
        "empty_host_cache",
        "get_device_capability",
        "get_memory_info",
        "is_available",
        "max_memory_allocated",
        "max_memory_reserved",
        "memory_allocated",
        "memory_reserved",
        "memory_stats",
        "reset_accumulated_memory_stats",
        "reset_peak_memory_stats",
        "set_device_idx",
        "set_device_index",
        "set_stream",
        "synchronize",
    }
    assert set(acc.__all__) <= tried


def test_device_index(name, other):
    acc.set_device_index(1)
    assert acc.current_device_index() == 1
    acc.set_device_index(0)
    with acc.device_index(1):
        assert acc.current_device_index() == 1
        assert torch.empty(1, device=name).device == other
    with acc.device_index(None):
        assert acc.current_device_index() == 0


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_deprecated_device_index():
    acc.set_device_idx(0)
    assert acc.current_device_idx() == 0


def test_streams(device, other):
    stream = torch.Stream(other)
    acc.set_stream(stream)
    assert acc.current_device_index() == 1
    assert acc.current_stream() == stream
    acc.set_stream(torch.Stream(stream_id=0, device_index=1, device_type=stream.device_type))
    acc.set_device_index(0)
    assert acc.current_stream(device).device == device


def test_synchronize_takes_every_spelling(name, device):
    for spelling in (None, 0, name, device):
        acc.synchronize(spelling)


@pytest.mark.once
def test_synchronize_waits_for_the_work(run, name):
    if name != "sim":
        pytest.skip("work that takes its time: the simulated chip's")
    program = """
        import itertools, torch
        x, event = torch.ones(4, device="sim"), torch.Event("sim")
        torch.sim.synchronize()
        spellings = [(), (0,), ("sim",), ("sim:0",), (torch.device("sim"),)]
        for module, spelling in itertools.product((torch.accelerator, torch.sim), spellings):
            x.add_(1)
            event.record()
            assert not event.query(), "nothing is waited for here"
            module.synchronize(*spelling)
            assert event.query(), (module, spelling)
    """
    pending = {"EXECUTION": "async", "LATENCY_US": "300000", "OPS": "all"}
    run(program, **{f"CAUSEWAY_SIM_{key}": value for key, value in pending.items()})


def test_memory(device, takes):
    acc.empty_cache()
    acc.reset_peak_memory_stats()
    acc.reset_accumulated_memory_stats()
    before = acc.memory_allocated()
    bytes = 2**25  # a segment of its own: a smaller one may share it with a tensor that lives on
    size = takes(bytes)
    x = torch.empty(bytes, dtype=torch.uint8, device=device)
    assert acc.memory_allocated() == before + size == acc.max_memory_allocated()
    assert acc.memory_reserved() <= acc.max_memory_reserved()
    assert acc.memory_stats()["allocated_bytes.all.allocated"] == size
    free, total = acc.get_memory_info()
    assert 0 < free <= total
    reserved = acc.memory_reserved()
    del x
    assert acc.memory_allocated() == before
    assert acc.max_memory_allocated() == before + size
    acc.reset_peak_memory_stats()
    assert acc.max_memory_allocated() == before
    acc.empty_cache()
    assert acc.memory_reserved() < reserved


def test_the_hosts_cache_is_emptied(module, device):
    torch.ones(1, device=device)  # without a device there is no count
    acc.empty_host_cache()
    before = module.host_memory_stats()["allocated_bytes.current"]
    x = torch.empty(2**20, dtype=torch.uint8, pin_memory=True)
    assert x.is_pinned()
    del x
    assert module.host_memory_stats()["allocated_bytes.current"] == before + 2**20  # kept
    acc.empty_host_cache()
    assert module.host_memory_stats()["allocated_bytes.current"] == before


def test_capability(device, module):
    supported = acc.get_device_capability(device)["supported_dtypes"]
    assert supported == module.get_device_properties(0).dtypes


def test_a_graph_is_not_captured_on_the_stream_of_all_threads(has_streams):
    if not has_streams:
        pytest.skip("one stream")
    with pytest.raises(RuntimeError, match="default stream"):
        acc.Graph().capture_begin()
