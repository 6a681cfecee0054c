"""NovoGrad (Ginsburg et al., arXiv 1905.11286), by torch's foreach operators."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from causeway.apex.optimizers._base import FusedOptimizer, store


class FusedNovoGrad(FusedOptimizer):
    """apex's FusedNovoGrad: the second moment is one number for each tensor, the norm of its
    gradient (`norm_type` 2, or 0 for the largest element), kept in state "exp_avg_sq".

    `init_zero` starts it at zero instead of at the first norm. With `reg_inside_moment` the moment
    is that of the normed gradient with its decay.
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        bias_correction: bool = True,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        reg_inside_moment: bool = False,
        grad_averaging: bool = True,
        norm_type: int = 2,
        init_zero: bool = False,
        set_grad_none: bool = True,
    ) -> None:
        if norm_type not in (0, 2):
            raise RuntimeError(f"FusedNovoGrad only supports l2/inf norm now: {norm_type!r}")
        defaults: dict[str, Any] = {
            "lr": lr, "bias_correction": bias_correction, "betas": betas, "eps": eps,
            "weight_decay": weight_decay, "grad_averaging": grad_averaging,
            "norm_type": norm_type, "init_zero": init_zero, "amsgrad": amsgrad,
        }  # fmt: skip
        super().__init__(params, defaults, set_grad_none)
        self.moment_mode = 0 if reg_inside_moment else 1

    def _update(
        self, group: dict[str, Any], params: list[Tensor], values: list[Tensor], grads: list[Tensor]
    ) -> None:
        beta1, beta2 = group["betas"]
        step, decay = group["step"], group["weight_decay"]
        corrected = group["bias_correction"]
        first = self._buffers("exp_avg", params)
        norms = torch._foreach_norm(grads, 2 if group["norm_type"] == 2 else float("inf"))
        seconds = [self._norm(group, p, n, beta2) for p, n in zip(params, norms, strict=True)]
        scale = (1 - beta2**step) ** 0.5 if corrected else 1.0
        denominators = torch._foreach_div(seconds, scale)
        torch._foreach_add_(denominators, group["eps"])
        if self.moment_mode == 0:
            grads = list(torch._foreach_div(grads, denominators))
            torch._foreach_add_(grads, values, alpha=decay)
        torch._foreach_mul_(first, beta1)
        torch._foreach_add_(first, grads, alpha=1 - beta1 if group["grad_averaging"] else 1.0)
        updates = torch._foreach_div(first, 1 - beta1**step if corrected else 1.0)
        if self.moment_mode == 1:
            torch._foreach_div_(updates, denominators)
            torch._foreach_add_(updates, values, alpha=decay)
        torch._foreach_add_(values, updates, alpha=-group["lr"])
        store(params, values)

    def _norm(self, group: dict[str, Any], param: Tensor, norm: Tensor, beta2: float) -> Tensor:
        """The running norm with this step's in it: of squares for the 2-norm, as apex has it."""
        state = self.state[param]
        if "exp_avg_sq" not in state:
            state["exp_avg_sq"] = torch.zeros_like(norm) if group["init_zero"] else norm.clone()
        running: Tensor = state["exp_avg_sq"]
        if group["norm_type"] == 2:
            running.copy_((running.square() * beta2 + norm.square() * (1 - beta2)).sqrt())
        else:
            running.mul_(beta2).add_(norm, alpha=1 - beta2)
        return running
