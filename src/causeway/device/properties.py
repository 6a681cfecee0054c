"""What a device is: name, memory, dtypes, capability."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import torch

from causeway import _C
from causeway.device.lazy import (
    _lazy_init,
    compiled_as_constant,
    count_devices,
    device_name,
    is_available,
)
from causeway.device.selection import Device, _get_device_index
from causeway.errors import VendorError

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
    padding: int = 0  # bytes behind each tensor that the chip may touch
    index: int = 0

    def __getattr__(self, name: str) -> Any:
        """What the vendor's library says by key: torch.cuda's names, or the vendor's own keys."""
        if name.startswith("_"):
            raise AttributeError(name)
        found = _attribute(self.index, name)
        if found is None:
            key = ATTRIBUTES.get(name, name)
            raise AttributeError(
                f"the vendor's library does not say {name!r} of {self.name} "
                f"(device_attribute {key!r})"
            )
        return found

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
        padding=info["padding"],
        index=index,
    )


# torch.cuda's names of properties, and the contract's keys for them.
ATTRIBUTES = {
    "L2_cache_size": "l2_cache_bytes",
    "clock_rate": "clock_rate_khz",
    "gcnArchName": "architecture",
    "max_threads_per_block": "group_limit",
    "max_threads_per_multi_processor": "threads_per_unit",
    "memory_bus_width": "memory_bus_width",
    "memory_clock_rate": "memory_clock_rate_khz",
    "shared_memory_per_block": "local_memory_bytes",
    "warp_size": "simd_width",
}
_PCI = {"pci_domain_id": 0, "pci_bus_id": 1, "pci_device_id": 2}  # of 0000:3b:00.0, as numbers


def _attribute(index: int, name: str) -> Any:
    if name in _PCI:  # torch.cuda has three numbers
        address = _C.device_attribute(index, "pci_bus_id")
        if not isinstance(address, str):
            return address
        parts = address.partition(".")[0].split(":")
        return int(parts[_PCI[name]], 16) if len(parts) == 3 else None
    return _C.device_attribute(index, ATTRIBUTES.get(name, name))


def _sensor(device: Device, key: str) -> int:
    _lazy_init()
    index = _get_device_index(device, optional=True)
    found = _C.device_attribute(index, key)
    if found is None:
        raise VendorError(
            f"the library of {device_name()} does not say the {key!r} of a device: "
            "its table has no device_attribute for it; the vendor's own tool may know"
        )
    return int(found)


def utilization(device: Device = None) -> int:
    """Return how busy `device` was, in percent. VendorError where the vendor does not say."""
    return _sensor(device, "utilization")


def memory_usage(device: Device = None) -> int:
    """Return how busy the memory of `device` was lately, in percent. VendorError where the vendor
    does not say.
    """
    return _sensor(device, "memory_utilization")


def temperature(device: Device = None) -> int:
    """Return the temperature of `device` in degrees Celsius. VendorError where the vendor does not
    say.
    """
    return _sensor(device, "temperature")


def power_draw(device: Device = None) -> int:
    """Return what `device` draws, in milliwatts. VendorError where the vendor does not say."""
    return _sensor(device, "power_mw")


def clock_rate(device: Device = None) -> int:
    """Return the clock of `device` now, in MHz. VendorError where the vendor does not say."""
    return _sensor(device, "clock_rate_now_khz") // 1000


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
