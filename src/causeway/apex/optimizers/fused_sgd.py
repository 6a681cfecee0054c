"""SGD with momentum, by torch's foreach operators."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from causeway.apex.optimizers._base import FusedOptimizer, store


class FusedSGD(FusedOptimizer):
    """apex's FusedSGD. With `wd_after_momentum` the decay is added to the momentum's result and not
    to the gradient. `materialize_master_grads` changes nothing: amp makes the masters' gradients.
    """

    def __init__(
        self,
        params: Any,
        lr: float,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        wd_after_momentum: bool = False,
        materialize_master_grads: bool = True,
        set_grad_none: bool = False,
    ) -> None:
        for name, value in (("momentum", momentum), ("weight_decay", weight_decay)):
            if value < 0:
                raise ValueError(f"Invalid {name} value: {value}")
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        defaults: dict[str, Any] = {
            "lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay,
            "nesterov": nesterov,
        }  # fmt: skip
        super().__init__(params, defaults, set_grad_none)
        self.wd_after_momentum = wd_after_momentum
        self.materialize_master_grads = materialize_master_grads

    def _update(
        self, group: dict[str, Any], params: list[Tensor], values: list[Tensor], grads: list[Tensor]
    ) -> None:
        decay, momentum = group["weight_decay"], group["momentum"]
        if decay and not self.wd_after_momentum:
            grads = list(torch._foreach_add(grads, values, alpha=decay))
        if momentum:
            fresh = ["momentum_buffer" not in self.state[p] for p in params]
            buffers = self._buffers("momentum_buffer", params)
            torch._foreach_mul_(buffers, momentum)
            torch._foreach_add_(buffers, grads, alpha=1 - group["dampening"])
            for buffer, grad, new in zip(buffers, grads, fresh, strict=True):
                if new and group["dampening"]:
                    buffer.copy_(grad)  # the first gradient counts whole
            if group["nesterov"]:
                grads = list(torch._foreach_add(grads, buffers, alpha=momentum))
            else:
                grads = buffers
        if decay and self.wd_after_momentum:
            grads = list(torch._foreach_add(grads, values, alpha=decay))
        torch._foreach_add_(values, grads, alpha=-group["lr"])
        store(params, values)
