"""The rules, in the order in which they look at a module.

A rule is a module with `RULE`, what it says about itself, and `run(module)`. Earlier rules know
more of the place that they look at; the imports come last, when it is known what still uses them.
"""

from __future__ import annotations

from collections.abc import Callable

from causeway.migrate.module import Module
from causeway.migrate.rule import Rule
from causeway.migrate.rules import (
    cw101,
    cw102,
    cw103,
    cw104,
    cw105,
    cw106,
    cw107,
    cw108,
    cw109,
    cw110,
    cw111,
    cw112,
    cw113,
    cw114,
    cw115,
    cw116,
    cw117,
    cw118,
    cw119,
    cw120,
    cw121,
    cw122,
    cw123,
    cw130,
    cw140,
    cw141,
    cw142,
    cw143,
    cw152,
    cw153,
    cw160,
    cw161,
    cw162,
)  # fmt: skip

_ORDER = (
    cw153, cw104, cw120, cw106, cw107, cw108, cw105, cw109, cw110, cw111, cw112, cw113, cw140,
    cw103, cw115, cw102, cw101, cw121, cw130, cw141, cw142, cw152, cw160, cw161, cw162, cw114,
    cw122, cw123, cw143,
    cw119, cw117, cw116, cw118,
)  # fmt: skip

RULES: dict[str, Rule] = {m.RULE.code: m.RULE for m in sorted(_ORDER, key=lambda m: m.RULE.code)}
RUNS: tuple[Callable[[Module], None], ...] = tuple(m.run for m in _ORDER)
