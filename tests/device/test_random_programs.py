"""Programs that nobody wrote: views, results, writes in place and refusals, one after the other."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import random_programs
from random_programs import NUMBERS, Pool, difference, shortest


@pytest.mark.parametrize("first", range(0, 400, 50))
def test_a_program_does_what_it_does_on_the_cpu(name: str, first: int) -> None:
    for seed in range(first, first + 50):
        assert shortest(seed, name) is None, f"seed {seed}"


def writes(t: Tensor) -> Tensor:
    t.data.add_(1)  # where no version counts it
    return t.clone()


FAULTS: dict[str, tuple[str, Callable[[Tensor], object], Callable[[Tensor], object]]] = {
    "value": ("values", torch.neg, torch.abs),
    "layout": ("strides", torch.clone, lambda t: t.t().contiguous().t()),
    "dtype": ("dtype", torch.clone, torch.Tensor.half),
    "copy of a view": ("share memory", lambda t: t.view(t.shape), torch.clone),
    "version": ("_version", torch.clone, lambda t: t.clone().add_(0)),
    "write": ("values", torch.clone, writes),
    "gradient": ("gradients: values", torch.clone, lambda t: t * 2 - t.detach()),
    "cut graph": ("requires_grad", torch.clone, torch.Tensor.detach),
    "refusal": ("on the CPU", lambda t: t.view(5, 5), torch.clone),
    "other refusal": ("on the CPU", lambda t: t.view(5, 5), lambda t: t.select(9, 0)),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(name: str, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where, theirs, ours = FAULTS[fault]

    def planted(pool: Pool) -> object:
        return (theirs if pool.device == "cpu" else ours)(pool.tensors[0])

    monkeypatch.setattr(random_programs, "OPERATIONS", [("planted", planted)])
    found = difference([(0, [1] * NUMBERS)], name, gradients=True)
    assert found is not None
    assert where in found
