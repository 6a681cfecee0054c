"""What checkpoints of torch_npu before 2.1 name: they hold a tensor's format beside its numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import _utils

from causeway.compat.missing import getter
from causeway.compat.torch_npu.npu_format import Format
from causeway.compat.torch_npu.operators import npu_format_cast


def _rebuild_npu_tensor(
    storage: Any, storage_offset: int, size: Sequence[int], stride: Sequence[int],
    requires_grad: bool, backward_hooks: Mapping[str, Any], npu_storage_info: Any,
) -> torch.Tensor:  # fmt: skip
    """The tensor, where map_location put its numbers: on the CPU without one. `npu_storage_info`
    is its format, or a bool in the oldest files.
    """
    tensor: torch.Tensor = _utils._rebuild_tensor_v2(  # type: ignore[no-untyped-call]
        storage, storage_offset, size, stride, requires_grad, backward_hooks
    )
    if isinstance(npu_storage_info, bool):
        return tensor
    return npu_format_cast(tensor, npu_storage_info)


_rebuild_npu_tensor.__module__ = "torch_npu.utils.storage"  # as checkpoints name it
# torch.load takes such a file with weights_only=True, which is its default.
torch.serialization.add_safe_globals([_rebuild_npu_tensor, Format])
__getattr__ = getter("torch_npu.utils.storage")
