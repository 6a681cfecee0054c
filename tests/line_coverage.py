"""Which lines the tests run: `python tests/line_coverage.py`, or with pytest's arguments.

Without arguments it is the suite of every day. The Python files are watched by coverage.py, in
every process that a test starts; the core and the simulated chip are built with gcc's counters into
build/coverage and read by gcovr. It prints a row for each room of the tree and writes the pages
build/coverage/python/index.html and build/coverage/c++/index.html, where each line is marked.
All is slower, and a test that compares times may fail: that is said, and is no reason to stop.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import instrumented

ROOT = instrumented.ROOT
FOLDER = ROOT / "build" / "coverage"
TOOLS = FOLDER / "tools"
NEEDS = ("coverage==7.17.5", "gcovr==8.8")
# What coverage.py reads. `multiprocessing` that forks, and os._exit, write their counts too.
SETTINGS = """[run]
branch = true
parallel = true
data_file = {folder}/data/python
source_pkgs = causeway
patch = fork, _exit

[paths]
source =
    {root}/src/causeway
    {folder}/package/causeway

[report]
exclude_also =
    if TYPE_CHECKING:
    ^\\s*\\.\\.\\.$
"""
START = """
import coverage

coverage.process_startup()
"""


def tools() -> None:
    """coverage.py and gcovr, in a folder of their own: only this needs them."""
    if not (TOOLS / "gcovr").is_dir():
        command = ["-m", "pip", "install", "-q", "--target", TOOLS, *NEEDS]
        subprocess.run([sys.executable, *command], check=True)


def room(file: str) -> str:
    """The folder that a file counts for: two levels below the root of the sources."""
    parts = Path(file).parts
    depth = 3 if parts[0] == "src" else 2
    return "/".join(parts[: min(depth, len(parts) - 1)])


def report(title: str, files: dict[str, tuple[int, int]]) -> None:
    """Print a row for each room; `files` has the lines that ran and all lines of each file."""
    rooms: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for file, counts in files.items():
        for row in (rooms[room(file)], rooms["all"]):
            row[0] += counts[0]
            row[1] += counts[1]
    print(f"\n{title}")
    for name, (ran, lines) in sorted(rooms.items(), key=lambda item: (item[0] == "all", item[0])):
        if lines:
            print(f"  {name:32} {ran:6} of {lines:6} lines  {100 * ran / lines:5.1f} %")


def python_files(environment: dict[str, str]) -> dict[str, tuple[int, int]]:
    rc = f"--rcfile={FOLDER / 'settings'}"
    result = FOLDER / "python.json"
    for command in (
        ["combine", "-q", rc],
        ["json", "-q", rc, "-o", result],
        ["html", "-q", rc, "-d", FOLDER / "python"],
    ):
        subprocess.run(
            [sys.executable, "-m", "coverage", *command], cwd=ROOT, env=environment, check=True
        )
    files = json.loads(result.read_text())["files"]
    return {
        name: (row["summary"]["covered_lines"], row["summary"]["num_statements"])
        for name, row in files.items()
    }


def cpp_files(environment: dict[str, str]) -> dict[str, tuple[int, int]]:
    pages = FOLDER / "c++"
    pages.mkdir(exist_ok=True)
    result = FOLDER / "c++.json"
    command = [
        "-m", "gcovr", "--root", ROOT, "--object-directory", FOLDER, "-j", "2",
        "--filter", "csrc/", "--filter", "vendors/sim/", "--filter", "run/",
        "--exclude-throw-branches", "--merge-lines", "--merge-mode-functions", "merge-use-line-min",
        "--gcov-ignore-parse-errors", "negative_hits.warn_once_per_file",
        "--json-summary", result, "--html-details", pages / "index.html", FOLDER,
    ]  # fmt: skip
    subprocess.run([sys.executable, *command], cwd=ROOT, env=environment, check=True)
    files = json.loads(result.read_text())["files"]
    return {row["filename"]: (row["line_covered"], row["line_total"]) for row in files}


def main(arguments: list[str]) -> int:
    tools()
    package = instrumented.build(
        # Names of files as they are: gcovr opens them.
        FOLDER,
        "-DCAUSEWAY_COVERAGE=ON",
        at_start=START,
    )
    (FOLDER / "settings").write_text(SETTINGS.format(folder=FOLDER, root=ROOT))
    shutil.rmtree(FOLDER / "data", ignore_errors=True)
    (FOLDER / "data").mkdir()
    for counts in FOLDER.rglob("*.gcda"):
        counts.unlink()
    environment = os.environ | {
        "PYTHONPATH": f"{package}{os.pathsep}{TOOLS}",
        "COVERAGE_PROCESS_START": str(FOLDER / "settings"),
        "CW_SIM_LIBRARY": str(package / "causeway" / "lib" / "libcw_sim.so"),
        "OMP_NUM_THREADS": "1",
    }
    tests = arguments or ["tests", "-m", "not long"]
    command = ["-m", "pytest", "-q", "-n2", "--dist=worksteal", "-p", "no:cacheprovider"]
    status = subprocess.run(
        [sys.executable, *command, *tests], cwd=ROOT, env=environment, check=False
    ).returncode
    report("Python", python_files(environment))
    report("C and C++", cpp_files(environment))
    print(f"\nline by line: {FOLDER / 'python'}/index.html, {FOLDER / 'c++'}/index.html")
    if status:
        print(f"pytest ended with {status}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
