"""`scale_loss`, the context of a backward pass, and `disable_casts`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from causeway.apex.amp._amp_state import _amp_state

if TYPE_CHECKING:
    from causeway.apex.amp.optimizer import Stash

Optimizers = torch.optim.Optimizer | Sequence[torch.optim.Optimizer]


@contextmanager
def scale_loss(
    loss: Tensor,
    optimizers: Optimizers,
    loss_id: int = 0,
    model: Any = None,
    delay_unscale: bool = False,
    delay_overflow_check: bool = False,
) -> Iterator[Tensor]:
    """Give `loss`, in float32, times the scale of `loss_id`; at the end unscale the gradients that
    its backward pass gave, and have the optimizers' next step skipped where they overflowed.

    ``with amp.scale_loss(loss, optimizer) as scaled_loss: scaled_loss.backward()``

    Gradients that were there before are added to, as without amp. `delay_unscale` leaves them
    scaled: for all but the last backward pass of an accumulation; the optimizers must not step
    then. `delay_overflow_check` leaves the check, and the scale, to the next call without it.
    `model` has no use and is there since programs give it. The device is waited for once, to know
    whether there was an overflow; with a static scale not at all.

    Raises RuntimeError before `amp.initialize`, for an optimizer that it was not given, and for a
    `loss_id` that has no scaler.
    """
    properties = _amp_state.opt_properties
    if properties is None:
        raise RuntimeError(
            "amp.scale_loss was called before amp.initialize: call model, optimizer = "
            "amp.initialize(model, optimizer, opt_level=...) first"
        )
    if not properties.enabled:
        yield loss
        return
    several = [optimizers] if isinstance(optimizers, torch.optim.Optimizer) else [*optimizers]
    stashes = [_stash(optimizer) for optimizer in several]
    if not 0 <= loss_id < len(_amp_state.loss_scalers):
        raise RuntimeError(
            f"amp.scale_loss was given loss_id={loss_id}, and amp.initialize num_losses="
            f"{len(_amp_state.loss_scalers)}: loss_id is from 0 to num_losses - 1"
        )
    scaler = _amp_state.loss_scalers[loss_id]
    for stash in stashes:
        stash.prepare()
    # Formulas of backward passes choose their dtypes themselves.
    with disable_casts():
        yield loss.float() * scaler.loss_scale()
    if delay_unscale:
        for stash in stashes:
            stash.params_have_scaled_gradients = True
        return
    for stash in stashes:
        stash.finish(scaler)
    if delay_overflow_check:
        return
    if scaler.update_scale():
        message = (
            f"Gradient overflow.  Skipping step, loss scaler {loss_id} reducing loss scale to "
            f"{scaler.loss_scale()}"
        )
        for stash in stashes:
            stash.skip = message
    scaler.clear_overflow_state()


def _stash(optimizer: torch.optim.Optimizer) -> Stash:
    stash: Stash | None = getattr(optimizer, "_amp_stash", None)
    if stash is None:
        raise RuntimeError(
            f"amp.scale_loss was given a {type(optimizer).__name__} that amp.initialize did not "
            "see: give it to amp.initialize"
        )
    return stash


@contextmanager
def disable_casts() -> Iterator[None]:
    """Do without O1's casts inside; this thread only."""
    with _casts_off(getattr(_amp_state.casts, "off", 0) + 1):
        yield


@contextmanager
def enable_casts() -> Iterator[None]:
    """Undo disable_casts() inside: an optimizer's closure runs the model."""
    with _casts_off(0):
        yield


@contextmanager
def _casts_off(off: int) -> Iterator[None]:
    properties = _amp_state.opt_properties
    if properties is None or not properties.patch_torch_functions:
        yield
        return
    former = getattr(_amp_state.casts, "off", 0)
    _amp_state.casts.off = off
    try:
        with autocast_everywhere(not off):
            yield
    finally:
        _amp_state.casts.off = former


@contextmanager
def autocast_everywhere(enabled: bool) -> Iterator[None]:
    """Turn autocast on or off for the devices of amp's models."""
    properties = _amp_state.opt_properties
    assert properties is not None
    before = {d: torch.is_autocast_enabled(d) for d in properties.devices}
    for device in before:
        torch.set_autocast_enabled(device, enabled)
    try:
        yield
    finally:
        for device, was in before.items():
            torch.set_autocast_enabled(device, was)
