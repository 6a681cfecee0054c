"""Huawei's names for fused optimizers: torch's own, by their fused or foreach form."""

from __future__ import annotations

from typing import Any

import torch

from causeway.apex.contrib.clip_grad import clip_grad_norm_
from causeway.apex.optimizers.fused_lamb import FusedLAMB


class Clips:
    """The method by which programs for Huawei's chips clip."""

    param_groups: list[dict[str, Any]]

    def clip_optimizer_grad_norm_fused_(
        self, max_norm: float, norm_type: float = 2.0
    ) -> torch.Tensor:
        """Clip the gradients of all that is optimized to `max_norm`; give the norm before."""
        params = [p for group in self.param_groups for p in group["params"]]
        return clip_grad_norm_(params, max_norm, norm_type)


class NpuFusedSGD(Clips, torch.optim.SGD):
    """torch.optim.SGD with foreach=True."""

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
    ) -> None:
        super().__init__(params, lr, momentum, dampening, weight_decay, nesterov, foreach=True)


class NpuFusedAdam(Clips, torch.optim.Adam):
    """torch.optim.Adam with foreach=True."""

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, foreach=True)


class NpuFusedAdamW(Clips, torch.optim.AdamW):
    """torch.optim.AdamW with foreach=True."""

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, foreach=True)


class NpuFusedAdadelta(Clips, torch.optim.Adadelta):
    """torch.optim.Adadelta with foreach=True."""

    def __init__(
        self,
        params: Any,
        lr: float = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
    ) -> None:
        super().__init__(params, lr, rho, eps, weight_decay, foreach=True)


class NpuFusedRMSprop(Clips, torch.optim.RMSprop):
    """torch.optim.RMSprop with foreach=True."""

    def __init__(
        self,
        params: Any,
        lr: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
    ) -> None:
        super().__init__(params, lr, alpha, eps, weight_decay, momentum, centered, foreach=True)


class NpuFusedLamb(Clips, FusedLAMB):
    """FusedLAMB with the argument names of Huawei's: `adam` leaves out the ratio,
    `use_global_grad_norm` clips by the norm of all gradients.
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0,
        adam: bool = False,
        use_global_grad_norm: bool = False,
    ) -> None:
        if adam:
            raise RuntimeError("NpuFusedLamb(adam=True) is Adam: use NpuFusedAdamW")
        super().__init__(
            params,
            lr,
            bias_correction=False,
            betas=betas,
            eps=eps,
            weight_decay=weight_decay,
            max_grad_norm=1.0 if use_global_grad_norm else 0.0,
            use_nvlamb=True,
        )
