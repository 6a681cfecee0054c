"""The static answer is the ledger's: operator by operator and rung by rung."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

# How the chip is: all that changes what the ladder decides.
DISCRETE = {"sim_ops": "all", "sim_memory_model": "discrete"}
UNIFIED = {"sim_ops": "fastest"}  # its kernels decline what is large
NEEDS_NUMBERS = {"detection"}  # how many boxes are kept is known when they are

Ledgers = Callable[..., dict[str, Any]]


def differing(real: dict[str, Any], paper: dict[str, Any]) -> dict[str, list[Any]]:
    """Rows that are not in both, by model."""
    found = {}
    for name, rows in real.items():
        assert isinstance(rows, list), rows
        assert rows
        other = paper[name]
        if isinstance(other, str):
            found[name] = [other]
        elif rows != other:
            found[name] = [r for r in [*rows, *other] if r not in rows or r not in other]
    return found


def rungs(ledgers: dict[str, Any]) -> set[str]:
    return {row[1] for rows in ledgers.values() for row in rows}


def test_ten_models_take_the_same_rungs_with_nothing_computed(chip: Path, ledgers: Ledgers) -> None:
    real = ledgers(vendor="sim", **DISCRETE)
    assert len(real) == 10
    assert rungs(real) == {"native", "derived", "decomposed", "host"}
    dry = ledgers("dry", vendor=str(chip), **DISCRETE)
    found = differing(real, dry)
    assert found.keys() == NEEDS_NUMBERS, found
    assert all("asks for a number" in rows[0] for rows in found.values())


def test_ten_models_take_the_same_rungs_with_their_numbers(chip: Path, ledgers: Ledgers) -> None:
    real = ledgers(vendor="sim", **DISCRETE)
    assert differing(real, ledgers("run", vendor=str(chip), **DISCRETE)) == {}


@pytest.mark.slow
def test_ten_models_take_the_same_rungs_where_kernels_decline(chip: Path, ledgers: Ledgers) -> None:
    real = ledgers(vendor="sim", **UNIFIED)
    assert rungs(real) == {"native", "derived", "host"}
    assert differing(real, ledgers("small", vendor=str(chip), **UNIFIED)) == {}


def test_another_chip_is_told_apart(chip: Path, ledgers: Ledgers) -> None:
    """The comparison can fail: one operator more on the host is seen in each model that has it."""
    other = ledgers(vendor="sim", fallback="aten::_softmax", **DISCRETE)
    found = differing(other, ledgers("dry", vendor=str(chip), **DISCRETE)).keys() - NEEDS_NUMBERS
    has = {name for name, rows in other.items() if any(r[0] == "aten::_softmax" for r in rows)}
    assert found == has
    assert has
