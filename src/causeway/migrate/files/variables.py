"""Environment variables that only CUDA, its libraries or its builds of torch read."""

from __future__ import annotations

import re

from causeway.compat import Variable, systems
from causeway.migrate.files.draft import Draft, Span

VISIBLE = "CW601"
RUNTIME = "CW602"
SYSTEM = "CW614"
CONTAINER = "CW641"

_ALLOC = "PYTORCH_CUDA_ALLOC_CONF"
_ALLOC_BESIDE = re.compile(r"(?<!\w)PYTORCH_ALLOC_CONF(?!\w)")
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
    if target and name in target.variables.values():
        return True  # converted already: no options are looked for in its value, as before
    if name == "CUDA_VISIBLE_DEVICES":
        rule = VISIBLE
    elif name == _ALLOC or _RUNTIME.match(name):
        rule = RUNTIME
    elif _CONTAINER.match(name) or _BUILD.match(name):
        rule = CONTAINER
    else:
        return _of_system(draft, name, span, use=use)
    new = target.variables.get(name) if target else None
    if target is None and name == _ALLOC and _ALLOC_BESIDE.search(draft.text):
        draft.say(rule, "portable", span, f"{name} stands beside its name for every device",
                  "Leave it for an older torch, or leave it out.", api=name)  # fmt: skip
    elif target is None and name == _ALLOC:
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


def _of_system(draft: Draft, name: str, span: Span, *, use: bool) -> bool:
    """The same of a variable of another system's, such as ASCEND_RT_VISIBLE_DEVICES."""
    found = of_systems(draft.settings.target).get(name)
    if found is None:
        return False
    new = found.to or (f"CAUSEWAY_{found.setting.upper()}" if found.setting else "")
    if draft.for_cuda:
        if not use:
            draft.say(SYSTEM, "portable", span, f"{name}: the tree has scripts for CUDA too",
                      "Leave it: this one is for its own system.", api=name)  # fmt: skip
    elif new and found.read == "as it is":
        draft.change(SYSTEM, span, new, f"{new} in place of {name}",
                     "It is read for every device.", api=name)  # fmt: skip
    elif use:
        pass
    elif new:
        draft.say(
            SYSTEM, "manual", span, f"{name} is read by the system alone",
            f"Write instead: {new}; see docs/settings.md for its values.", api=name,
        )  # fmt: skip
    else:
        draft.say(SYSTEM, "portable", span, f"{name} has no effect on other devices", found.says,
                  api=name)  # fmt: skip
    return True


def of_systems(target: str) -> dict[str, Variable]:
    """The variables of other systems than the one that is converted for."""
    return {
        name: variable
        for system in systems().values() if system.device != target
        for name, variable in system.variables.items() if name not in COMMON
    }  # fmt: skip


# Variables that other programs have too, so that the name alone shows nothing.
COMMON = frozenset({"DEVICE_ID", "RANK_TABLE_FILE"})
