"""LAMB (You et al., arXiv 1904.00962), by torch's foreach operators."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from causeway.apex.optimizers._base import FusedOptimizer, store


class FusedLAMB(FusedOptimizer):
    """apex's FusedLAMB: Adam's direction for each tensor, scaled by |weights| / |direction|.

    Gradients are first clipped to `max_grad_norm` by the norm of all groups together.
    `grad_averaging` is (1 - beta1) before the gradient in the first moment. Groups without decay
    take no ratio, unless `use_nvlamb`.
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        bias_correction: bool = True,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
        amsgrad: bool = False,
        adam_w_mode: bool = True,
        grad_averaging: bool = True,
        set_grad_none: bool = True,
        max_grad_norm: float = 1.0,
        use_nvlamb: bool = False,
    ) -> None:
        defaults: dict[str, Any] = {
            "lr": lr, "bias_correction": bias_correction, "betas": betas, "eps": eps,
            "weight_decay": weight_decay, "grad_averaging": grad_averaging,
            "max_grad_norm": max_grad_norm, "amsgrad": amsgrad,
        }  # fmt: skip
        super().__init__(params, defaults, set_grad_none)
        self.adam_w_mode = 1 if adam_w_mode else 0
        self.use_nvlamb = use_nvlamb
        self._clip: Tensor | None = None  # what gradients are divided by

    def _before_step(self) -> None:
        """The norm of all gradients, without waiting for the device."""
        grads = [
            p.grad.float()
            for group in self.param_groups
            for p in group["params"]
            if p.grad is not None and not p.grad.is_sparse
        ]
        most = self.defaults["max_grad_norm"]
        self._clip = None
        if grads and most is not None and most > 0:
            where = grads[0].device
            norms = torch.stack([torch.linalg.vector_norm(g).to(where) for g in grads])
            self._clip = (torch.linalg.vector_norm(norms) / most).clamp(min=1.0)

    def _update(
        self, group: dict[str, Any], params: list[Tensor], values: list[Tensor], grads: list[Tensor]
    ) -> None:
        beta1, beta2 = group["betas"]
        lr, decay, step = group["lr"], group["weight_decay"], group["step"]
        first, second = self._buffers("exp_avg", params), self._buffers("exp_avg_sq", params)
        if self._clip is not None:
            grads = list(torch._foreach_div(grads, self._clip.to(values[0])))
        if decay and not self.adam_w_mode:
            grads = list(torch._foreach_add(grads, values, alpha=decay))
        torch._foreach_mul_(first, beta1)
        torch._foreach_add_(first, grads, alpha=1 - beta1 if group["grad_averaging"] else 1.0)
        torch._foreach_mul_(second, beta2)
        torch._foreach_addcmul_(second, grads, grads, value=1 - beta2)
        corrected = group["bias_correction"]
        denominators = torch._foreach_div(second, 1 - beta2**step if corrected else 1.0)
        torch._foreach_sqrt_(denominators)
        torch._foreach_add_(denominators, group["eps"])
        updates = torch._foreach_div(first, 1 - beta1**step if corrected else 1.0)
        torch._foreach_div_(updates, denominators)
        if decay and self.adam_w_mode:
            torch._foreach_add_(updates, values, alpha=decay)
        if self.use_nvlamb or decay:
            weights, lengths = torch._foreach_norm(values), torch._foreach_norm(updates)
            ratios = [
                torch.where((w > 0) & (u > 0), w / u, torch.ones_like(w))
                for w, u in zip(weights, lengths, strict=True)
            ]
            torch._foreach_mul_(updates, ratios)
        torch._foreach_add_(values, updates, alpha=-lr)
        store(params, values)


class FusedMixedPrecisionLamb(FusedLAMB):
    """FusedLAMB for parameters in half precision, under apex's name: moments are float32, and
    weights are rounded from float32 at each step. `reduced_precision_dtype` is their own dtype.
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        step: int = 0,
        bias_correction: bool = True,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
        amsgrad: bool = False,
        adam_w_mode: bool = True,
        grad_averaging: bool = True,
        max_grad_norm: float = 1.0,
        use_nvlamb: bool = False,
        reduced_precision_dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(
            params, lr, bias_correction, betas, eps, weight_decay, amsgrad, adam_w_mode,
            grad_averaging, True, max_grad_norm, use_nvlamb,
        )  # fmt: skip
        for group in self.param_groups:
            group["step"] = step
