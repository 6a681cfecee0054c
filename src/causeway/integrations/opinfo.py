"""torch.testing: what torch's operator database says that the device takes.

The database has dtypes for the CPU, and for CUDA and other devices that it knows; of a device that
it does not know, it says what it says of the CPU. Causeway's takes what torch.cuda does beside,
computed in a wider dtype on the host rung where no kernel takes it (csrc/ladder/wide.cpp). So
torch's own tests ask for that too.
"""

from __future__ import annotations

import functools
import types
from typing import Any

import torch

from causeway import integrations

DATABASE = "torch.testing._internal.opinfo.core"


def cuda_alone(op: Any) -> set[torch.dtype]:
    """The dtypes of an `OpInfo` that CUDA takes and the CPU refuses. What is of CUDA's libraries
    alone, and has no dtype on the CPU, is left out; so is what torch's Python refuses by the
    device's name: its references of Fourier transforms, but for those in two dimensions, which call
    the operator.
    """
    found = set(op.dtypesIfCUDA or ()) - set(op.dtypes) if op.dtypes else set()
    by_name = op.name.startswith("_refs.fft.") and not op.name.endswith("2")
    return found - {torch.float16} if by_name else found


def cuda_alone_backward(op: Any) -> set[torch.dtype]:
    """The same of its derivative."""
    on_cpu = op.supported_backward_dtypes("cpu")
    return op.supported_backward_dtypes("cuda") - on_cpu if on_cpu else set()


def _loaded(module: types.ModuleType) -> None:
    if module.__name__ != DATABASE:
        return
    info = module.OpInfo
    info.supported_dtypes = _beside(info.supported_dtypes, cuda_alone)
    info.supported_backward_dtypes = _beside(info.supported_backward_dtypes, cuda_alone_backward)
    integrations.note("opinfo", "OpInfo knows the dtypes that the device takes beside the CPU's")


def _beside(method: Any, more: Any) -> Any:
    @functools.wraps(method)
    def supported(self: Any, device_type: str) -> set[torch.dtype]:
        found = method(self, device_type)
        ours = str(device_type).partition(":")[0] in ("privateuse1", integrations.state.device)
        return set(found) | more(self) if ours else found  # type: ignore[no-any-return]

    return supported


INTEGRATION = integrations.Integration(
    tested=("2.13", "2.13"),
    how="torch.testing's operator database has the dtypes that the device takes beside the CPU's",
    loaded=_loaded,
    distribution="torch",
)
