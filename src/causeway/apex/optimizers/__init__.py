"""apex.optimizers: fused optimizers, on torch's fused and foreach operators."""

from causeway.apex.optimizers.fused_adagrad import FusedAdagrad
from causeway.apex.optimizers.fused_adam import FusedAdam
from causeway.apex.optimizers.fused_lamb import FusedLAMB, FusedMixedPrecisionLamb
from causeway.apex.optimizers.fused_novograd import FusedNovoGrad
from causeway.apex.optimizers.fused_sgd import FusedSGD
from causeway.apex.optimizers.npu import (
    NpuFusedAdadelta,
    NpuFusedAdam,
    NpuFusedAdamW,
    NpuFusedLamb,
    NpuFusedRMSprop,
    NpuFusedSGD,
)

__all__ = [
    "FusedAdagrad",
    "FusedAdam",
    "FusedLAMB",
    "FusedMixedPrecisionLamb",
    "FusedNovoGrad",
    "FusedSGD",
    "NpuFusedAdadelta",
    "NpuFusedAdam",
    "NpuFusedAdamW",
    "NpuFusedLamb",
    "NpuFusedRMSprop",
    "NpuFusedSGD",
]
