"""The few names of MindSpore that MindTorch's guide mentions; everything else raises.

`set_context(device_target=...)` chooses where tensors are made: the device for Ascend and GPU, the
CPU for CPU.
"""

from __future__ import annotations

import sys
from typing import Any

import torch

from causeway.compat.mindspore import ops
from causeway.compat.missing import getter, no_effect
from causeway.errors import CausewayError

GRAPH_MODE, PYNATIVE_MODE = 0, 1
_context: dict[str, Any] = {"mode": PYNATIVE_MODE, "device_target": "", "device_id": 0}


def set_context(**options: Any) -> None:
    """device_target: "Ascend", "GPU" or "CPU"; device_id; mode. CausewayError for another name."""
    unknown = options.keys() - _context
    if unknown:
        raise CausewayError(
            f"mindspore.set_context: {', '.join(sorted(unknown))}: known are {', '.join(_context)}"
        )
    target = options.get("device_target")
    if target not in (None, "Ascend", "GPU", "CPU"):
        raise CausewayError(f"mindspore.set_context: device_target={target!r}")
    if options.get("mode") == GRAPH_MODE:
        no_effect("mindspore.set_context(mode=GRAPH_MODE)", "torch.compile(model) makes graphs")
    _context.update(options)
    if "device_id" in options:
        torch.accelerator.set_device_index(options["device_id"])
    if target == "CPU":
        torch.set_default_device("cpu")
    elif target:
        name, index = torch._C._get_privateuse1_backend_name(), _context["device_id"]
        torch.set_default_device(torch.device(name, index))


def get_context(name: str) -> Any:
    """What set_context was given."""
    return _context[name]


context = sys.modules[__name__]
__all__ = ["GRAPH_MODE", "PYNATIVE_MODE", "context", "get_context", "ops", "set_context"]
__getattr__ = getter("mindspore")
