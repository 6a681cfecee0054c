"""How far the start came: which vendor, which library, why, and what went wrong.

`autoload` fills it in; who only wants to know reads it here, without what the start imports.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from causeway import config


@dataclass
class State:
    """How far the start came."""

    started: bool = False
    device: str = ""
    vendor: str = ""
    library: str = ""
    reason: str = ""  # why this vendor
    error: Exception | None = None  # why there is no device
    compat: str = ""  # the system whose code runs, see causeway.compat
    problems: list[config.Problem] = field(default_factory=list)
    seconds: float = 0.0  # of this thread on a CPU


state = State()
# Beside torch, where `causeway compat install` was called: says for which system.
MARKER = "causeway-compat.txt"
# In the environment of what `causeway run` starts: it ends where CUDA's calls cannot be redirected.
LAUNCHED = "_CAUSEWAY_RUN"
