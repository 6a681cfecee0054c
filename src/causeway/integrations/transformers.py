"""transformers: TrainingArguments, Trainer and pipelines have a branch for each vendor.

The branch for Ascend's NPU is taken (see relabel.py), but where it stands for Ascend's own kernels.
Models, generate and the attention implementations need nothing: they follow the tensors.
"""

from __future__ import annotations

import functools
import os
import types
from typing import Any

import torch

from causeway import integrations
from causeway.integrations import Integration
from causeway.integrations.relabel import renamed, take_branches, with_device

PREDICATES = {"is_torch_npu_available": "npu"}

# Tables of transformers.testing_utils, and the function of torch.<name> in each; "" the module.
TABLES = {
    "BACKEND_MANUAL_SEED": "manual_seed",
    "BACKEND_EMPTY_CACHE": "empty_cache",
    "BACKEND_DEVICE_COUNT": "device_count",
    "BACKEND_RESET_MAX_MEMORY_ALLOCATED": "reset_max_memory_allocated",
    "BACKEND_RESET_PEAK_MEMORY_STATS": "reset_peak_memory_stats",
    "BACKEND_MAX_MEMORY_ALLOCATED": "max_memory_allocated",
    "BACKEND_MEMORY_ALLOCATED": "memory_allocated",
    "BACKEND_SYNCHRONIZE": "synchronize",
    "BACKEND_TORCH_ACCELERATOR_MODULE": "",
}

# There the question is whether Ascend's kernels for attention may be called.
NOT = {
    "transformers.integrations.hub_kernels",
    "transformers.integrations.npu_flash_attention",
    "transformers.modeling_flash_attention_utils",
}


def _loaded(module: types.ModuleType) -> None:
    if module.__name__ in NOT:
        return
    done = take_branches(module, PREDICATES)
    if module.__name__ == "transformers.cache_utils":
        _offload(module.Cache)
    if module.__name__ == "transformers.generation.utils":
        _compile(module.GenerationMixin)
    if module.__name__ == "transformers.modeling_utils":
        _save(module.PreTrainedModel)
    if module.__name__ == "transformers.testing_utils":
        _test(module)
    if (
        module.__name__ == "transformers.training_args"
        and "TrainingArguments._setup_devices" not in done
    ):
        raise LookupError("TrainingArguments._setup_devices has no branch for npu")


def _offload(cache: type) -> None:
    """Have an offloaded cache wait for the stream of the device that its keys are on: it names
    torch.cuda there, and makes the other stream by torch.Stream.
    """
    plain = vars(cache)["update"]
    ours = renamed(plain, "cuda", integrations.state.device)

    @functools.wraps(plain)
    def update(self: Any, key_states: torch.Tensor, *args: Any, **options: Any) -> Any:
        there = key_states.device.type == integrations.state.device
        return (ours if there else plain)(self, key_states, *args, **options)

    cache.update = update  # type: ignore[attr-defined]
    integrations.note("transformers", "an offloaded cache takes the device's streams")


def _compile(mixin: type) -> None:
    """Have `generate` compile its steps where a cache allows that, as on CUDA: where the chip has a
    compiler. `disable_compile=True` says no, there as here.
    """
    plain = vars(mixin)["_valid_auto_compile_criteria"]
    ours = with_device(plain, ("cuda",), ("xpu",))

    @functools.wraps(plain)
    def criteria(self: Any, *args: Any, **options: Any) -> bool:
        from causeway.compile import chip

        there = self.device.type == integrations.state.device and chip.has_compiler()
        return bool((ours if there else plain)(self, *args, **options))

    mixin._valid_auto_compile_criteria = criteria  # type: ignore[attr-defined]
    integrations.note("transformers", "generate compiles with a static cache")


def _save(model: type) -> None:
    """Have `save_pretrained`, which compares pointers of weights, leave what the chip keeps."""
    plain = vars(model)["save_pretrained"]

    @functools.wraps(plain)
    def save_pretrained(self: Any, *args: Any, **options: Any) -> Any:
        from causeway.device.layouts import only_compared

        with only_compared(self):
            return plain(self, *args, **options)

    model.save_pretrained = save_pretrained  # type: ignore[attr-defined]
    integrations.note("transformers", "saving leaves weights in the chip's layout")


def _test(module: types.ModuleType) -> None:
    """Give its tests the device, unless TRANSFORMERS_TEST_DEVICE names one."""
    device = integrations.state.device
    functions = torch.get_device_module(device)
    tables: dict[str, Any] = vars(module)
    for table, function in TABLES.items():
        if table not in tables:
            raise LookupError(f"there is no {table}")
        tables[table][device] = getattr(functions, function) if function else functions
    if "TRANSFORMERS_TEST_DEVICE" not in os.environ and tables["torch_device"] == "cpu":
        tables["torch_device"] = device


INTEGRATION = Integration(
    ("5.23.0", "5.23.0"), "its branches for NPU are taken with this device's name", _loaded
)
