"""torch_npu.contrib, as far as torch has it."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch.nn import MultiheadAttention as MultiheadAttention
from torch.nn import SiLU as SiLU

from causeway.compat.missing import getter
from causeway.compat.torch_npu.operators import npu_ciou as npu_ciou
from causeway.compat.torch_npu.operators import npu_diou as npu_diou
from causeway.compat.torch_npu.operators import npu_giou as npu_giou
from causeway.compat.torch_npu.operators import npu_iou as npu_iou
from causeway.compat.torch_npu.operators import npu_ptiou as npu_ptiou

Mish = torch.nn.Mish
Swish = torch.nn.SiLU
NpuFairseqDropout = NpuCachedDropout = DropoutWithByteMask = torch.nn.Dropout


def roll(input: torch.Tensor, shifts: Any, dims: Any = None) -> torch.Tensor:
    """torch.roll."""
    return torch.roll(input, shifts, dims)


def matmul_transpose(tensor1: torch.Tensor, tensor2: torch.Tensor) -> torch.Tensor:
    """tensor1 @ tensor2 with its last two dimensions exchanged."""
    return torch.matmul(tensor1, tensor2.transpose(-2, -1))


def fuse_add_softmax_dropout(
    training: bool,
    dropout: torch.nn.Module,
    attn_mask: torch.Tensor,
    attn_scores: torch.Tensor,
    attn_head_size: int,
    p: float = 0.5,
    dim: int = -1,
) -> torch.Tensor:
    """dropout(softmax(attn_scores / sqrt(attn_head_size) + attn_mask))."""
    soft = F.softmax(attn_scores / attn_head_size**0.5 + attn_mask, dim)
    return F.dropout(soft, p, training)


def npu_fast_condition_index_put(
    x: torch.Tensor, condition: torch.Tensor, value: float
) -> torch.Tensor:
    """x, in which `value` stands where `condition` is True."""
    return x.masked_fill_(condition, value)


class LabelSmoothingCrossEntropy(torch.nn.CrossEntropyLoss):
    """torch.nn.CrossEntropyLoss(label_smoothing=smooth_factor)."""

    def __init__(self, num_classes: int = 1000, smooth_factor: float = 0.0) -> None:
        super().__init__(label_smoothing=smooth_factor)


class ChannelShuffle(torch.nn.Module):
    """Two tensors' channels interleaved and split again: (x1, x2) of halves."""

    def __init__(self, in_channels: int, groups: int = 2, split_shuffle: bool = True) -> None:
        super().__init__()
        self.groups, self.split_shuffle = groups, split_shuffle

    def forward(self, x1: torch.Tensor, x2: torch.Tensor) -> Any:
        both = F.channel_shuffle(torch.cat((x1, x2), 1), self.groups)
        return tuple(both.chunk(2, 1)) if self.split_shuffle else both


class NpuDropPath(torch.nn.Module):
    """Stochastic depth: each sample is dropped with `drop_prob`, the others divided by 1 - it."""

    def __init__(self, drop_prob: float = 0.0) -> None:
        super().__init__()
        self.drop_prob = drop_prob

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.training or not self.drop_prob:
            return x
        keep = torch.rand(x.shape[0], *([1] * (x.dim() - 1)), device=x.device) >= self.drop_prob
        return x * keep.to(x.dtype) / (1 - self.drop_prob)


_VISION = "torchvision.ops has it"
__getattr__ = getter("torch_npu.contrib")
