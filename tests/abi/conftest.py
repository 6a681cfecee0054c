"""Fixtures: the simulated chip built once, a fresh instance of it per test, and odd vendors."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))

import odd_vendors  # noqa: E402
from sim import Sim  # noqa: E402


@pytest.fixture(scope="session")
def sim_library(build_vendor: Callable[[str], Path]) -> Path:
    """libcw_sim.so: the one of CW_SIM_LIBRARY, else the project's if it is fresh, else its own."""
    if given := os.environ.get("CW_SIM_LIBRARY"):
        return Path(given)
    installed = ROOT / "src/causeway/lib/libcw_sim.so"
    sources = [p for pattern in ("*.cpp", "*.hpp") for p in (ROOT / "vendors/sim").rglob(pattern)]
    if installed.exists() and installed.stat().st_mtime > max(p.stat().st_mtime for p in sources):
        return installed
    return build_vendor("sim")


@pytest.fixture
def make_sim(sim_library: Path) -> Callable[..., Sim]:
    """make_sim(execution="async", ...): an instance with these settings."""
    return lambda **settings: Sim(sim_library, **settings)


@pytest.fixture(params=["unified-inline", "unified-async", "discrete-async"])
def sim(request: pytest.FixtureRequest, sim_library: Path) -> Sim:
    """An instance in each of the set-ups, with all operators."""
    memory_model, execution = request.param.split("-")
    return Sim(sim_library, memory_model=memory_model, execution=execution, ops="all")


@pytest.fixture
def run_python(sim_library: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a script in a process of its own; `sim_library` and everything of sim.py are there."""

    def run(script: str, timeout: float = 30) -> subprocess.CompletedProcess[str]:
        head = f"import sys; sys.path.insert(0, {str(HERE)!r})\n"
        head += f"from sim import *\npath = {str(sim_library)!r}\n"
        # The runner's faulthandler would write beside what the chip writes.
        quiet = {k: v for k, v in os.environ.items() if k != "PYTHONFAULTHANDLER"}
        return subprocess.run(
            [sys.executable, "-c", head + script],
            env=quiet,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    return run


@pytest.fixture(scope="session")
def vendor_library(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """vendor_library(name) compiles vendors/<name>.c and gives the path of the library."""
    folder = tmp_path_factory.mktemp("vendors")
    return lambda name: odd_vendors.build(name, folder)
