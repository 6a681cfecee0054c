"""Code that was written for another system's package: torch_npu, torch_mlu, torch_dipu, MindTorch.

What such a package adds has torch.cuda's names: `torch.npu.synchronize`, `.npu()`, "npu:0", `hccl`.
So a module is read in two steps. The first (`read.py`) writes CUDA's names in place of the system's
and takes out what only that package needs; the rules for CUDA then do what they do for CUDA. At the
end (`back.py`) both steps are put together into edits of the text as it was, and what the rules
left is what the program wrote. A system is data: compat/systems.toml and compat/names.toml.
"""

from __future__ import annotations

import re
from functools import cache

from causeway.compat import System, systems
from causeway.migrate.files.variables import COMMON


@cache
def words() -> re.Pattern[bytes]:
    """What a file that one of the systems concerns has in it."""
    return re.compile("|".join(pattern.pattern for _, pattern in _patterns()).encode())


@cache
def _patterns() -> list[tuple[System, re.Pattern[str]]]:
    found = []
    for system in systems().values():
        words = [*system.packages, *system.backends]
        if system.device:
            words += [rf"\b{system.device}\b", f"is_{system.device}"]
        words += [rf"\b{name}\b" for name in system.variables if name not in COMMON]
        found.append((system, re.compile("|".join(words))))
    return found


def concerned(text: str, target: str) -> list[System]:
    """The systems that a text names, less the one that it is converted for."""
    return [s for s, pattern in _patterns() if s.device != target and pattern.search(text)]
