"""Under which names a vendor could serve an operator, and why one does not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache

from causeway.ops import facts, schema

Offered = Mapping[str, Iterable[str]]  # operator -> dtypes


@cache
def _known() -> dict[str, schema.Operator]:
    return {operator.name: operator for operator in schema.operators()}


def has_page(operator: str) -> bool:
    """Whether `causeway operators` has its arguments."""
    return operator in _known()


@cache
def forms(operator: str) -> tuple[str, ...]:
    """The names that the core asks a vendor by, the one that is best offered first."""
    known = _known().get(operator)
    if known is None:
        return (operator,) if facts.of_another_library(operator) else ()
    names = [known.served_by] if known.served_by else []
    alias = facts.of(operator).other_name
    return tuple(dict.fromkeys([*names, operator, *([alias] if alias else [])]))


def reason(operator: str, rung: str, dtypes: Iterable[str], offered: Offered) -> str:
    """Why calls of these dtypes came to this rung."""
    names = forms(operator)
    given = [name for name in names if name in offered]
    if rung == "native":
        return f"the vendor's {operator if operator in given else given[0] if given else operator}"
    if rung == "derived":
        if operator in given:
            return f"the vendor's {operator}, with inputs or outputs made fit for it"
        return f"served by the vendor's {given[0]}" if given else "served by another form"
    if rung == "portable":
        return "Causeway's own kernel, which the chip's compiler builds"
    if not names:
        why = f"no kernel of a vendor is called for {operator}"
    elif not given:
        why = f"the vendor does not offer {' or '.join(names)}"
    else:
        lacking = sorted(set(dtypes) - {d for name in given for d in offered[name]})
        if lacking:
            why = f"the vendor offers {given[0]}, not for {', '.join(lacking)}"
        else:
            why = (
                f"the vendor offers {given[0]}, not for this call: its kernel declines it, or the "
                "ladder has no way to make its arguments fit (sparse, empty, of two devices)"
            )
    if rung == "decomposed":
        return f"{why}; torch computes it from operators that are offered"
    return why
