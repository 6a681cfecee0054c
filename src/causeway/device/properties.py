"""What a device is: name, memory, dtypes, capability."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import torch

from causeway import _C
from causeway.device.lazy import _lazy_init, compiled_as_constant, count_devices, is_available
from causeway.device.selection import Device, _get_device_index

if TYPE_CHECKING:
    from uuid import UUID


@dataclass(frozen=True)
class DeviceProperties:
    """As torch.cuda.get_device_properties gives them, and what only the contract knows."""

    name: str
    major: int
    minor: int
    total_memory: int  # bytes
    multi_processor_count: int  # cores, SMs, ...; 0: not known
    uuid: UUID
    dtypes: frozenset[torch.dtype]
    host_addressable: bool
    alignment: int  # of an allocation, in bytes

    def __repr__(self) -> str:
        return (
            f"_DeviceProperties(name={self.name!r}, major={self.major}, minor={self.minor}, "
            f"total_memory={self.total_memory // 2**20}MB, "
            f"multi_processor_count={self.multi_processor_count}, uuid={self.uuid}, "
            f"host_addressable={self.host_addressable})"
        )


def get_device_properties(device: Device = None) -> DeviceProperties:
    """Return the properties of `device`, the current one by default."""
    _lazy_init()
    return _known(_get_device_index(device, optional=True))


@compiled_as_constant
def _known(index: int) -> DeviceProperties:
    if not 0 <= index < count_devices():
        raise AssertionError(f"Invalid device id {index}: there are {count_devices()} devices")
    return _properties(index)


@cache
def _properties(index: int) -> DeviceProperties:
    from uuid import UUID  # 3 ms that an import of torch need not pay

    info = _C.device_info(index)
    major, minor = info["capability"]
    return DeviceProperties(
        name=info["name"],
        major=major,
        minor=minor,
        total_memory=info["memory"],
        multi_processor_count=info["compute_units"],
        uuid=UUID(bytes=bytes(info["uuid"])),
        dtypes=frozenset(info["dtypes"]),
        host_addressable=bool(info["host_addressable"]),
        alignment=info["alignment"],
    )


def get_device_name(device: Device = None) -> str:
    """Return the name of `device`, the current one by default."""
    return get_device_properties(device).name


def get_device_capability(device: Device = None) -> tuple[int, int]:
    """Return (major, minor) of `device`. What they mean is the vendor's; they are no compute
    capability of CUDA.
    """
    properties = get_device_properties(device)
    return properties.major, properties.minor


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Return whether the current device has bfloat16. There is no emulation: a chip without it
    refuses such tensors.
    """
    return is_available() and torch.bfloat16 in get_device_properties().dtypes


def is_tf32_supported() -> bool:
    """Return False: the format is NVIDIA's, and the contract does not name it."""
    return False


def get_amp_supported_dtype() -> list[torch.dtype]:
    """Return the dtypes that torch.autocast may use on this device."""
    low = [torch.float16, torch.bfloat16]
    if not is_available():
        return low  # so that autocast can be named where there is no device, as CUDA's can
    dtypes = get_device_properties().dtypes
    return [dtype for dtype in low if dtype in dtypes]


def get_arch_list() -> list[str]:
    """Return []: torch holds no compiled kernels for this device, the vendor's library does."""
    return []


def get_gencode_flags() -> str:
    """Return "": see get_arch_list."""
    return ""
