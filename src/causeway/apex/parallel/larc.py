"""LARC (You et al., arXiv 1708.03888): a learning rate for each tensor, by its norms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


class LARC(torch.optim.Optimizer):
    """Wraps an optimizer so that each tensor's gradient is scaled by
    trust_coefficient * |weights| / (|gradient| + weight_decay * |weights| + eps), and with `clip`
    by no more than brings its rate to the group's.

    It shares the wrapped optimizer's groups and state.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        trust_coefficient: float = 0.02,
        clip: bool = True,
        eps: float = 1e-8,
    ) -> None:
        # Not Optimizer.__init__: groups and state are those of the other.
        self.optim = optimizer
        self.trust_coefficient = trust_coefficient
        self.clip = clip
        self.eps = eps
        self._patch_step_function()

    def __getattr__(self, name: str) -> Any:
        if name == "optim":
            raise AttributeError(name)
        return getattr(self.optim, name)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__

    def __repr__(self) -> str:
        return f"LARC({self.optim!r})"

    def state_dict(self) -> dict[str, Any]:
        return self.optim.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.optim.load_state_dict(state_dict)

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.optim.zero_grad(set_to_none)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        self.optim.add_param_group(param_group)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Scale the gradients, then step the wrapped optimizer, without its own decay."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        decays = []
        for group in self.optim.param_groups:
            decay = group.get("weight_decay", 0)
            decays.append(decay)
            if "weight_decay" in group:
                group["weight_decay"] = 0
            for p in group["params"]:
                if p.grad is None:
                    continue
                weight = torch.linalg.vector_norm(p)
                grad = torch.linalg.vector_norm(p.grad)
                rate = self.trust_coefficient * weight / (grad + weight * decay + self.eps)
                if self.clip:
                    rate = torch.clamp(rate / group["lr"], max=1.0)
                rate = torch.where((weight != 0) & (grad != 0), rate, torch.ones_like(rate))
                decayed = p.grad + decay * p
                p.grad.copy_(torch.where((weight != 0) & (grad != 0), decayed * rate, p.grad))
        try:
            self.optim.step()
        finally:
            for group, decay in zip(self.optim.param_groups, decays, strict=True):
                if "weight_decay" in group:
                    group["weight_decay"] = decay
        return loss
