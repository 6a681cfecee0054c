"""Memory pools of the program."""

import contextlib
import gc
import threading

import pytest
import torch

MIB = 2**20


pytestmark = pytest.mark.usefixtures("empty_cache")


def bytes_of(pool):
    return sum(segment["total_size"] for segment in pool.snapshot())


def test_memory_of_a_pool_lies_apart_and_is_reused_within_it(module, device):
    pool = module.MemPool()
    assert pool.use_count() == 1
    assert pool.allocator is None
    with module.use_mem_pool(pool):
        assert pool.use_count() == 2
        x = torch.empty(1000, device=device)
    address = x.data_ptr()
    assert bytes_of(pool) >= 4000
    del x
    outside = torch.empty(1000, device=device)
    assert outside.data_ptr() != address
    with module.use_mem_pool(pool):
        assert torch.empty(1000, device=device).data_ptr() == address
    assert pool.use_count() == 1


def test_it_keeps_its_memory_until_it_ends(module, device):
    pool = module.MemPool()
    with module.use_mem_pool(pool):
        torch.empty(3 * MIB, device=device)
    module.empty_cache()
    assert bytes_of(pool) > 0
    reserved, name = module.memory_reserved(), pool.id
    del pool
    gc.collect()
    assert module.memory_snapshot(name) == []
    assert module.memory_reserved() < reserved


def test_tensors_outlive_it(module, device):
    pool = module.MemPool()
    with module.use_mem_pool(pool):
        x = torch.arange(1000, device=device)
    name = pool.id
    del pool
    gc.collect()
    torch.empty(1000, device=device).fill_(7)
    assert torch.equal(x.cpu(), torch.arange(1000))
    del x
    module.empty_cache()
    assert module.memory_snapshot(name) == []


def test_the_inner_pool_counts_and_an_error_leaves_it(module, device):
    outer, inner = module.MemPool(), module.MemPool()
    with module.use_mem_pool(outer):
        with contextlib.suppress(ZeroDivisionError), module.use_mem_pool(inner):
            torch.empty(10, device=device)
            raise ZeroDivisionError
        assert (bytes_of(outer), bytes_of(inner)) == (0, 2 * MIB)
        torch.empty(10, device=device)
    assert bytes_of(outer) == 2 * MIB


def test_other_threads_do_not_use_it(module, device):
    pool = module.MemPool()
    with module.use_mem_pool(pool):
        thread = threading.Thread(target=lambda: torch.empty(10, device=device))
        thread.start()
        thread.join()
    assert bytes_of(pool) == 0


def test_without_splits_what_is_freed_goes_back_whole(module, device):
    for no_split, blocks in ((False, 2), (True, 1)):
        pool = module.MemPool(no_split=no_split)
        with module.use_mem_pool(pool):
            x = torch.empty(100, device=device)
        assert [len(segment["blocks"]) for segment in pool.snapshot()] == [blocks]
        del x


@pytest.mark.parametrize("use_on_oom", [False, True])
def test_what_is_free_in_it_serves_others_before_they_are_out_of_memory(module, device, use_on_oom):
    pool = module.MemPool(use_on_oom=use_on_oom)
    with module.use_mem_pool(pool):
        torch.empty(64 * MIB, dtype=torch.uint8, device=device)
    total = module.get_device_properties(device).total_memory
    module.set_per_process_memory_fraction((module.memory_reserved() + MIB) / total)
    try:
        if use_on_oom:
            torch.empty(64 * MIB, dtype=torch.uint8, device=device)
        else:
            with pytest.raises(torch.OutOfMemoryError) as caught:
                torch.empty(64 * MIB, dtype=torch.uint8, device=device)
            # The vendor was not asked, so what it last said of another call is not quoted.
            assert "Vendor:" not in str(caught.value)
    finally:
        module.set_per_process_memory_fraction(1.0)


def test_an_allocator_is_refused(module):
    with pytest.raises(NotImplementedError, match="mem_alloc"):
        module.MemPool(allocator=object())
