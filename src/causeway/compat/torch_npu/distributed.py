"""torch_npu.distributed: whether the backend `hccl`, one of the device's names, is there."""

from __future__ import annotations

import torch.distributed

from causeway.compat.missing import getter


def is_hccl_available() -> bool:
    """Whether torch.distributed has the backend."""
    return torch.distributed.is_backend_available("hccl")


__getattr__ = getter(
    "torch_npu.distributed",
    {
        "is_lccl_available": "there is one backend, hccl",
        "reduce_scatter_tensor_uneven": "torch.distributed.reduce_scatter takes uneven lists",
        "all_gather_into_tensor_uneven": "torch.distributed.all_gather takes uneven lists",
        "reinit_process_group": "destroy_process_group and init_process_group",
        "ProcessGroupHCCL": "torch.distributed.new_group",
    },
)
