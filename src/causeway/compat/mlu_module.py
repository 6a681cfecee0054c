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
        """A context in which only `allow_tf32=True` asks for what is not done, and says so."""
        if allow_tf32 is not None:
            self.allow_tf32 = allow_tf32
        yield


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
    own = Options(
        "torch.backends.mlu.custom", {"allow_tf32": False},
        "operators compute in the dtype of their operands",
    )  # fmt: skip
    torch.backends.mlu = SimpleNamespace(  # type: ignore[attr-defined]
        matmul=products, custom=own
    )
    torch.backends.cnnl = _Cnnl(  # type: ignore[attr-defined]
        "torch.backends.cnnl", {"allow_tf32": False},
        "convolutions compute in the dtype of their operands",
    )  # fmt: skip
