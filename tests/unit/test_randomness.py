"""Random operators: what a comparison tells of draws that should not be."""

from __future__ import annotations

import torch

from causeway.comparison.randomness import Draws
from causeway.comparison.snapshot import Snapshot

NAME = "aten::uniform_"


def check(draws: Draws, came: torch.Tensor, offset: int, moved: bool = True) -> str:
    taken = Snapshot((came.clone(), 0.0, 1.0, None), (True, False, False, False))
    before = torch.tensor([offset] + [0] * 15, dtype=torch.uint8)
    after = torch.tensor([offset + moved] + [0] * 15, dtype=torch.uint8)
    return draws.check(NAME, taken, [came], before, after, offset).why


def test_right_draws_pass_and_go_on_passing() -> None:
    draws, generator = Draws(), torch.Generator().manual_seed(3)
    for k in range(20):
        assert check(draws, torch.rand(500, generator=generator), k) == ""


def test_another_distribution_is_told() -> None:
    came = torch.rand(20000) ** 1.3
    assert check(Draws(), came, 0) == "not distributed as the CPU's"


def test_a_generator_that_stands_still_is_told() -> None:
    assert check(Draws(), torch.rand(100), 0, moved=False) == "the generator did not move on"


def test_the_same_numbers_twice_are_told() -> None:
    draws, came = Draws(), torch.rand(100)
    assert check(draws, came, 0) == ""
    assert check(draws, came, 1) == "the same numbers twice"
