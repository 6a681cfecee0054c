"""Device memory: what is in use, what the cache holds, and how to give it back.

The numbers are torch's own, of its DeviceAllocator interface; this gives them torch.cuda's names
and forms.
"""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from causeway import _C
from causeway.device.history import _dump_snapshot as _dump_snapshot
from causeway.device.history import _record_memory_history as _record_memory_history
from causeway.device.history import _snapshot as _snapshot
from causeway.device.history import memory_snapshot
from causeway.device.lazy import _lazy_init, device_name, is_initialized
from causeway.device.pools import MemPool, use_mem_pool
from causeway.device.selection import Device, _get_device_index
from causeway.device.streams import current_stream

__all__ = [
    "MemPool",
    "caching_allocator_alloc",
    "caching_allocator_delete",
    "empty_cache",
    "get_allocator_backend",
    "get_per_process_memory_fraction",
    "host_memory_stats",
    "host_memory_stats_as_nested_dict",
    "host_register",
    "host_unregister",
    "max_memory_allocated",
    "max_memory_cached",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_cached",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "reset_accumulated_host_memory_stats",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "reset_peak_host_memory_stats",
    "reset_peak_memory_stats",
    "set_per_process_memory_fraction",
    "use_mem_pool",
]


# --- host memory ---


def host_register(memory: torch.Tensor | torch.UntypedStorage) -> None:
    """Pin memory of the host that is there already, for the current device: a mapped file, say.

    `is_pinned()` is true of it from then on, and copies with non_blocking=True go on in the
    background. `memory` has to be kept until `host_unregister`. A tensor means its whole storage.
    Raises VendorError where the vendor cannot; `tensor.pin_memory()` makes a pinned copy anywhere.
    """
    _lazy_init()
    storage = _host_storage(memory)
    _C.host_register(storage.data_ptr(), storage.nbytes())


def host_unregister(memory: torch.Tensor | torch.UntypedStorage) -> None:
    """Undo `host_register` of the same memory, after the copies that use it."""
    _C.host_unregister(_host_storage(memory).data_ptr())


def _host_storage(memory: torch.Tensor | torch.UntypedStorage) -> torch.UntypedStorage:
    storage = memory.untyped_storage() if isinstance(memory, torch.Tensor) else memory
    if storage.device.type != "cpu":
        raise ValueError(f"only memory of the host can be pinned, but this is of {storage.device}")
    return storage


# --- allocation ---------------------------------------------------------------------------------


def caching_allocator_alloc(
    size: int, device: Device = None, stream: torch.Stream | int | None = None
) -> int:
    """Take `size` bytes from the cache for another library and return their address; free them with
    caching_allocator_delete. They are for use on `stream`, the current one by default."""
    _lazy_init()
    index = _get_device_index(device, optional=True)
    if isinstance(stream, int):
        stream = _C.adopt_stream(stream, index)
    return _C.raw_alloc(size, index, current_stream(index) if stream is None else stream)


def caching_allocator_delete(mem_ptr: int) -> None:
    """Give back what caching_allocator_alloc took."""
    _C.raw_delete(mem_ptr)


def empty_cache() -> None:
    """Give the vendor back all memory that the cache holds and nothing uses."""
    if is_initialized():
        from causeway.device import ipc

        ipc.collect()
        _C.empty_cache()


def set_per_process_memory_fraction(fraction: float, device: Device = None) -> None:
    """Let this process take at most `fraction` of the memory of `device`; more is out of memory."""
    if not isinstance(fraction, float):
        raise TypeError("Invalid type for fraction argument, must be `float`")
    if not 0 <= fraction <= 1:
        raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
    _lazy_init()
    _C.set_memory_fraction(fraction, _get_device_index(device, optional=True))


def get_per_process_memory_fraction(device: Device = None) -> float:
    """Return the fraction of the memory of `device` that this process may take."""
    _lazy_init()
    return _C.memory_fraction(_get_device_index(device, optional=True))


def get_allocator_backend() -> str:
    """Return "native": a caching allocator with torch.cuda's sizes and statistics."""
    return "native"


# --- statistics ---------------------------------------------------------------------------------


def memory_stats(device: Device = None) -> OrderedDict[str, Any]:
    """Return the allocator's statistics as "allocated_bytes.all.current": 0 and so on; empty before
    first use.
    """
    if not is_initialized():
        return OrderedDict()
    return torch.accelerator.memory_stats(_get_device_index(device, optional=True))


def memory_stats_as_nested_dict(device: Device = None) -> dict[str, Any]:
    """Return memory_stats as dicts in dicts."""
    return _nest(memory_stats(device))


def _nest(flat: Mapping[str, Any]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for key, value in flat.items():
        *path, last = key.split(".")
        place = nested
        for part in path:
            place = place.setdefault(part, {})
        place[last] = value
    return nested


def reset_accumulated_memory_stats(device: Device = None) -> None:
    """Set the counts of what was ever allocated and freed to zero."""
    if is_initialized():
        torch.accelerator.reset_accumulated_memory_stats(_get_device_index(device, optional=True))


def reset_peak_memory_stats(device: Device = None) -> None:
    """Set the peaks to what is in use now."""
    if is_initialized():
        torch.accelerator.reset_peak_memory_stats(_get_device_index(device, optional=True))


def _reset_max(name: str, device: Device) -> None:
    warnings.warn(
        f"torch.{device_name()}.{name} now calls reset_peak_memory_stats, "
        "which resets /all/ peak memory stats.",
        FutureWarning,
        stacklevel=3,
    )
    reset_peak_memory_stats(device)


def reset_max_memory_allocated(device: Device = None) -> None:
    """Deprecated: reset_peak_memory_stats."""
    _reset_max("reset_max_memory_allocated", device)


def reset_max_memory_cached(device: Device = None) -> None:
    """Deprecated: reset_peak_memory_stats."""
    _reset_max("reset_max_memory_cached", device)


def memory_allocated(device: Device = None) -> int:
    """Return the bytes that tensors occupy."""
    return int(memory_stats(device).get("allocated_bytes.all.current", 0))


def max_memory_allocated(device: Device = None) -> int:
    """Return the most bytes that tensors occupied since the last reset_peak_memory_stats."""
    return int(memory_stats(device).get("allocated_bytes.all.peak", 0))


def memory_reserved(device: Device = None) -> int:
    """Return the bytes that the cache holds, in use or not."""
    return int(memory_stats(device).get("reserved_bytes.all.current", 0))


def max_memory_reserved(device: Device = None) -> int:
    """Return the most bytes that the cache held since the last reset_peak_memory_stats."""
    return int(memory_stats(device).get("reserved_bytes.all.peak", 0))


def memory_cached(device: Device = None) -> int:
    """Deprecated: memory_reserved."""
    warnings.warn("memory_cached has been renamed to memory_reserved", FutureWarning, stacklevel=2)
    return memory_reserved(device)


def max_memory_cached(device: Device = None) -> int:
    """Deprecated: max_memory_reserved."""
    warnings.warn(
        "max_memory_cached has been renamed to max_memory_reserved", FutureWarning, stacklevel=2
    )
    return max_memory_reserved(device)


def mem_get_info(device: Device = None) -> tuple[int, int]:
    """Return (free, total) bytes of `device`, as the vendor counts them."""
    _lazy_init()
    free, total = torch.accelerator.get_memory_info(_get_device_index(device, optional=True))
    return free, total


def device_memory_used(device: Device = None) -> int:
    """Return the bytes of `device` in use, by any process where the vendor counts them."""
    free, total = mem_get_info(device)
    return total - free


def host_memory_stats() -> OrderedDict[str, Any]:
    """Return the pinned allocator's statistics as "allocated_bytes.current": 0 and so on; empty
    before first use.
    """
    if not is_initialized():
        return OrderedDict()
    return OrderedDict(sorted(_C.host_memory_stats().items()))


def host_memory_stats_as_nested_dict() -> dict[str, Any]:
    """Return host_memory_stats as dicts in dicts."""
    return _nest(host_memory_stats())


def reset_accumulated_host_memory_stats() -> None:
    """Set the counts of what pinned memory was ever allocated and freed to zero."""
    if is_initialized():
        _C.reset_host_memory_stats("accumulated")


def reset_peak_host_memory_stats() -> None:
    """Set the peaks of pinned memory to what is in use now."""
    if is_initialized():
        _C.reset_host_memory_stats("peak")


# --- for people ---------------------------------------------------------------------------------


def _bytes(amount: int, scale: int) -> str:
    for unit in ("B  ", "KiB", "MiB", "GiB", "TiB"):
        if scale < 768 * 1024 or unit == "TiB":
            return f"{amount:6d} {unit}"
        amount, scale = amount // 1024, scale // 1024
    raise AssertionError


def _number(amount: int, scale: int) -> str:
    for unit in (" ", "K", "M"):
        if scale < 750 * 1000 or unit == "M":
            return f"{amount:7d} {unit} "
        amount, scale = amount // 1000, scale // 1000
    raise AssertionError


_METRICS: tuple[tuple[str, str, Callable[[int, int], str]], ...] = (
    ("allocated_bytes", "Allocated memory", _bytes),
    ("active_bytes", "Active memory", _bytes),
    ("requested_bytes", "Requested memory", _bytes),
    ("reserved_bytes", "Reserved memory", _bytes),
    ("inactive_split_bytes", "Non-releasable memory", _bytes),
    ("allocation", "Allocations", _number),
    ("active", "Active allocs", _number),
    ("segment", "Reserved segments", _number),
    ("inactive_split", "Non-releasable allocs", _number),
)


def memory_summary(device: Device = None, abbreviated: bool = False) -> str:
    """Return a table of memory_stats for people, of torch.cuda's form."""
    index = _get_device_index(device, optional=True)
    stats = memory_stats(index)
    return "\n".join(_summary_lines(index, stats, abbreviated)) + "\n"


def _summary_lines(index: int, stats: Mapping[str, Any], abbreviated: bool) -> Iterator[str]:
    name = device_name().upper()
    rule, thin = "|" + "=" * 75 + "|", "|" + "-" * 75 + "|"
    ooms, retries = stats.get("num_ooms", 0), stats.get("num_alloc_retries", 0)
    yield rule
    yield "|" + f"PyTorch {name} memory summary, device ID {index}".center(75) + "|"
    yield thin
    yield "|" + f"{name} OOMs: {ooms:<12d} |  alloc retries: {retries:<8d}".center(75) + "|"
    yield rule
    yield "|        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  |"
    pools = [("all", "")]
    if not abbreviated:
        pools += [("large_pool", "      from large pool"), ("small_pool", "      from small pool")]
    for metric, title, form in _METRICS:
        yield thin
        scales = [stats.get(f"{metric}.all.{kind}", 0) for kind in _KINDS]
        for pool, label in pools:
            amounts = [stats.get(f"{metric}.{pool}.{kind}", 0) for kind in _KINDS]
            cells = " | ".join(map(form, amounts, scales))
            yield f"| {label or title:<21} | {cells} |"
    yield rule


_KINDS = ("current", "peak", "allocated", "freed")
