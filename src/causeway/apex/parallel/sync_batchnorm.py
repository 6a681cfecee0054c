"""apex's SyncBatchNorm over torch's."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class SyncBatchNorm(nn.SyncBatchNorm):
    """torch.nn.SyncBatchNorm with apex's arguments: `fuse_relu` puts a relu behind it, and with
    `channel_last` the channels are the last dimension of the input.

    On the CPU, and in one process, it is an ordinary batch norm.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: Any = None,
        channel_last: bool = False,
        fuse_relu: bool = False,
    ) -> None:
        super().__init__(
            num_features,
            eps,
            momentum,
            affine,
            track_running_stats,
            process_group,
        )
        self.channel_last = channel_last
        self.fuse_relu = fuse_relu

    def forward(self, input: Tensor, z: Tensor | None = None) -> Tensor:
        """The norm of `input`, with `z` added to it before the relu."""
        x = input.movedim(-1, 1) if self.channel_last else input
        dist = torch.distributed
        alone = not (dist.is_available() and dist.is_initialized())
        y = self._alone(x) if alone or x.device.type == "cpu" else super().forward(x)
        y = y.movedim(1, -1) if self.channel_last else y
        y = y if z is None else y + z
        return y.relu() if self.fuse_relu else y

    def _alone(self, x: Tensor) -> Tensor:
        dist = torch.distributed
        if dist.is_available() and dist.is_initialized() and self.training:
            world = dist.get_world_size(self.process_group)
            if world > 1:
                raise RuntimeError(
                    "SyncBatchNorm over several processes needs an accelerator: torch's has no "
                    "kernel for the CPU"
                )
        if self.training and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
        factor = self.momentum
        if factor is None and self.num_batches_tracked is not None:
            factor = 1.0 / max(1.0, float(self.num_batches_tracked))
        return nn.functional.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias,
            self.training or self.running_mean is None, factor or 0.0, self.eps,
        )  # fmt: skip


def convert_syncbn_model(
    module: nn.Module, process_group: Any = None, channel_last: bool = False
) -> nn.Module:
    """`module` with every batch norm made a SyncBatchNorm that has its weights and statistics."""
    if isinstance(module, nn.modules.batchnorm._BatchNorm) and not isinstance(
        module, SyncBatchNorm
    ):
        new = SyncBatchNorm(
            module.num_features, module.eps, module.momentum, module.affine,
            module.track_running_stats, process_group, channel_last,
        )  # fmt: skip
        for name in ("weight", "bias"):
            setattr(new, name, getattr(module, name))
        for name in ("running_mean", "running_var", "num_batches_tracked"):
            new._buffers[name] = module._buffers.get(name)
        new.training = module.training
        return new
    for name, child in module.named_children():
        converted = convert_syncbn_model(child, process_group, channel_last)
        if converted is not child:
            setattr(module, name, converted)
    return module
