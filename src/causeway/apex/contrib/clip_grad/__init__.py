"""apex.contrib.clip_grad: torch's clipping, by its foreach form."""

from __future__ import annotations

from collections.abc import Iterable

import torch

__all__ = ["clip_grad_norm_"]


def clip_grad_norm_(
    parameters: torch.Tensor | Iterable[torch.Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
) -> torch.Tensor:
    """Scale the gradients of `parameters` so that their norm together is at most `max_norm`; give
    the norm before. Parameters may be on several devices.
    """
    return torch.nn.utils.clip_grad_norm_(
        parameters, max_norm, norm_type=norm_type, error_if_nonfinite=error_if_nonfinite
    )
