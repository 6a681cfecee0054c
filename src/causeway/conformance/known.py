"""Differences that a vendor documents, in a TOML file: what docs/conformance.md describes.

    [[known]]
    op = "aten::floor_divide.out"
    variation = "NaN and Inf"
    why = "the chip's library takes the floor of the quotient, and says so"

Such a case is counted and shown apart from what passed and what failed. Only values can be known to
differ: a crash, a write out of bounds or a wrong shape is a failure ever after. Everything is
checked when the file is read.
"""

from __future__ import annotations

from dataclasses import dataclass

from causeway.conformance.by_hand import rows_of
from causeway.conformance.families import operator_names
from causeway.errors import ConfigError


@dataclass(frozen=True)
class Known:
    """An operator that is offered, and the variation of its calls whose values differ."""

    op: str
    variation: str
    why: str


def read(path: str) -> list[Known]:
    """The differences of a file. Raises ConfigError with the file, the number and what is wrong."""
    found: list[Known] = []
    names = set(operator_names())
    for number, row in enumerate(rows_of(path, "known", f"--known {path}", ConfigError), 1):
        where = f"--known {path}: difference {number}"
        keys = {"op", "variation", "why"}
        if not isinstance(row, dict) or set(row) != keys:
            raise ConfigError(f"{where} needs op, variation and why, and has no other key")
        if not all(isinstance(value, str) and value.strip() for value in row.values()):
            raise ConfigError(f"{where}: op, variation and why are texts that are not empty")
        if row["op"] not in names:
            raise ConfigError(f"{where}: {row['op']!r} is no operator, such as aten::add.out")
        found.append(Known(**row))
    return found
