"""What amp knows between its calls: the options in force, a scaler for each loss, what to undo.

One object for the process, under apex's own name, since programs read `amp._amp_state.loss_scalers`
to log the scale.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from causeway.apex.amp.frontend import Properties
    from causeway.apex.amp.scaler import LossScaler


class AmpState:
    """The state; `_amp_state` is the only one."""

    def __init__(self) -> None:
        self.verbosity = 1
        self.opt_properties: Properties | None = None
        self.loss_scalers: list[LossScaler] = []
        self.master_of: dict[int, torch.Tensor] = {}  # by id of the model's parameter
        self.undo: list[Callable[[], None]] = []  # what deactivate() calls, last first
        self.undo_casts: Callable[[], None] | None = None
        self.casts = threading.local()  # .off: how many disable_casts() this thread is in

    @property
    def casting(self) -> bool:
        """Whether functions are cast (O1, O4), and this thread has not turned it off."""
        properties = self.opt_properties
        return bool(
            properties is not None
            and properties.enabled
            and properties.patch_torch_functions
            and not getattr(self.casts, "off", 0)
        )


_amp_state = AmpState()


def maybe_print(message: str, rank0: bool = False) -> None:
    """Print `message` where the verbosity asks for it; with `rank0` in the first process only."""
    dist = torch.distributed
    if _amp_state.verbosity <= 0:
        return
    if rank0 and dist.is_available() and dist.is_initialized() and dist.get_rank() != 0:
        return
    print(message)


def master_params(optimizer: torch.optim.Optimizer) -> Iterator[Any]:
    """The parameters that `optimizer` updates: float32 masters where there are some (O2), else the
    model's own. What to clip: `clip_grad_norm_(amp.master_params(optimizer), 1.0)`.
    """
    for group in optimizer.param_groups:
        yield from group["params"]
