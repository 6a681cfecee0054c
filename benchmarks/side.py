"""Sides of a benchmark that are processes of their own, such as a torch without Causeway.

A side says what it is as a line of JSON; then, for each line "NAME CALLS" of its input, the seconds
of a call.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence


def stock() -> dict[str, str]:
    """An environment for a side without Causeway: its Python may be this one, whose torch would
    load Causeway, and our side's folders are none of its own.
    """
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("CAUSEWAY_", "PYTHON"))}
    return clean | {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}


class Side:
    """A process that times what it is asked for, one thing after the other."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self.command = command
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.about: dict[str, str] = json.loads(self._line())

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            status = self.process.wait()
            sys.exit(f"{' '.join(self.command)} ended with {status}; its words are above")
        return line

    def seconds(self, case: str, calls: int) -> float:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{case} {calls}\n")
        self.process.stdin.flush()
        return float(self._line())

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()
