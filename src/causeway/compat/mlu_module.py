"""What torch has in torch_mlu and lacks here: torch.is_mlu_available."""

from __future__ import annotations

import torch


def extend() -> None:
    """Put the names into torch."""
    torch.is_mlu_available = torch.accelerator.is_available  # type: ignore[attr-defined]
