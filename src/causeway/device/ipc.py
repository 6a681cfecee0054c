"""Device memory shared with other processes: torch.multiprocessing sends the memory, not a copy.

The unit is the storage, so views arrive as views, and tensors that shared a storage share it again.
The receiver opens the sender's memory by the vendor's ipc.v1. The sender must not hand that memory
out anew while the receiver uses it: it keeps the storage until the receiver lets go, and learns of
that through a byte of shared host memory, one for each storage sent. `collect` looks at these
bytes; it runs at each send and in empty_cache.

As with torch.cuda: a message that nobody ever opens keeps its memory until the sender ends; what
was received cannot be sent on (clone it first); and the sender's memory stays valid when the sender
ends.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from multiprocessing import reduction
from typing import Any

import torch

from causeway import _C
from causeway.device.lazy import _lazy_init, device_name
from causeway.errors import CausewayError

_PAGE = 1024  # bytes, each the state of one storage that was sent
_SENT, _RELEASED = 1, 0

_lock = threading.RLock()
_pages: list[torch.Tensor] = []
_kept: dict[
    tuple[int, int], torch.UntypedStorage
] = {}  # (page, byte): what the receiver may still use
_unused: list[tuple[int, int]] = []
# By where it is in the sender: a storage that is sent twice arrives as one.
_received: weakref.WeakValueDictionary[tuple[Any, ...], torch.UntypedStorage] = (
    weakref.WeakValueDictionary()
)


def install() -> None:
    """Make torch.multiprocessing send storages of this device by `reduce_storage`; all others go
    torch's way.
    """
    reduction.register(torch.UntypedStorage, reduce_storage)


def collect() -> None:
    """Let go of what was sent and is released by its receiver."""
    with _lock:
        for place in list(_kept):
            page, byte = place
            if int(_pages[page][byte]) == _RELEASED:
                del _kept[place]
                _unused.append(place)


def _keep(storage: torch.UntypedStorage) -> tuple[int, int]:
    with _lock:
        collect()
        if not _unused:
            page = torch.zeros(_PAGE, dtype=torch.uint8)
            page.share_memory_()  # type: ignore[no-untyped-call]
            _pages.append(page)
            _unused.extend((len(_pages) - 1, byte) for byte in range(_PAGE))
        place = _unused.pop()
        _pages[place[0]][place[1]] = _SENT
        _kept[place] = storage
        return place


def reduce_storage(storage: torch.UntypedStorage) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """How a storage is sent: for multiprocessing's pickler."""
    if storage.device.type != device_name():
        from torch.multiprocessing.reductions import reduce_storage as torchs

        return torchs(storage)  # type: ignore[no-any-return, no-untyped-call]
    if storage.nbytes() == 0:
        return _rebuild_empty, (str(storage.device),)
    if any(storage is received for received in _received.values()):
        raise CausewayError(
            "a tensor that another process sent cannot be sent on: its memory belongs to that "
            "process. "
            "Send x.clone() instead"
        )
    # The thread that pickles may not be the one that computed, so its current stream says nothing.
    torch.accelerator.synchronize(storage.device)
    device, handle, offset, size = _C.ipc_export(storage)
    page, byte = _keep(storage)
    flags = _pages[page].untyped_storage()
    return _rebuild, (os.getpid(), page, byte, flags, device, handle, offset, size)


def _rebuild(
    sender: int,
    page: int,
    byte: int,
    flags: torch.UntypedStorage,
    device: int,
    handle: bytes,
    offset: int,
    size: int,
) -> torch.UntypedStorage:
    if sender == os.getpid():
        storage = _kept[page, byte]
        _release(flags, byte)
        return storage
    _lazy_init()
    key = (sender, device, handle, offset, size)
    with _lock:
        known = _received.get(key)
        if known is not None:  # its own byte holds the memory
            _release(flags, byte)
            return known
        storage = _C.ipc_import(device, handle, offset, size)
        _received[key] = storage
    weakref.finalize(storage, _release, flags, byte)
    return storage


def _rebuild_empty(device: str) -> torch.UntypedStorage:
    return torch.empty(0, dtype=torch.uint8, device=device).untyped_storage()


def _release(flags: torch.UntypedStorage, byte: int) -> None:
    flags[byte] = _RELEASED
