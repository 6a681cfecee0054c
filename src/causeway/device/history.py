"""Snapshots of device memory and the history of the allocator, as torch.cuda.memory has them.

A snapshot has the form that torch's own viewers read: torch.cuda._memory_viz and
https://pytorch.org/memory_viz. That form is a pickle, so `_dump_snapshot` writes one; nothing here
ever reads one. Events and stacks are kept by the core, from `_record_memory_history` on.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Sequence
from typing import Any

from causeway import _C
from causeway.device.lazy import _lazy_init, count_devices, is_initialized
from causeway.device.selection import Device

ACTIONS = (
    "alloc",
    "free_requested",
    "free_completed",
    "segment_alloc",
    "segment_free",
    "segment_map",
    "segment_unmap",
    "snapshot",
    "oom",
)


def memory_snapshot(
    mempool_id: tuple[int, int] | None = None, include_traces: bool = True
) -> list[dict[str, Any]]:
    """Return the segments of all devices with their blocks, in torch.cuda's form. Blocks in use
    have the stack of who asked for them once `_record_memory_history` is on. `mempool_id` asks for
    those of one pool.
    """
    if not is_initialized():
        return []
    return [
        segment
        for index in range(count_devices())
        for segment in _C.memory_snapshot(index)
        if mempool_id is None or segment["segment_pool_id"] == tuple(mempool_id)
    ]


def _record_memory_history(
    enabled: str | bool | None = "all",
    context: str | bool | None = "all",
    stacks: str | int = "all",
    max_entries: int = sys.maxsize,
    device: Device = None,
    clear_history: bool = False,
    compile_context: bool = False,
    global_record_annotations: bool = False,
    skip_actions: Sequence[str] | None = None,
    *,
    record_context: bool = True,
    trace_alloc_max_entries: int | None = None,
    trace_alloc_record_context: bool = False,
    record_context_cpp: bool = False,
) -> None:
    """Keep who asked for each block (`enabled="state"`), and also all that the allocator does
    ("all"); None ends it and forgets.

    As torch.cuda.memory._record_memory_history: `context` says which calls keep the stack of their
    caller (None, "state", "alloc", "all"), `stacks="python"` leaves out frames of C++, of
    `max_entries` events of a device the last are kept, `skip_actions` are not. It is for all
    devices, whatever `device` says. The older form with a bool first is understood too.
    """
    if isinstance(enabled, bool):
        if isinstance(context, bool):
            record_context = context
        if isinstance(stacks, int):
            trace_alloc_max_entries = stacks
        max_entries = trace_alloc_max_entries or 1
        stacks = "all" if record_context_cpp else "python"
        context = None
        if record_context:
            context = "alloc" if trace_alloc_record_context else "state"
        enabled = "all" if enabled else None
    for name, value, choices in (
        ("enabled", enabled, (None, "state", "all")),
        ("context", context, (None, "state", "alloc", "all")),
        ("stacks", stacks, ("python", "all")),
    ):
        if value not in choices:
            raise ValueError(f"{name} is {value!r}; it must be one of {choices}")
    for action in skip_actions or ():
        if action not in ACTIONS:
            raise ValueError(f"skip_actions has {action!r}; an action is one of {ACTIONS}")
    for name, value in (
        ("compile_context", compile_context),
        ("global_record_annotations", global_record_annotations),
    ):
        if value:
            raise NotImplementedError(
                f"_record_memory_history({name}=True) is not for this device: leave it out"
            )
    if max_entries < 1:
        raise ValueError(f"max_entries is {max_entries}; it must be at least 1")
    _lazy_init()
    _C.set_memory_history(
        enabled,
        None if context is None else str(context),
        str(stacks),
        max_entries,
        clear_history,
        list(skip_actions or ()),
    )


def _snapshot(device: Device = None, augment_with_fx_traces: bool = False) -> dict[str, Any]:
    """Return {"segments": ..., "device_traces": a list of events for each device}, the form that
    torch.cuda._memory_viz and https://pytorch.org/memory_viz read.
    """
    if augment_with_fx_traces:
        raise NotImplementedError(
            "_snapshot(augment_with_fx_traces=True) is not for this device: leave it out"
        )
    devices = range(count_devices()) if is_initialized() else range(0)
    return {
        "segments": memory_snapshot(),
        "device_traces": [_C.memory_history(index) for index in devices],
        "allocator_settings": {"expandable_segments": False},
        "external_annotations": [],
    }


def _dump_snapshot(
    filename: str | os.PathLike[str] = "dump_snapshot.pickle", augment_with_fx_traces: bool = False
) -> None:
    """Write `_snapshot()` to a file for https://pytorch.org/memory_viz, all of it or nothing."""
    found = _snapshot(augment_with_fx_traces=augment_with_fx_traces)
    from causeway import atomic

    with atomic.replacing(filename) as part, part.open("wb") as file:
        pickle.dump(found, file)
