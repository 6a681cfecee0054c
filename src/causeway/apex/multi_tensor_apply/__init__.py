"""apex.multi_tensor_apply, and its extension module amp_C: kernels over lists of tensors, on
torch's foreach operators.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

__all__ = ["MultiTensorApply", "multi_tensor_applier"]


class MultiTensorApply:
    """Calls a kernel of amp_C with lists of tensors; `chunk_size` has no use here."""

    available = True
    warned = False

    def __init__(self, chunk_size: int) -> None:
        self.chunk_size = chunk_size

    def __call__(
        self,
        op: Callable[..., Any],
        noop_flag_buffer: Tensor,
        tensor_lists: list[list[Tensor]],
        *args: Any,
    ) -> Any:
        """Call `op(chunk_size, noop_flag_buffer, tensor_lists, *args)`."""
        return op(self.chunk_size, noop_flag_buffer, tensor_lists, *args)

    @staticmethod
    def check_avail() -> None:
        """There is nothing to build."""


multi_tensor_applier = MultiTensorApply(2048 * 32)
