"""What the tests of the core share: a new Python, and the odd vendors of tests/abi."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "abi")]

import elsewhere  # noqa: E402

Run = Callable[..., str]


@pytest.fixture(scope="session")
def run(run_python) -> Run:
    """Run a program in a new Python and give what it printed.

    `run(code, ops="all", CAUSEWAY_POLICY="warn")`: a name in lower case is a setting of the
    simulated chip. `status=` is the exit status that is right (None: any).
    """

    def run(code: str, *, status: int | None = 0, args: tuple[str, ...] = (), **env: str) -> str:
        variables = elsewhere.variables(env)
        done = run_python(textwrap.dedent(code), status=status, args=args, **variables)
        return done.stdout + done.stderr

    return run


@pytest.fixture(scope="session", autouse=True)
def _pythons_end_with_the_session():
    yield
    elsewhere.stop()
