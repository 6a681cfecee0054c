"""The static answer is the ledger's: operator by operator and rung by rung."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

# How the chip is: all that changes what the ladder decides.
CHIPS = {
    "discrete": {"sim_ops": "all", "sim_memory_model": "discrete"},
    "unified": {"sim_ops": "fastest"},
}
NEEDS_NUMBERS = {"detection"}  # how many boxes are kept is known when they are


def compared(real: dict[str, Any], paper: dict[str, Any]) -> dict[str, list[Any]]:
    """What differs, by model."""
    differing = {}
    for name, rows in real.items():
        assert isinstance(rows, list), rows
        assert rows
        other = paper[name]
        if isinstance(other, str):
            differing[name] = [other]
        elif rows != other:
            differing[name] = [r for r in rows if r not in other] + [
                ["on paper", *r] for r in other if r not in rows
            ]
    return differing


@pytest.mark.parametrize(
    "kind", [pytest.param("discrete"), pytest.param("unified", marks=pytest.mark.slow)]
)
def test_ten_models_take_the_same_rungs_on_paper(
    kind: str, chip: Path, ledgers: Callable[..., dict[str, Any]]
) -> None:
    settings = CHIPS[kind]
    real = ledgers(vendor="sim", **settings)
    assert len(real) == 10
    dry = ledgers("dry", vendor=str(chip), **settings)
    assert {name for name, rows in dry.items() if isinstance(rows, str)} == NEEDS_NUMBERS
    differing = compared(real, dry)
    assert differing.keys() == NEEDS_NUMBERS, differing
    assert compared(real, ledgers(vendor=str(chip), **settings)) == {}
    rungs = {row[1] for rows in real.values() for row in rows}
    assert rungs >= (
        {"native", "derived", "decomposed", "host"} if kind == "discrete" else {"host"}
    )


def test_another_chip_is_told_apart(chip: Path, ledgers: Callable[..., dict[str, Any]]) -> None:
    """The comparison above can fail: one operator less on paper is seen."""
    settings = CHIPS["discrete"]
    real = ledgers(vendor="sim", fallback="aten::mm.out, aten::mm", **settings)
    paper = ledgers("dry", vendor=str(chip), **settings)
    assert compared(real, paper).keys() - NEEDS_NUMBERS
