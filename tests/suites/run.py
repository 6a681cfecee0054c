"""Others' test suites on the device: `make test-suites`, not part of `make test`.

python tests/suites/run.py              # all of suites.toml; writes results.json, docs/suites.md
python tests/suites/run.py torchsde     # some
python tests/suites/run.py --docs       # docs/suites.md, from results.json

Each suite comes with a source distribution on PyPI, whose release suites.toml names; it is unpacked
below build/suites, with what it needs beside it, so that .venv stays as it is. It runs twice: on
the CPU, without Causeway, and on the device. What passes on the CPU and fails on the device is a
failure, but for what suites.toml excepts with a reason.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import importlib.metadata
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import urllib.request
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))

from junit import cases

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RESULTS = HERE / "results.json"
PAGE = ROOT / "docs" / "suites.md"
FOLDER = ROOT / "build" / "suites"
BLOCK = re.compile(r"(<!-- from tests/suites/results.json -->\n).*?(\n<!-- end -->)", re.DOTALL)
# How a suite gets to the device.
WAYS = {
    "found": "it asks which device there is",
    "redirect": "it asks torch.cuda, whose calls are redirected",
    "default": "the device is torch's default device",
}
INDEX = "https://pypi.org/simple/{}/"
LIMIT = 900  # seconds of one test, where something hangs


def suites() -> dict[str, dict[str, Any]]:
    """What suites.toml says: release, way, tests, needs, excepted."""
    return tomllib.loads((HERE / "suites.toml").read_text())


def torch_release() -> str:
    return importlib.metadata.version("torch").partition("+")[0]


def source_distribution(name: str, release: str) -> bytes:
    """Download it from PyPI. `pip download` would build its metadata, for which it needs more."""
    accept = {"Accept": "application/vnd.pypi.simple.v1+json"}
    with urllib.request.urlopen(urllib.request.Request(INDEX.format(name), headers=accept)) as page:
        files = json.load(page)["files"]
    ending = f"-{release}.tar.gz"
    file = next((file for file in files if file["filename"].endswith(ending)), None)
    if file is None:
        raise SystemExit(f"PyPI has no source distribution of {name} {release}; see suites.toml")
    with urllib.request.urlopen(file["url"]) as found:
        data: bytes = found.read()
    if hashlib.sha256(data).hexdigest() != file["hashes"]["sha256"]:
        raise SystemExit(f"{file['url']}: the file is not the one that PyPI names; try again")
    return data


def prepare(name: str, suite: dict[str, Any]) -> Path:
    """Unpack the source distribution and install what the suite needs.

    Once: what lies there, with the results of the CPU, counts until the suite or torch changes.
    """
    folder = FOLDER / f"{name}-{suite['release']}"
    done = folder / "ready"
    stamp = json.dumps([torch_release(), suite["tests"], suite["needs"]])
    if done.exists() and done.read_text() == stamp:
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with tarfile.open(fileobj=io.BytesIO(source_distribution(name, suite["release"]))) as tar:
        tar.extractall(folder, filter="data")
    next(path for path in folder.iterdir() if path.is_dir()).rename(folder / "source")
    if suite["needs"]:
        command = [sys.executable, "-m", "pip", "-q", "install", "--no-deps", "--target"]
        subprocess.run([*command, folder / "needs", *suite["needs"]], check=True)
    done.write_text(stamp)
    return folder


def run(suite: dict[str, Any], folder: Path, on_device: bool, jobs: int) -> dict[str, str]:
    """Run the suite once; what became of each test: passed, skipped, or failed and its message."""
    source = folder / "source"
    junit = folder / ("device.xml" if on_device else "cpu.xml")
    junit.unlink(missing_ok=True)
    jobs = 1 if suite.get("alone") else jobs
    arguments = ["-q", "-p", "suite_plugin", f"-n{jobs}", "--dist=loadfile", f"--junitxml={junit}"]
    arguments += ["-o", "addopts=", "-o", "filterwarnings=", "--rootdir", str(source)]
    arguments.append("--continue-on-collection-errors")
    places = [source, folder / "needs", HERE]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(map(str, places)),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "OMP_NUM_THREADS": "1",
        "PYTHONHASHSEED": "0",  # tests that are made from sets: the same ones in all processes
        "HF_HUB_OFFLINE": "1",
        "PYTHONFAULTHANDLER": "1",
        "SUITE_WAY": suite["way"] if on_device else "",
        "SUITE_LIMIT": str(LIMIT),
    }
    if on_device and suite["way"] == "redirect":
        environment["CAUSEWAY_TRANSFER"] = "device"
    if not on_device:
        environment["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    command = [sys.executable, "-m", "pytest", *arguments, *suite["tests"]]
    subprocess.run(command, cwd=source, env=environment, check=False)
    return read(junit) if junit.exists() else {}


def read(junit: Path) -> dict[str, str]:
    """What became of each test of a run."""
    found: dict[str, str] = {}
    for case in cases(junit):
        test = f"{case.classname}::{case.name}"
        # With a failure in its teardown a test comes twice.
        if not found.get(test, "").startswith("failed"):
            failed = case.outcome == "failed"
            found[test] = f"failed: {case.message}" if failed else case.outcome
    return found


def judge(cpu: dict[str, str], device: dict[str, str], excepted: dict[str, str]) -> dict[str, Any]:
    """Count what became of the tests on both, and name those that fail on the device alone.

    `excepted` has expressions that are looked for in a test's name and message, and reasons.
    """
    reasons = {re.compile(pattern): reason for pattern, reason in excepted.items()}
    row: dict[str, Any] = dict.fromkeys(("same", "device_only", "cpu_fails", "skipped"), 0)
    row |= {"failures": [], "excepted": {}}
    for test in {**cpu, **device}:
        before, now = cpu.get(test, "skipped"), device.get(test, "failed: it did not run")
        if now == "passed":
            row["same" if before == "passed" else "device_only"] += 1
        elif before.startswith("failed"):
            row["cpu_fails"] += 1
        elif now == "skipped":
            row["skipped"] += 1
        elif why := next((r for e, r in reasons.items() if e.search(f"{test} {now}")), None):
            row["excepted"][test] = why
        else:
            row["failures"].append(test)
    return row


def measure(name: str, suite: dict[str, Any], jobs: int) -> dict[str, Any]:
    folder = prepare(name, suite)
    kept = folder / "cpu.json"
    if kept.exists():
        cpu = json.loads(kept.read_text())
    else:
        cpu = run(suite, folder, False, jobs)
        kept.write_text(json.dumps(cpu))
    row = judge(cpu, run(suite, folder, True, jobs), suite.get("excepted", {}))
    return {
        "release": suite["release"],
        "way": suite["way"],
        "torch": torch_release(),
        "date": datetime.date.today().isoformat(),
        **row,
    }


def recorded() -> dict[str, Any]:
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def markdown(results: dict[str, Any]) -> str:
    """The table of docs/suites.md, and below it what was excepted and what failed."""
    lines = [
        "| suite | release | how it gets to the device | when, torch | passed as on the CPU | "
        "passed on the device alone | fails on the CPU too | skipped | excepted | failed |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    notes: list[str] = []
    for name, row in sorted(results.items()):
        lines.append(
            f"| {name} | {row['release']} | {WAYS[row['way']]} | {row['date']}, {row['torch']} | "
            f"{row['same']} | {row['device_only']} | {row['cpu_fails']} | {row['skipped']} | "
            f"{len(row['excepted'])} | {len(row['failures'])} |"
        )
        by_reason: dict[str, int] = {}
        for reason in row["excepted"].values():
            by_reason[reason] = by_reason.get(reason, 0) + 1
        notes += [f"- {name}, {n} excepted: {reason}" for reason, n in by_reason.items()]
        notes += [f"- {name}: `{test}` failed" for test in row["failures"]]
    notes += [f"- {name}: not run" for name in sorted(suites().keys() - results.keys())]
    return "\n".join([*lines, *([""] if notes else []), *notes])


def write_page(results: dict[str, Any]) -> None:
    text = PAGE.read_text()
    PAGE.write_text(BLOCK.sub(lambda m: m[1] + markdown(results) + m[2], text))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="SUITE")
    parser.add_argument("--docs", action="store_true", help="only write docs/suites.md")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    results, known = recorded(), suites()
    if unknown := set(options.names) - set(known):
        parser.error(f"no such suite in suites.toml: {', '.join(sorted(unknown))}")
    if not options.docs:
        for name in options.names or known:
            results[name] = measure(name, known[name], options.jobs)
            RESULTS.write_text(json.dumps(dict(sorted(results.items())), indent=1) + "\n")
    write_page(results)
    print(markdown(results))
    return int(any(results[name]["failures"] for name in options.names or results))


if __name__ == "__main__":
    sys.exit(main())
