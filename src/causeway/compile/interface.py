"""What torch._dynamo asks of a device."""

from __future__ import annotations

from typing import Any

import torch

from causeway import _C
from causeway.compile.chip import device_name


def get_raw_stream(device: int) -> int:
    """The number of a device's current stream."""
    return int(torch.accelerator.current_stream(device).stream_id)


class _Properties:
    """Of a device, for Inductor's choices."""

    def __init__(self, device: int) -> None:
        known = torch.get_device_module().get_device_properties(device)
        self.name = known.name
        self.total_memory = known.total_memory
        info = _C.compiler_info(device) or {}
        self.multi_processor_count = max(1, info.get("compute_units", known.multi_processor_count))
        self.major, self.minor = known.major, known.minor
        self.warp_size = 32
        self.max_threads_per_multi_processor = 1024
        self.regs_per_multiprocessor = 65536


def make(base: Any) -> Any:
    """A subclass of torch's DeviceInterface, `base`, for the device."""
    module = getattr(torch, device_name())

    class Interface(base):
        device = module.device
        Event = module.Event
        Stream = module.Stream

        class Worker:
            @staticmethod
            def set_device(device: int) -> None:
                torch.accelerator.set_device_index(device)

            @staticmethod
            def current_device() -> int:
                return torch.accelerator.current_device_index()

            @staticmethod
            def get_device_properties(device: Any = None) -> Any:
                index = (
                    torch.device(device).index
                    if isinstance(device, str)
                    else getattr(device, "index", device)
                )
                return _Properties(Interface.current_device() if index is None else index)

        current_device = staticmethod(torch.accelerator.current_device_index)
        set_device = staticmethod(torch.accelerator.set_device_index)
        device_count = staticmethod(torch.accelerator.device_count)
        is_available = staticmethod(torch.accelerator.is_available)
        current_stream = staticmethod(torch.accelerator.current_stream)
        set_stream = staticmethod(module.set_stream)
        stream = staticmethod(module.stream)
        get_raw_stream = staticmethod(get_raw_stream)
        synchronize = staticmethod(torch.accelerator.synchronize)
        memory_allocated = staticmethod(torch.accelerator.memory_allocated)

        @staticmethod
        def exchange_device(device: int) -> int:
            return int(torch._C._accelerator_exchangeDevice(device))

        @staticmethod
        def maybe_exchange_device(device: int) -> int:
            return int(torch._C._accelerator_maybeExchangeDevice(device))

        @staticmethod
        def _set_stream_by_id(stream_id: int, device_index: int, device_type: int) -> None:
            torch.accelerator.set_stream(
                torch.Stream(
                    stream_id=stream_id, device_index=device_index, device_type=device_type
                )
            )

        @staticmethod
        def get_compute_capability(device: Any = None) -> str:
            return f"{device_name()} {_C.vendor_state().get('version', '')}"

        @staticmethod
        def is_bf16_supported(including_emulation: bool = False) -> bool:
            return True

    return Interface
