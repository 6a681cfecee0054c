"""One engine that judges numbers, for all that compares: `causeway.compare`, the conformance suite,
replay and trace differences, `first_divergence`, `verify`, and the check of compiled kernels.

rules.py         the class of each operator, and what it may be off by: dtype, class, length of sums
bounds.py        the result in float64 and the size of its terms, which a bound is made of
elements.py      one operator's result, element by element
places.py        results that say where a value stands
tolerances.py    single operators for which something else holds, in tolerances.toml with reasons
spans.py         results of many operators: kernels, runs, machines, series of numbers
distribution.py  random numbers

Each user has its own calls and reports; none has a tolerance.
"""

from causeway.numerics.bounds import Refused, magnitude, unchanged, widen, widen_integers
from causeway.numerics.distribution import chance_bound, differ, distance
from causeway.numerics.elements import Verdict, compare, same_form, spacing, steps
from causeway.numerics.places import Misplaced, standing
from causeway.numerics.rules import (
    MAGNITUDE,
    OPERATORS,
    RULES,
    ToleranceRule,
    accumulator,
    base_name,
    growth,
    rule_of,
    terms,
    unit,
)
from causeway.numerics.spans import SPANS, Apart, allowed, apart, near, number_apart

__all__ = [
    "MAGNITUDE",
    "OPERATORS",
    "RULES",
    "SPANS",
    "Apart",
    "Misplaced",
    "Refused",
    "ToleranceRule",
    "Verdict",
    "accumulator",
    "allowed",
    "apart",
    "base_name",
    "chance_bound",
    "compare",
    "differ",
    "distance",
    "growth",
    "magnitude",
    "near",
    "number_apart",
    "rule_of",
    "same_form",
    "spacing",
    "standing",
    "steps",
    "terms",
    "unchanged",
    "unit",
    "widen",
    "widen_integers",
]
