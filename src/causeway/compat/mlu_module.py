"""What torch has in torch_mlu and lacks here: torch.is_mlu_available, two of torch.backends, and
torch.mlu.cnpx, whose ranges are those of torch.profiler.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import torch

from causeway.compat.missing import Options
from causeway.redirect import stand_ins


class _Cnnl(Options):
    """torch.backends.cnnl, as torch.backends.cudnn is."""

    def is_available(self) -> bool:
        return torch.accelerator.is_available()

    @contextmanager
    def flags(
        self, enabled: bool | None = None, benchmark: bool | None = None,
        benchmark_limit: int | None = None, deterministic: bool | None = None,
        allow_tf32: bool | None = None,
    ) -> Iterator[None]:  # fmt: skip
        """A context of these switches; what asks for another than what is done says so."""
        for name in ("enabled", "benchmark", "deterministic", "allow_tf32"):
            if (value := locals()[name]) is not None:
                setattr(self, name, value)
        yield


# Which kernels of attention may be taken: torch keeps that for all devices, under CUDA's name.
_ATTENTION = (
    "enable_flash_sdp", "enable_math_sdp", "enable_mem_efficient_sdp", "flash_sdp_enabled",
    "math_sdp_enabled", "mem_efficient_sdp_enabled",
)  # fmt: skip


def is_cncl_available() -> bool:
    """Whether torch.distributed has the backend `cncl`, which is one of the device's names."""
    return "cncl" in torch.distributed.Backend.backend_list


def extend() -> None:
    """Put the names into torch and torch.mlu."""
    from causeway.device import graphs, module

    module.MLUGraph = graphs.CUDAGraph  # type: ignore[attr-defined]
    torch.distributed.is_cncl_available = is_cncl_available  # type: ignore[attr-defined]
    module.cnpx = SimpleNamespace(  # type: ignore[attr-defined]
        mark=stand_ins.mark, range=stand_ins.nvtx_range,
        range_pop=stand_ins.range_pop, range_push=stand_ins.range_push,
    )  # fmt: skip
    torch.is_mlu_available = torch.accelerator.is_available  # type: ignore[attr-defined]
    products = Options(
        "torch.backends.mlu.matmul", {"allow_tf32": False},
        "torch.set_float32_matmul_precision() is for every device",
    )  # fmt: skip
    own = Options(
        "torch.backends.mlu.custom", {"allow_tf32": False},
        "operators compute in the dtype of their operands",
    )  # fmt: skip
    torch.backends.mlu = SimpleNamespace(  # type: ignore[attr-defined]
        matmul=products,
        custom=own,
        is_built=torch.accelerator.is_available,
        **{name: getattr(torch.backends.cuda, name) for name in _ATTENTION},
    )
    torch.backends.cnnl = _Cnnl(  # type: ignore[attr-defined]
        "torch.backends.cnnl",
        {"allow_tf32": False, "enabled": True, "benchmark": False, "deterministic": False},
        "convolutions compute in the dtype of their operands",
    )  # fmt: skip
