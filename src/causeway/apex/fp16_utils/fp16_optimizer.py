"""FP16_Optimizer: float32 masters around an optimizer, on what apex.amp uses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from causeway.apex.amp.optimizer import Stash
from causeway.apex.amp.scaler import LossScaler
from causeway.apex.contrib.clip_grad import clip_grad_norm_


class FP16_Optimizer:
    """Wraps an optimizer over half-precision parameters: `optimizer.backward(loss)` in place of
    `loss.backward()`, then `optimizer.step()`, which is left out after an overflow.
    """

    def __init__(
        self,
        init_optimizer: torch.optim.Optimizer,
        static_loss_scale: float = 1.0,
        dynamic_loss_scale: bool = False,
        dynamic_loss_args: dict[str, Any] | None = None,
        verbose: bool = True,
    ) -> None:
        self.optimizer = init_optimizer
        self.verbose = verbose
        self.overflow = False
        args = {"init_scale": 2.0**32, "scale_window": 1000} | (dynamic_loss_args or {})
        scale: float | str = "dynamic" if dynamic_loss_scale else static_loss_scale
        self.loss_scaler = LossScaler(scale, max_loss_scale=float("inf"), **args)
        self._stash = Stash(init_optimizer, masters=True, combine=False)

    @property
    def loss_scale(self) -> float:
        """The scale in force."""
        return self.loss_scaler.loss_scale()

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The wrapped optimizer's groups, which hold the masters."""
        return self.optimizer.param_groups

    @property
    def state(self) -> Any:
        """The wrapped optimizer's state."""
        return self.optimizer.state

    def zero_grad(self, set_grads_to_None: bool = True) -> None:
        """Clear the gradients of the model and of the masters."""
        self._stash.zero_grad(set_grads_to_None)

    def backward(
        self, loss: Tensor, update_master_grads: bool = True, retain_graph: bool = False
    ) -> None:
        """Scale `loss` and run its backward pass; then give unscaled gradients to the masters,
        unless `update_master_grads` is False: call update_master_grads() then.
        """
        self._stash.prepare()
        (loss.float() * self.loss_scale).backward(retain_graph=retain_graph)  # type: ignore[no-untyped-call]
        self._stash.params_have_scaled_gradients = True
        if update_master_grads:
            self.update_master_grads()

    def update_master_grads(self) -> None:
        """Give the model's gradients, unscaled, to the masters, and adapt the scale."""
        self._stash.finish(self.loss_scaler)
        former = self.loss_scale
        self.overflow = self.loss_scaler.update_scale() or self.overflow
        self.loss_scaler.clear_overflow_state()
        if self.overflow and self.verbose:
            print(
                f"OVERFLOW! Skipping step. Attempted loss scale: {former}, reducing to "
                f"{self.loss_scale}"
            )

    def clip_master_grads(self, max_norm: float, norm_type: float = 2) -> float:
        """Clip the masters' gradients; give their norm before, -1 after an overflow."""
        if self.overflow:
            return -1
        params = [p for group in self.param_groups for p in group["params"]]
        return float(clip_grad_norm_(params, max_norm, norm_type))

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Step the masters and copy them to the model; nothing after an overflow."""
        if closure is not None:
            raise RuntimeError("FP16_Optimizer takes no closure: call backward, then step")
        if self.overflow:
            self.overflow = False
            self._stash.masters.clear()
            return None
        result = self.optimizer.step()
        self._stash.give_masters()
        return result

    def state_dict(self) -> dict[str, Any]:
        """The scaler, the wrapped optimizer's state, and the masters."""
        return {
            "loss_scaler": self.loss_scaler.state_dict(),
            "optimizer_state_dict": self.optimizer.state_dict(),
            "fp32_from_fp16": [p.detach().clone() for p in self._stash.masters.params],
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load what state_dict() gave."""
        self.loss_scaler.load_state_dict(state_dict["loss_scaler"])
        self.optimizer.load_state_dict(state_dict["optimizer_state_dict"])
        with torch.no_grad():
            torch._foreach_copy_(self._stash.masters.params, state_dict["fp32_from_fp16"])
        self._stash.give_masters()
