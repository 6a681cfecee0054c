"""Cases in place of torch's samples: of a user's program, as `causeway cases` wrote them, or by
hand (.toml).
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property

import torch

from causeway.conformance import by_hand
from causeway.conformance.families import Family, family
from causeway.conformance.harvest import HarvestedCall
from causeway.errors import TraceError
from causeway.observe.arguments import overload
from causeway.ops import facts
from causeway.trace import cases

Case = cases.Case | by_hand.HandCase


class Given:
    """The cases of a file, by operator. Raises TraceError where it is damaged."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.cases: Sequence[Case] = (
            by_hand.read(path) if path.endswith(".toml") else cases.read(path)
        )

    @cached_property
    def _by_name(self) -> dict[str, list[tuple[int, Case]]]:
        found: dict[str, list[tuple[int, Case]]] = {}
        for place, case in enumerate(self.cases, 1):
            number = getattr(case, "number", place)
            found.setdefault(facts.own_names().get(case.operator, case.operator), []).append(
                (number, case)
            )
        return found

    def has(self, offered: str, all_offered: frozenset[str]) -> bool:
        """Whether there is a case of an operator that a vendor offers, in any of its forms."""
        return not family(offered, all_offered).harvested.isdisjoint(self._by_name)

    def not_offered(self, offered: Iterable[str]) -> dict[str, int]:
        """The operators of the file that no kernel of the vendor serves, with their calls."""
        names = frozenset(offered)
        served = set().union(*(family(name, names).harvested for name in names))
        found: Counter[str] = Counter()
        for name, group in self._by_name.items():
            if name not in served:
                found[name] += sum(case.times for _, case in group)
        return dict(found.most_common())

    def calls(self, found: Family, dtype: torch.dtype) -> list[HarvestedCall]:
        """The cases of a family with a dtype, as calls. Those that cannot be made are left out."""
        calls = []
        arguments = [a.name for a in overload(found.reference)._schema.arguments if not a.is_out]
        for name in sorted(found.harvested):
            for number, case in self._by_name.get(name, ()):
                if case.dtype != dtype:
                    continue
                with contextlib.suppress(TraceError):
                    inputs = case.inputs(overload(case.operator)._schema)
                    if len(inputs) == len(arguments):
                        tolerance = getattr(case, "tolerance", None)
                        calls.append(
                            HarvestedCall(f"case {number} ({case.title})", inputs, tolerance)
                        )
        return calls
