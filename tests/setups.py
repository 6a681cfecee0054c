"""Run the tests: `python tests/setups.py suite daily`, or `fast`, or the names of single set-ups.

`suite` is every test once, on the simulated chip as it comes; `long` are those that are left out
there for their time. The set-ups run tests/device again on other chips, but for what is marked
`once`: other memory models, work done later, other sets of operators, nothing but memory. `setups`
has each of these alone, `daily` all in fewer runs. `opencl-fine` and `opencl-buffer` run on
OpenCL's devices, where `make opencl` has put the vendor's package on PYTHONPATH; `vendor` on the
one that CAUSEWAY_VENDOR names.
Two processes at a time, a thread each. A few tests that fail are run once more, alone, to say
whether they fail then too; the run has failed all the same. At the end are the ten slowest and what
failed; the last line counts all that ran.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent
DEVICE = ("tests/test_tiny.py", "tests/device")
OTHER = "not once and not long"


@dataclass(frozen=True)
class Run:
    tests: tuple[str, ...]
    sim: dict[str, str] = field(default_factory=dict)
    marked: str = ""
    vendor: dict[str, str] = field(default_factory=dict)  # of another chip, as they are


RUNS = {
    "suite": Run(("tests",), {}, "not long"),
    "long": Run(("tests",), {}, "long"),
    "unified-inline": Run(
        DEVICE, {"MEMORY_MODEL": "unified", "EXECUTION": "inline", "OPS": "all"}, OTHER
    ),
    "unified-async": Run(
        DEVICE, {"MEMORY_MODEL": "unified", "EXECUTION": "async", "OPS": "none"}, OTHER
    ),
    "discrete-async": Run(
        DEVICE, {"MEMORY_MODEL": "discrete", "EXECUTION": "async", "OPS": "all"}, OTHER
    ),
    "dense": Run(DEVICE, {"OPS": "all", "DENSE": "1"}, OTHER),
    "discrete-async-dense": Run(
        DEVICE,
        {"MEMORY_MODEL": "discrete", "EXECUTION": "async", "OPS": "all", "DENSE": "1"},
        OTHER,
    ),
    "level-0": Run(DEVICE, {"LEVEL": "0"}, OTHER),
    "opencl-fine": Run(DEVICE, {}, OTHER, {"CAUSEWAY_VENDOR": "opencl"}),
    "opencl-buffer": Run(
        DEVICE,
        {},
        OTHER,
        {
            "CAUSEWAY_VENDOR": "opencl",
            "CAUSEWAY_OPENCL_MEMORY_MODEL": "buffer",
            "POCL_DEVICES": "pthread pthread",
        },
    ),
    # Whatever CAUSEWAY_VENDOR says: a vendor's library from anywhere.
    "vendor": Run(DEVICE, {}, OTHER),
    "fast": Run(
        ("tests/test_tiny.py", "tests/unit", "tests/device"),
        {},
        "not slow and not process and not long",
    ),
}
GROUPS = {
    "setups": ["unified-inline", "unified-async", "discrete-async", "dense", "level-0"],
    # What differs from the suite's chip, in as few runs as have it all: for every day.
    "daily": ["unified-async", "discrete-async-dense", "level-0"],
}
Counts = dict[str, int]
FEW = 5  # failures, of which others may be the reason


def junit_of(name: str) -> Path:
    return ROOT / "build" / f"tests-{name}.xml"


def counted(junit: Path) -> Counts:
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    if junit.exists():
        for suite in ElementTree.parse(junit).iter("testsuite"):
            tests, skipped = int(suite.get("tests", 0)), int(suite.get("skipped", 0))
            failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
            counts["passed"] += tests - skipped - failed
            counts["failed"] += failed
            counts["skipped"] += skipped
    return counts


def failures(junit: Path, name: str, lines: int = 12) -> list[str]:
    """What failed, each test with its set-up and the end of its error: the last part of a long
    output is what is kept of it."""
    found = []
    for case in ElementTree.parse(junit).iter("testcase") if junit.exists() else ():
        for fault in [*case.iter("failure"), *case.iter("error")]:
            said = (fault.text or fault.get("message") or "").strip().splitlines()[-lines:]
            found.append(f"{case.get('classname')}::{case.get('name')} ({name})")
            found += [f"    {line}" for line in said]
    return found


@dataclass
class Result:
    counts: Counts
    failed: list[str]  # lines, as of `failures`


def run(name: str) -> Result:
    """Run pytest for one set-up."""
    plan = RUNS[name]
    command = [sys.executable, "-m", "pytest", "-q"]
    if plan.marked:
        command += ["-m", plan.marked]
    environment = os.environ | {f"CAUSEWAY_SIM_{key}": value for key, value in plan.sim.items()}
    environment |= plan.vendor
    environment |= {"OMP_NUM_THREADS": "1", "PYTHONFAULTHANDLER": "1"}
    print(f"--- {name}: {' '.join(plan.tests)} {plan.sim or plan.vendor or ''}", flush=True)

    def pytest(junit: Path, *options: str) -> tuple[int, Counts]:
        junit.unlink(missing_ok=True)
        given = [*command, *options, f"--junitxml={junit}", *plan.tests]
        status = subprocess.run(given, cwd=ROOT, env=environment, check=False).returncode
        return status, counted(junit)

    junit = junit_of(name)
    status, counts = pytest(junit, "-n2", "--dist=worksteal")
    result = Result(counts, failures(junit, name))
    if 0 < counts["failed"] <= FEW:
        junit = junit_of(f"{name}-alone")
        _, alone = pytest(junit, "--last-failed", "--last-failed-no-failures=none")
        text = ", ".join(f"{count} {key}" for key, count in alone.items())
        result.failed.append(f"Run once more, alone: {text}")
    if status != 0 and counts["failed"] == 0:
        counts["failed"] = (
            1  # pytest itself failed: nothing collected, a worker died, a wrong option
        )
    return result


def slowest(names: list[str], count: int = 10) -> list[str]:
    """The tests that took longest, of all set-ups, each with its set-up and its time."""
    took = [
        (float(case.get("time", 0)), f"{case.get('classname')}::{case.get('name')}", name)
        for name in names
        if (junit := junit_of(name)).exists()
        for case in ElementTree.parse(junit).iter("testcase")
    ]
    return [f"{s:6.0f} s   {test} ({name})" for s, test, name in sorted(took, reverse=True)[:count]]


def main(names: list[str]) -> int:
    if "vendor" in names and not os.environ.get("CAUSEWAY_VENDOR"):
        print("vendor: CAUSEWAY_VENDOR says which, a name or a library's path", file=sys.stderr)
        return 2
    order = [name for given in names for name in GROUPS.get(given, [given])]
    unknown = [name for name in order if name not in RUNS]
    if unknown or not order:
        print(f"usage: setups.py {' | '.join([*RUNS, *GROUPS])}", file=sys.stderr)
        return 2
    failed: list[str] = []
    lines, total = [], {"passed": 0, "failed": 0, "skipped": 0}
    for name in order:
        start = time.monotonic()
        result = run(name)
        failed += result.failed
        for key, count in result.counts.items():
            total[key] += count
        text = ", ".join(f"{count} {key}" for key, count in result.counts.items())
        lines.append(f"{name:16} {time.monotonic() - start:6.0f} s   {text}")
    print("\nThe slowest:\n" + "\n".join(slowest(order)))
    if failed:
        print("\nFailed:\n" + "\n".join(failed))
    print("\n" + "\n".join(lines))
    print(", ".join(f"{count} {key}" for key, count in total.items()))
    return 1 if total["failed"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
