"""Bugs in torch's own support for PrivateUse1, each worked around in one entry here.

Nothing else of torch is patched. An entry names the upstream issue and the torch versions that have
the bug, and `needed` says whether the torch at hand still has it: tests/device/test_workarounds.py
fails where it has not, and then the entry goes. `causeway doctor` lists those in force.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import _tensor_str

from causeway.device import comm, ipc
from causeway.device.lazy import device_name


@dataclass(frozen=True)
class Workaround:
    """One bug of torch. `apply` runs at import and opens no device; `needed` may open one."""

    name: str
    upstream: str  # the issue or pull request
    since: tuple[int, int]  # the first torch version, of those that Causeway runs on, that has it
    until: tuple[int, int] | None  # the first version without it; None: none yet
    what: str
    apply: Callable[[], None]
    needed: Callable[[], bool]


def _version() -> tuple[int, int]:
    major, minor = re.findall(r"\d+", torch.__version__)[:2]
    return int(major), int(minor)


# --- printing where the chip has no float64 -----------------------------------------------------

_totype: Callable[[torch.Tensor], torch.Tensor] = _tensor_str.tensor_totype


def _fixed_totype(t: torch.Tensor) -> torch.Tensor:
    if t.device.type == device_name():
        return _totype(t.cpu())
    return _totype(t)


def _apply_print() -> None:
    _tensor_str.tensor_totype = _fixed_totype


def _needs_print() -> bool:
    return _totype(torch.ones(1, device=device_name())).device.type == device_name()


# --- Tensor.__dlpack_device__ -------------------------------------------------------------------

_dlpack_device = torch.Tensor.__dlpack_device__


def _fixed_dlpack_device(self: torch.Tensor) -> tuple[Any, int]:
    """The (device type, index) of DLPack: kDLExtDev for a tensor of this device."""
    plain = type(self) is torch.Tensor or not torch.overrides.has_torch_function_unary(self)
    if plain and self.device.type == device_name():
        from torch.utils.dlpack import DLDeviceType

        return DLDeviceType.kDLExtDev, self.device.index or 0
    return _dlpack_device(self)


def _apply_dlpack_device() -> None:
    torch.Tensor.__dlpack_device__ = _fixed_dlpack_device  # type: ignore[method-assign]


def _needs_dlpack_device() -> bool:
    try:
        _dlpack_device(torch.empty(0, device=device_name()))
    except ValueError:
        return True
    return False


# --- Module.to() and `parameter.data = ` --------------------------------------------------------


def _apply_shallow_copy() -> None:
    """Nothing: the core registers its own rule, in csrc/tensor.cpp."""


def _needs_shallow_copy() -> bool:
    rule = torch.ops.aten._has_compatible_shallow_copy_type.default
    stock = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
    ours = torch.empty(0, device=device_name())
    return not rule.redispatch(stock, torch.empty(0), ours)


# --- torch.multiprocessing ----------------------------------------------------------------------


def _needs_reducer() -> bool:
    from torch.multiprocessing.reductions import reduce_storage

    try:
        storage = torch.empty(1, device=device_name()).untyped_storage()
        reduce_storage(storage)  # type: ignore[no-untyped-call]
    except RuntimeError:
        return True
    return False


# --- torch.nn.DataParallel ----------------------------------------------------------------------

# What torch.nn.parallel.comm calls, and builds without CUDA lack; with the arguments of those.


def _broadcast(tensor: torch.Tensor, devices: Sequence[int]) -> list[torch.Tensor]:
    return list(comm.broadcast(tensor, devices))


def _broadcast_out(tensor: torch.Tensor, out: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return list(comm.broadcast(tensor, out=out))


def _scatter(
    tensor: torch.Tensor,
    devices: Sequence[int],
    chunk_sizes: Sequence[int] | None,
    dim: int,
    streams: Sequence[torch.Stream | None] | None,
) -> list[torch.Tensor]:
    return list(comm.scatter(tensor, devices, chunk_sizes, dim, streams))


def _scatter_out(
    tensor: torch.Tensor,
    out: Sequence[torch.Tensor],
    dim: int,
    streams: Sequence[torch.Stream | None] | None,
) -> list[torch.Tensor]:
    return list(comm.scatter(tensor, dim=dim, out=out))


def _gather(tensors: Sequence[torch.Tensor], dim: int, destination: int | None) -> torch.Tensor:
    """`destination` -1 is the host."""
    return comm.gather(tensors, dim, "cpu" if destination == -1 else destination)


def _gather_out(tensors: Sequence[torch.Tensor], out: torch.Tensor, dim: int) -> torch.Tensor:
    return comm.gather(tensors, dim, out=out)


_COMM = {
    "_broadcast": _broadcast,
    "_broadcast_coalesced": comm.broadcast_coalesced,
    "_broadcast_out": _broadcast_out,
    "_scatter": _scatter,
    "_scatter_out": _scatter_out,
    "_gather": _gather,
    "_gather_out": _gather_out,
}


def _apply_data_parallel() -> None:
    for name, function in _COMM.items():
        if not hasattr(torch._C, name):
            setattr(torch._C, name, function)


def _needs_data_parallel() -> bool:
    return getattr(torch._C, "_scatter", _scatter) is _scatter


ALL = (
    Workaround(
        "data_parallel",
        "https://github.com/pytorch/pytorch/blob/v2.13.0/torch/nn/parallel/comm.py#L203",
        (2, 11),
        None,
        "torch.nn.DataParallel takes any device and then fails with an AttributeError in its first "
        "forward: the copies between devices of one process are compiled for CUDA alone",
        _apply_data_parallel,
        _needs_data_parallel,
    ),
    Workaround(
        "dlpack_device",
        "https://github.com/pytorch/pytorch/pull/195815",
        (2, 11),
        None,
        "Tensor.__dlpack_device__ compares with the literal 'privateuse1', so it raises for a "
        "renamed device",
        _apply_dlpack_device,
        _needs_dlpack_device,
    ),
    Workaround(
        "shallow_copy",
        "https://github.com/pytorch/pytorch/issues/196975",
        (2, 11),
        None,
        "Module.to() makes new Parameters, so that optimizers and tied weights keep the old "
        "ones: the rule for "
        "`parameter.data = tensor` does not list PrivateUse1",
        _apply_shallow_copy,
        _needs_shallow_copy,
    ),
    Workaround(
        "print",
        "https://github.com/pytorch/pytorch/blob/v2.13.0/torch/_tensor_str.py#L117",
        (2, 11),
        None,
        "printing a tensor of floats converts it to float64 on the device, which a chip may lack",
        _apply_print,
        _needs_print,
    ),
    Workaround(
        "multiprocessing",
        "https://github.com/pytorch/pytorch/issues/195964",
        (2, 11),
        None,
        "torch.multiprocessing sends only CPU and CUDA tensors: there is no hook for another "
        "device's memory",
        ipc.install,
        _needs_reducer,
    ),
)

_in_force: list[Workaround] = []


def apply() -> None:
    """Apply, once, those that the installed torch needs by its version."""
    version = _version()
    for entry in ALL:
        if entry in _in_force or version < entry.since:
            continue
        if entry.until is None or version < entry.until:
            entry.apply()
            _in_force.append(entry)


def in_force() -> list[Workaround]:
    """Those that were applied in this process."""
    return list(_in_force)
