"""Mixed precision under torch.cuda.amp's names, with the device filled in. torch.amp is the better
place.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from causeway.device.lazy import device_name, is_available

__all__ = ["GradScaler", "amp_definitely_not_available", "autocast", "custom_bwd", "custom_fwd"]


class autocast(torch.amp.autocast_mode.autocast):
    """torch.autocast for this device."""

    def __init__(
        self,
        enabled: bool = True,
        dtype: torch.dtype | None = None,
        cache_enabled: bool | None = True,
    ) -> None:
        super().__init__(device_name(), dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)


class GradScaler(torch.amp.grad_scaler.GradScaler):
    """torch.amp.GradScaler for this device."""

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        super().__init__(
            device_name(),
            init_scale=init_scale,
            growth_factor=growth_factor,
            backoff_factor=backoff_factor,
            growth_interval=growth_interval,
            enabled=enabled,
        )


def custom_fwd(
    fwd: Callable[..., Any] | None = None, *, cast_inputs: torch.dtype | None = None
) -> Any:
    """torch.amp.custom_fwd for this device."""
    if fwd is None:
        return functools.partial(custom_fwd, cast_inputs=cast_inputs)
    return torch.amp.custom_fwd(fwd, device_type=device_name(), cast_inputs=cast_inputs)


def custom_bwd(bwd: Callable[..., Any]) -> Any:
    """torch.amp.custom_bwd for this device."""
    return torch.amp.custom_bwd(bwd, device_type=device_name())


def amp_definitely_not_available() -> bool:
    """Return whether autocast can have no effect, because there is no device."""
    return not is_available()
