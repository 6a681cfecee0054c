"""Environment variables that only CUDA, its libraries or its builds of torch read."""

from __future__ import annotations

import re

from causeway.migrate.files.draft import Draft, Span

VISIBLE = "CW601"
RUNTIME = "CW602"
CONTAINER = "CW641"

_ALLOC = "PYTORCH_CUDA_ALLOC_CONF"
_RUNTIME = re.compile(
    r"(?:CUDA_(?:LAUNCH_BLOCKING|DEVICE_ORDER|DEVICE_MAX_CONNECTIONS|MODULE_LOADING|CACHE_\w+)"
    r"|CUBLAS\w*|CUDNN_\w+|(?:TORCH_)?NCCL_\w+|NVIDIA_TF32_OVERRIDE|TORCH_ALLOW_TF32\w*"
    r"|PYTORCH_NO_CUDA_MEMORY_CACHING)\Z"
)
_BUILD = re.compile(
    r"(?:CUDA_HOME|CUDA_PATH|CUDA_ROOT|CUDA_TOOLKIT_ROOT_DIR|CUDNN_(?:HOME|ROOT|PATH)|FORCE_CUDA"
    r"|TORCH_CUDA_ARCH_LIST|CUDAHOSTCXX|NVCC_\w+|MMCV_CUDA_ARGS|CUDA_VERSION|CUDNN_VERSION)\Z"
)
_CONTAINER = re.compile(r"NVIDIA_(?:VISIBLE_DEVICES|DRIVER_CAPABILITIES|REQUIRE_CUDA)\Z")


def judge_variable(draft: Draft, name: str, span: Span, *, use: bool) -> bool:
    """Whether `name` is a variable of CUDA's; if so it is renamed, or what it means is said.

    A `use` ($NAME) is renamed with the others and is not reported again.
    """
    target = draft.target
    if name == "CUDA_VISIBLE_DEVICES":
        rule = VISIBLE
    elif name == _ALLOC or _RUNTIME.match(name):
        rule = RUNTIME
    elif _CONTAINER.match(name) or _BUILD.match(name):
        rule = CONTAINER
    else:
        return False
    new = target.variables.get(name) if target else None
    if target is None and name == _ALLOC:
        tip = "torch 2.9 and later read it; for an older one keep both."
        message = f"{name} has a name for every device"
        draft.change(rule, span, "PYTORCH_ALLOC_CONF", message, tip, api=name)
    elif new is not None and target is not None:
        draft.change(rule, span, new, f"{target.name}'s name of {name}",
                     "The value has the same form; see the vendor's documents for what it takes.",
                     api=name)  # fmt: skip
    elif use:
        pass
    elif rule == VISIBLE:
        draft.say(rule, "manual", span, f"{name} chooses devices of CUDA only", api=name)
    elif rule == RUNTIME:
        draft.say(rule, "portable", span, f"{name} is read by CUDA's libraries; others ignore it",
                  api=name)  # fmt: skip
    else:
        draft.say(rule, "manual", span, f"{name} is for building or running with CUDA", api=name)
    return True
