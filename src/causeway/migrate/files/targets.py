"""What CUDA's things are called elsewhere: a row of data for each vendor.

The names are those of the vendors' own documents. A thing that a vendor has no name for is not in
its row, and stays. A target without a row is a device that Causeway brings to torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache


@dataclass(frozen=True)
class Target:
    """A vendor's names. `name` is torch's device, `backend` that of its collectives ("" where
    unknown); `variables` and `tools` map CUDA's to the vendor's; `distributed_type` is
    Accelerate's word, if it has one.
    """

    name: str
    backend: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    tools: Mapping[str, str] = field(default_factory=dict)
    distributed_type: str = ""


_KNOWN = (
    Target(
        "npu",
        "hccl",
        {
            "CUDA_VISIBLE_DEVICES": "ASCEND_RT_VISIBLE_DEVICES",
            "CUDA_LAUNCH_BLOCKING": "ASCEND_LAUNCH_BLOCKING",
            "PYTORCH_CUDA_ALLOC_CONF": "PYTORCH_NPU_ALLOC_CONF",
            "NCCL_SOCKET_IFNAME": "HCCL_SOCKET_IFNAME",
        },
        {"nvidia-smi": "npu-smi info"},
        "MULTI_NPU",
    ),
    Target(
        "mlu",
        "cncl",
        {
            "CUDA_VISIBLE_DEVICES": "MLU_VISIBLE_DEVICES",
            "PYTORCH_CUDA_ALLOC_CONF": "PYTORCH_MLU_ALLOC_CONF",
        },
        {"nvidia-smi": "cnmon"},
        "MULTI_MLU",
    ),
    Target(
        "musa",
        "mccl",
        {
            "CUDA_VISIBLE_DEVICES": "MUSA_VISIBLE_DEVICES",
            "CUDA_LAUNCH_BLOCKING": "MUSA_LAUNCH_BLOCKING",
        },
        {"nvidia-smi": "mthreads-gmi"},
        "MULTI_MUSA",
    ),
    Target(
        "xpu",
        "xccl",
        {"CUDA_VISIBLE_DEVICES": "ZE_AFFINITY_MASK"},
        {"nvidia-smi": "xpu-smi discovery"},
        "MULTI_XPU",
    ),
)
_ROWS = {row.name: row for row in _KNOWN}


@cache
def target(name: str) -> Target | None:
    """The names of a target; None for "portable"."""
    if name == "portable":
        return None
    return _ROWS.get(name) or Target(
        name,
        variables={
            "CUDA_VISIBLE_DEVICES": "CAUSEWAY_VISIBLE_DEVICES",
            "PYTORCH_CUDA_ALLOC_CONF": "PYTORCH_ALLOC_CONF",
        },
        tools={"nvidia-smi": "causeway doctor"},
    )
