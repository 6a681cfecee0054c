"""For `causeway chips`: the reports of several chips side by side, an operator a line."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from causeway.conformance.report import rungs_of
from causeway.errors import ConfigError

if TYPE_CHECKING:
    from causeway.pages.page import Page

MOST_BYTES = 64 << 20
_SHORT = (("bfloat", "bf"), ("float", "f"), ("complex", "c"), ("uint", "u"), ("int", "i"))


@dataclass(frozen=True)
class Chip:
    """What a report says of a chip. `operators`: of each that it offers, dtypes and their state."""

    file: str
    about: dict[str, Any]
    summary: dict[str, Any]
    verdict: str
    operators: dict[str, dict[str, str]]
    ours: tuple[str, ...]  # rungs that count: one below would have served it without the kernel
    only: tuple[str, ...] = ()  # options that left something out

    @property
    def name(self) -> str:
        return f"{self.about['device']} ({self.about['vendor']} {self.about['version']})"

    def dtypes(self, operator: str) -> tuple[list[str], list[str]]:
        """Those that passed and those that failed, of an operator that is offered."""
        cells = self.operators.get(operator, {})
        passed = [short(dtype) for dtype, state in cells.items() if state in self.ours]
        return passed, [short(dtype) for dtype, state in cells.items() if state == "failed"]


def short(dtype: str) -> str:
    """bf16 of bfloat16, f32 of float32, bool of bool."""
    for long, letters in _SHORT:
        if dtype.startswith(long):
            return letters + dtype.removeprefix(long)
    return dtype


def read_json(path: str | Path) -> dict[str, Any]:
    """A conformance report as it was written. Raises ConfigError, with what is wrong."""
    file = Path(path)
    try:
        if file.stat().st_size > MOST_BYTES:
            raise ConfigError(f"{path} has more than {MOST_BYTES >> 20} MiB: that is no report")
        data = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not JSON: {error}") from None
    if not isinstance(data, dict):
        raise ConfigError(f"{path} is no conformance report: it is a {type(data).__name__}")
    return data


def read(path: str) -> Chip:
    """The chip of a report. Raises ConfigError where the file is none."""
    data = read_json(path)
    try:
        operators = {
            str(operator["operator"]): {
                str(dtype): str(cell["state"])
                for dtype, cell in operator["cells"].items()
                if cell["offered"]
            }
            for operator in data["operators"]
        }
        ours = rungs_of(bool(data.get("portable")))  # an older report does not say
        about = {key: str(data["about"][key]) for key in _ABOUT}
        only = tuple(
            map(str, [*data["about"].get("only", ()), *data["about"].get("not_asked", ())])
        )
        summary = {key: data["summary"][key] for key in _SUMMARY}
        verdict = str(data["verdict"])
        if only:
            verdict += f"; not all was asked: {', '.join(only)}"
        return Chip(path, about, summary, verdict, operators, ours, only)
    except (KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"{path} is no conformance report: {type(error).__name__} {error}. "
            "`causeway conformance --json FILE` writes one"
        ) from None


_ABOUT = ("device", "vendor", "version", "causeway", "torch", "date")
_SUMMARY = ("good", "operators_passed", "operators_failed", "coverage", "cases")


def page(chips: list[Chip], only: str = "") -> Page:
    """The page of some chips: what they are, and the dtypes of each operator that one offers."""
    from causeway.pages.page import Badge, Code, Page, Section, Table, Text

    rows = [
        [
            chip.name,
            [
                Badge("conforms", "good") if chip.summary["good"] else Badge("does not", "bad"),
                *([f" of {', '.join(chip.only)}"] if chip.only else []),
            ],
            str(chip.summary["operators_passed"]),
            str(chip.summary["operators_failed"]),
            "" if chip.summary["coverage"] is None else f"{chip.summary['coverage']:.1%}",
            f"{chip.about['causeway']}, {chip.about['torch']}",
            chip.about["date"],
        ]
        for chip in chips
    ]
    heads = ["chip", "", "operators passed", "failed", "dtypes passed", "Causeway, torch", "date"]

    def cell(chip: Chip, operator: str) -> Any:
        if operator not in chip.operators:
            return None
        passed, failed = chip.dtypes(operator)
        parts: list[Any] = [" ".join(passed)] if passed else []
        parts += [Badge(f"failed {' '.join(failed)}", "bad")] if failed else []
        return parts or Badge("none", "warn")

    table = [[Code(o), *(cell(chip, o) for chip in chips)] for o in operators(chips, only)]
    words = Text(
        "Dtypes that passed the suite, of the operators that a vendor offers. What is empty runs "
        "too, on a lower rung of the ladder: in portable kernels, in parts, or on the host."
    )
    return Page(
        f"Operators of {len(chips)} chips",
        [
            Table(heads, rows, "The chips"),
            Section("Operators", [words, Table(["operator", *(c.name for c in chips)], table)]),
        ],
        data={"chips": [vars(chip) for chip in chips]},
    )


def operators(chips: list[Chip], only: str = "") -> list[str]:
    """The names of all that one of the chips offers and `only` finds, in order."""
    names = {name for chip in chips for name in chip.operators}
    return sorted(name for name in names if re.search(only, name))
