"""Which device is this thread's current one, and how to change it."""

from __future__ import annotations

from types import TracebackType
from typing import Any, TypeAlias

import torch

from causeway import _C
from causeway.device.lazy import _lazy_init, count_devices, device_name, is_initialized

Device: TypeAlias = torch.device | int | str | None

# Other types of devices that mean this one: "cuda", while CUDA's calls are redirected here.
ALIASES: set[str] = set()


def _get_device_index(device: Any, optional: bool = False, allow_cpu: bool = False) -> int:
    """The index that `device` means: the current one for None if `optional`, -1 for the CPU if
    `allow_cpu`.
    """
    if isinstance(device, int):
        return int(device)
    if isinstance(device, _Guard):
        return device.idx
    if isinstance(device, str):
        device = torch.device(device)
    name = device_name()
    if isinstance(device, torch.device):
        if allow_cpu and device.type == "cpu":
            return -1
        if device.type != name and device.type not in ALIASES:
            wanted = f"{name} or cpu" if allow_cpu else name
            raise ValueError(f"Expected a {wanted} device, but got: {device}")
        if device.index is not None:
            return int(device.index)
    elif device is not None:
        raise ValueError(f"Expected a torch.device, an integer or a string, but got: {device!r}")
    if not optional:
        raise ValueError(
            f"Expected a torch.device with a specified index or an integer, but got: {device}"
        )
    return current_device()


def current_device() -> int:
    """Return the index of the current device of this thread."""
    _lazy_init()
    return torch.accelerator.current_device_index()  # which a compiled function guards


def set_device(device: Device) -> None:
    """Make `device` this thread's current one. Does nothing for a negative index. `device()` is the
    better way.
    """
    index = _get_device_index(device, optional=False)
    if index >= 0:
        _lazy_init()
        torch._C._accelerator_setDeviceIndex(index)


def _exchange_device(device: int) -> int:
    """Make `device` current and return the index of the one before; -1 and no change for a negative
    index.
    """
    if device < 0:
        return -1
    _lazy_init()
    return int(torch._C._accelerator_exchangeDevice(device))


def _maybe_exchange_device(device: int) -> int:
    """As _exchange_device, where the device need not be opened for it."""
    if device < 0:
        return -1
    return int(torch._C._accelerator_maybeExchangeDevice(device))


class _Guard:
    def __init__(self, index: int) -> None:
        self.idx = index
        self.prev_idx = -1

    def __enter__(self) -> None:
        self.prev_idx = _exchange_device(self.idx)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.idx = _maybe_exchange_device(self.prev_idx)


class device(_Guard):
    """Context manager that makes a device the current one; does nothing for a negative index or
    None.
    """

    def __init__(self, device: Any) -> None:
        super().__init__(_get_device_index(device, optional=True))


class device_of(_Guard):
    """Context manager that makes the device of a tensor or storage the current one; does nothing
    for the CPU's.
    """

    def __init__(self, obj: torch.Tensor | torch.UntypedStorage) -> None:
        super().__init__(obj.device.index if obj.device.type == device_name() else -1)


def synchronize(device: Device = None) -> None:
    """Wait for all work on `device`, the current one by default."""
    _lazy_init()
    torch.accelerator.synchronize(_get_device_index(device, optional=True))


def can_device_access_peer(device: Device, peer_device: Device) -> bool:
    """Return whether data goes from one device to the other without passing through the host.

    False for a device and itself, as torch.cuda, and where the vendor does not say. Copies between
    two devices work in any case.
    """
    _lazy_init()
    here = _get_device_index(device, optional=True)
    there = _get_device_index(peer_device)
    for index, what in ((here, "device"), (there, "peer device")):
        if not 0 <= index < count_devices():
            raise AssertionError(f"Invalid {what} id")
    return here != there and bool(_C.peer_access(here, there))


def ipc_collect() -> None:
    """Let go of memory that was sent to other processes and that these have released."""
    from causeway.device import ipc

    if is_initialized():
        ipc.collect()
