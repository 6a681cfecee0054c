"""Exceptions to the rules: the entries of tolerances.toml, each with a reason."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, fields
from functools import cache
from importlib import resources
from typing import Any

from causeway import numerics
from causeway.ops import ladder


@dataclass(frozen=True)
class Tolerance:
    """How an operator is compared. The defaults are those of operators without an entry."""

    compare: bool = True
    values: bool = True
    inputs: bool = True
    results: int | None = None
    rule: str = ""
    rtol: float | None = None
    atol: float | None = None
    places: int | None = None
    magnitudes: bool = False
    reason: str = ""


@cache
def of(name: str) -> Tolerance:
    """The tolerance of operator "aten::add.out"."""
    spelled = ladder.spellings(name)
    for pattern, tolerance in entries():
        if any(map(pattern.fullmatch, spelled)):
            return tolerance
    return Tolerance()


@cache
def entries() -> tuple[tuple[re.Pattern[str], Tolerance], ...]:
    """All entries of tolerances.toml. Raises ValueError for one that is not well-formed."""
    text = resources.files("causeway.numerics").joinpath("tolerances.toml").read_text("utf-8")
    return tuple(_entry(data) for data in tomllib.loads(text)["operator"])


def _entry(data: dict[str, Any]) -> tuple[re.Pattern[str], Tolerance]:
    given = dict(data)
    match = given.pop("match")
    unknown = set(given) - {f.name for f in fields(Tolerance)}
    if unknown or not given.get("reason"):
        what = f"does not know {', '.join(unknown)}" if unknown else "has no reason"
        raise ValueError(f"tolerances.toml: {match!r} {what}")
    if given.get("rule", "exact") not in numerics.RULES:
        raise ValueError(f"tolerances.toml: {match!r}: there is no rule {given['rule']!r}")
    return re.compile(match), Tolerance(**given)
