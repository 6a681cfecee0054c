"""What torch has in torch_mlu and lacks here: torch.is_mlu_available, two of torch.backends, and
torch.mlu.cnpx, whose ranges are those of torch.profiler.
"""

from __future__ import annotations

from types import SimpleNamespace

import torch

from causeway.compat.missing import Options
from causeway.redirect import stand_ins


def extend() -> None:
    """Put the names into torch and torch.mlu."""
    from causeway.device import module

    module.cnpx = SimpleNamespace(  # type: ignore[attr-defined]
        mark=stand_ins.mark, range=stand_ins.nvtx_range,
        range_pop=stand_ins.range_pop, range_push=stand_ins.range_push,
    )  # fmt: skip
    torch.is_mlu_available = torch.accelerator.is_available  # type: ignore[attr-defined]
    products = Options(
        "torch.backends.mlu.matmul", {"allow_tf32": False},
        "torch.set_float32_matmul_precision() is for every device",
    )  # fmt: skip
    torch.backends.mlu = SimpleNamespace(matmul=products)  # type: ignore[attr-defined]
    torch.backends.cnnl = Options(  # type: ignore[attr-defined]
        "torch.backends.cnnl", {"allow_tf32": False},
        "convolutions compute in the dtype of their operands",
    )  # fmt: skip
