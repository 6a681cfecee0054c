"""The scalers of apex.fp16_utils, by apex.amp's."""

from __future__ import annotations

from causeway.apex.amp import scaler


class LossScaler(scaler.LossScaler):
    """A static scale."""

    def __init__(self, scale: float = 1) -> None:
        super().__init__(scale)


class DynamicLossScaler(scaler.LossScaler):
    """A dynamic scale."""

    def __init__(
        self, init_scale: float = 2**32, scale_factor: float = 2.0, scale_window: int = 1000
    ) -> None:
        super().__init__(
            "dynamic", init_scale, scale_factor, scale_window, max_loss_scale=float("inf")
        )
