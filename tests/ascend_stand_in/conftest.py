"""The stand-in libraries, in a fresh process for each test: settings count from its start."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import ascendcl  # noqa: E402


@pytest.fixture
def on_chip() -> Callable[..., str]:
    """on_chip(program, **settings): what a Python program prints that has `acl` and ascendcl.py."""
    if not (ascendcl.LIB / "libascendcl.so").exists():
        pytest.skip("there are no stand-in libraries: make ascend-stand-in")

    def run(program: str, *, dies: bool = False, **settings: str | int) -> str:
        text = "from ascendcl import *\nacl = start()\n" + textwrap.dedent(program)
        environment = dict(os.environ, PYTHONPATH=str(HERE)) | {
            f"ASCEND_STAND_IN_{k}": str(v) for k, v in settings.items()
        }
        done = subprocess.run(
            [sys.executable, "-S", "-c", text],
            env=environment,
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (done.returncode < 0) is dies, done.stderr
        assert dies or done.returncode == 0, done.stderr
        return done.stdout.strip()

    return run
