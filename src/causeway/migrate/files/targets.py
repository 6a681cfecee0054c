"""What CUDA's things are called elsewhere, for scripts and configurations.

The names are those of knowledge/targets.toml. A thing that a vendor has no name for stays. A target
without a row is a device that Causeway brings to torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

from causeway.migrate import knowledge


@dataclass(frozen=True)
class Target:
    """A vendor's names. `name` is torch's device, `backend` that of its collectives; `variables`
    and `tools` map CUDA's to the vendor's; `distributed_type` is Accelerate's word, if it has one.
    """

    name: str
    backend: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    tools: Mapping[str, str] = field(default_factory=dict)
    distributed_type: str = ""


@cache
def target(name: str) -> Target | None:
    """The names of a target; None for "portable"."""
    if name == "portable":
        return None
    row = knowledge.target(name)
    ours = not row.visible
    variables = {
        "CUDA_VISIBLE_DEVICES": "CAUSEWAY_VISIBLE_DEVICES" if ours else row.visible,
        "CUDA_LAUNCH_BLOCKING": row.launch_blocking,
        "PYTORCH_CUDA_ALLOC_CONF": "PYTORCH_ALLOC_CONF" if ours else row.allocator,
        "NCCL_SOCKET_IFNAME": row.interface,
    }
    tools = {"nvidia-smi": "causeway doctor" if ours else row.smi}
    return Target(
        name,
        row.collectives,
        {cuda: theirs for cuda, theirs in variables.items() if theirs},
        {cuda: theirs for cuda, theirs in tools.items() if theirs},
        row.accelerate,
    )
