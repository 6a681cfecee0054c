"""What a rule says about itself; its docs page is made of it."""

from __future__ import annotations

from dataclasses import dataclass

from causeway.migrate.finding import Severity


@dataclass(frozen=True)
class Rule:
    """A rule. `before` and `after` are an example that a test converts; equal for a rule that only
    reports.
    """

    code: str
    name: str
    title: str
    why: str
    by_hand: str
    before: str
    after: str
    severity: Severity = "warning"
    safe: bool = True
    path: str = "example.py"  # what sort of file the example is
    target: str = "portable"  # what the example is converted for
