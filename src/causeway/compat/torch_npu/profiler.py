"""torch_npu.profiler: torch's own, in which the device's activity is PrivateUse1."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

import torch.profiler
from torch.profiler import ProfilerAction as ProfilerAction
from torch.profiler import schedule as schedule

from causeway.compat.missing import getter, no_effect

_OWN = "it chooses what Ascend's profiler writes; torch.profiler has its own"


class ProfilerActivity(Enum):
    """CPU, and NPU for the device."""

    CPU = torch.profiler.ProfilerActivity.CPU
    NPU = torch.profiler.ProfilerActivity.PrivateUse1


def supported_activities() -> set[ProfilerActivity]:
    """CPU and NPU."""
    return set(ProfilerActivity)


class profile(torch.profiler.profile):
    """torch.profiler.profile; `experimental_config` has no effect, and says so once."""

    def __init__(
        self, *, activities: Any = None, experimental_config: Any = None, **options: Any
    ) -> None:
        if experimental_config is not None:
            no_effect("torch_npu.profiler.profile(experimental_config=...)", _OWN)
        if activities is not None:
            activities = [a.value if isinstance(a, ProfilerActivity) else a for a in activities]
        super().__init__(activities=activities, **options)


def tensorboard_trace_handler(
    dir_name: str | None = None, worker_name: str | None = None, analyse_flag: bool = True,
    async_mode: bool = False,
) -> Callable[[torch.profiler.profile], None]:  # fmt: skip
    """torch.profiler's: a trace in `dir_name`, or where the program runs, at once. There is nothing
    to analyse afterwards.
    """
    handler: Callable[[torch.profiler.profile], None]
    handler = torch.profiler.tensorboard_trace_handler(dir_name or ".", worker_name)
    return handler


class ProfilerLevel(Enum):
    """How much Ascend's profiler writes."""

    Level_none = "Level_none"
    Level0 = "Level0"
    Level1 = "Level1"
    Level2 = "Level2"


class AiCMetrics(Enum):
    """Which counters of the chip it reads."""

    PipeUtilization = "PipeUtilization"
    ArithmeticUtilization = "ArithmeticUtilization"
    Memory = "Memory"
    MemoryL0 = "MemoryL0"
    MemoryUB = "MemoryUB"
    ResourceConflictRatio = "ResourceConflictRatio"
    L2Cache = "L2Cache"
    MemoryAccess = "MemoryAccess"
    AiCoreNone = "ACL_AICORE_NONE"


class ExportType(Enum):
    """The files that it writes."""

    Db = "db"
    Text = "text"


class HostSystem(Enum):
    """What it reads of the host."""

    CPU = "cpu"
    MEM = "mem"
    DISK = "disk"
    NETWORK = "network"
    OSRT = "osrt"
    NUMA = "numa"


def supported_profiler_level() -> set[ProfilerLevel]:
    """All of them, as names: they have no effect."""
    return set(ProfilerLevel)


def supported_ai_core_metrics() -> set[AiCMetrics]:
    """All of them, as names: they have no effect."""
    return set(AiCMetrics)


def supported_export_type() -> set[ExportType]:
    """All of them, as names: torch.profiler writes JSON."""
    return set(ExportType)


class _ExperimentalConfig:
    """Kept, and without effect: `profile` says so."""

    def __init__(self, **options: Any) -> None:
        self.options = options


__getattr__ = getter("torch_npu.profiler")
