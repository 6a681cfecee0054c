"""The demo: one script on one chip that offers more and more, and who computes each operator.

digits.py trains unchanged, three times. First the chip's library has the six functions that no
table can do without, and torch's CPU kernels compute everything on its memory. Then it has a
compiler as well, and Causeway's own kernels run on the chip. Then it brings kernels of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

SCRIPT = Path(__file__).with_name("digits.py")
RUNGS = ("native", "derived", "portable", "decomposed", "host")
# All that a table may leave out and the setting LEVEL does not: what is left are the six.
REST = (
    "bind,host_alloc,mem_set,mem_info,close,peer_access,device_attribute,host_register,fault,"
    "stream_callback,host_alloc_for,mem_alloc_on,mem_reserve,op_find_for"
)
AFTER = """\
Try next:
  CAUSEWAY_LEDGER=1 python train.py    your own script; its table comes at the end
  causeway coverage train.py           what a chip lacks for it, without the chip
  causeway explain mm                  why an operator runs where it runs
  causeway new mychip                  a package for a chip of your own
  docs/start.md, docs/vendor.md        where to read on"""


@dataclass(frozen=True)
class Chip:
    """A step up: what the chip has, and the simulated chip's settings."""

    name: str
    settings: dict[str, str]


CHIPS = (
    Chip("six functions", {"LEVEL": "0", "CODE": "0", "WITHOUT": REST}),
    Chip("and a compiler", {"LEVEL": "2", "CODE": "1", "WITHOUT": "", "OPS": "none"}),
    Chip("and kernels", {"LEVEL": "2", "CODE": "1", "WITHOUT": "", "OPS": "fastest"}),
)


def train(chip: Chip, arguments: list[str]) -> dict[str, object]:
    """What digits.py reported on this chip; its own output goes to stderr where it fails."""
    environment = os.environ | {f"CAUSEWAY_SIM_{k}": v for k, v in chip.settings.items()}
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, str(SCRIPT), "--report", str(report), *arguments]
        done = subprocess.run(command, check=False, env=environment, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{done.stdout}{done.stderr}\ndigits.py failed on the chip: {chip.name}")
        found: dict[str, object] = json.loads(report.read_text())
    return found


def calls(report: dict[str, object], rung: str) -> int:
    """How many calls this rung served."""
    rows = report["rows"]
    assert isinstance(rows, list)
    return sum(row["calls"] for row in rows if row["rung"] == rung)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--accuracy", type=float, help="test accuracy to reach")
    parser.add_argument("--json", type=Path, help="write the reports")
    args = parser.parse_args()
    console = Console()
    if os.environ.get("CAUSEWAY_VENDOR", "sim") != "sim":  # one chip, which offers what it offers
        asked = {"epochs": args.epochs, "accuracy": args.accuracy, "report": args.json}
        given = [f"--{name}={value}" for name, value in asked.items() if value is not None]
        return subprocess.run([sys.executable, str(SCRIPT), *given], check=False).returncode
    args.epochs = 4 if args.epochs is None else args.epochs
    args.accuracy = 0.93 if args.accuracy is None else args.accuracy

    console.print(
        f"{SCRIPT.name} trains a network on real handwritten digits, {args.epochs} epochs, three "
        "times: on one chip that offers more each time. No line of the script changes.\n",
        highlight=False,
    )
    table = Table("the chip has", box=None, padding=(0, 1))
    for column in ("accuracy", "seconds", *RUNGS):
        table.add_column(column, justify="right", no_wrap=True)
    given = ["--epochs", str(args.epochs), "--accuracy", str(args.accuracy)]
    reports = {}
    for chip in CHIPS:
        with console.status(f"training on the chip: {chip.name}"):
            report = reports[chip.name] = train(chip, given)
        counts = [calls(report, rung) for rung in RUNGS]
        table.add_row(
            chip.name, f"{100 * float(str(report['accuracy'])):.1f} %",
            f"{float(str(report['seconds'])):.1f}", *(str(n) if n else "-" for n in counts),
        )  # fmt: skip
    console.print("Calls by rung of the ladder, the chip's own kernels first:")
    console.print(table)
    console.print(f"\n{AFTER}", highlight=False, soft_wrap=True)
    if args.json:
        args.json.write_text(json.dumps(reports))
    return 0


if __name__ == "__main__":
    sys.exit(main())
