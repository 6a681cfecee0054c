"""torch_npu.distributed: whether the backend `hccl`, one of the device's names, is there."""

from __future__ import annotations

import torch.distributed

from causeway.compat.missing import getter


def is_hccl_available() -> bool:
    """Whether torch.distributed has the backend."""
    # torch.distributed.is_backend_available would ask torch.distributed.is_hccl_available: this.
    return "hccl" in torch.distributed.Backend.backend_list


__getattr__ = getter("torch_npu.distributed")
