"""Adagrad, by torch's foreach operators."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from causeway.apex.optimizers._base import FusedOptimizer, store


class FusedAdagrad(FusedOptimizer):
    """apex's FusedAdagrad; `adagrad_w_mode` decays the weights and not the gradient."""

    def __init__(
        self,
        params: Any,
        lr: float = 1e-2,
        eps: float = 1e-10,
        weight_decay: float = 0.0,
        set_grad_none: bool = True,
        adagrad_w_mode: bool = False,
    ) -> None:
        super().__init__(
            params, {"lr": lr, "eps": eps, "weight_decay": weight_decay}, set_grad_none
        )
        self.adagrad_w_mode = 1 if adagrad_w_mode else 0

    def _update(
        self, group: dict[str, Any], params: list[Tensor], values: list[Tensor], grads: list[Tensor]
    ) -> None:
        decay = group["weight_decay"]
        sums = self._buffers("sum", params)
        if decay and not self.adagrad_w_mode:
            grads = list(torch._foreach_add(grads, values, alpha=decay))
        torch._foreach_addcmul_(sums, grads, grads)
        denominators = torch._foreach_sqrt(sums)
        torch._foreach_add_(denominators, group["eps"])
        updates = torch._foreach_div(grads, denominators)
        if decay and self.adagrad_w_mode:
            torch._foreach_add_(updates, values, alpha=decay)
        torch._foreach_add_(values, updates, alpha=-group["lr"])
        store(params, values)
