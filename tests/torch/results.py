"""Everything in tests/torch, counted, in results.json and docs/support.md: `make test-torch`.

python tests/torch/results.py             # run, print the counts, write results.json
python tests/torch/results.py --markdown  # the table, from results.json
python tests/torch/results.py --docs      # put it into docs/support.md
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))

from junit import cases

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RESULTS = HERE / "results.json"
PAGE = ROOT / "docs/support.md"
BLOCK = re.compile(r"(<!-- from tests/torch/results.json -->\n).*?(\n<!-- end -->)", re.DOTALL)

# A chip with memory of its own and no operators: what the CPU's kernels write is copied back.
STAGED = {"CAUSEWAY_SIM_OPS": "none", "CAUSEWAY_SIM_MEMORY_MODEL": "discrete"}

# A row of the table: a kind of operators.py, and what it is.
ROWS = {
    "forward": "forward",
    "inplace": "in place",
    "out": "`out=`",
    "backward": "backward",
    "second": "second order",
    "jvp": "forward mode",
    "vmap": "`vmap`",
    "errors": "errors",
    "refusals": "dtypes refused",
}
DTYPES = ("float32", "float64", "float16", "bfloat16", "complex64", "int64", "bool")


def agreeing(row: dict[str, int]) -> str:
    """How many cells agree, and of how many where not all do."""
    total = sum(row[status] for status in ("passed", "failed", "excepted"))
    if total == 0:
        return ""
    return str(total) if row["passed"] == total else f"{row['passed']} of {total}"


def markdown(results: dict[str, Any]) -> str:
    """The table of docs/support.md."""
    counts = results["operators"]
    lines = ["| | " + " | ".join(DTYPES) + " |", "| --- |" + " --- |" * len(DTYPES)]
    for kind, words in ROWS.items():
        cells = [agreeing(counts[kind][dtype]) for dtype in DTYPES]
        lines.append(f"| {words} | " + " | ".join(cells) + " |")
    return "\n".join(re.sub(r"  +", " ", line) for line in lines)


def measure(workers: int) -> dict[str, Any]:
    """Run all operators and all test files of this folder."""
    import torch

    build = ROOT / "build"
    build.mkdir(exist_ok=True)
    found, junit = build / "operators.json", build / "tests-torch.xml"
    environment = os.environ | {"OMP_NUM_THREADS": "1", "TEST_ALL": "1"}
    command = [sys.executable, str(HERE / "operators.py"), "-n", str(workers), "--json", str(found)]
    subprocess.run(command, env=environment, cwd=ROOT, check=False)
    staged = build / "operators-staged.json"
    command[-1:] = [str(staged), "--dtypes", "float32", "--kinds", "forward,inplace,out"]
    subprocess.run(command, env=environment | STAGED, cwd=ROOT, check=False)
    command = [sys.executable, "-m", "pytest", "-q", f"-n{workers}", "--dist=worksteal"]
    command += [f"--junitxml={junit}", str(HERE)]
    subprocess.run(command, env=environment, cwd=ROOT, check=False)
    return {
        "torch": torch.__version__.partition("+")[0],
        "operators": json.loads(found.read_text())["counts"],
        "staged": json.loads(staged.read_text())["counts"],
        "files": files(junit),
    }


def files(junit: Path) -> dict[str, dict[str, int]]:
    """Passed, failed and skipped tests of each file."""
    counts: dict[str, Counter[str]] = {}
    for case in cases(junit):
        parts = [p for p in case.classname.split(".") if p.startswith("test_")]
        counts.setdefault(f"{parts[0] if parts else '?'}.py", Counter())[case.outcome] += 1
    names = ("passed", "failed", "skipped")
    return {file: {name: counts[file][name] for name in names} for file in sorted(counts)}


def show(results: dict[str, Any]) -> str:
    lines = [f"{'file':24} {'passed':>8} {'failed':>8} {'skipped':>8}"]
    for file, row in results["files"].items():
        lines.append(f"{file:24} {row['passed']:8} {row['failed']:8} {row['skipped']:8}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--docs", action="store_true")
    parser.add_argument("-n", type=int, default=2, help="processes")
    given = parser.parse_args()
    if given.markdown or given.docs:
        text = markdown(json.loads(RESULTS.read_text()))
        if given.markdown:
            print(text)
        else:
            whole = PAGE.read_text()
            PAGE.write_text(BLOCK.sub(lambda m: m[1] + text + m[2], whole))
        return 0
    results = measure(given.n)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    print(show(results))
    failed = sum(row["failed"] for row in results["files"].values())
    for sweep in ("operators", "staged"):
        failed += sum(row["failed"] for kind in results[sweep].values() for row in kind.values())
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
