"""Memory: statistics, summary, snapshot, limits, and what out of memory says."""

import pickle
import warnings

import pytest
import torch

MIB = 2**20


pytestmark = pytest.mark.usefixtures("empty_cache")


def test_allocated_follows_tensors(module, device, takes):
    before = module.memory_allocated()
    x = torch.empty(MIB, dtype=torch.uint8, device=device)
    assert module.memory_allocated() == before + takes(MIB)
    assert module.memory_allocated(device) == torch.accelerator.memory_allocated(device)
    del x
    assert module.memory_allocated() == before


def test_peak_and_its_reset(module, device, takes):
    module.reset_peak_memory_stats()
    before = module.memory_allocated()
    x = torch.empty(8 * MIB, dtype=torch.uint8, device=device)
    del x
    assert module.max_memory_allocated() == before + takes(8 * MIB)
    module.reset_peak_memory_stats()
    assert module.max_memory_allocated() == before
    assert module.max_memory_reserved() == module.memory_reserved()


def test_empty_cache_gives_memory_back(module, device):
    free = module.mem_get_info()[0]
    x = torch.empty(64 * MIB, dtype=torch.uint8, device=device)
    del x
    assert module.memory_reserved() >= 64 * MIB
    module.empty_cache()
    module.synchronize()
    assert (
        module.memory_reserved() == module.memory_allocated() == 0
        or module.memory_reserved() < 64 * MIB
    )
    assert module.mem_get_info()[0] >= free - 2 * MIB
    used = module.device_memory_used()
    assert 0 <= used <= module.mem_get_info()[1]


def test_freed_memory_is_used_again(module, device):
    x = torch.empty(30 * MIB, dtype=torch.uint8, device=device)
    address = x.data_ptr()
    del x
    assert torch.empty(30 * MIB, dtype=torch.uint8, device=device).data_ptr() == address


def test_stats_have_torch_cudas_keys(module):
    stats = module.memory_stats()
    for metric in ("allocation", "segment", "active", "inactive_split"):
        for suffix in ("", "_bytes"):
            metric_name = {"allocation_bytes": "allocated_bytes", "segment_bytes": "reserved_bytes"}
            key = metric_name.get(metric + suffix, metric + suffix)
            for pool in ("all", "large_pool", "small_pool"):
                for kind in ("current", "peak", "allocated", "freed"):
                    assert isinstance(stats[f"{key}.{pool}.{kind}"], int)
    assert {"num_ooms", "num_alloc_retries"} <= set(stats)
    nested = module.memory_stats_as_nested_dict()
    assert nested["allocated_bytes"]["all"]["current"] == stats["allocated_bytes.all.current"]


def test_accumulated_stats_reset(module, device):
    torch.empty(MIB, device=device)
    assert module.memory_stats()["allocated_bytes.all.allocated"] > 0
    module.reset_accumulated_memory_stats()
    assert module.memory_stats()["allocated_bytes.all.allocated"] == 0


@pytest.mark.parametrize(
    "old",
    ["memory_cached", "max_memory_cached", "reset_max_memory_allocated", "reset_max_memory_cached"],
)
def test_deprecated_names_warn(module, old):
    with pytest.warns(FutureWarning, match="memory"):
        getattr(module, old)()


@pytest.mark.parametrize("abbreviated", [True, False])
def test_summary_is_a_table(module, name, device, abbreviated):
    x = torch.empty(3 * MIB, dtype=torch.uint8, device=device)
    lines = module.memory_summary(abbreviated=abbreviated).strip().split("\n")
    assert {len(line) for line in lines} == {len(lines[0])}
    assert f"PyTorch {name.upper()} memory summary" in lines[1]
    assert ("large pool" in "\n".join(lines)) is not abbreviated
    del x


def test_snapshot_has_the_blocks(module, device, tmp_path):
    x = torch.empty(5 * MIB, dtype=torch.uint8, device=device)
    blocks = [
        block
        for segment in module.memory_snapshot()
        if segment["device"] == 0
        for block in segment["blocks"]
    ]
    mine = [b for b in blocks if b["address"] == x.data_ptr()]
    assert len(mine) == 1
    assert mine[0]["state"] == "active_allocated"
    assert mine[0]["requested_size"] == 5 * MIB
    segment = next(s for s in module.memory_snapshot() if s["address"] <= x.data_ptr())
    assert {"total_size", "allocated_size", "active_size", "stream", "segment_type"} <= set(segment)
    module._dump_snapshot(str(tmp_path / "snapshot.pickle"))
    with open(tmp_path / "snapshot.pickle", "rb") as file:
        assert pickle.load(file)["segments"]


def test_caching_allocator_alloc_and_delete(module, takes):
    before = module.memory_allocated()
    address = module.caching_allocator_alloc(MIB)
    assert address
    assert module.memory_allocated() == before + takes(MIB)
    module.caching_allocator_delete(address)
    assert module.memory_allocated() == before


def test_memory_fraction_limits(module, device):
    total = module.mem_get_info()[1]
    fraction = 64 * MIB / total
    try:
        module.set_per_process_memory_fraction(fraction)
        assert module.get_per_process_memory_fraction() == pytest.approx(fraction)
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty(128 * MIB, dtype=torch.uint8, device=device)
        torch.empty(16 * MIB, dtype=torch.uint8, device=device)
    finally:
        module.set_per_process_memory_fraction(1.0)
    for bad, error in ((2.0, ValueError), (1, TypeError)):
        with pytest.raises(error):
            module.set_per_process_memory_fraction(bad)


def test_out_of_memory_says_asked_free_reserved_and_largest(module, device):
    total = module.mem_get_info()[1]
    ooms = module.memory_stats()["num_ooms"]
    with pytest.raises(module.OutOfMemoryError) as caught:
        torch.empty(2 * total, dtype=torch.uint8, device=device)
    message = str(caught.value).lower()
    for part in ("out of memory", "tried to allocate", "free", "reserved", "largest"):
        assert part in message, message
    assert module.memory_stats()["num_ooms"] == ooms + 1
    assert torch.ones(3, device=device).sum().item() == 3


def test_out_of_memory_first_empties_the_cache(module, device):
    total = module.mem_get_info()[1]
    module.empty_cache()
    retries = module.memory_stats()["num_alloc_retries"]
    try:
        module.set_per_process_memory_fraction(100 * MIB / total)
        for size, emptied in ((30, 0), (60, 0), (90, 1)):  # beside 30 and 60 there is no room
            torch.empty(size * MIB, dtype=torch.uint8, device=device)
            assert module.memory_stats()["num_alloc_retries"] == retries + emptied
            assert module.memory_reserved() <= 100 * MIB
    finally:
        module.set_per_process_memory_fraction(1.0)


def test_host_memory_stats(module):
    x = torch.empty(MIB, dtype=torch.uint8, pin_memory=True)
    assert x.is_pinned()
    stats = module.host_memory_stats()
    assert stats["allocated_bytes.current"] >= MIB
    assert module.host_memory_stats_as_nested_dict()["allocated_bytes"]["current"] >= MIB
    module.reset_peak_host_memory_stats()
    module.reset_accumulated_host_memory_stats()
    assert module.host_memory_stats()["allocated_bytes.allocated"] == 0
    torch.accelerator.empty_host_cache()


def test_pinned_memory_copies_both_ways(device):
    x = torch.arange(1000.0).pin_memory()
    assert x.is_pinned()
    y = x.to(device, non_blocking=True)
    z = torch.empty(1000, pin_memory=True)
    z.copy_(y, non_blocking=True)
    torch.accelerator.synchronize()
    torch.testing.assert_close(x, z)


def test_a_training_loop_keeps_memory_flat(module, device):
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4)).to(
        device
    )
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    x, y = torch.randn(8, 16, device=device), torch.randint(0, 4, (8,), device=device)
    allocated = None
    for step in range(1000):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        if step == 10:
            module.synchronize()
            allocated = module.memory_allocated()
    module.synchronize()
    assert module.memory_allocated() == allocated


def test_no_warning_where_nothing_is_deprecated(module):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        module.memory_summary()
        module.reset_peak_memory_stats()
        module.empty_cache()
