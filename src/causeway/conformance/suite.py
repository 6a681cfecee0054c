"""The whole suite, as `causeway conformance` runs it."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

import causeway
from causeway import vendor
from causeway.conformance import examine, known
from causeway.conformance.families import operator_names
from causeway.conformance.given import Given
from causeway.conformance.ranks import ask_ranks
from causeway.conformance.report import ConformanceReport, state, why
from causeway.conformance.workers import Operators, ask_table
from causeway.errors import CausewayError

_OF_THE_CHIP = ("vendor", "version", "device", "dtypes", "chip", "offers")


@dataclass(frozen=True)
class Options:
    """`library`: a path, or "" for the vendor in use. The patterns are regular expressions."""

    library: str = ""
    level: int = 3
    op: str = ""
    dtype: str = ""
    case: str = ""
    workers: int = 1
    known: str = ""  # a file of differences that the vendor documents
    cases: str = ""  # a file that `causeway cases` wrote, in place of torch's samples
    ranks: int = 2  # processes that ask for level 3, each with a device if there are enough
    portable: bool = False  # Causeway's own kernels on this chip, not the vendor's
    table: bool = False  # only the table, no operator
    imports: tuple[str, ...] = ()  # modules that register operators of other libraries


def run(options: Options, tell: Callable[[str], None] = lambda text: None) -> ConformanceReport:
    """Ask all that the options say; `tell` gets a line of progress after each part.

    Raises CausewayError where the library cannot be asked at all, or a pattern matches nothing.
    """
    for module in options.imports:
        examine.import_library(module)
    differences = known.read(options.known) if options.known else []
    library, name = _library(options.library)
    report = ConformanceReport(
        {
            "vendor": name,
            "version": "",
            "library": Path(library).name,
            "device": "",
            "offered": 0,
            "dtypes": [],
            "causeway": causeway.__version__,
            "torch": torch.__version__,
            "date": datetime.date.today().isoformat(),
            "known": [asdict(each) for each in differences],
        },
        vendor_option=options.library,
        cases_option=options.cases,
        portable=options.portable,
    )
    parts = {"op": options.op, "dtype": options.dtype, "case": options.case, "cases": options.cases}
    some = [f"--{option} {value}" for option, value in parts.items() if value]
    if some:
        report.about["only"] = some
    if not some and not options.portable:
        report.checks, entries = ask_table(library, name, options.level, operator_names())
        tell(f"{len(report.checks)} checks of the table; asking its collectives")
        if options.level >= 3:
            report.checks += ask_ranks(library, name, options.ranks)
        if options.table:
            report.about["not_asked"] = _not_asked(entries, options.level)
        if options.table or options.level < 1 or not {"op_find", "op_find_for"} & set(entries):
            return report
    _operators(report, library, options, tell)
    return report


def _not_asked(entries: list[str], level: int) -> list[str]:
    """What --table leaves out, in words."""
    said = ["operators: --table asks for none"]
    if not {"op_find", "op_find_for"} & set(entries):
        said = ["operators: op_find is not offered"]
    if level < 3:
        said.append(f"levels above {level}: --level {level}")
    return said


def _library(given: str) -> tuple[str, str]:
    if not given:
        chosen = vendor.choose()
        return chosen.library, chosen.name
    path = Path(given).expanduser()
    if not path.is_file():
        raise CausewayError(f"--vendor is {given!r}: there is no such file")
    return str(path.resolve()), vendor.name_of_library(path)


def _operators(
    report: ConformanceReport, library: str, options: Options, tell: Callable[[str], None]
) -> None:
    given = Given(options.cases) if options.cases else None
    only = {"dtype": options.dtype or None, "case": options.case or None,
            "cases": options.cases or None, "imports": ",".join(options.imports) or None,
            "portable": "yes" if options.portable else None,
            "known": options.known or None}  # fmt: skip
    workers = Operators(library if options.library else None, options.workers, only)
    about = workers.about
    report.about |= {k: about[k] for k in _OF_THE_CHIP}
    report.about |= {
        "offered": len(about["offered"]),
        "operators_of_torch": about["operators_of_torch"],
    }
    if options.portable and not about["offered"]:
        workers.examine([], lambda result: None)
        raise CausewayError(
            "there is no portable kernel to examine: the vendor's library has no compiler "
            "(code.v1), or the setting portable is off"
        )
    names = [n for n in about["offered"] if re.search(options.op, n)]
    if not names and options.op and not options.portable and given is None:
        # The chip computes them all the same, on another rung.
        workers.examine([], lambda result: None)
        only["lower"] = options.op
        workers = Operators(library if options.library else None, options.workers, only)
        names = workers.about["offered"]
        report.about |= {"offers": {}, "not_offered": names}
    if not names and options.op:
        workers.examine([], lambda result: None)
        raise CausewayError(
            f"--op {options.op!r} matches none of the operators that are offered, and none that a "
            f"vendor can be asked for{_not_imported(options.op)}"
        )
    if given is not None:
        names = [name for name in names if given.has(name, frozenset(about["offered"]))]
        report.about["cases_not_offered"] = given.not_offered(about["offered"])
        if not names:
            workers.examine([], lambda result: None)
            raise CausewayError(f"{options.cases} has no case of an operator that is offered")
    found: dict[str, dict[str, Any]] = {}

    def keep(result: dict[str, Any]) -> None:
        name = result["operator"]
        found[name] = {"cells": {}, "tested": False} | result
        word = state(found[name])
        text = f"{len(found)} of {len(names)} operators: {name} {word}"
        tell(f"{text}\n    {why(found[name])}" if word == "failed" else text)

    workers.examine(names, keep)
    report.operators = [found[name] for name in names]
    none = not any(_cases(o) or o.get("broken") for o in report.operators)
    if none and (options.case or options.dtype):
        asked = f"--case {options.case}" if options.case else f"--dtype {options.dtype!r}"
        raise CausewayError(
            f"{asked} matches no case of {len(names)} operators; the dtypes are "
            f"{', '.join(about['dtypes'])}, and an ID belongs to one operator and dtype"
        )


def _not_imported(pattern: str) -> str:
    """What may be wrong with an operator's name whose namespace nobody has registered."""
    space = re.match(r"\^?(\w+)::", pattern)
    if not space or any(n.startswith(f"{space[1]}::") for n in operator_names()):
        return ""
    return f"; the library that registers {space[1]}:: is imported with --import {space[1]}"


def _cases(operator: dict[str, Any]) -> int:
    counts = ("passed", "failed", "declined", "known")
    return sum(c[count] for c in operator["cells"].values() for count in counts)
