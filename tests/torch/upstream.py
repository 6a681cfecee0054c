"""torch's own test files, unmodified, on the device, for those who have them.

    python tests/torch/upstream.py --tests path/to/pytorch/test [-n 2] [test_view_ops.py ...]
    python tests/torch/upstream.py --tests path/to/pytorch/test test_ops.py --only test_out

They are not in torch's wheel: take the folder `test` of pytorch's sources of the same version. Each
file runs on the device; what fails runs again on the CPU under the name that it has there, and
counts as a failure only where the CPU passes. upstream.toml lists those that may fail, and why.
`--only` is pytest's -k: test_ops.py whole takes a day.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch

sys.path.append(str(Path(__file__).parents[1]))

from junit import cases

HERE = Path(__file__).parent
LIST = HERE / "upstream.toml"
MOST_EXCEPTED = 20
NAME = torch._C._get_privateuse1_backend_name()
DEVICE = rf"_({NAME}|privateuse1)(?=_|$)"  # in the name of a test
FILES = ("test_view_ops.py", "test_shape_ops.py", "test_dlpack.py")  # where none is named

Test = tuple[str, str]  # class and name


@dataclass
class Report:
    """What came of a file. `cpu_too`: failed on the CPU as well, or has no name there."""

    file: str
    passed: int = 0
    failed: int = 0
    excepted: int = 0
    cpu_too: int = 0
    skipped: int = 0
    seconds: int = 0
    failures: list[str] = field(default_factory=list)


def on_cpu(test: Test) -> Test:
    """The name of a test of the device on the CPU.

    The first class of a file is called TestFooPRIVATEUSE1; after its setUpClass the device has its
    own name, and the next is called TestFooSIM.
    """
    kind, name = test
    kind = re.sub(rf"(PRIVATEUSE1|{NAME.upper()})$", "CPU", kind)
    name = re.sub(DEVICE, "_cpu", name)
    return kind, name


def plain(test: Test) -> str:
    """`TestFoo.test_add_float32`: a test without the device."""
    kind = on_cpu(test)[0].removesuffix("CPU")
    return f"{kind}.{re.sub(DEVICE, '', test[1])}"


class Runner:
    """pytest over torch's files, in the folder that they are in."""

    def __init__(self, tests: Path, workers: int, limit_s: int, only: str = "") -> None:
        self.tests, self.workers, self.limit_s, self.only = tests, workers, limit_s, only

    def run(self, device: str, arguments: list[str]) -> dict[Test, str]:
        """The outcome of each test: passed, failed or skipped."""
        with tempfile.TemporaryDirectory() as folder:
            chosen = ["-k", self.only] if self.only else []
            junit, ids = Path(folder) / "junit.xml", Path(folder) / "ids"
            ids.write_text("\n".join(arguments))
            options = ["-n", str(self.workers), "--timeout", str(self.limit_s), "--dist=worksteal"]
            self._pytest(device, [*options, *chosen, f"--junitxml={junit}", f"@{ids}"])
            return outcomes(junit) if junit.exists() else {}

    def collect(self, device: str, file: str) -> set[str]:
        """The node ids of a file."""
        printed = self._pytest(device, ["--collect-only", file])
        return {line for line in printed.splitlines() if "::" in line}

    def _pytest(self, device: str, arguments: list[str]) -> str:
        environment = os.environ | {
            "PYTORCH_TESTING_DEVICE_ONLY_FOR": device,
            "OMP_NUM_THREADS": "1",
            "PYTHONFAULTHANDLER": "1",
            "PYTHONPATH": str(self.tests),
        }
        fixed = ["-q", "-p", "no:cacheprovider", "-o", "addopts=", "--tb=short"]
        command = [sys.executable, "-m", "pytest", *fixed, *arguments]
        done = subprocess.run(
            command, cwd=self.tests, env=environment, capture_output=True, text=True, check=False
        )
        return done.stdout


def outcomes(junit: Path) -> dict[Test, str]:
    """What a file of pytest says of each test, by class and name."""
    found: dict[Test, str] = {}
    for case in cases(junit):
        test = (case.classname.rpartition(".")[2], case.name)
        # With a failure in its teardown a test comes twice.
        if found.get(test) != "failed":
            found[test] = case.outcome
    return found


@dataclass(frozen=True)
class Excepted:
    """A pattern of names in a file, and why they may fail."""

    file: str
    name: str
    reason: str


def excepted() -> list[Excepted]:
    """The patterns of upstream.toml."""
    entries: list[dict[str, Any]] = tomllib.loads(LIST.read_text()).get("test", [])
    if len(entries) > MOST_EXCEPTED:
        raise ValueError(f"{LIST.name} has {len(entries)} entries, more than {MOST_EXCEPTED}")
    patterns = []
    for entry in entries:
        if set(entry) != {"tests", "reason"} or not entry["reason"] or not entry["tests"]:
            raise ValueError(f"{LIST.name}: an entry is tests and their reason, not {entry}")
        for test in entry["tests"]:
            file, _, name = test.partition(" ")
            patterns.append(Excepted(file, name, entry["reason"]))
    return patterns


def check(file: str, runner: Runner, entries: list[Excepted]) -> Report:
    """Run a file on the device, and what fails there on the CPU."""
    start, report = time.monotonic(), Report(file)
    found = runner.run("privateuse1", [file])
    counts = Counter(found.values())
    report.passed, report.skipped = counts["passed"], counts["skipped"]
    failed = [test for test, outcome in found.items() if outcome == "failed"]
    if not found:
        report.failed, report.failures = 1, ["no test ran: see what pytest says"]
    passes = passing_on_cpu(file, failed, runner) if failed else set()
    used: set[Excepted] = set()
    for test in failed:
        name = plain(test)
        entry = next((e for e in entries if e.file == file and fnmatchcase(name, e.name)), None)
        if on_cpu(test) not in passes:
            report.cpu_too += 1
        elif entry is not None:
            used.add(entry)
            report.excepted += 1
        else:
            report.failures.append(name)
            report.failed += 1
    for entry in entries:
        if entry.file == file and entry not in used and not runner.only:
            report.failures.append(f"{entry.name} does not fail: take it out of {LIST.name}")
            report.failed += 1
    report.seconds = round(time.monotonic() - start)
    return report


def passing_on_cpu(file: str, failed: list[Test], runner: Runner) -> set[Test]:
    """Those of the failed that pass on the CPU, by their names there."""
    there = runner.collect("cpu", file)
    wanted = {"::".join((file, *on_cpu(test))) for test in failed}
    ids = sorted(wanted & there)
    found = runner.run("cpu", ids) if ids else {}
    return {test for test, outcome in found.items() if outcome == "passed"}


COLUMNS = ("passed", "failed", "excepted", "cpu_too", "skipped", "seconds")


def table(reports: list[Report]) -> str:
    width = max(len(report.file) for report in reports)
    lines = [f"{'file':{width}} " + " ".join(f"{column:>8}" for column in COLUMNS)]
    rows = [(report.file, asdict(report)) for report in reports]
    total: dict[str, Any] = {c: sum(row[c] for _, row in rows) for c in COLUMNS}
    for name, row in [*rows, ("total", total)]:
        lines.append(f"{name:{width}} " + " ".join(f"{row[column]:8}" for column in COLUMNS))
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description="torch's own test files on the device")
    parser.add_argument("files", nargs="*", default=FILES, help="relative to --tests")
    parser.add_argument("--tests", type=Path, help="the folder `test` of pytorch's sources")
    parser.add_argument("-n", type=int, default=2, help="processes")
    parser.add_argument("--timeout", type=int, default=120, help="seconds for a test")
    parser.add_argument("--only", default="", help="pytest's -k: the tests whose names fit")
    parser.add_argument("--json", type=Path, help="write the reports here")
    given = parser.parse_args()
    missing = [f for f in given.files if given.tests and not (given.tests / f).exists()]
    if given.tests is None or missing:
        what = f"{given.tests} has no {', '.join(missing)}" if missing else "no --tests given"
        print(
            f"{what}. torch's wheel does not hold torch's tests: give --tests the folder `test` of "
            f"pytorch's sources of version {torch.__version__.partition('+')[0]}.",
            file=sys.stderr,
        )
        return 2
    runner = Runner(given.tests.resolve(), given.n, given.timeout, given.only)
    entries = excepted()
    reports = []
    for file in given.files:
        reports.append(check(file, runner, entries))
        for name in reports[-1].failures:
            print(f"FAILED {file} {name}", flush=True)
    print(table(reports))
    if given.json:
        given.json.write_text(json.dumps([asdict(report) for report in reports], indent=1) + "\n")
    return 1 if any(report.failed for report in reports) else 0


if __name__ == "__main__":
    sys.exit(main())
