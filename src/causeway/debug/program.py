"""Runs a user's program in this process, as `python script.py` would."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from pathlib import Path


def run(script: str, args: Sequence[str], *, module: bool = False) -> None:
    """Run a script, or a module by its name, as __main__ with `args`. What it raises, SystemExit
    too, reaches the caller; sys.argv and sys.path are put back.
    """
    argv, path = sys.argv, list(sys.path)
    sys.argv = [script, *args]
    try:
        if module:
            sys.path.insert(0, "")
            runpy.run_module(script, run_name="__main__", alter_sys=True)
        else:
            sys.path.insert(0, str(Path(script).resolve().parent))
            runpy.run_path(script, run_name="__main__")
    finally:
        sys.argv, sys.path[:] = argv, path
