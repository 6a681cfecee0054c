"""The kernels of apex's extension module `amp_C` that programs call by themselves.

Each takes the chunk size, a flag that is set to 1 where infinity or NaN was met, and lists of
tensors. The flag is on the device; nothing is waited for.
"""

from __future__ import annotations

import torch
from torch import Tensor

Lists = list[list[Tensor]]


def _note(flag: Tensor, tensors: list[Tensor]) -> None:
    """Set `flag` where a tensor is not finite."""
    if tensors:
        norms = torch._foreach_norm(tensors, float("inf"))
        bad = ~torch.isfinite(torch.stack([n.to(flag.device, torch.float32) for n in norms]).sum())
        flag.copy_(torch.where(bad, torch.ones_like(flag), flag))


@torch.no_grad()
def multi_tensor_scale(chunk: int, flag: Tensor, lists: Lists, scale: float) -> None:
    """`lists[1]` become `lists[0]` times `scale`, each in its own dtype."""
    source, out = lists
    _note(flag, source)
    torch._foreach_copy_(out, torch._foreach_mul([s.float() for s in source], scale))


@torch.no_grad()
def multi_tensor_axpby(
    chunk: int, flag: Tensor, lists: Lists, a: float, b: float, check: int = -1
) -> None:
    """`lists[2]` become a * `lists[0]` + b * `lists[1]`; `check` says which is looked at: 0, 1, or
    -1 for both.
    """
    x, y, out = lists
    for i, tensors in enumerate((x, y)):
        if check in (-1, i):
            _note(flag, tensors)
    sums = torch._foreach_mul([t.float() for t in x], a)
    torch._foreach_add_(sums, [t.float() for t in y], alpha=b)
    torch._foreach_copy_(out, sums)


@torch.no_grad()
def multi_tensor_l2norm(
    chunk: int, flag: Tensor, lists: Lists, per_tensor: bool = False
) -> tuple[Tensor, Tensor]:
    """The 2-norm of all tensors together, shape (1,), and of each (empty without `per_tensor`)."""
    norms = torch.stack(torch._foreach_norm([t.float() for t in lists[0]]))
    total = torch.linalg.vector_norm(norms).reshape(1)
    return total, norms if per_tensor else norms.new_empty(0)
