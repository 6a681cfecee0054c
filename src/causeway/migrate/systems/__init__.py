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
    found = {"mindspore"}
    for system in systems().values():
        found |= set(system.packages) | set(system.backends)
        found |= {rf"\b{name}\b" for name in system.variables if name not in COMMON}
        found |= {rf"\b{system.device}\b", f"is_{system.device}"} if system.device else set()
    return re.compile("|".join(sorted(found)).encode())


def concerned(text: str, target: str) -> list[System]:
    """The systems that a text names, less the one that it is converted for."""
    found = []
    for system in systems().values():
        plain = "|".join([*system.packages, *system.backends])
        if system.device:
            plain += rf"|\b{system.device}\b|is_{system.device}"
        named = [name for name in system.variables if name not in COMMON]
        pattern = rf"{plain}|\b(?:{'|'.join(named)})\b" if named else plain
        if system.device != target and re.search(pattern, text):
            found.append(system)
    return found
