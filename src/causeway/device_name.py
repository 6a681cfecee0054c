"""What a device may be called: the one place that judges a table's name, CAUSEWAY_DEVICE_NAME, and
the name that is made from a library's file.

It is asked before anything is renamed, as torch can be renamed once, and not back. What torch has
depends on the torch that is here, so most of it is looked up. The device types are written down: a
library is built once for every torch.
"""

from __future__ import annotations

import keyword
import os
import re
from collections.abc import Mapping

from causeway import config

# torch's own name, which needs no renaming: where a vendor failed and has no good name.
NEUTRAL = "privateuseone"
# What torch's parser of device strings knows, of torch 2.11 to 2.15; a test compares.
DEVICE_TYPES = (
    "cpu", "cuda", "fpga", "hip", "hpu", "ideep", "ipu", "lazy", "maia", "meta", "mkldnn", "mps",
    "mtia", "opengl", "privateuseone", "ve", "vulkan", "xla", "xpu",
)  # fmt: skip
# Of these torch has the word alone, with no backend and no class behind it, and no other chip is
# meant: vendors/opencl may have it.
FREE = ("opencl",)
ALLOWED = "lower-case letters and '_', a letter first, such as mychip"

_ours: set[str] = set()  # what Causeway has put into torch


def attached(name: str) -> None:
    """Say that torch has `name` from Causeway: it is no longer in the way of itself."""
    _ours.add(name)


def refusal(name: str, others: Mapping[str, str] | None = None) -> str | None:
    """Why the device cannot be called `name`, and what is allowed; None where it can.

    `others` is what `taken` gives, for a process without torch.
    """
    if not re.fullmatch(r"[a-z][a-z_]*", name, re.ASCII):
        digits = "; torch's parser takes no digits" if re.search(r"[0-9]", name) else ""
        return f"torch needs {ALLOWED}{digits}"
    if name in _ours:
        return None
    why = (taken() if others is None else others).get(name)
    return f"{why}; take another name, of {ALLOWED}" if why else None


def taken() -> dict[str, str]:
    """Names that are good words and in use, each with by what."""
    import torch
    from torch.nn.utils.rnn import PackedSequence

    found: dict[str, str] = {}
    for word in keyword.kwlist:
        found[word] = "it is a word of Python"
    for setting in config.SETTINGS.values():
        parts = setting.name.split("_")
        for n in range(1, len(parts) if setting.vendor is None else 1):
            name = "_".join(parts[:n])
            found[name] = f"{config.PREFIX}{name.upper()}_... are settings of Causeway"
    # torch.utils.generate_methods_for_privateuse1_backend adds <name> and is_<name> to these.
    for kind in (PackedSequence, torch.storage._StorageBase, torch.nn.Module, torch.Tensor):
        for attribute in dir(kind):
            for name in {attribute, attribute.removeprefix("is_")}:
                found[name] = f"{kind.__name__}.{attribute} of torch is there already"
    for name in dir(torch) + _submodules(torch.__path__[0]):
        found[name] = f"torch.{name} is there already"
    for name in DEVICE_TYPES:
        found[name] = "it is a device type of torch's own"
    return {name: why for name, why in found.items() if name not in _ours and name not in FREE}


def _submodules(folder: str) -> list[str]:
    names = []
    for entry in os.scandir(folder):
        if entry.name.endswith(".py") or os.path.exists(os.path.join(entry.path, "__init__.py")):
            names.append(entry.name.removesuffix(".py"))
    return names
