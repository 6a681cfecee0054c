"""Others' test suites: what counts as a failure, and what the page says."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[1] / "suites"))

suites: Any = importlib.import_module("run")


def test_what_passes_on_the_cpu_and_fails_on_the_device_is_a_failure() -> None:
    cpu = {
        "a::same": "passed",
        "a::worse": "passed",
        "a::known": "passed",
        "a::gone": "passed",
        "a::both": "failed: no network",
        "a::cuda": "skipped",
        "a::cuda_fails": "skipped",
        "a::never": "skipped",
    }
    device = {
        "a::same": "passed",
        "a::worse": "failed: 1 != 2",
        "a::known": "failed: sim is not in ['cuda', 'mps']",
        "a::both": "failed: no network",
        "a::cuda": "passed",
        "a::cuda_fails": "failed: 3 != 4",
        "a::never": "skipped",
        "a::new": "failed: 5 != 6",
    }
    row = suites.judge(cpu, device, {r"not in \['cuda'": "a list of devices"})
    assert row["failures"] == ["a::worse", "a::gone", "a::cuda_fails", "a::new"]
    assert row["excepted"] == {"a::known": "a list of devices"}
    counts = {kind: row[kind] for kind in ("same", "device_only", "cpu_fails", "skipped")}
    assert counts == {"same": 1, "device_only": 1, "cpu_fails": 1, "skipped": 1}


def test_a_run_that_left_no_results_is_no_success() -> None:
    assert suites.judge({"a::b": "passed"}, {}, {})["failures"] == ["a::b"]


def test_results_are_read_from_what_pytest_writes(tmp_path: Path) -> None:
    junit = tmp_path / "junit.xml"
    junit.write_text(
        """<testsuites><testsuite>
        <testcase classname="a" name="good"/>
        <testcase classname="a" name="bad"><failure message="1 != 2">...</failure></testcase>
        <testcase classname="a" name="broken"><error message="no module"/></testcase>
        <testcase classname="a" name="left"><skipped message="no CUDA"/></testcase>
        <testcase classname="a" name="left_open"><error message="on teardown"/></testcase>
        <testcase classname="a" name="left_open"/>
        </testsuite></testsuites>"""
    )
    assert suites.read(junit) == {
        "a::good": "passed",
        "a::bad": "failed: 1 != 2",
        "a::broken": "failed: no module",
        "a::left": "skipped",
        "a::left_open": "failed: on teardown",
    }


def test_the_page_has_the_table_of_what_was_run() -> None:
    assert suites.markdown(suites.recorded()) in suites.PAGE.read_text()


@pytest.mark.parametrize("name", suites.suites())
def test_each_suite_says_how_it_is_run(name: str) -> None:
    suite = suites.suites()[name]
    assert suite["way"] in suites.WAYS
    assert suite["tests"]
    assert {"release", "needs"} <= suite.keys()
