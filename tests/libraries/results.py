"""What was run with which versions and when: `make test-libraries` writes it down, and the table.

python tests/libraries/results.py [LIBRARY]   # run the tests, of all or some; write results.json
python tests/libraries/results.py --markdown  # the table of docs/libraries.md, from results.json
python tests/libraries/results.py --docs      # put it into docs/libraries.md
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RESULTS = HERE / "results.json"
PAGE = ROOT / "docs" / "libraries.md"
BLOCK = re.compile(r"(<!-- from tests/libraries/results.json -->\n).*?(\n<!-- end -->)", re.DOTALL)

# A library, and the file that tests it.
FILES = {
    "accelerate": "test_accelerate.py",
    "transformers": "test_transformers.py",
    "lightning": "test_lightning.py",
    "peft": "test_peft.py",
    "safetensors": "test_safetensors.py",
    "torchmetrics": "test_metrics.py",
    "deepspeed": "test_deepspeed.py",
    "diffusers": "test_diffusers.py",
    "einops": "test_einops.py",
    "timm": "test_timm.py",
    "torchao": "test_torchao.py",
    "torchvision": "test_torchvision.py",
}
# What is of all of them: two processes, the examples, how they are found.
TOGETHER = ("test_processes.py", "test_examples.py", "test_integrations.py")


def version(name: str) -> str | None:
    """The version that is installed, here or beside the environment, or None."""
    beside = ("timm", "diffusers", "torchao")  # torchvision lies beside timm
    path = [*sys.path, *(str(ROOT / "build" / name) for name in beside)]
    found = importlib.metadata.distributions(name=name, path=path)
    return next((distribution.version for distribution in found), None)


def counted(*names: str) -> dict[str, int]:
    """Run files of tests; how many passed, failed and were skipped."""
    junit = ROOT / "build" / f"tests-libraries-{names[0]}.xml"
    junit.parent.mkdir(exist_ok=True)
    junit.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={junit}"]
    command += [str(HERE / name) for name in names]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    status = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    if junit.exists():
        for suite in ElementTree.parse(junit).iter("testsuite"):
            skipped = int(suite.get("skipped", 0))
            failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
            counts["passed"] += int(suite.get("tests", 0)) - skipped - failed
            counts["failed"] += failed
            counts["skipped"] += skipped
    if status not in (0, 5) and not counts["failed"]:
        counts["failed"] = 1  # pytest itself failed
    return counts


def measure(former: dict[str, Any], only: list[str]) -> dict[str, Any]:
    """Run the tests of each library that is installed; the others keep what was found before."""
    found = dict(former)
    ran = {
        "torch": str(version("torch")).partition("+")[0],
        "python": ".".join(map(str, sys.version_info[:2])),
        "date": datetime.date.today().isoformat(),
    }
    for library, name in FILES.items():
        if only and library not in only:
            continue
        installed = version(library)
        if installed is None:
            print(f"{library} is not installed: left as it was (`make test-libraries` installs it)")
            continue
        found[library] = {
            "version": installed,
            **ran,
            **counted(name),
        }
    if only:
        return found
    found["together: two processes, examples"] = {"version": "", **ran, **counted(*TOGETHER)}
    return found


def markdown(results: dict[str, Any]) -> str:
    """The table of docs/libraries.md."""
    lines = ["| library | version | torch | Python | when | tests |", "|" + " --- |" * 6]
    for library, row in sorted(results.items()):
        tests = f"{row['passed']} passed"
        tests += "".join(f", {row[k]} {k}" for k in ("failed", "skipped") if row[k])
        cells = [library, row["version"], row["torch"], row["python"], row["date"], tests]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> int:
    """Do what was asked; 1 where a test failed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("libraries", nargs="*", choices=[[], *FILES])
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--docs", action="store_true")
    asked = parser.parse_args()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if asked.markdown:
        print(markdown(results))
        return 0
    if not asked.docs:
        results = measure(results, asked.libraries)
        RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
    table = markdown(results)
    PAGE.write_text(BLOCK.sub(lambda found: found[1] + table + found[2], PAGE.read_text()))
    print(table)
    return 1 if any(row["failed"] for row in results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
