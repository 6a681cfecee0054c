"""CUDA's devices and what stands for each: the one place that reads and writes device names."""

from __future__ import annotations

import re
from typing import Any

import torch

from causeway.errors import ConfigError

_MOST = 64  # devices for which the answer is looked up instead of worked out
_CUDA = re.compile(r"cuda(?::(\d+))?")


class Devices:
    """Both directions between "cuda" and a target: the accelerator's name, or "cpu"."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.to_target: dict[Any, Any] = {"cuda": target, torch.device("cuda"): self._device(None)}
        self.to_cuda: dict[torch.device, torch.device] = {}
        for index in range(_MOST):
            there = self._device(index)
            self.to_target[f"cuda:{index}"] = str(there)
            self.to_target[torch.device("cuda", index)] = there
            if target == "cpu":
                self.to_target[index] = there
            else:
                self.to_cuda[there] = torch.device("cuda", index)
        # On the CPU, tensors of the host and of the device cannot be told apart: all are shown as
        # CUDA's, so that a reference takes the paths that the program takes on the device.
        shown = torch.device("cuda", 0) if target == "cpu" else torch.device("cuda")
        self.to_cuda[self._device(None)] = shown

    def _device(self, index: int | None) -> torch.device:
        if self.target == "cpu" or index is None:
            return torch.device(self.target)  # one memory, so all of CUDA's devices are this one
        return torch.device(self.target, index)

    def find(self, device: Any) -> Any:
        """What stands for `device`, in the form in which it was given; None where it is no device
        of CUDA's.
        """
        try:
            found = self.to_target.get(device)
        except TypeError:  # not hashable, so no device
            return None
        if found is None and isinstance(device, str):  # a subclass of str, or a great index
            match = _CUDA.fullmatch(device)
            if match:
                index = match[1]
                return str(self._device(None if index is None else int(index)))
        return found

    def rewrite(self, device: Any) -> Any:
        """What stands for `device`; `device` itself where it is no device of CUDA's."""
        found = self.find(device)
        return device if found is None else found

    def shown(self, device: torch.device) -> torch.device:
        """The device of CUDA's that `device` stands for, if any; else `device`."""
        return self.to_cuda.get(device, device)

    def show_name(self, text: str) -> str:
        """ "sim" as "cuda", "sim:1" as "cuda:1", "torch.sim.FloatTensor" as CUDA's; other text as
        it is.
        """
        if self.target == "cpu":
            return text.replace("torch.", "torch.cuda.") if text.endswith("Tensor") else text
        if text == self.target or text.startswith(self.target + ":"):
            return "cuda" + text[len(self.target) :]
        kind = f"torch.{self.target}."
        return f"torch.cuda.{text[len(kind) :]}" if text.startswith(kind) else text


def resolve(target: str) -> str:
    """The name of the device that `target` asks for: "device" is the accelerator of this machine.

    Raises ConfigError where there is no such device.
    """
    name = str(torch._C._get_privateuse1_backend_name())
    if target == "cpu":
        return target
    if target not in ("device", name):
        raise ConfigError(
            f'CUDA can be redirected to "device" (here {name!r}) or to "cpu", not to {target!r}'
        )
    from causeway import _C
    from causeway.state import state

    try:
        if state.error is not None:
            raise state.error
        # Not torch.<name>.is_available(): a program may still say which devices are visible.
        there = _C.vendor_device_count()
    except Exception as error:
        raise ConfigError(
            f"CUDA cannot be redirected to {name}, which cannot be used: {error} "
            '(`causeway doctor` says more); target "cpu" needs no device'
        ) from error
    if there == 0:
        raise ConfigError(
            f"CUDA cannot be redirected: there is no {name} device (`causeway doctor` says why); "
            'target "cpu" needs none'
        )
    return name
