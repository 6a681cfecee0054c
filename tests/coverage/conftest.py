"""A chip on paper around the simulated chip's library."""

from __future__ import annotations

import functools
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import warm
from causeway import vendor
from causeway.coverage import paper

HERE = Path(__file__).parent
Ledgers = dict[str, Any]


@pytest.fixture(scope="session")
def chip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file for CAUSEWAY_VENDOR."""
    path = tmp_path_factory.mktemp("chip") / "chip.json"
    paper.write_description(path, vendor.sim_library())
    return path


@pytest.fixture(scope="session")
def ledgers() -> Callable[..., Ledgers]:
    """The ledger of each model, in a new process with these settings (CAUSEWAY_... of the name)."""

    @functools.cache
    def run(*arguments: str, **settings: str) -> Ledgers:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("CAUSEWAY_")}
        environment |= {f"CAUSEWAY_{k.upper()}": v for k, v in settings.items()}
        done = warm.run([HERE / "run_models.py", *arguments], env=environment, timeout=280)
        assert done.returncode == 0, done.stderr
        found: Ledgers = json.loads(done.stdout)
        return found

    return run


@pytest.fixture(scope="session")
def causeway_command() -> Callable[..., subprocess.CompletedProcess[str]]:
    """`causeway ARGUMENTS` with these settings."""

    def run(
        *arguments: str, status: int = 0, cwd: Path | None = None, **settings: str
    ) -> subprocess.CompletedProcess[str]:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("CAUSEWAY_")}
        environment |= {f"CAUSEWAY_{k.upper()}": v for k, v in settings.items()}
        environment["COLUMNS"] = "200"
        words = ["-m", "causeway", *arguments]
        done = warm.run(words, env=environment, timeout=280, cwd=cwd)
        assert done.returncode == status, done.stdout + done.stderr
        return done

    return run
