"""What amp.initialize makes of an optimizer: float32 masters, steps that can be skipped.

The optimizer stays the object that it was, of its own class. `zero_grad`, `step` and
`add_param_group` become bound methods of the instance: a learning-rate scheduler wraps `step` and
wants one.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from causeway.apex.amp._amp_state import _amp_state, maybe_print
from causeway.apex.amp.gradients import FlatGradients, Gradients
from causeway.apex.amp.scaler import LossScaler

HALVES = (torch.float16, torch.bfloat16)


class _Skip(Exception):
    """Raised out of a closure whose backward pass overflowed."""


class Stash:
    """amp's part of an optimizer, `optimizer._amp_stash`.

    `models` are the gradients of low-precision parameters, `masters` those of their float32 copies,
    `plain` those of all others.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, masters: bool, combine: bool) -> None:
        self.optimizer = optimizer
        self.has_masters = masters
        self.combine = combine
        self.params_have_scaled_gradients = False
        self.skip = ""  # why the next step is left out
        self._saved: Any = None
        kind = FlatGradients if combine else Gradients
        self.models, self.masters, self.plain = kind([]), kind([]), kind([])
        for group in optimizer.param_groups:
            self.take_group(group)

    def take_group(self, group: dict[str, Any]) -> None:
        """Put masters in the place of `group`'s low-precision parameters."""
        models: list[Tensor] = []
        plain: list[Tensor] = []
        for i, param in enumerate(group["params"]):
            if not param.requires_grad:
                continue
            if not (self.has_masters and param.dtype in HALVES):
                plain.append(param)
                continue
            master = param.detach().to(torch.float32, copy=True).requires_grad_()
            group["params"][i] = master
            _amp_state.master_of[id(param)] = master
            models.append(param)
            # What the optimizer knew of the parameter is now the master's, in its precision.
            if param in self.optimizer.state:
                former = self.optimizer.state.pop(param)
                self.optimizer.state[master] = {
                    k: v.to(torch.float32) if _of(v, HALVES) else v for k, v in former.items()
                }
        self.plain.extend(plain)
        self.models.extend(models)
        copies = [_amp_state.master_of[id(p)] for p in models]
        if isinstance(self.masters, FlatGradients):
            self.masters.extend(copies, models)
        else:
            self.masters.extend(copies)

    # --- around a backward pass -----------------------------------------------------------------

    def prepare(self) -> None:
        """Take gradients away, so that the new ones can be told apart; not where they are scaled
        too (delay_unscale).
        """
        if not self.params_have_scaled_gradients:
            self._saved = self.plain.take()
            self.models.clear()

    def finish(self, scaler: LossScaler) -> None:
        """Unscale what the backward pass gave, and add it to what was there."""
        properties = _amp_state.opt_properties
        if properties is not None and properties.combine_ddp:
            for each in (self.plain, self.models):
                assert isinstance(each, FlatGradients)
                each.reduce(properties.ddp_replica_count)
        scaler.unscale(self.plain.tensors())
        if self._saved is not None:
            self.plain.add(self._saved)
            self._saved = None
        self.masters.from_scaled(self.models, scaler.unscale)
        self.params_have_scaled_gradients = False

    # --- the optimizer's methods ----------------------------------------------------------------

    def zero_grad(self, set_to_none: bool = True) -> None:
        for each in (self.plain, self.models, self.masters):
            each.clear(set_to_none)
        self.params_have_scaled_gradients = False

    def give_masters(self) -> None:
        """Copy the masters to the model, rounded to its dtype."""
        if self.models.params:
            with torch.no_grad():
                torch._foreach_copy_(self.models.params, self.masters.params)

    def take_masters(self) -> None:
        """Copy the model to the masters: after its parameters were set by hand."""
        if self.models.params:
            with torch.no_grad():
                torch._foreach_copy_(self.masters.params, self.models.params)

    def release(self) -> None:
        for each in (self.plain, self.models, self.masters):
            if isinstance(each, FlatGradients):
                each.release()


def process_optimizer(optimizer: torch.optim.Optimizer, masters: bool, combine: bool) -> None:
    """Make `optimizer` one of amp's: see the module."""
    stash = Stash(optimizer, masters, combine)
    former = {
        name: optimizer.__dict__.get(name) for name in ("zero_grad", "step", "add_param_group")
    }
    optimizer._amp_stash = stash  # type: ignore[attr-defined]
    inner_step: Callable[..., Any] = optimizer.step
    inner_add: Callable[[dict[str, Any]], None] = optimizer.add_param_group

    def zero_grad(self: Any, set_to_none: bool = True) -> None:
        stash.zero_grad(set_to_none)

    def step(self: Any, closure: Callable[[], Any] | None = None, *args: Any, **kwargs: Any) -> Any:
        from causeway.apex.amp.handle import disable_casts, enable_casts

        if stash.skip:
            return _skip(self)
        if closure is not None:
            again = closure

            def closure() -> Any:
                stash.give_masters()  # an optimizer may call it again with other parameters
                with torch.enable_grad(), enable_casts():
                    result = again()
                if stash.skip:
                    raise _Skip
                return result

        try:
            with disable_casts():
                given = (closure,) if closure is not None else ()
                result = inner_step(*given, *args, **kwargs)
        except _Skip:
            return _skip(self)
        stash.give_masters()
        # model.zero_grad() does not reach these, and programs call it in zero_grad's place.
        stash.masters.clear()
        return result

    def _skip(self: Any) -> None:
        message, stash.skip = stash.skip, ""
        maybe_print(message)
        stash.masters.clear()
        self._opt_called = True  # or a scheduler would warn that it was called too early

    def add_param_group(self: Any, param_group: dict[str, Any]) -> None:
        inner_add(param_group)
        stash.take_group(self.param_groups[-1])

    # A scheduler that was made before looks for its mark, which it left on the former method.
    step.__dict__.update(getattr(inner_step, "__dict__", {}))
    for name, function in (
        ("zero_grad", zero_grad),
        ("step", step),
        ("add_param_group", add_param_group),
    ):
        setattr(optimizer, name, types.MethodType(function, optimizer))

    def undo() -> None:
        stash.release()
        for param in stash.models.params:
            _amp_state.master_of.pop(id(param), None)
        for name, value in former.items():
            if value is None:
                optimizer.__dict__.pop(name, None)
            else:
                setattr(optimizer, name, value)
        del optimizer._amp_stash  # type: ignore[attr-defined]

    _amp_state.undo.append(undo)


def combined_gradients(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """The flat buffers of `optimizer`'s gradients (`combine_grad=True`), one for each device and
    dtype: those of the masters where there are some. Each parameter's `.grad` is a view of one.
    """
    stash: Stash | None = getattr(optimizer, "_amp_stash", None)
    if stash is None or not stash.combine:
        raise RuntimeError(
            "this optimizer has no combined gradients: give it to amp.initialize with "
            "combine_grad=True"
        )
    found = []
    for each in (stash.plain, stash.masters):
        assert isinstance(each, FlatGradients)
        found += list(each.flat.values())
    return found


def _of(value: Any, dtypes: tuple[torch.dtype, ...]) -> bool:
    return isinstance(value, Tensor) and value.dtype in dtypes
