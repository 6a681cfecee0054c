"""What pytest's file of results says, for the scripts that count and compare runs."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Case(NamedTuple):
    """An entry: of a test, or of its teardown where that failed."""

    classname: str
    name: str
    outcome: str  # passed, failed or skipped
    message: str  # of a failure


def cases(junit: Path) -> Iterator[Case]:
    """The entries of a file that `pytest --junitxml` wrote, in its order."""
    for case in ElementTree.parse(junit).iter("testcase"):
        failures = [child for child in case if child.tag in ("failure", "error")]
        skipped = case.find("skipped") is not None
        yield Case(
            case.get("classname", ""),
            case.get("name", ""),
            "failed" if failures else "skipped" if skipped else "passed",
            failures[0].get("message", "") if failures else "",
        )
