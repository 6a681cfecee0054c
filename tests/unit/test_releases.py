"""The runs on other releases of torch: what is installed for them, what their table says."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

from causeway import doctor

sys.path.append(str(Path(__file__).parents[1]))

import releases

ROOT = Path(__file__).parents[2]


def test_of_what_torch_asks_for_only_what_it_needs_is_installed() -> None:
    asked = [
        "filelock",
        "setuptools>=77.0.3",
        'cuda-toolkit[cublas,cusolver,cudart,nvtx]==13.2.2; platform_system == "Linux"',
        'cuda-bindings<14,>=13.0.3; platform_system == "Linux"',
        'nvidia-cudnn-cu13==9.26.0.51; platform_system == "Linux"',
        'triton~=3.9.0; platform_system == "Linux"',
        'optree>=0.13.0; extra == "optree"',
    ]
    libraries = [
        "setuptools>=77.0.3",
        "cuda-toolkit[cublas,cudart]==13.2.2",
        "nvidia-cudnn-cu13==9.26.0.51",
    ]
    assert releases.of_torch(asked) == libraries
    assert releases.of_torch(["filelock", "sympy>=1.13.3"]) == []


def test_the_table_names_what_failed_and_what_was_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    failures = ["tests.test_a.test_b", "tests.test_a.test_c"]
    part = {"passed": 3, "failed": 2, "skipped": 2, "failures": failures}
    part |= {"date": "2026-11-24", "commit": "fd48b9b"}
    run = {"torch": "2.15.0+cu132", "python": "3.11.7", "parts": {"tiny": part}}
    monkeypatch.setattr(releases, "EXCEPTED", {("2.15", "tests.test_a.test_c"): "torch lacks it"})
    table = releases.markdown({"2.15.0": run})
    cell = "3 passed, 1 failed, 1 excepted, 2 left out"
    assert f"| 2.15.0+cu132 | 3.11.7 | 2026-11-24 | fd48b9b | {cell} | not run |" in table
    assert "- torch 2.15.0: `tests.test_a.test_b` failed\n" in table
    assert table.endswith("- torch 2.15.0: `tests.test_a.test_c` excepted: torch lacks it")
    assert not releases.excepted("2.14.0", "tests.test_a.test_c")
    assert releases.markdown({}).endswith("Nothing was run yet.")


def test_what_failed_has_its_reason_and_each_reason_a_failure() -> None:
    failed = [(release, failure) for release, of in releases.recorded().items()
              for part in of["parts"].values() for failure in part["failures"]]  # fmt: skip
    assert not [each for each in failed if not releases.excepted(*each)]
    used = {(start, failure) for release, failure in failed for start, name in releases.EXCEPTED
            if name == failure and release.startswith(start)}  # fmt: skip
    assert used == releases.EXCEPTED.keys()


def test_the_page_has_the_table_of_what_was_run() -> None:
    assert releases.markdown(releases.recorded()) in releases.PAGE.read_text()


def spoken(minors: list[int]) -> str:
    """The releases 2.<minor> in words: 2.11 to 2.13 and 2.15."""
    runs: list[list[int]] = []
    for minor in minors:
        if runs and runs[-1][-1] == minor - 1:
            runs[-1].append(minor)
        else:
            runs.append([minor])
    words = [f"2.{run[0]} to 2.{run[-1]}" if len(run) > 1 else f"2.{run[0]}" for run in runs]
    return " and ".join(words)


def test_the_promise_is_what_was_run() -> None:
    """pyproject.toml, twice, README and doctor name the same releases, and each of them was run."""
    assert spoken([11, 12, 13, 15]) == "2.11 to 2.13 and 2.15"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    asked = [*project["build-system"]["requires"], *project["project"]["dependencies"]]
    ranges = {text for text in asked if text.startswith("torch")}
    assert len(ranges) == 1
    specifiers = SpecifierSet(ranges.pop().removeprefix("torch"))
    promised = [minor for minor in range(100) if f"2.{minor}.0" in specifiers]
    assert "2.99.0" not in specifiers
    assert spoken(promised) == doctor.TORCH
    assert f"torch {doctor.TORCH} from PyPI" in (ROOT / "README.md").read_text()

    run = {of["torch"] for of in releases.recorded().values()
           if {"tiny", "device", "operators"} <= of["parts"].keys()}  # fmt: skip
    pins = (ROOT / "requirements-dev.txt").read_text()
    run.add(re.search(r"^torch==(\S+)", pins, re.MULTILINE)[1])  # by `make test`
    missing = {f"2.{minor}" for minor in promised} - {text[:4] for text in run}
    assert not missing, "no run of these is in tests/releases.json"
