"""Random operators: the same seed gives the same numbers, and they are distributed as the CPU's."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from causeway.conformance.families import Family, inputs_of, kind_of
from causeway.conformance.harvest import arguments_for
from causeway.numerics import base_name, differ
from causeway.observe.arguments import overload

N = 20000
ALPHA = 1e-6

# Arguments other than the defaults, by name.
OTHERS: dict[str, Any] = {"from": -2.0, "to": 3.0, "mean": 1.5, "std": 0.5, "p": 0.2, "lambd": 2.0}
OTHERS |= {"median": 0.5, "sigma": 2.0, "low": 2, "high": 9}
# What is drawn, where it is not of the dtype of the input.
DRAWN = {"multinomial": torch.int64}
# Of arguments that have no default.
NEEDED: dict[str, Any] = {"p": 0.5, "train": True, "from": 1, "to": 40, "mean": 0.0}


def random_cases(
    family: Family, dtype: torch.dtype, device: torch.device
) -> Iterator[tuple[str, Callable[[], None]]]:
    """(title, test): a test raises AssertionError with the words."""
    name = family.forms[0][1]
    takes_generator = any("Generator" in str(a.type) for a in inputs_of(overload(name)._schema))

    def draw(where: Any, seed: int | None, others: bool, n: int = N) -> Tensor:
        """n numbers; with a seed from a generator of its own, else from the default one."""
        generator = None
        if seed is not None:
            generator = torch.Generator(device=where).manual_seed(seed)
            if not takes_generator:
                torch.manual_seed(seed)
        values: list[Any] = []
        for argument in inputs_of(overload(name)._schema):
            kind = str(argument.type)
            if "Generator" in kind:
                values.append(generator)
            elif kind == "Tensor":
                floats = dtype if dtype.is_floating_point else torch.float32
                own = floats if argument.name == "p" else dtype  # chances, whatever is drawn
                values.append(torch.full((n,), 0.5).to(own).to(where))
            elif argument.name in ("n", "num_samples", "size"):
                values.append([n] if argument.name == "size" else n)
            elif others and argument.name in OTHERS:
                value = OTHERS[argument.name]
                values.append(int(value) if "int" in kind else value)
            elif argument.has_default_value():
                values.append(argument.default_value)
            else:
                values.append(NEEDED.get(argument.name))
        args, kwargs = arguments_for(name, values)
        if kind_of(overload(name)._schema) == "out":
            kwargs["out"] = torch.empty(n, dtype=DRAWN.get(base_name(name), dtype), device=where)
        result = overload(name)(*args, **kwargs)
        first: Tensor = result[0] if isinstance(result, (tuple, list)) else result
        return first.cpu()

    def same_seed() -> None:
        a, b = draw(device, 7, False), draw(device, 7, False)
        assert torch.equal(a, b), f"the same seed gave other numbers: {a[:3]} and {b[:3]}"
        torch.manual_seed(7)
        c = draw(device, None, False)
        torch.manual_seed(7)
        d = draw(device, None, False)
        assert torch.equal(c, d), "torch.manual_seed(7) twice gave other numbers"

    def goes_on() -> None:
        torch.manual_seed(7)
        a, b = draw(device, None, False), draw(device, None, False)
        assert not torch.equal(a, b), "two draws after each other gave the same numbers"
        c = draw(device, 8, False)
        assert not torch.equal(draw(device, 7, False), c), "two seeds gave the same numbers"

    def distribution(others: bool) -> None:
        here, there = draw("cpu", 1, others), draw(device, 1, others)
        assert here.dtype == there.dtype, f"dtype {there.dtype}, expected {here.dtype}"
        wrong = differ(there, here, ALPHA)
        assert wrong is None, f"not distributed as the CPU's: {', '.join(wrong)}"

    def independent() -> None:
        x = draw(device, 3, False).double()
        x = (x - x.mean()) / x.std().clamp(min=1e-9)
        found = float((x[1:] * x[:-1]).mean().abs())
        assert found <= 6 / math.sqrt(N), f"neighbours are correlated: {found:.4f}"

    def on_cpu(others: bool, n: int = N) -> bool:
        try:
            draw("cpu", 1, others, n)
        except RuntimeError:
            return False
        return True

    def odd_sizes() -> None:
        for n in (0, 1, 2, 3, 5, 255, 257):
            if not on_cpu(False, n):
                continue
            assert draw(device, 5, False, n).numel() == n
        long, short = draw(device, 5, False, 257), draw(device, 5, False, 257)
        assert torch.equal(long, short), "the same seed gave other numbers for 257 elements"

    if not on_cpu(False):
        return  # it draws no numbers of this dtype
    yield "same seed", same_seed
    yield "goes on", goes_on
    yield "distribution", lambda: distribution(False)
    if on_cpu(True):
        yield "distribution with other arguments", lambda: distribution(True)
    yield "independent", independent
    yield "odd sizes", odd_sizes
