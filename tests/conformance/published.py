"""docs/chips.md: which operators chips have, by their whole reports of the conformance suite.

    causeway conformance --json build/chip.json
    python tests/conformance/published.py build/chip.json   # keeps it, and writes the page
    python tests/conformance/published.py                   # writes the page anew

What is kept of a report, in chips.json beside this, is what the page shows; a chip's next report
takes the place of its last.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from causeway.conformance import chips
from causeway.errors import ConfigError

ROOT = Path(__file__).parents[2]
KEPT = Path(__file__).with_name("chips.json")
PAGE = ROOT / "docs" / "chips.md"
BLOCK = re.compile(r"(<!-- from tests/conformance/chips.json -->\n).*?(\n<!-- end -->)", re.DOTALL)
Kept = dict[str, dict[str, Any]]


def kept(report: str) -> tuple[str, dict[str, Any]]:
    """A chip's name and what the page shows of it.

    Raises ConfigError where a report is not of all operators: what was not asked would look like
    what the chip lacks. One of some dtypes is taken, and the page says of which.
    """
    data, chip = chips.read_json(report), chips.read(report)
    if left := [option for option in chip.only if not option.startswith("--dtype ")]:
        raise ConfigError(f"{report} is not of all that the chip has: {', '.join(left)}")
    portable = bool(data.get("portable"))
    operators = {}
    for name in sorted(chip.operators):
        passed, failed = chip.dtypes(name)
        operators[name] = [" ".join(passed), " ".join(failed)]
    name = f"{chip.name}, portable kernels" if portable else chip.name
    return name, {
        "torch": chip.about["torch"],
        "date": chip.about["date"],
        **({"asked": ", ".join(asked(chip))} if chip.only else {}),
        **{
            key: chip.summary[key]
            for key in ("good", "operators_passed", "operators_failed", "coverage", "cases")
        },
        "operators": operators,
    }


def asked(chip: chips.Chip) -> list[str]:
    """The dtypes of a report of some."""
    return sorted({chips.short(dtype) for cells in chip.operators.values() for dtype in cells})


def markdown(found: Kept) -> str:
    """The two tables of docs/chips.md: the chips, and an operator a line."""
    lines = [
        "| chip | conforms | asked of dtypes | operators passed | failed | dtypes passed | cases "
        "| torch | date |",
        "|" + " --- |" * 9,
    ]
    for name, chip in found.items():
        coverage = "" if chip["coverage"] is None else f"{chip['coverage']:.1%}"
        cells = [name, "yes" if chip["good"] else "no", chip.get("asked", "all")]
        cells += [chip["operators_passed"]]
        cells += [chip["operators_failed"], coverage, chip["cases"], chip["torch"], chip["date"]]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    lines += ["", "| operator | " + " | ".join(found) + " |", "|" + " --- |" * (len(found) + 1)]
    for operator in sorted({o for chip in found.values() for o in chip["operators"]}):
        cells = []
        for chip in found.values():
            passed, failed = chip["operators"].get(operator, ("", ""))
            cells.append("; ".join([passed, f"**failed** {failed}"] if failed else [passed]))
        lines.append(f"| `{operator.removeprefix('aten::')}` | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def write(found: Kept) -> None:
    PAGE.write_text(BLOCK.sub(lambda old: old[1] + markdown(found) + old[2], PAGE.read_text()))


def main(reports: list[str]) -> int:
    found: Kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    if reports == ["--markdown"]:
        print(markdown(found))
        return 0
    try:
        found |= dict(map(kept, reports))
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 1
    KEPT.write_text(json.dumps(found, indent=0, sort_keys=True) + "\n")
    write(json.loads(KEPT.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
