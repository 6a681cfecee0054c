"""What apex's optimizers share: gradients gathered by device and dtype, and steps in float32.

State is float32 whatever the parameters are. Low-precision parameters are widened for a step, and
what comes out is rounded to them, as apex's kernels do.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor


class FusedOptimizer(torch.optim.Optimizer):
    """A torch optimizer whose subclasses write `_update`, for all tensors of a group at once."""

    set_grad_none = True

    def __init__(self, params: Any, defaults: dict[str, Any], set_grad_none: bool = True) -> None:
        if defaults.pop("amsgrad", False):
            raise RuntimeError(f"{type(self).__name__} does not support the AMSGrad variant.")
        lr = defaults.get("lr")
        if isinstance(lr, float | int) and lr < 0:
            raise ValueError(f"Invalid learning rate: {lr}")
        super().__init__(params, defaults)
        self.set_grad_none = set_grad_none

    def zero_grad(self, set_to_none: bool | None = None) -> None:
        """Set gradients to None, or to zero where the optimizer was made with set_grad_none=False
        or `set_to_none` is.
        """
        super().zero_grad(self.set_grad_none if set_to_none is None else set_to_none)

    @torch.no_grad()
    def step(
        self,
        closure: Callable[[], Any] | None = None,
        grads: Any = None,
        output_params: Any = None,
        scale: Any = None,
        grad_norms: Any = None,
        grad_scaler: Any = None,
    ) -> Any:
        """Update the parameters. The arguments after `closure` were apex's before 2019; they raise.

        `grad_scaler` may be a torch.amp.GradScaler whose scale is to be taken out.
        """
        if any(given is not None for given in (grads, output_params, scale, grad_norms)):
            raise RuntimeError(
                f"{type(self).__name__}.step takes a closure and a grad_scaler: grads, "
                "output_params, scale and grad_norms are of apex before 2019; amp.initialize does "
                "what they did"
            )
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if grad_scaler is not None:
            grad_scaler.unscale_(self)
            states = grad_scaler._per_optimizer_states[id(self)]["found_inf_per_device"]
            if any(found.item() for found in states.values()):
                return loss
        self._before_step()
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None]
            if not params:
                continue
            group["step"] = group.get("step", 0) + 1
            for batch in _batches(params):
                work, grad = batch
                self._update(group, batch[0], _wide(work), grad)
        return loss

    def _before_step(self) -> None:
        """What needs all gradients before any parameter changes."""

    def _update(
        self, group: dict[str, Any], params: list[Tensor], values: list[Tensor], grads: list[Tensor]
    ) -> None:
        """Update `values` of `params`, in float32 or float64, with `grads`; `_store` puts them in
        their place.
        """
        raise NotImplementedError

    def _buffers(self, name: str, params: list[Tensor]) -> list[Tensor]:
        """The state `name` of `params`, zero at first."""
        found = []
        for p in params:
            state = self.state[p]
            if name not in state:
                state[name] = torch.zeros_like(p, dtype=_wider(p.dtype))
            found.append(state[name])
        return found

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state; it stays in float32 where the parameters are in half precision, which
        torch's own would round it to.
        """
        kept = [(v, k, s) for v, s in state_dict["state"].items() for k in s]
        super().load_state_dict(state_dict)
        order = [p for group in self.param_groups for p in group["params"]]
        saved = [i for group in state_dict["param_groups"] for i in group["params"]]
        of = dict(zip(saved, order, strict=True))
        for index, name, state in kept:
            param, value = of.get(index), state[name]
            if param is None or not isinstance(value, Tensor) or not value.is_floating_point():
                continue
            self.state[param][name] = value.to(
                device=param.device, dtype=_wider(param.dtype), copy=True
            )


def _wider(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def _wide(tensors: list[Tensor]) -> list[Tensor]:
    """`tensors` themselves, or float32 copies."""
    return [t if t.dtype == _wider(t.dtype) else t.float() for t in tensors]


def _batches(params: list[Tensor]) -> Iterator[tuple[list[Tensor], list[Tensor]]]:
    """`params` and their gradients, widened, by device and dtype."""
    groups: dict[tuple[torch.device, torch.dtype], list[Tensor]] = defaultdict(list)
    for p in params:
        assert p.grad is not None
        if p.grad.is_sparse:
            raise RuntimeError(
                "apex's fused optimizers do not take sparse gradients: torch.optim.SparseAdam does"
            )
        groups[p.device, p.dtype].append(p)
    for batch in groups.values():
        yield batch, _wide([p.grad for p in batch if p.grad is not None])


def store(params: list[Tensor], values: list[Tensor]) -> None:
    """Put `values` in the place of `params`, rounded, where they are copies."""
    if values and values[0] is not params[0]:
        torch._foreach_copy_(params, values)
