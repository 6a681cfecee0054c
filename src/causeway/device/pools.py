"""Memory pools of the program: what is made within `use_mem_pool(pool)` has memory of its own.

Its segments lie apart from others', are reused only within the pool, and go back to the vendor with
it. Graphs share a pool by `pool=pool.id`.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from causeway import _C
from causeway.device.history import memory_snapshot
from causeway.device.lazy import _lazy_init
from causeway.device.selection import Device, _get_device_index


class MemPool:
    """A pool of the current device's memory.

    With `use_on_oom` what is free in it serves allocations outside of it before they are out of
    memory. With `no_split` a segment of it is one block, so that what is freed goes back whole; it
    has no effect in segments that grow. Tensors live on after their pool.

    Raises:
        NotImplementedError: an `allocator` is given. The vendor's mem_alloc is the only one.
    """

    def __init__(
        self, allocator: None = None, use_on_oom: bool = False, no_split: bool = False
    ) -> None:
        if allocator is not None:
            raise NotImplementedError(
                "MemPool(allocator=...) is not for this device, because memory comes from the "
                "vendor's mem_alloc; leave `allocator` out"
            )
        _lazy_init()
        self._device = _get_device_index(None, optional=True)
        self._id = _C.new_pool_id()
        _C.retain_pool(self._device, self._id, use_on_oom, no_split)
        weakref.finalize(self, _release, self._device, self._id).atexit = False

    @property
    def id(self) -> tuple[int, int]:
        """Its name, as torch.cuda.graph and memory_snapshot take it."""
        return self._id

    @property
    def allocator(self) -> None:
        """Always None: it is the vendor's."""

    def use_count(self) -> int:
        """Return how many use it: this object, each `use_mem_pool` and each graph."""
        return _C.pool_uses(self._device, self._id)

    def snapshot(self, include_traces: bool = True) -> list[dict[str, Any]]:
        """Return its segments, as memory_snapshot does."""
        return memory_snapshot(self._id, include_traces)


def _release(device: int, pool: tuple[int, int]) -> None:
    _C.release_pool(device, pool)
    _C.empty_cache(pool)


@contextmanager
def use_mem_pool(pool: MemPool, device: Device = None) -> Iterator[None]:
    """Have this thread allocate from `pool` on `device`, the current one by default.

    Other threads do not, those of backward neither; nor do streams that are being captured.
    """
    _lazy_init()
    index = _get_device_index(device, optional=True)
    _C.use_pool(index, pool.id)
    try:
        yield
    finally:
        _C.end_use_of_pool(index, pool.id)
