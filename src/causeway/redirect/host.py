"""torch.cuda's names where the target is the CPU: one device, which is the host.

For running a CUDA program on the CPU, as a reference. There is one stream, work is finished when a
call returns, and memory is counted by nobody: statistics are 0.
"""

from __future__ import annotations

import platform
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import torch

from causeway.errors import CausewayError

# --- selection ----------------------------------------------------------------------------------


def is_available() -> bool:
    return True


def device_count() -> int:
    return 1


def is_initialized() -> bool:
    return True


def init() -> None:
    pass


def _lazy_init() -> None:
    pass


def _lazy_call(function: Callable[[], None], **kwargs: Any) -> None:
    function()


def _is_in_bad_fork() -> bool:
    return False


def current_device() -> int:
    return 0


def set_device(device: Any) -> None:
    pass


def synchronize(device: Any = None) -> None:
    pass


def ipc_collect() -> None:
    pass


def can_device_access_peer(device: Any, peer_device: Any) -> bool:
    return False


def _get_device_index(device: Any, optional: bool = False, allow_cpu: bool = False) -> int:
    return 0


def _exchange_device(device: int) -> int:
    return 0


def _maybe_exchange_device(device: int) -> int:
    return 0


class device:
    """Context manager that does nothing."""

    def __init__(self, device: Any) -> None:
        self.idx = 0

    def __enter__(self) -> None:
        pass

    def __exit__(self, *args: object) -> None:
        pass


class device_of(device):
    """Context manager that does nothing."""


# --- properties ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class DeviceProperties:
    """The fields of torch.cuda's that programs print."""

    name: str = field(default_factory=lambda: platform.processor() or "CPU")
    major: int = 0
    minor: int = 0
    total_memory: int = 0  # bytes
    multi_processor_count: int = 0
    uuid: UUID = field(default_factory=lambda: UUID(int=0))
    warp_size: int = 1


def get_device_properties(device: Any = None) -> DeviceProperties:
    import os

    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return DeviceProperties(total_memory=memory, multi_processor_count=os.cpu_count() or 0)


def get_device_name(device: Any = None) -> str:
    return get_device_properties().name


def get_device_capability(device: Any = None) -> tuple[int, int]:
    return (0, 0)


def get_arch_list() -> list[str]:
    return []


def get_gencode_flags() -> str:
    return ""


def is_bf16_supported(including_emulation: bool = True) -> bool:
    return True


def is_tf32_supported() -> bool:
    return False


has_half = True
has_magma = False


def _sensor(device: Any = None) -> int:
    """Raise CausewayError: it is a device's sensor."""
    raise CausewayError("CUDA is redirected to the CPU, whose sensors torch does not read")


clock_rate = _sensor
memory_usage = _sensor
power_draw = _sensor
temperature = _sensor
utilization = _sensor

# --- streams and events -------------------------------------------------------------------------


class Stream:
    """The one stream: everything in it is finished."""

    cuda_stream = 0
    stream_id = 0
    device = torch.device("cuda", 0)  # what a program sees of the one memory

    def __init__(self, device: Any = None, priority: int = 0, **kwargs: Any) -> None:
        self.priority = priority

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        pass

    def wait_stream(self, stream: Any) -> None:
        pass

    def wait_event(self, event: Any) -> None:
        pass

    def record_event(self, event: Event | None = None) -> Event:
        event = Event() if event is None else event
        event.record()
        return event

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *args: object) -> None:
        pass

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream)

    def __hash__(self) -> int:
        return 0


class Event:
    """A moment of the host's clock."""

    device = torch.device("cuda", 0)

    def __init__(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> None:
        self.enable_timing = enable_timing
        self._seconds: float | None = None

    def record(self, stream: Any = None) -> None:
        self._seconds = time.perf_counter()

    def wait(self, stream: Any = None) -> None:
        pass

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds from this event to `end_event`."""
        if self._seconds is None or end_event._seconds is None:
            raise RuntimeError("Both events must be recorded before calculating elapsed time.")
        return 1000 * (end_event._seconds - self._seconds)


_stream = Stream()


def current_stream(device: Any = None) -> Stream:
    return _stream


def default_stream(device: Any = None) -> Stream:
    return _stream


def set_stream(stream: Any) -> None:
    pass


def stream(stream: Any) -> AbstractContextManager[Any]:
    return nullcontext(stream)


StreamContext = stream


def is_current_stream_capturing() -> bool:
    return False


# --- memory -------------------------------------------------------------------------------------


def _nothing(*args: Any, **kwargs: Any) -> None:
    """Do nothing."""


def _zero(*args: Any, **kwargs: Any) -> int:
    """Return 0."""
    return 0


def _empty(*args: Any, **kwargs: Any) -> OrderedDict[str, Any]:
    """Return an empty dict."""
    return OrderedDict()


empty_cache = _nothing
reset_peak_memory_stats = _nothing
reset_accumulated_memory_stats = _nothing
reset_max_memory_allocated = _nothing
reset_max_memory_cached = _nothing
reset_peak_host_memory_stats = _nothing
reset_accumulated_host_memory_stats = _nothing
set_per_process_memory_fraction = _nothing
memory_allocated = _zero
memory_cached = _zero
memory_reserved = _zero
max_memory_allocated = _zero
max_memory_cached = _zero
max_memory_reserved = _zero
device_memory_used = _zero
memory_stats = _empty
memory_stats_as_nested_dict = _empty
host_memory_stats = _empty
host_memory_stats_as_nested_dict = _empty


def get_per_process_memory_fraction(device: Any = None) -> float:
    return 1.0


def get_allocator_backend() -> str:
    return "native"


def mem_get_info(device: Any = None) -> tuple[int, int]:
    import os

    page = os.sysconf("SC_PAGE_SIZE")
    return page * os.sysconf("SC_AVPHYS_PAGES"), page * os.sysconf("SC_PHYS_PAGES")


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    return "no statistics: CUDA is redirected to the CPU\n"


def memory_snapshot(*args: Any, **kwargs: Any) -> list[dict[str, Any]]:
    return []


# --- random numbers: the host's one generator ----------------------------------------------------


def manual_seed(seed: int) -> None:
    """Do nothing: there is one generator, and torch.manual_seed has seeded it."""


manual_seed_all = manual_seed
seed = _nothing
seed_all = _nothing


def initial_seed() -> int:
    return torch.initial_seed()


def get_rng_state(device: Any = "cuda") -> torch.Tensor:
    return torch.get_rng_state()


def get_rng_state_all() -> list[torch.Tensor]:
    return [torch.get_rng_state()]


def set_rng_state(new_state: torch.Tensor, device: Any = "cuda") -> None:
    torch.set_rng_state(new_state)


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    for state in new_states:
        torch.set_rng_state(state)


def _get_generator(device: Any) -> torch.Generator:
    return torch.default_generator


default_generators = (torch.default_generator,)

# --- typed names of old code ---------------------------------------------------------------------

FloatTensor = torch.FloatTensor
DoubleTensor = torch.DoubleTensor
HalfTensor = torch.HalfTensor
BFloat16Tensor = torch.BFloat16Tensor
ByteTensor = torch.ByteTensor
CharTensor = torch.CharTensor
ShortTensor = torch.ShortTensor
IntTensor = torch.IntTensor
LongTensor = torch.LongTensor
BoolTensor = torch.BoolTensor
