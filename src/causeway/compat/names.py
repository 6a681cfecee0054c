"""What becomes of each name of other systems' modules: names.toml, which says how it is written.

The modules of this package raise by it, docs/compat.md is written from it, and `causeway migrate`
converts by it, so that the three agree.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True)
class Name:
    """A name; of the first five one is given. `instead`: it raises. See names.toml."""

    instead: str = ""
    to: str = ""
    form: str = ""
    drop: str = ""
    hand: str = ""
    leave: tuple[str, ...] = ()


@cache
def modules() -> dict[str, dict[str, Name]]:
    """All tables, by the module's name: "torch.npu"."""
    text = Path(__file__).with_name("names.toml").read_text(encoding="utf-8")
    return {
        module: {
            name: Name(instead=entry) if isinstance(entry, str) else Name(**entry)
            for name, entry in table.items()
        }
        for module, table in tomllib.loads(text).items()
    }


def instead(module: str) -> dict[str, str]:
    """The names of a module that raise, with what to write instead."""
    return {n: entry.instead for n, entry in modules().get(module, {}).items() if entry.instead}
