"""torch.<name>, the device's module: what torch.cuda has, for any device.

Each name is torch.cuda's, with its signature and meaning; `names.py` says of every name of
torch.cuda whether it is here, and why not. What torch.accelerator and torch's generic classes
provide, this hands on. A file is named after torch.cuda's file for the same thing. Importing this
opens no device.
"""

# ruff: noqa: F401
# mypy: implicit-reexport
from __future__ import annotations

import sys

from torch._C import AcceleratorError, OutOfMemoryError

from causeway import _C
from causeway.device import amp, comm, memory, random, streams
from causeway.device.cores import core_limit, set_core_limit
from causeway.device.layouts import allow_layouts, layout_stats
from causeway.device.lazy import (
    _is_in_bad_fork,
    _later,
    _lazy_call,
    _lazy_init,
    device_count,
    device_name,
    init,
    is_available,
    is_initialized,
)
from causeway.device.memory import (
    _dump_snapshot,
    _record_memory_history,
    _snapshot,
    caching_allocator_alloc,
    caching_allocator_delete,
    device_memory_used,
    empty_cache,
    get_allocator_backend,
    get_per_process_memory_fraction,
    host_memory_stats,
    host_memory_stats_as_nested_dict,
    max_memory_allocated,
    max_memory_cached,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_cached,
    memory_reserved,
    memory_snapshot,
    memory_stats,
    memory_stats_as_nested_dict,
    memory_summary,
    reset_accumulated_host_memory_stats,
    reset_accumulated_memory_stats,
    reset_max_memory_allocated,
    reset_max_memory_cached,
    reset_peak_host_memory_stats,
    reset_peak_memory_stats,
    set_per_process_memory_fraction,
)
from causeway.device.names import WORKS, reason
from causeway.device.pools import MemPool, use_mem_pool
from causeway.device.properties import (
    DeviceProperties,
    clock_rate,
    get_amp_supported_dtype,
    get_arch_list,
    get_device_capability,
    get_device_name,
    get_device_properties,
    get_gencode_flags,
    is_bf16_supported,
    is_tf32_supported,
    memory_usage,
    power_draw,
    temperature,
    utilization,
)
from causeway.device.random import (
    _get_generator,
    _get_rng_state_offset,
    _set_rng_state_offset,
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from causeway.device.selection import (
    _exchange_device,
    _get_device_index,
    _maybe_exchange_device,
    can_device_access_peer,
    current_device,
    device,
    device_of,
    ipc_collect,
    set_device,
    synchronize,
)
from causeway.device.streams import (
    Event,
    ExternalStream,
    Stream,
    StreamContext,
    _set_stream_by_id,
    current_stream,
    default_stream,
    get_stream_from_external,
    get_sync_debug_mode,
    is_current_stream_capturing,
    set_stream,
    set_sync_debug_mode,
    stream,
)
from causeway.device.typed import DTYPES, STORED, storage_type, tensor_type

has_half = True
has_magma = False

module = sys.modules[__name__]


graphs = _later(f"{__name__}.graphs")
_GRAPHS = ("CUDAGraph", "graph", "graph_pool_handle", "make_graphed_callables")
_C.on_first_capture(lambda: graphs.look_at_optimizers())  # noqa: PLW0108  (loads it)
_SUBMODULES = {
    "amp": amp,
    "comm": comm,
    "graphs": graphs,
    "memory": memory,
    "random": random,
    "streams": streams,
}


# So that `import torch.<name>.amp` finds these, and makes no second copy of them.
for _key, _submodule in _SUBMODULES.items():
    sys.modules[f"torch.{device_name()}.{_key}"] = _submodule


def __getattr__(name: str) -> object:
    if name == "_initialized":  # torch.utils.checkpoint reads it before it keeps our random state
        return is_initialized()
    if name == "default_generators":
        return random.default_generators()
    if name in _GRAPHS:
        return getattr(graphs, name)
    if name in DTYPES:
        return tensor_type(name)
    if name in STORED:
        return storage_type(name)
    why = reason(name)
    if why is not None:
        raise AttributeError(f"torch.{device_name()}.{name} is not for this device, because {why}")
    raise AttributeError(f"module 'torch.{device_name()}' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *WORKS})
