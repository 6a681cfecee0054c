"""torch_npu.optim: torch's optimizers by their foreach form, with the clip of torch_npu."""

from __future__ import annotations

from causeway.apex.optimizers.npu import NpuFusedAdadelta as NpuFusedAdadelta
from causeway.apex.optimizers.npu import NpuFusedAdam as NpuFusedAdam
from causeway.apex.optimizers.npu import NpuFusedAdamW as NpuFusedAdamW
from causeway.apex.optimizers.npu import NpuFusedLamb as NpuFusedLamb
from causeway.apex.optimizers.npu import NpuFusedRMSprop as NpuFusedRMSprop
from causeway.apex.optimizers.npu import NpuFusedSGD as NpuFusedSGD
from causeway.apex.optimizers.npu_own import NpuFusedAdamP as NpuFusedAdamP
from causeway.apex.optimizers.npu_own import NpuFusedBertAdam as NpuFusedBertAdam
from causeway.apex.optimizers.npu_own import NpuFusedRMSpropTF as NpuFusedRMSpropTF
from causeway.compat.missing import getter

__all__ = [
    "NpuFusedAdadelta",
    "NpuFusedAdam",
    "NpuFusedAdamP",
    "NpuFusedAdamW",
    "NpuFusedBertAdam",
    "NpuFusedLamb",
    "NpuFusedRMSprop",
    "NpuFusedRMSpropTF",
    "NpuFusedSGD",
]
__getattr__ = getter("torch_npu.optim")
