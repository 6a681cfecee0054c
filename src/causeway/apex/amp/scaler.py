"""The scale of one loss, static or dynamic, and the kernel that takes it out of gradients again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import torch
from torch import Tensor


class LossScaler:
    """A loss scale. Dynamic: halved at an overflow, doubled after `scale_window` steps without one.

    `loss_scale` is a number or "dynamic", which starts at min(`max_loss_scale`, `init_scale`).
    """

    def __init__(
        self,
        loss_scale: float | str,
        init_scale: float = 2.0**16,
        scale_factor: float = 2.0,
        scale_window: int = 2000,
        min_loss_scale: float | None = None,
        max_loss_scale: float = 2.0**24,
    ) -> None:
        self.dynamic = loss_scale == "dynamic"
        self._loss_scale = min(max_loss_scale, init_scale) if self.dynamic else float(loss_scale)
        self._scale_factor = scale_factor
        self._scale_window = scale_window
        self._min_loss_scale = min_loss_scale
        self._max_loss_scale = max_loss_scale
        self._unskipped = 0
        self._has_overflow = False
        self._found: list[Tensor] = []  # one a device, on it: read once, by update_scale

    def loss_scale(self) -> float:
        """The scale that the next loss is multiplied by."""
        return self._loss_scale

    def clear_overflow_state(self) -> None:
        """Forget what `unscale` found."""
        self._has_overflow = False
        self._found.clear()

    @torch.no_grad()
    def unscale(self, grads: Iterable[Tensor], scale: float | None = None) -> None:
        """Divide `grads` by `scale`, in place (default: the scale in force), and note infinity and
        NaN. Nothing is waited for. A sparse gradient must be coalesced.
        """
        inverse = 1.0 / (self._loss_scale if scale is None else scale)
        if inverse == 1.0 and not self.dynamic:
            return
        groups: dict[tuple[torch.device, torch.dtype], list[Tensor]] = defaultdict(list)
        for grad in grads:
            values = grad._values() if grad.is_sparse else grad
            groups[values.device, values.dtype].append(values)
        found: dict[torch.device, tuple[Tensor, Tensor]] = {}
        for (device, _), tensors in groups.items():
            if device not in found:
                flag = torch.zeros((), dtype=torch.float32, device=device)
                found[device] = flag, torch.full_like(flag, inverse)
            # One kernel for all: the check and the product.
            torch._amp_foreach_non_finite_check_and_unscale_(tensors, *found[device])
        self._found += [flag for flag, _ in found.values()]

    def overflowed(self) -> bool:
        """Whether `unscale` met infinity or NaN since the last clear; waits for the device.

        Always False for a static scale: apex steps on whatever comes there.
        """
        if self.dynamic and not self._has_overflow:
            self._has_overflow = any(bool(flag.item()) for flag in self._found)
        self._found.clear()
        return self._has_overflow

    def update_scale(self) -> bool:
        """Halve or double the scale where it is due; give whether the step must be skipped."""
        skip = self.overflowed()
        if skip:
            self._loss_scale /= self._scale_factor
            if self._min_loss_scale:
                self._loss_scale = max(self._min_loss_scale, self._loss_scale)
            self._unskipped = 0
        else:
            self._unskipped += 1
        if self.dynamic and self._unskipped == self._scale_window:
            self._loss_scale = min(self._max_loss_scale, self._loss_scale * self._scale_factor)
            self._unskipped = 0
        return skip

    def state_dict(self) -> dict[str, float | int]:
        """The scale, and the steps since it last changed: apex's own format."""
        return {"loss_scale": self._loss_scale, "unskipped": self._unskipped}

    def load_state_dict(self, state: dict[str, float | int]) -> None:
        """Go on where `state` was saved."""
        self._loss_scale = float(state["loss_scale"])
        self._unskipped = int(state["unskipped"])
