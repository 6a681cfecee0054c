"""apex.contrib.xentropy: cross entropy with label smoothing, a loss for each row."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["SoftmaxCrossEntropyLoss"]


class SoftmaxCrossEntropyLoss:
    """`SoftmaxCrossEntropyLoss.apply(logits, labels, ...)`, as apex's autograd function."""

    @staticmethod
    def apply(
        logits: Tensor,
        labels: Tensor,
        smoothing: float = 0.0,
        padding_idx: int = 0,
        half_to_float: bool = False,
    ) -> Tensor:
        """The loss of each row, 0 where the label is `padding_idx`; float32 with `half_to_float`,
        else of `logits`' dtype. It is computed in float32.
        """
        losses = torch.nn.functional.cross_entropy(
            logits.float(), labels, reduction="none", label_smoothing=smoothing
        )
        losses = losses.masked_fill(labels == padding_idx, 0)
        return losses if half_to_float else losses.to(logits.dtype)
