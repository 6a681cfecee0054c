"""What the suite found: a table of operators by dtypes, as data, as a page, as lines for people."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from causeway.atomic import write
from causeway.conformance.chip import Check

if TYPE_CHECKING:
    from rich.console import Console

# "alone" is no rung: the kernel without Causeway, which does not call it.
RUNGS = ("native", "derived", "alone", "decomposed", "portable", "host")


@dataclass
class ConformanceReport:
    """`operators` are operators.Result as dictionaries; `about` says whose."""

    about: dict[str, Any]
    checks: list[Check] = field(default_factory=list)
    operators: list[dict[str, Any]] = field(default_factory=list)
    vendor_option: str = ""  # the --vendor that it was called with
    cases_option: str = ""  # and the --cases
    portable: bool = False  # of Causeway's own kernels on this chip

    @property
    def failed_checks(self) -> list[Check]:
        return [check for check in self.checks if check.state == "failed"]

    @property
    def failed_operators(self) -> list[dict[str, Any]]:
        return [o for o in self.operators if state(o) == "failed"]

    @property
    def good(self) -> bool:
        return not self.failed_checks and not self.failed_operators

    @property
    def known(self) -> dict[str, dict[str, Any]]:
        """Of each operator that the vendor says to differ, and that was asked: in how many cases
        its values did, and why.
        """
        found: dict[str, dict[str, Any]] = {}
        asked = {operator["operator"]: operator for operator in self.operators}
        for each in self.about.get("known", ()):
            if operator := asked.get(each["op"]):
                told = found.setdefault(each["op"], {"cases": known_of(operator), "why": []})
                told["why"].append(f"{each['variation']}: {each['why']}")
        return found

    @property
    def rungs(self) -> dict[str, int]:
        """How many cases each rung served."""
        found = dict.fromkeys(RUNGS, 0)
        for operator in self.operators:
            for cell in operator.get("cells", {}).values():
                for rung, count in cell["rungs"].items():
                    found[rung] = found.get(rung, 0) + count
        return {rung: count for rung, count in found.items() if count}

    @property
    def summary(self) -> dict[str, Any]:
        """Numbers. Coverage: of the dtypes that operators are offered with, those that passed,
        each with the share of its cases that the kernel served."""
        cells = [
            cell_state(cell)
            for operator in self.operators
            for cell in operator.get("cells", {}).values()
            if cell["offered"]
        ]
        ours = rungs_of(self.portable)
        if self.about.get("not_offered"):
            cells = []  # so there is no coverage
        # A dtype counts with the share of its cases that the kernel served.
        passed = sum(
            cell["passed"] / max(cell["passed"] + cell.get("declined", 0) + cell.get("known", 0), 1)
            for operator in self.operators
            for cell in operator.get("cells", {}).values()
            if cell["offered"] and cell_state(cell) in ours
        )
        offered = [
            cell
            for operator in self.operators
            for cell in operator.get("cells", {}).values()
            if cell["offered"]
        ]
        declined = {
            operator["operator"]: {"declined": some, "of": all_}
            for operator in self.operators
            for some, all_ in [declined_of(operator)]
            if some
        }
        return {
            "good": self.good,
            "checks_passed": sum(check.state == "passed" for check in self.checks),
            "checks_failed": len(self.failed_checks),
            "checks_skipped": sum(check.state == "skipped" for check in self.checks),
            "operators_passed": sum(state(o) == "passed" for o in self.operators),
            "operators_failed": len(self.failed_operators),
            "operators_not_tested": [
                o["operator"] for o in self.operators if state(o) == "not tested"
            ],
            "operators_alone": [
                operator["operator"]
                for operator in self.operators
                if any("alone" in cell["rungs"] for cell in operator.get("cells", {}).values())
            ],
            "cases": sum(
                cell[key]
                for operator in self.operators
                for cell in operator.get("cells", {}).values()
                for key in ("passed", "failed")
            )
            + sum(map(known_of, self.operators)),
            "coverage": round(passed / len(cells), 4) if cells else None,
            # Cases of dtypes that are offered, which the kernel answered with UNSUPPORTED.
            "declined": sum(cell.get("declined", 0) for cell in offered),
            "cases_offered": sum(
                cell["passed"] + cell["failed"] + cell.get("declined", 0) + cell.get("known", 0)
                for cell in offered
            ),
            "operators_declining": declined,
            "operators_known": self.known,
            "operators_of_torch": self.about.get("operators_of_torch"),
        }

    @property
    def verdict(self) -> str:
        s = self.summary
        words = [f"{s['checks_passed']} checks of the table passed"] if self.checks else []
        if s["checks_skipped"]:
            words.append(f"{s['checks_skipped']} do not apply")
        if self.operators:
            words.append(f"{s['operators_passed']} operators passed in {s['cases']} cases")
        if differing := [n["cases"] for n in s["operators_known"].values() if n["cases"]]:
            words.append(
                f"{sum(differing)} of these cases differ as documented, "
                f"in {len(differing)} operators"
            )
        if s["operators_not_tested"]:
            words.append(f"{len(s['operators_not_tested'])} offered, not tested")
        if self.about.get("not_offered"):
            served = ", ".join(f"{n} cases by the rung {rung}" for rung, n in self.rungs.items())
            words.append(f"none of them is offered: {served or 'no case ran'}")
        if s["coverage"] is not None:
            words.append(f"coverage {s['coverage']:.1%} of the dtypes offered")
        if s["declined"]:
            words.append(f"{s['declined']} of {s['cases_offered']} cases declined")
        if self.good:
            return f"conforms: {', '.join(words)}"
        bad = [f"{s['checks_failed']} checks"] if s["checks_failed"] else []
        bad += [f"{s['operators_failed']} operators"] if s["operators_failed"] else []
        return f"does not conform: {' and '.join(bad)} failed; {', '.join(words)}"

    def repro(self, operator: str, dtype: str, case: str) -> str:
        """The command that runs one case again."""
        vendor = f" --vendor {shlex.quote(self.vendor_option)}" if self.vendor_option else ""
        cases = f" --cases {shlex.quote(self.cases_option)}" if self.cases_option else ""
        cases += " --portable" if self.portable else ""
        which = f"--op '^{operator}$' --dtype {dtype} --case {case}"
        return f"causeway conformance{vendor}{cases} {which}"

    def to_dict(self) -> dict[str, Any]:
        operators = []
        for operator in self.operators:
            cells = {
                dtype: cell
                | {
                    "state": cell_state(cell),
                    "failures": [
                        f | {"repro": self.repro(operator["operator"], dtype, f["case"])}
                        for f in cell["failures"]
                    ],
                }
                for dtype, cell in operator.get("cells", {}).items()
            }
            some, of = declined_of(operator)
            said = {"cells": cells, "state": state(operator), "declined": some, "asked": of,
                    "known": known_of(operator)}  # fmt: skip
            operators.append(operator | said)
        return {
            "about": self.about,
            "portable": self.portable,
            "summary": self.summary,
            "verdict": self.verdict,
            "checks": [asdict(check) for check in self.checks],
            "operators": operators,
        }

    def to_html(self) -> str:
        """A page that needs nothing else."""
        from causeway.conformance.page import page

        return page(self).to_html()


def rungs_of(portable: bool) -> tuple[str, ...]:
    """The rungs on which an examined kernel itself served: a vendor's, or Causeway's own."""
    return ("portable",) if portable else RUNGS[:3]


def cell_state(cell: dict[str, Any]) -> str:
    """failed, the rung that served it, or "not tested" (offered) and "no case" (not offered)."""
    if cell["failed"]:
        return "failed"
    served = [rung for rung in RUNGS if cell["rungs"].get(rung)]
    if cell["offered"] and not (cell["passed"] or served):
        return "not tested"
    return served[0] if served else "no case"


def state(operator: dict[str, Any]) -> str:
    """passed, failed or "not tested" of an operator as a whole."""
    cells = operator.get("cells", {}).values()
    if operator.get("broken") or any(cell["failed"] for cell in cells):
        return "failed"
    return "passed" if operator["tested"] else "not tested"


def declined_of(operator: dict[str, Any]) -> tuple[int, int]:
    """How many cases of the dtypes offered the kernel declined, and of how many."""
    cells = [cell for cell in operator.get("cells", {}).values() if cell["offered"]]
    some = sum(cell.get("declined", 0) for cell in cells)
    served = (cell["passed"] + cell["failed"] + cell.get("known", 0) for cell in cells)
    return some, some + sum(served)


def known_of(operator: dict[str, Any]) -> int:
    """How many cases of an operator differ as its vendor documents."""
    return sum(cell.get("known", 0) for cell in operator.get("cells", {}).values())


def why(operator: dict[str, Any]) -> str:
    """The first of what a failed operator did wrong, in a line."""
    for dtype, cell in operator.get("cells", {}).items():
        for failure in cell["failures"][:1]:
            return f"{dtype}, {failure['call']} ({failure['variation']}): {failure['why']}"
    return str(operator.get("broken", ""))


def write_json(report: ConformanceReport, path: str) -> None:
    write(path, json.dumps(report.to_dict(), indent=1) + "\n")


def show(report: ConformanceReport, console: Console) -> None:
    """What failed, what was not tested, and the verdict."""
    from rich.markup import escape

    def line(text: str, style: str = "") -> None:
        console.print(escape(text), style=style, highlight=False, soft_wrap=True)

    for check in report.failed_checks:
        line(f"L{check.level} {check.name}: {check.asked}", "bold red")
        line(f"    expected {check.expected}\n    came     {check.came}")
    for operator in report.failed_operators:
        line(operator["operator"], "bold red")
        if operator.get("broken"):
            line(f"    {operator['broken']}")
        for dtype, cell in operator.get("cells", {}).items():
            if cell["failed"]:
                line(f"  {dtype}: {cell['failed']} of {cell['failed'] + cell['passed']} cases")
            for failure in cell["failures"][:2]:
                line(f"    {failure['call']} ({failure['variation']})\n      {failure['why']}")
                line(f"      {report.repro(operator['operator'], dtype, failure['case'])}", "dim")
    for name, known in report.known.items():
        count = f"{known['cases']} cases" if known["cases"] else "no case any more"
        for why in known["why"]:
            line(f"differs as documented in {count}: {name}, {why}", "yellow")
    for name in report.summary["operators_alone"]:
        line(f"tested alone, since Causeway does not call it: {name}", "yellow")
    for name, times in report.about.get("cases_not_offered", {}).items():
        line(f"not offered: {name}, {times} calls of the cases", "yellow")
    for name, n in report.summary["operators_declining"].items():
        line(f"declined {n['declined']} of {n['of']} cases: {name}", "yellow")
    for what in report.about.get("not_asked", ()):
        line(f"not tested: {what}", "yellow")
    for name in report.summary["operators_not_tested"]:
        line(f"offered, not tested: {name}", "yellow")
    line(report.verdict, "bold green" if report.good else "bold red")
