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
    return re.compile("|".join(pattern.pattern for _, _, pattern in _patterns()).encode())


@cache
def _patterns() -> list[tuple[System, list[str], re.Pattern[str]]]:
    """Of each system what a text must have in it, which is found faster, and what it then is."""
    found = []
    for system in systems().values():
        variables = [name for name in system.variables if name not in COMMON]
        texts = [*system.packages, *system.backends, *variables]
        words = [*system.packages, *system.backends, *(rf"\b{name}\b" for name in variables)]
        if system.device:
            texts.append(system.device)
            words += [rf"\b{system.device}\b", f"is_{system.device}"]
        found.append((system, texts, re.compile("|".join(words))))
    return found


def concerned(text: str, target: str) -> list[System]:
    """The systems that a text names, less the one that it is converted for."""
    return [
        system
        for system, texts, pattern in _patterns()
        if system.device != target and any(t in text for t in texts) and pattern.search(text)
    ]
