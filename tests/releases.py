"""Causeway on another release of torch: `make test-torch-next TORCH=2.15.0`.

python tests/releases.py 2.15.0                 # environment, build, all parts, docs/torch.md
python tests/releases.py 2.15.0 tiny device     # only these parts
python tests/releases.py 2.15.0 tiny --python /usr/bin/python3.13   # on another Python
python tests/releases.py --docs                 # docs/torch.md, from releases.json

The environment is build/torch-<release>, with the packages of requirements-dev.txt but for what
looks at sources, and Causeway is built and installed into it as a wheel; .venv is not touched.
Wheels of torch on PyPI are builds for CUDA that run without a GPU. They link to CUDA's libraries,
so these are installed too; what `import torch` does without is not. About 5 GB; remove the folder
when done.
Not part of `make test`: it takes an hour on two cores.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from junit import cases

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).with_name("releases.json")
PAGE = ROOT / "docs" / "torch.md"
BLOCK = re.compile(r"(<!-- from tests/releases.json -->\n).*?(\n<!-- end -->)", re.DOTALL)

# Parts in the order in which they run: what pytest is given. `operators` is torch's database.
PARTS = {
    "tiny": ["tests/test_tiny.py"],
    "names": ["tests/migrate/test_knowledge.py"],
    "vendors": ["tests/core/test_loader.py", "tests/abi/test_oldest_header.py"],
    "device": ["tests/device"],
    "torch": ["tests/torch"],
    "operators": [],
    "unit": ["tests/unit"],
    "core": ["tests/core"],
}
# What torch asks for and `import torch` does without: compilers, what is loaded when first used.
UNUSED = ("triton", "cuda-bindings")
UNUSED_EXTRAS = ("cusolver", "nvtx")
# What no test imports: they look at sources, and do so with the torch of requirements-dev.txt.
CHECKERS = ("clang-format", "mypy", "ruff", "torch")
# What is run of torch's database: all kinds of call in one dtype.
DTYPES = "float32"
SINCE = "torch's own function is there since 2.12"
# What fails on a release and stays so: by the release's start and the failure, why.
EXCEPTED: dict[tuple[str, str], str] = {
    ("2.11", "tests.device.test_accelerator.test_the_hosts_cache_is_emptied"): SINCE,
    (
        "2.11",
        "tests.device.test_accelerator.test_a_graph_is_not_captured_on_the_stream_of_all_threads",
    ): SINCE,
    ("2.11", "tests.device.test_memory.test_host_memory_stats"): SINCE,
}


class Environment:
    """build/torch-<release>: a Python with that torch and with Causeway built for it."""

    def __init__(self, release: str, base: Path | None = None) -> None:
        self.release = release
        self.base = base or Path(sys.base_prefix) / "bin" / "python3"
        # A folder and a row of their own where the Python is not the one of .venv.
        self.name = f"{release}-{base.resolve().name}" if base else release
        self.folder = ROOT / "build" / f"torch-{self.name}"
        self.python = self.folder / "bin" / "python"

    def run(self, *command: str | Path, **variables: str) -> int:
        """Run its Python in the root of the tree; give the exit status."""
        environment = os.environ | {"OMP_NUM_THREADS": "1", **variables}
        return subprocess.run(
            [self.python, *command], cwd=ROOT, env=environment, check=False
        ).returncode

    def said(self, program: str) -> str:
        """What a program prints in it, without any backend."""
        environment = os.environ | {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
        command = [self.python, "-c", program]
        return subprocess.run(
            command, env=environment, check=True, capture_output=True, text=True
        ).stdout.strip()

    def pip(self, *what: str) -> None:
        command = [sys.executable, "-m", "pip", "--python", str(self.python), "install", "-q"]
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        subprocess.run([*command, *what], cwd=ROOT, env=os.environ | {"PATH": path}, check=True)

    def make(self) -> None:
        """The environment without Causeway, once."""
        done = self.folder / "deps.ok"
        if done.exists():
            return
        command = [str(self.base), "-m", "venv", "--without-pip", str(self.folder)]
        subprocess.run(command, check=True)
        self.pip("--no-deps", "--no-cache-dir", f"torch=={self.release}")
        asked = self.said("import importlib.metadata as m; print('\\n'.join(m.requires('torch')))")
        if libraries := of_torch(asked.splitlines()):
            self.pip("--no-cache-dir", *libraries)
        pins = [
            line
            for line in (ROOT / "requirements-dev.txt").read_text().splitlines()
            if line and line[0] != "#" and line.partition("==")[0] not in CHECKERS
        ]
        self.pip("--no-deps", *pins)
        done.touch()

    def build(self, jobs: int) -> None:
        """Causeway, as its wheel is built, in a folder that is kept."""
        os.environ.setdefault("CMAKE_BUILD_PARALLEL_LEVEL", str(jobs))
        own = ["--no-deps", "--no-build-isolation", "--no-index", "--force-reinstall"]
        self.pip(*own, "-C", f"build-dir={self.folder / 'cmake'}", ".")


def of_torch(requirements: list[str]) -> list[str]:
    """What torch needs of what its wheel asks for, and requirements-dev.txt has not."""
    found = []
    for line in requirements:
        requirement = line.partition(";")[0].strip()
        match = re.match(r"[\w.-]+", requirement)
        name = match[0] if match else ""
        if not name.startswith(("cuda", "nvidia", "setuptools")) or name in UNUSED:
            continue
        if extras := re.fullmatch(r"cuda-toolkit\[(.*)\](.*)", requirement):
            kept = [extra for extra in extras[1].split(",") if extra not in UNUSED_EXTRAS]
            requirement = f"cuda-toolkit[{','.join(kept)}]{extras[2]}"
        found.append(requirement)
    return found


def run_tests(environment: Environment, name: str, workers: int) -> dict[str, Any]:
    """Run a part by pytest; give how many passed, failed, were skipped, and which failed."""
    junit = environment.folder / f"{name}.xml"
    junit.unlink(missing_ok=True)
    command = ["-m", "pytest", "-q", f"-n{workers}", "--dist=worksteal", "-m", "not long"]
    # A cache of its own: vendors' libraries that tests build lie there.
    command += [f"--junitxml={junit}", "-o", f"cache_dir={environment.folder / 'pytest'}"]
    status = environment.run(*command, *PARTS[name], PYTHONFAULTHANDLER="1")
    if not junit.exists():
        return {"passed": 0, "failed": 1, "skipped": 0, "failures": [f"pytest ended with {status}"]}
    found: dict[str, Any] = {"passed": 0, "failed": 0, "skipped": 0, "failures": []}
    for case in cases(junit):
        found[case.outcome] += 1
        if case.outcome == "failed":
            found["failures"].append(f"{case.classname}.{case.name}")
    if status != 0 and not found["failed"]:
        found |= {"failed": 1, "failures": [f"pytest ended with {status}"]}
    return found


def run_operators(environment: Environment, workers: int) -> dict[str, Any]:
    """torch's database of operators; the cells that fail are named."""
    path = environment.folder / "operators.json"
    path.unlink(missing_ok=True)
    script = str(ROOT / "tests" / "torch" / "operators.py")
    environment.run(script, "-n", str(workers), "--dtypes", DTYPES, "--json", path, TEST_ALL="1")
    written = json.loads(path.read_text())
    counts = {kind: rows for kind, rows in written["counts"].items() if rows.get(DTYPES)}
    cells = [row[DTYPES] for row in counts.values()]
    return {
        "passed": sum(cell["passed"] for cell in cells),
        "failed": sum(cell["failed"] for cell in cells),
        "skipped": sum(cell["excepted"] for cell in cells),
        "kinds": {kind: row[DTYPES]["passed"] for kind, row in counts.items()},
        "failures": [
            f"{cell['operator']} {cell['kind']} {cell['dtype']}"
            for cell in written["cells"]
            if cell["status"] == "failed"
        ],
    }


def commit() -> str:
    """The commit that is run, `+` where the tree differs from it (but for what is written here)."""

    def git(*command: str) -> str:
        done = subprocess.run(
            ["git", *command], cwd=ROOT, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    written = [f":!{path.relative_to(ROOT)}" for path in (RESULTS, PAGE)]
    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", *written)
    return git("rev-parse", "--short=7", "HEAD") + ("+" if changed else "")


def recorded() -> dict[str, Any]:
    """What releases.json has, by release."""
    found: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    return found


def excepted(release: str, failure: str) -> str:
    """Why a failure on a release stays; empty: it is to be mended."""
    reasons = (
        EXCEPTED[key] for key in EXCEPTED if release.startswith(key[0]) and key[1] == failure
    )
    return next(reasons, "")


def markdown(results: dict[str, Any]) -> str:
    """The tables of docs/torch.md: a row for each release, then what failed on it."""
    titles = ["torch", "Python", "run on", "commit", *PARTS]
    lines = ["| " + " | ".join(titles) + " |", "|" + " --- |" * len(titles)]
    failures = []
    for release, result in sorted(results.items()):
        cells = []
        for name in PARTS:
            part = result["parts"].get(name)
            text = "not run"
            if part:
                reasons = {failure: excepted(release, failure) for failure in part["failures"]}
                kept = sum(map(bool, reasons.values()))
                text = f"{part['passed']} passed"
                text += f", {part['failed'] - kept} failed" if part["failed"] > kept else ""
                text += f", {kept} excepted" if kept else ""
                text += f", {part['skipped']} left out" if part["skipped"] else ""
                for failure, reason in reasons.items():
                    told = f"excepted: {reason}" if reason else "failed"
                    failures.append(f"- torch {release}: `{failure}` {told}")
            cells.append(text)
        dates = sorted({part["date"] for part in result["parts"].values()})
        when = " to ".join(dict.fromkeys([dates[0], dates[-1]]))
        commits = ", ".join(dict.fromkeys(part["commit"] for part in result["parts"].values()))
        row = [result["torch"], result["python"], when, commits, *cells]
        lines.append("| " + " | ".join(row) + " |")
    if not results:
        failures = ["Nothing was run yet."]
    return "\n".join([*lines, "", *(failures or ["Nothing that was run failed."])])


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("release", nargs="?", help="2.15.0")
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; none: all")
    parser.add_argument("--docs", action="store_true", help="only write docs/torch.md")
    parser.add_argument("--markdown", action="store_true", help="only print its tables")
    parser.add_argument("--python", type=Path, help="another interpreter; without: .venv's")
    parser.add_argument("-n", type=int, default=2, help="processes")
    given = parser.parse_args()
    if unknown := set(given.parts) - PARTS.keys():
        parser.error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    if not (given.release or given.docs or given.markdown):
        parser.error("which release of torch? for example 2.15.0")
    failed = 0
    if given.release:
        environment = Environment(given.release, given.python)
        environment.make()
        environment.build(given.n)
        of = {
            "torch": environment.said("import torch; print(torch.__version__)"),
            "python": environment.said("import platform; print(platform.python_version())"),
        }
        for name in given.parts or PARTS:
            run = run_tests if PARTS[name] else None
            found = run(environment, name, given.n) if run else run_operators(environment, given.n)
            found["commit"] = commit()
            found["date"] = datetime.datetime.now(datetime.UTC).date().isoformat()
            failed += sum(not excepted(environment.name, failure) for failure in found["failures"])
            # After each part: what was run is not lost with what comes after it. Read anew, another
            # release may have run beside this one.
            results = recorded()
            result = results.setdefault(environment.name, {"parts": {}})
            result |= of
            result["parts"][name] = found
            RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
    results = recorded()
    if not given.markdown:
        PAGE.write_text(BLOCK.sub(lambda m: m[1] + markdown(results) + m[2], PAGE.read_text()))
    print(markdown(results))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
