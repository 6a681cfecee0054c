"""DeepSpeed's FusedAdam by torch's fused Adam, which the device has."""

from __future__ import annotations

from typing import Any

import torch

from causeway.integrations.deepspeed_ops.absent import NotImplementedBuilder

Tensors = list[torch.Tensor]


class FusedAdam:
    """What DeepSpeed expects of the module that it would have compiled."""

    @staticmethod
    def multi_tensor_adam(
        chunk_size: int,
        noop_flag_buffer: torch.Tensor,
        tensor_lists: tuple[Tensors, Tensors, Tensors, Tensors],
        lr: float,
        beta1: float,
        beta2: float,
        epsilon: float,
        step: int,
        adam_w_mode: int,
        bias_correction: int,
        weight_decay: float,
        *_: Any,
    ) -> None:
        """Change parameters and moments in place: lists of (gradients, parameters, m, v)."""
        grads, params, first, second = tensor_lists
        if not bias_correction:
            return _uncorrected(
                grads, params, first, second, lr=lr, betas=(beta1, beta2), eps=epsilon,
                decay=weight_decay, decoupled=bool(adam_w_mode),
            )  # fmt: skip
        update = torch._fused_adamw_ if adam_w_mode else torch._fused_adam_
        # The kernel reads a step for each parameter; DeepSpeed has counted it already.
        steps = [torch.tensor(float(step), device=p.device) for p in params]
        update(
            params, grads, first, second, [], steps, amsgrad=False, lr=lr, beta1=beta1,
            beta2=beta2, weight_decay=weight_decay, eps=epsilon, maximize=False,
        )  # fmt: skip
        return None


def _uncorrected(
    grads: Tensors,
    params: Tensors,
    first: Tensors,
    second: Tensors,
    *,
    lr: float,
    betas: tuple[float, float],
    eps: float,
    decay: float,
    decoupled: bool,
) -> None:
    """Adam without the division by 1 - beta**step, which torch's always does."""
    if decay and decoupled:
        torch._foreach_mul_(params, 1 - lr * decay)
    elif decay:
        grads = list(torch._foreach_add(grads, params, alpha=decay))
    torch._foreach_lerp_(first, grads, 1 - betas[0])
    torch._foreach_mul_(second, betas[1])
    torch._foreach_addcmul_(second, grads, grads, 1 - betas[1])
    size = torch._foreach_sqrt(second)
    torch._foreach_add_(size, eps)
    torch._foreach_addcdiv_(params, first, size, -lr)


class FusedAdamBuilder(NotImplementedBuilder):
    """Gives `FusedAdam`."""

    BUILD_VAR = "DS_BUILD_FUSED_ADAM"
    NAME = "fused_adam"

    def is_compatible(self, verbose: bool = False) -> bool:
        """Return True."""
        return True

    def load(self, verbose: bool = True) -> type[FusedAdam]:
        """Return the class."""
        return FusedAdam
