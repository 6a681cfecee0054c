"""A share of a device's cores, for this process or for one stream: what a vendor offers by the
extension cores.v1.
"""

from __future__ import annotations

import torch

from causeway import _C
from causeway.device.lazy import _lazy_init, device_name
from causeway.device.selection import Device, _get_device_index
from causeway.errors import VendorError


def set_core_limit(
    cores: int | None, device: Device = None, *, stream: torch.Stream | None = None
) -> None:
    """Let this process, or `stream` alone, use at most `cores` cores of `device`; None: all.

    Holds for work that is given from now on; where both have a limit the lower one holds. Numbers
    that kernels compute stay the same. Raises ValueError where there are not so many cores, and
    VendorError where the vendor shares none.
    """
    index = _index(device, stream)
    found = _C.cores(index, None)
    if cores is not None and found is not None and not 1 <= cores <= found[1]:
        name = f"{device_name()}:{index}"
        raise ValueError(f"set_core_limit({cores}): {name} has {found[1]} cores; give 1 to that")
    _C.set_cores(index, stream, cores or 0)


def core_limit(device: Device = None, *, stream: torch.Stream | None = None) -> int:
    """How many cores of `device` this process, or `stream`, may use now. Raises VendorError where
    the vendor shares none.
    """
    found = _C.cores(_index(device, stream), stream)
    if found is None:
        of_what = " to a stream" if stream is not None else ""
        raise VendorError(
            f"the library of {device_name()} gives no share of its cores{of_what}: there is no "
            "cores.v1 for it"
        )
    return found[0]


def _index(device: Device, stream: torch.Stream | None) -> int:
    _lazy_init()
    if stream is None:
        return _get_device_index(device, optional=True)
    if device is not None and _get_device_index(device, optional=True) != stream.device_index:
        raise ValueError(f"the stream is of device {stream.device_index}, not of {device}")
    return stream.device_index
