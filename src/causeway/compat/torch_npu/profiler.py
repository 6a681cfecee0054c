"""torch_npu.profiler: torch's own, in which the device's activity is PrivateUse1."""

from __future__ import annotations

from enum import Enum
from typing import Any

import torch.profiler
from torch.profiler import ProfilerAction as ProfilerAction
from torch.profiler import schedule as schedule
from torch.profiler import tensorboard_trace_handler as tensorboard_trace_handler

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


class _ExperimentalConfig:
    """Kept, and without effect: `profile` says so."""

    def __init__(self, **options: Any) -> None:
        self.options = options


__getattr__ = getter("torch_npu.profiler")
