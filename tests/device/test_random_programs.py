"""Programs that nobody wrote: views, results, writes in place and refusals, one after the other."""

from __future__ import annotations

import pytest

from random_programs import shortest


@pytest.mark.parametrize("first", range(0, 400, 50))
def test_a_program_does_what_it_does_on_the_cpu(name: str, first: int) -> None:
    for seed in range(first, first + 50):
        assert shortest(seed, name) is None, f"seed {seed}"
