"""The portable kernels' cases on a device on paper, which compiles kernels and runs none."""

from __future__ import annotations

import os
from pathlib import Path

import warm

PORTABLE = Path(__file__).parent / "portable"


def refused(which: str, on_paper: dict[str, str], of: str = "cases") -> list[str]:
    """Cases that do not compile, or that no portable kernel took. Values are not looked at."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("CAUSEWAY_")}
    words = [PORTABLE / f"{of}.py", which, "-" if of == "cases" else "paper"]
    done = warm.run(words, env=environment | on_paper)
    lines = done.stdout.splitlines()
    assert lines, done.stderr
    assert lines[-1].startswith("cases "), lines
    return [line for line in lines[:-1] if "are not close" not in line and "not equal" not in line]
