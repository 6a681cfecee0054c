"""tests/device/test_graphs.py on the simulated chip with a compiler, in several set-ups."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
Run = Callable[..., subprocess.CompletedProcess[str]]
PROGRAM = (
    f"import pytest, sys; sys.exit(pytest.main(['-q', '-x', '{ROOT}/tests/device/test_graphs.py']))"
)

pytestmark = [pytest.mark.process, pytest.mark.once]


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "sim",
    [
        {},
        {"GRAPHS": "1", "EXECUTION": "async", "MEMORY_MODEL": "discrete"},
        pytest.param({"MEMORY_MODEL": "discrete", "EXECUTION": "async"}, marks=pytest.mark.long),
        pytest.param({"OPS": "all", "EXECUTION": "async"}, marks=pytest.mark.long),
        pytest.param({"OPS": "all", "GRAPHS": "1"}, marks=pytest.mark.long),
    ],
    ids=lambda sim: "-".join(sim.values()) or "as it comes",
)
def test_graphs(run_python: Run, sim: dict[str, str]) -> None:
    env = {f"CAUSEWAY_SIM_{key}": value for key, value in sim.items()}
    said = run_python(PROGRAM, timeout=850, new=True, CAUSEWAY_SIM_CODE="1", **env).stdout
    assert " passed" in said
