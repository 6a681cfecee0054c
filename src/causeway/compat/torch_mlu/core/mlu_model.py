"""torch_mlu.core.mlu_model, `ct`: the device, and switches of an earlier chip's compiler.

Cambricon's package had a mode for each use. Here a model is eager, compiled (torch.compile) or a
file (causeway.export) by how it is called, so a switch of the mode has no effect, and says so once
where it asks for another than what is done.
"""

from __future__ import annotations

from typing import TypeVar

import torch

from causeway import _C
from causeway.compat.missing import getter, no_effect
from causeway.errors import CausewayError

_CORES = "the vendor's library gives no share of a chip's cores (cores.v1)"
_ORDERS = ("rgba", "argb", "bgra", "abgr")
_T = TypeVar("_T")


def mlu_device() -> torch.device:
    """The device, of the current index: torch.device("mlu")."""
    return torch.device(str(torch._C._get_privateuse1_backend_name()))


def to(value: _T, device: torch.device | str | None = None) -> _T:
    """A tensor or module on `device`; of an optimizer the tensors of its state, in place."""
    where = mlu_device() if device is None else torch.device(device)
    if isinstance(value, torch.optim.Optimizer):
        for state in value.state.values():
            for name, kept in state.items():
                if isinstance(kept, torch.Tensor):
                    state[name] = kept.to(where)
        return value
    moved: _T = value.to(where)  # type: ignore[attr-defined]
    return moved


def set_device(index: int | str | torch.device) -> None:
    """torch.accelerator.set_device_index(index), also of "mlu:0". -1, a chip that is not there,
    raises CausewayError: `causeway coverage --vendor report.json` is a chip on paper.
    """
    if not isinstance(index, int):
        index = torch.device(index).index or 0
    if index < 0:
        raise CausewayError(
            "ct.set_device(-1): there is no device without a chip; a chip on paper is "
            "CAUSEWAY_VENDOR=report.json, and causeway.export writes files on any machine"
        )
    torch.accelerator.set_device_index(index)


def current_device() -> int:
    """torch.accelerator.current_device_index()."""
    return torch.accelerator.current_device_index()


def device_count() -> int:
    """torch.accelerator.device_count()."""
    return torch.accelerator.device_count()


def is_available() -> bool:
    """torch.accelerator.is_available()."""
    return torch.accelerator.is_available()


def synchronize() -> None:
    """torch.accelerator.synchronize()."""
    torch.accelerator.synchronize()


def set_core_number(number: int) -> None:
    """How many cores of the device the work from here on may use, 1 to 16: set_core_limit. Has no
    effect, and says so once, where the vendor's library shares no cores.
    """
    if not 1 <= number <= 16:
        raise CausewayError(f"ct.set_core_number({number}): from 1 to 16")
    device = torch.accelerator.current_device_index()
    found = _C.cores(device, None)
    if found is not None:
        _C.set_cores(device, None, number if number < found[1] else 0)
    elif number != 1:
        no_effect("ct.set_core_number", _CORES)


def set_core_version(version: str) -> None:
    """The chip that a fused model is compiled for: that of the vendor in use."""


def set_input_format(order: int) -> None:
    """The channels' order of a first convolution on bytes: 0 is RGBA, which is what is done."""
    if order not in range(4):
        raise CausewayError(f"ct.set_input_format({order}): 0 to 3, for {', '.join(_ORDERS)}")
    if order:
        no_effect(
            f"ct.set_input_format({order})",
            "a first convolution on bytes takes the channels as the weight has them",
        )


def set_cnml_enabled(enabled: bool) -> None:
    """Whether models run fused by an earlier compiler; here torch.compile fuses."""
    if enabled:
        no_effect("ct.set_cnml_enabled(True)", "torch.compile(model) fuses")


def _jit_override_can_fuse_on_mlu(enabled: bool) -> None:
    """Whether a trace is fused by an earlier compiler; here torch.compile fuses."""
    if enabled:
        no_effect("ct._jit_override_can_fuse_on_mlu(True)", "torch.compile(model) fuses")


def set_quantized_bitwidth(bits: int) -> None:
    """The width of products on a chip without floats."""
    no_effect("ct.set_quantized_bitwidth", "causeway.quant chooses a model's integers")


def save_as_cambricon(name: str) -> None:
    """Raises CausewayError for a name: causeway.export writes a file that runs offline."""
    if name:
        raise CausewayError(
            f"ct.save_as_cambricon({name!r}): write causeway.export(model, inputs, "
            f"{name + '.cw'!r}), which needs no trace (docs/ship.md)"
        )


__getattr__ = getter("torch_mlu.core.mlu_model")
