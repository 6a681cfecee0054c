"""The settings of the tools that watch a whole process, and the comparison that they open."""

from __future__ import annotations

import atexit
import sys
from typing import TYPE_CHECKING

from causeway import config

if TYPE_CHECKING:
    from causeway.comparison.compare import Compare

COMPARE = ("compare", "compare_every", "compare_steps", "compare_folder", "compare_raise")
TOOLS = {
    "dump": ("dump", "dump_ops", "dump_steps", "dump_ranks", "dump_to"),
    "overflow": ("overflow", "overflow_save"),
}
SHOWN = 40  # rows without failures in the table at the end

_compare: Compare | None = None


def comparison() -> Compare | None:
    """The comparison that CAUSEWAY_COMPARE opened."""
    return _compare


def push_compare() -> None:
    global _compare
    former, _compare = _compare, None
    if former is not None:
        former.__exit__(None, None, None)
        atexit.unregister(_summary)
    ops = config.get("compare")
    if not ops:
        return
    from causeway.comparison.compare import Compare

    made = Compare(
        ops,
        every=config.get("compare_every"),
        steps=config.get("compare_steps"),
        folder=config.get("compare_folder") or None,
        on_failure="raise" if config.get("compare_raise") else "print",
    )
    _compare = made.__enter__()
    atexit.register(_summary)


def _summary() -> None:
    if _compare is not None:
        _compare.__exit__(None, None, None)
        table = _compare.table(SHOWN)
        print(f"\ncauseway: operators compared with the CPU\n{table}", file=sys.stderr)
