"""Optimizers that Huawei's fused list has and torch has not: AdamP, BERT's Adam, TensorFlow's
RMSprop. Each step is a few operations over all tensors of a group at once (torch._foreach_*).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from causeway.apex.contrib.clip_grad import clip_grad_norm_
from causeway.apex.optimizers.npu import Clips


class _Own(Clips, torch.optim.Optimizer):
    """An optimizer whose subclasses write `_update` for a group's parameters and gradients."""

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update the parameters; gives what `closure` does."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            parameters = [p for p in group["params"] if p.grad is not None]
            if parameters:
                group["step"] = group.get("step", 0) + 1
                self._update(group, parameters, [p.grad for p in parameters])
        return loss

    def _kept(self, parameters: list[Tensor], name: str, value: float = 0.0) -> list[Tensor]:
        for p in parameters:
            if name not in self.state[p]:
                self.state[p][name] = torch.full_like(p, value)
        return [self.state[p][name] for p in parameters]

    def _update(self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor]) -> None:
        raise NotImplementedError


class NpuFusedAdamP(_Own):
    """AdamP (arXiv 2006.08217): Adam, whose step loses its part along a weight that it is nearly at
    right angles with. `delta` is that threshold of the cosine, `wd_ratio` scales the decay there.
    """

    def __init__(
        self, params: Any, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8, weight_decay: float = 0, delta: float = 0.1, wd_ratio: float = 0.1,
        nesterov: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(params, {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "delta": delta,
            "wd_ratio": wd_ratio, "nesterov": nesterov,
        })  # fmt: skip

    def _update(self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor]) -> None:
        b1, b2 = group["betas"]
        first, second = self._kept(params, "exp_avg"), self._kept(params, "exp_avg_sq")
        torch._foreach_lerp_(first, grads, 1 - b1)
        torch._foreach_mul_(second, b2)
        torch._foreach_addcmul_(second, grads, grads, 1 - b2)
        root = torch._foreach_sqrt(second)
        torch._foreach_div_(root, math.sqrt(1 - b2 ** group["step"]))
        torch._foreach_add_(root, group["eps"])
        top = first
        if group["nesterov"]:
            top = list(torch._foreach_mul(first, b1))
            torch._foreach_add_(top, torch._foreach_mul(grads, 1 - b1))
        steps = list(torch._foreach_div(top, root))
        size = group["lr"] / (1 - b1 ** group["step"])
        for p, grad, whole in zip(params, grads, steps, strict=True):
            step, ratio = whole, 1.0
            if p.dim() > 1:
                step, ratio = self._projected(p, grad, whole, group)
            if group["weight_decay"]:
                p.mul_(1 - group["lr"] * group["weight_decay"] * ratio)
            p.add_(step, alpha=-size)

    @staticmethod
    def _projected(
        p: Tensor, grad: Tensor, step: Tensor, group: dict[str, Any]
    ) -> tuple[Tensor, float]:
        """By channels, else over the whole; the step and the ratio of the decay."""
        for view in ((p.size(0), -1), (1, -1)):
            weight, gradient = p.view(view), grad.reshape(view)
            cosine = torch.nn.functional.cosine_similarity(
                gradient, weight, dim=1, eps=group["eps"]
            )
            if float(cosine.abs().max()) < group["delta"] / math.sqrt(weight.size(1)):
                unit = weight / (weight.norm(dim=1, keepdim=True) + group["eps"])
                along = (unit * step.view(view)).sum(1, keepdim=True)
                return (step.view(view) - unit * along).view_as(p), group["wd_ratio"]
        return step, 1.0


def _warmup_linear(x: float, warmup: float) -> float:
    return x / warmup if x < warmup else max((x - 1) / (warmup - 1), 0)


def _warmup_constant(x: float, warmup: float) -> float:
    return x / warmup if x < warmup else 1.0


def _warmup_cosine(x: float, warmup: float) -> float:
    return x / warmup if x < warmup else 0.5 * (1 + math.cos(math.pi * x))


_SCHEDULES = {
    "warmup_linear": _warmup_linear,
    "warmup_constant": _warmup_constant,
    "warmup_cosine": _warmup_cosine,
}


class NpuFusedBertAdam(_Own):
    """BERT's Adam: no correction of the averages, the decay is added to the step, each tensor's
    gradient is clipped to `max_grad_norm` (-1: not), and the rate follows `schedule` over `t_total`
    steps (-1: it is constant), of which the part `warmup` rises.
    """

    def __init__(
        self, params: Any, lr: float, warmup: float = -1, t_total: int = -1,
        schedule: str = "warmup_linear", b1: float = 0.9, b2: float = 0.999, e: float = 1e-6,
        weight_decay: float = 0.01, max_grad_norm: float = 1.0,
    ) -> None:  # fmt: skip
        if schedule not in _SCHEDULES:
            raise ValueError(f"schedule {schedule!r} is none of {', '.join(_SCHEDULES)}")
        super().__init__(params, {
            "lr": lr, "warmup": warmup, "t_total": t_total, "schedule": schedule, "b1": b1,
            "b2": b2, "e": e, "weight_decay": weight_decay, "max_grad_norm": max_grad_norm,
        })  # fmt: skip

    def _update(self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor]) -> None:
        if group["max_grad_norm"] > 0:
            for p in params:
                clip_grad_norm_([p], group["max_grad_norm"])
        first, second = self._kept(params, "next_m"), self._kept(params, "next_v")
        torch._foreach_lerp_(first, grads, 1 - group["b1"])
        torch._foreach_mul_(second, group["b2"])
        torch._foreach_addcmul_(second, grads, grads, 1 - group["b2"])
        root = torch._foreach_sqrt(second)
        torch._foreach_add_(root, group["e"])
        steps = torch._foreach_div(first, root)
        if group["weight_decay"] > 0:
            torch._foreach_add_(steps, params, alpha=group["weight_decay"])
        rate = group["lr"]
        if group["t_total"] != -1:
            # The schedule looks at the steps before this one.
            done = (group["step"] - 1) / group["t_total"]
            rate *= _SCHEDULES[group["schedule"]](done, group["warmup"])
        torch._foreach_add_(params, steps, alpha=-rate)


class NpuFusedRMSpropTF(_Own):
    """RMSprop as TensorFlow has it: `eps` is under the root, the average begins at 1, and with
    `lr_in_momentum` the rate is in the momentum. `decoupled_decay` is the decay of AdamW.
    """

    def __init__(
        self, params: Any, lr: float = 1e-2, alpha: float = 0.9, eps: float = 1e-10,
        weight_decay: float = 0, momentum: float = 0.0, centered: bool = False,
        decoupled_decay: bool = False, lr_in_momentum: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(params, {
            "lr": lr, "alpha": alpha, "eps": eps, "weight_decay": weight_decay,
            "momentum": momentum, "centered": centered, "decoupled_decay": decoupled_decay,
            "lr_in_momentum": lr_in_momentum,
        })  # fmt: skip

    def _update(self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor]) -> None:
        keep, rate = 1 - group["alpha"], group["lr"]
        if group["weight_decay"] and group["decoupled_decay"]:
            torch._foreach_mul_(params, 1 - rate * group["weight_decay"])
        elif group["weight_decay"]:
            grads = list(torch._foreach_add(grads, params, alpha=group["weight_decay"]))
        square = self._kept(params, "square_avg", 1.0)
        torch._foreach_lerp_(square, torch._foreach_mul(grads, grads), keep)
        inner = list(square)
        if group["centered"]:
            mean = self._kept(params, "grad_avg")
            torch._foreach_lerp_(mean, grads, keep)
            inner = list(torch._foreach_sub(square, torch._foreach_mul(mean, mean)))
        root = torch._foreach_sqrt(torch._foreach_add(inner, group["eps"]))
        if group["momentum"] <= 0:
            torch._foreach_addcdiv_(params, grads, root, -rate)
            return
        moving = self._kept(params, "momentum_buffer")
        torch._foreach_mul_(moving, group["momentum"])
        torch._foreach_addcdiv_(moving, grads, root, rate if group["lr_in_momentum"] else 1.0)
        torch._foreach_add_(params, moving, alpha=-1.0 if group["lr_in_momentum"] else -rate)
