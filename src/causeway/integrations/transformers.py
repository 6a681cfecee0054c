"""transformers: TrainingArguments, Trainer and pipelines have a branch for each vendor.

The branch for Ascend's NPU is taken (see relabel.py), but where it stands for Ascend's own kernels.
Models, generate and the attention implementations need nothing: they follow the tensors.
"""

from __future__ import annotations

import types

from causeway.integrations import Integration
from causeway.integrations.relabel import take_branches

PREDICATES = {"is_torch_npu_available": "npu"}

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
    if (
        module.__name__ == "transformers.training_args"
        and "TrainingArguments._setup_devices" not in done
    ):
        raise LookupError("TrainingArguments._setup_devices has no branch for npu")


INTEGRATION = Integration(
    ("5.23.0", "5.23.0"), "its branches for NPU are taken with this device's name", _loaded
)
