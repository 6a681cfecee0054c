"""What a device tells of itself, as nvidia-smi and NVML are asked for it. None: it does not tell.

Devices are counted as the machine has them: CUDA_VISIBLE_DEVICES is nothing to NVIDIA's tools. But
memory and sensors are read by the process that asks, so those of a hidden device cannot be.
"""

from __future__ import annotations

from dataclasses import dataclass

from causeway import _C

# Which processes use a device is no entry of the contract.
NO_PROCESSES = "the device does not tell which processes use it"
CUDA_VERSION = "12.6"  # which a program reads, at torch.version.cuda too


class HiddenError(LookupError):
    """A device that CUDA_VISIBLE_DEVICES, or Causeway's setting, hides from this process."""


@dataclass(frozen=True)
class Reading:
    """One device now. Bytes, percent, degrees Celsius, mW and kHz."""

    index: int
    name: str
    total: int
    free: int
    capability: tuple[int, int]
    uuid: str | None = None
    bus: str | None = None  # as NVIDIA writes it, 00000000:3B:00.0
    driver: str | None = None
    utilization: int | None = None
    memory_utilization: int | None = None
    temperature: int | None = None
    power: int | None = None
    clock: int | None = None
    highest_clock: int | None = None
    highest_memory_clock: int | None = None
    bus_width: int | None = None
    of_all: bool = True  # whether memory in use is all processes', not this one's alone

    @property
    def used(self) -> int:
        """Bytes that are not free."""
        return self.total - self.free


def count(target: str) -> int:
    """The devices of this machine. Opens none."""
    return 1 if target == "cpu" else _C.vendor_device_count()


def read(index: int, target: str) -> Reading:
    """The device `index` of this machine; IndexError where there is none, HiddenError where this
    process may not see it.
    """
    if not 0 <= index < count(target):
        raise IndexError(index)
    return _host() if target == "cpu" else _device(index)


def driver(target: str) -> str | None:
    """The driver's version, which is asked of a device that can be seen."""
    for index in range(count(target)):
        try:
            return read(index, target).driver
        except HiddenError:
            continue
    return None


def _host() -> Reading:
    from causeway.redirect import host

    free, total = host.mem_get_info()
    return Reading(0, host.get_device_name(), total, free, host.get_device_capability())


def _device(physical: int) -> Reading:
    import torch

    from causeway.device import lazy

    lazy._lazy_init()
    seen = lazy.visible
    if seen is not None and physical not in seen:
        raise HiddenError(physical)
    index = physical if seen is None else seen.index(physical)
    info = _C.device_info(index)
    free, total = torch.accelerator.get_memory_info(index)

    def number(key: str) -> int | None:
        found = _C.device_attribute(index, key)
        return None if found is None else int(found)

    def text(key: str) -> str | None:
        found = _C.device_attribute(index, key)
        return None if found is None else str(found)

    return Reading(
        physical, info["name"], total, free, info["capability"],
        uuid=_uuid(bytes(info["uuid"])),
        bus=_bus(text("pci_bus_id")),
        driver=text("driver_version"),
        utilization=number("utilization"),
        memory_utilization=number("memory_utilization"),
        temperature=number("temperature"),
        power=number("power_mw"),
        clock=number("clock_rate_now_khz"),
        highest_clock=number("clock_rate_khz"),
        highest_memory_clock=number("memory_clock_rate_khz"),
        bus_width=number("memory_bus_width"),
        of_all=_C.vendor_state()["entries"]["mem_info"],
    )  # fmt: skip


def _uuid(given: bytes) -> str | None:
    from uuid import UUID

    return f"GPU-{UUID(bytes=given)}" if any(given) else None


def _bus(address: str | None) -> str | None:
    """ "0000:3b:00.0" as "00000000:3B:00.0"; any other form as the vendor writes it."""
    if address is None or address.count(":") != 2:
        return address
    domain, rest = address.split(":", 1)
    return f"{domain:0>8}:{rest}".upper()
