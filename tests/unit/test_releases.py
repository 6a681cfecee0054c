"""The runs on other releases of torch: what is installed for them, what their table says."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from pathlib import Path

from causeway import doctor

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "tests"))

import releases


def test_of_what_torch_asks_for_only_what_it_links_to_is_installed() -> None:
    asked = [
        "filelock",
        'cuda-toolkit[cublas,cusolver,cudart,nvtx]==13.2.2; platform_system == "Linux"',
        'cuda-bindings<14,>=13.0.3; platform_system == "Linux"',
        'nvidia-cudnn-cu13==9.26.0.51; platform_system == "Linux"',
        'triton~=3.9.0; platform_system == "Linux"',
        'optree>=0.13.0; extra == "optree"',
    ]
    libraries = ["cuda-toolkit[cublas,cudart]==13.2.2", "nvidia-cudnn-cu13==9.26.0.51"]
    assert releases.cuda_libraries(asked) == libraries
    assert releases.cuda_libraries(["filelock", "sympy>=1.13.3"]) == []


def test_the_table_names_what_failed_and_what_was_not_run() -> None:
    part = {"passed": 3, "failed": 1, "skipped": 2, "failures": ["tests.test_a.test_b"]}
    run = {"torch": "2.15.0+cu132", "python": "3.11.7", "parts": {"tiny": part}}
    table = releases.markdown({"2.15.0": run})
    assert "| 2.15.0+cu132 | 3.11.7 | 3 passed, 1 failed, 2 left out | not run |" in table
    assert table.endswith("- torch 2.15.0: `tests.test_a.test_b`")
    assert releases.markdown({}).endswith("Nothing was run yet.")


def test_the_promise_is_what_was_run() -> None:
    """pyproject.toml, twice, README and doctor name one range, and each release of it was run."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    asked = [*project["build-system"]["requires"], *project["project"]["dependencies"]]
    ranges = {text for text in asked if text.startswith("torch")}
    assert len(ranges) == 1
    oldest, beyond = map(int, re.fullmatch(r"torch>=2\.(\d+),<2\.(\d+)", *ranges).groups())
    newest = beyond - 1
    assert doctor.TORCH == f"2.{oldest} to 2.{newest}"
    assert f"torch {doctor.TORCH} from PyPI" in (ROOT / "README.md").read_text()

    run = {release for release, of in json.loads(releases.RESULTS.read_text()).items()
           if {"tiny", "device", "operators"} <= of["parts"].keys()}  # fmt: skip
    pins = (ROOT / "requirements-dev.txt").read_text()
    run.add(re.search(r"^torch==(\S+)", pins, re.MULTILINE)[1])  # by `make test`
    missing = {f"2.{n}" for n in range(oldest, beyond)} - {release.rpartition(".")[0] for release in run}
    assert not missing, "no run of these is in tests/releases.json"
