"""The runner of torch's own test files: names, and what it says of a failure."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import upstream

# Two classes as torch's files have them: one test fails on the device alone, one everywhere.
FILE = """
import torch
from torch.testing._internal.common_device_type import instantiate_device_type_tests, dtypes
from torch.testing._internal.common_utils import TestCase

class TestFirst(TestCase):
    def test_passes(self, device):
        assert torch.ones(1, device=device).item() == 1

    @dtypes(torch.float32, torch.int64)
    def test_only_on_cpu(self, device, dtype):
        assert "cpu" in device

class TestSecond(TestCase):
    def test_only_on_cpu(self, device):
        assert "cpu" in device

    def test_fails_everywhere(self, device):
        raise AssertionError

    def test_skipped(self, device):
        self.skipTest("always")

instantiate_device_type_tests(TestFirst, globals())
instantiate_device_type_tests(TestSecond, globals())
"""


@pytest.mark.parametrize(
    ("there", "cpu"),
    [
        (("TestAPRIVATEUSE1", "test_x_sim"), ("TestACPU", "test_x_cpu")),
        (("TestASIM", "test_x_sim_float32"), ("TestACPU", "test_x_cpu_float32")),
        (("TestA", "test_simple"), ("TestA", "test_simple")),
    ],
)
def test_a_test_is_found_under_its_name_on_the_cpu(there, cpu) -> None:
    assert upstream.on_cpu(there) == cpu


def test_a_name_without_the_device() -> None:
    assert upstream.plain(("TestASIM", "test_x_sim_float32")) == "TestA.test_x_float32"


@pytest.mark.long
def test_only_what_the_cpu_passes_counts_as_a_failure(tmp_path: Path) -> None:
    (tmp_path / "test_small.py").write_text(FILE)
    runner = upstream.Runner(tmp_path, 0, 60)
    entries = [
        upstream.Excepted("test_small.py", name, "for this test")
        for name in ("TestSecond.test_only_on_cpu", "TestSecond.test_gone")
    ]
    report = upstream.check("test_small.py", runner, entries)
    assert (report.passed, report.skipped, report.cpu_too, report.excepted) == (1, 1, 1, 1)
    assert report.failures == [
        "TestFirst.test_only_on_cpu_float32",
        "TestFirst.test_only_on_cpu_int64",
        "TestSecond.test_gone does not fail: take it out of upstream.toml",
    ]
    assert "test_small.py" in upstream.table([report])
    runner.only = "int64 or test_skipped"
    found = runner.run("privateuse1", ["test_small.py"])
    assert sorted(found.values()) == ["failed", "skipped"]


def test_missing_files_are_said(tmp_path: Path) -> None:
    for arguments in ([], ["--tests", str(tmp_path), "test_torch.py"]):
        done = subprocess.run(
            [sys.executable, upstream.__file__, *arguments],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 2
        assert "torch's wheel does not hold torch's tests" in done.stderr


def test_the_list_is_short_and_has_reasons() -> None:
    assert upstream.excepted()
    assert all(pattern.reason and "*" in pattern.name for pattern in upstream.excepted())
