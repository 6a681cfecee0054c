"""Adam and AdamW, by torch's fused kernel."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from causeway.apex.optimizers._base import FusedOptimizer, store


class FusedAdam(FusedOptimizer):
    """apex's FusedAdam: AdamW with `adam_w_mode` (the default), else Adam with L2 decay.

    `master_weights` keeps a float32 copy of low-precision parameters, which is what is updated.
    `capturable` changes nothing: no device is waited for in any case. The step is counted in the
    parameter group, as in apex.
    """

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-3,
        bias_correction: bool = True,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        adam_w_mode: bool = True,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        set_grad_none: bool = True,
        capturable: bool = False,
        master_weights: bool = False,
    ) -> None:
        defaults: dict[str, Any] = {
            "lr": lr, "bias_correction": bias_correction, "betas": betas, "eps": eps,
            "weight_decay": weight_decay, "amsgrad": amsgrad,
        }  # fmt: skip
        super().__init__(params, defaults, set_grad_none)
        self.adam_w_mode = 1 if adam_w_mode else 0
        self.capturable = capturable
        self.master_weights = master_weights

    def _update(
        self, group: dict[str, Any], params: list[Tensor], values: list[Tensor], grads: list[Tensor]
    ) -> None:
        if self.master_weights and values[0] is not params[0]:
            for p, value in zip(params, values, strict=True):
                self.state[p].setdefault("master_param", value)
            values = [self.state[p]["master_param"] for p in params]
        first, second = self._buffers("exp_avg", params), self._buffers("exp_avg_sq", params)
        beta1, beta2 = group["betas"]
        # The kernel corrects the bias; far from the start there is none to correct.
        count = group["step"] if group["bias_correction"] else 1e9
        steps = [torch.full((), float(count), dtype=torch.float32, device=values[0].device)]
        kernel = torch._fused_adamw_ if self.adam_w_mode else torch._fused_adam_
        kernel(
            values, grads, first, second, [], steps * len(values),
            lr=group["lr"], beta1=beta1, beta2=beta2, weight_decay=group["weight_decay"],
            eps=group["eps"], amsgrad=False, maximize=False,
        )  # fmt: skip
        store(params, values)
