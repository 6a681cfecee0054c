"""What the bound of an element needs beside its rule: the result in float64, and the size of the
terms that it was made of.

Both come of calling the operator again on the CPU, on arguments that were changed. How that is done
is the caller's (`Evaluate`): `causeway.compare` has images of what a program gave, the conformance
suite has its cases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from causeway.numerics.rules import (
    FACTORS,
    JUMPS,
    MAGNITUDE,
    NEGATED,
    NORMALIZED,
    RULES,
    base_name,
    rule_of,
)
from causeway.ops import facts

# change(name of the argument, a tensor or a number in float64): what stands in its place.
Change = Callable[[str, Any], Any]
# evaluate(operator, change): the operator's flattened results on the arguments in float64, each
# after `change`; None where the CPU has no such call, or results of other shapes.
Evaluate = Callable[[str, Change], "list[Any] | None"]

STEP = 2.0**-20  # of a trial, relative: far above rounding in float64, far below the inputs


class Refused(Exception):
    """The CPU does not take the call; the message is torch's."""


def unchanged(argument: str, value: Any) -> Any:
    return value


def widen(t: Tensor) -> Tensor:
    """The same numbers in float64, complex ones in complex128."""
    return t.to(torch.complex128 if t.dtype.is_complex else torch.float64)


def widen_integers(t: Tensor, results: Iterable[Any]) -> Tensor:
    """Integers that an operator makes floats of, in float64. They are first rounded as torch does,
    to the dtype of the results: tan(2**31 - 1) is that of 2**31.
    """
    double = any(isinstance(r, Tensor) and r.dtype == torch.float64 for r in results)
    return (t if double else t.to(torch.float32)).to(torch.float64)


def magnitude(
    operator: str, arguments: Mapping[str, Any], exact: Sequence[Any], evaluate: Evaluate
) -> list[Any] | None:
    """For each result the size of the terms that it is made of, which rounding is relative to; None
    where that is the result's own.

    `arguments` are those that are no outputs, as they were given; `exact` is the result in float64.
    Of sums of products the magnitude is the operator run on absolute values (MAGNITUDE). Of
    "smooth" operators it is a formula. Of what else adds up it is found by a trial: how far the
    result moves for a relative change of the inputs, as a share of that change. N. J. Higham,
    Accuracy and Stability of Numerical Algorithms (2nd ed. 2002), section 1.6.
    """
    base = base_name(facts.own_names().get(operator, operator))
    stand_in = MAGNITUDE.get(base)
    if stand_in is not None:
        negated = NEGATED.get(base, ())
        other = operator.replace("sub", stand_in) if stand_in else operator
        return evaluate(other, lambda name, v: -abs(v) if name in negated else abs(v))
    rule = RULES[rule_of(base)]
    if base == "linspace":  # each result is an end and a multiple of the step
        return [_largest(t) if _is_float(t) else None for t in exact]
    if rule.name == "smooth":
        floats = [t for v in arguments.values() for t in _tensors(v) if t.is_floating_point()]
        return [_smooth(base, floats, t) if _is_float(t) else None for t in exact]
    if not rule.grows or base in JUMPS:
        return None
    return _trial(operator, base, arguments, exact, evaluate)


def _smooth(base: str, inputs: list[Tensor], exact: Tensor) -> Tensor | None:
    """|first input| * prod(1 + |others|). Of digamma |x psi'(x)|, its condition: it has poles and
    zeros side by side.
    """
    if not inputs:
        return None
    if base == "digamma":
        x = inputs[0].double()
        return (x * torch.polygamma(1, x)).abs()
    scale = inputs[0].double().abs()
    for other in inputs[1:]:
        scale = scale * (1 + other.double().abs())
    scale = scale.nan_to_num(0.0, 0.0, 0.0)
    if scale.shape == exact.shape or not scale.numel():
        return scale if scale.shape == exact.shape else None
    return scale.max().expand_as(exact)


def _trial(
    operator: str,
    base: str,
    arguments: Mapping[str, Any],
    exact: Sequence[Any],
    evaluate: Evaluate,
) -> list[Any] | None:
    """By changing all inputs a little, each element up or down. Of elementwise arithmetic an
    element's own; of sums the largest, since a trial may miss what cancels.
    """
    generator = torch.Generator().manual_seed(1)

    def move(name: str, value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        signs = torch.randint(0, 2, value.shape, generator=generator, dtype=torch.float64) * 2 - 1
        return value * (1 + STEP * signs)

    moved = evaluate(operator, move)
    if moved is None or len(moved) != len(exact):
        return None
    product = _factors(base, arguments, exact)
    alone = rule_of(base) == "arithmetic"
    found: list[Any] = []
    for a, b in zip(moved, exact, strict=True):
        if not _is_float(b) or not b.numel():
            found.append(None)
            continue
        size = b.detach().abs().nan_to_num(0.0, 0.0, 0.0)
        step = ((a.detach() - b.detach()).abs() / STEP).nan_to_num(0.0, 0.0, 0.0)
        found.append(size + step if alone else (size.max() + step.max() + product).expand(b.shape))
    return found


def _factors(base: str, arguments: Mapping[str, Any], exact: Sequence[Any]) -> float:
    """The size of terms that cancel inside, so that no trial shows them: see FACTORS."""
    wanted = FACTORS.get(base, ())
    if not wanted:
        return 0.0
    given = [arguments.get(name) for name in wanted]
    if base in NORMALIZED and len(exact) > 2:
        given.append(exact[2])
    product = 1.0
    for value in given:
        if isinstance(value, Tensor) and value.numel():
            product *= float(value.double().abs().nan_to_num(0.0, 0.0, 0.0).max())
    return product


def _is_float(t: Any) -> bool:
    return isinstance(t, Tensor) and (t.is_floating_point() or t.is_complex())


def _largest(t: Tensor) -> Tensor | None:
    return t.abs().max().expand_as(t) if t.numel() else None


def _tensors(value: Any) -> Iterable[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _tensors(one)
