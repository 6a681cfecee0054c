"""accelerate: devices are a list of branches, and of distributed types, in its source.

Its branch for Ascend's NPU, or Moore Threads' where there is none for that, is taken
(see relabel.py). The distributed type of several processes keeps accelerate's name MULTI_NPU: it is
a member of an enumeration that other libraries compare with.
"""

from __future__ import annotations

import functools
import types
from typing import Any

import torch

from causeway import integrations
from causeway.integrations.relabel import take_branches

# The first that a function asks is taken; the state of random numbers has no branch for NPU.
PREDICATES = {"is_npu_available": "npu", "is_musa_available": "musa"}


def _loaded(module: types.ModuleType) -> None:
    done = take_branches(module, PREDICATES)
    if module.__name__ == "accelerate.state":
        if "PartialState.default_device" not in done:
            raise LookupError("PartialState.default_device has no branch for npu")
        _name_the_device(module.PartialState, module.DistributedType.MULTI_NPU)
    if module.__name__ == "accelerate.test_utils.testing":
        # Asked once, when the module was run: before its question was for this device.
        found = module.get_backend()
        module.torch_device, module.device_count, module.memory_allocated_func = found  # type: ignore[attr-defined]
        command = module.DEFAULT_LAUNCH_COMMAND
        processes = f"--num_processes={module.device_count}"
        command[:] = [processes if a.startswith("--num_processes=") else a for a in command]
    if module.__name__ == "accelerate.hooks":
        # What dispatch_model puts on a model, to be taken off again: model.sim().
        module._accelerate_added_attributes.append(integrations.state.device)


def _name_the_device(partial_state: type, several: object) -> None:
    """Make the backend and the device of MULTI_NPU those of this device.

    accelerate makes the one from a table and the other from the type's name.
    """
    prepare, set_device = vars(partial_state)["_prepare_backend"], vars(partial_state)["set_device"]

    @functools.wraps(prepare)
    def _prepare_backend(
        self: Any, cpu: bool = False, sagemaker_dp: bool = False, backend: str | None = None
    ) -> tuple[str | None, object]:
        found, kind = prepare(self, cpu, sagemaker_dp, backend)
        if kind is several:
            found = backend or torch.distributed.get_default_backend_for_device(
                integrations.state.device
            )
        return found, kind

    @functools.wraps(set_device)
    def _set_device(self: Any) -> None:
        if self.device is None and self.distributed_type is several:
            module = torch.get_device_module(integrations.state.device)
            index = self.local_process_index % module.device_count()
            self.device = torch.device(integrations.state.device, index)
            module.set_device(self.device)
        set_device(self)

    partial_state._prepare_backend = _prepare_backend  # type: ignore[attr-defined]
    partial_state.set_device = _set_device  # type: ignore[attr-defined]


INTEGRATION = integrations.Integration(
    ("1.15.0", "1.15.0"), "its branches for NPU are taken with this device's name", _loaded
)
