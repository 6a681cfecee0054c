"""The first operator that makes infinity or NaN is found, with its inputs."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import pytest
import torch

import causeway
from causeway import config
from causeway.debug import overflow as module
from causeway.errors import NonFiniteError
from causeway.trace.reader import Trace
from causeway.trace.replay import replay


@pytest.fixture(params=["cpu", "chip"])
def where(request: pytest.FixtureRequest, device: torch.device) -> torch.device:
    return torch.device("cpu") if request.param == "cpu" else device


def watched(work, **options: object) -> module.Watch:
    with causeway.overflow(lambda found: None, **options) as watch:
        work()
    return watch


def test_finite_numbers_are_no_overflow(where: torch.device) -> None:
    def work() -> None:
        x = torch.full((1000,), 3e38, device=where)  # their sum is infinite
        (x * 0.5).neg()

    watch = watched(work)
    assert watch.found is None
    assert watch.first is None
    assert watch.calls >= 3


def test_the_first_operator_is_named_with_counts_and_place(where: torch.device) -> None:
    def work() -> None:
        x = torch.tensor([1.0, 1e30, 2.0], device=where)
        y = x * x
        y.exp().sum()

    watch = watched(work, save=None)
    assert watch.found is not None
    assert "mul" in watch.found.operator
    assert (watch.found.nan, watch.found.inf) == (0, 1)
    assert watch.found.call.phase == "forward"
    assert any(__file__ in frame for frame in watch.found.stack)


def test_overflow_in_backward_is_found_with_its_module(device: torch.device) -> None:
    class Root(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.sqrt()

    def work() -> None:
        x = torch.zeros(3, device=device, requires_grad=True)
        Root()(x).sum().backward()

    watch = watched(work)
    assert watch.found is not None
    assert watch.found.call.phase == "backward"
    assert watch.found.call.module == "Root"
    assert "div" in watch.found.operator


def test_nan_of_infinity_is_made_and_infinity_of_infinity_is_not(where: torch.device) -> None:
    def work() -> None:
        mask = torch.full((2,), float("-inf"), device=where)
        (mask + 1).softmax(0)

    watch = watched(work, save=None)
    assert "softmax" in watch.found.operator
    assert watch.found.nan == 2
    assert not watch.first.made


def test_a_mask_of_infinities_is_not_warned_of(where: torch.device) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with causeway.overflow("warn") as watch:
            x = torch.zeros(2, 2, device=where)
            x.masked_fill_(torch.eye(2, device=where).bool(), float("-inf")).softmax(1)
    assert watch.found is None
    assert watch.first is not None


def test_nan_that_came_with_the_data_is_said_to_be_from_the_inputs(where: torch.device) -> None:
    data = torch.tensor([1.0, float("nan")])
    with pytest.warns(UserWarning, match="has from its inputs 1 NaN"), causeway.overflow("warn"):
        data.to(where) + 1


def test_the_call_is_saved_with_inputs_as_they_were_and_runs_again(
    tmp_path: Path, where: torch.device
) -> None:
    def work() -> None:
        x = torch.tensor([1.0, 1e30], device=where)
        x.mul_(x)

    watch = watched(work, save=tmp_path / "saved")
    assert watch.found.folder == tmp_path / "saved"
    assert f"causeway replay {watch.found.folder}" in str(watch.found)
    trace = Trace(tmp_path / "saved")
    assert trace.values(trace.calls[0].args[0]).tolist() == [1.0, pytest.approx(1e30)]
    found = replay(trace, where)
    assert [one.state for one in found.calls] == ["agrees"]


def test_raise_stops_the_program_where_it_happens(where: torch.device) -> None:
    x = torch.zeros(2, device=where)
    with causeway.overflow("raise", save=None), pytest.raises(NonFiniteError, match="made 2 Inf"):
        x.reciprocal()


def test_raise_stops_a_backward(device: torch.device) -> None:
    x = torch.zeros(2, device=device, requires_grad=True)
    y = x.sqrt().sum()
    with causeway.overflow("raise", save=None), pytest.raises(NonFiniteError, match="backward"):
        y.backward()


def test_memory_that_nobody_wrote_is_no_overflow(where: torch.device) -> None:
    def work() -> None:
        for _ in range(20):
            torch.full((1000,), float("nan"), device="cpu")
            torch.empty(1000, device=where)

    watch = watched(work, ops="empty.*")
    assert watch.first is None


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.complex64])
def test_other_dtypes_are_watched(dtype: torch.dtype, where: torch.device) -> None:
    def work() -> None:
        x = torch.full((3,), 1.0, device=where, dtype=dtype)
        x / torch.zeros(3, device=where, dtype=dtype)

    assert "div" in watched(work, save=None).found.operator


def test_os_environ_switches_the_watch(device: torch.device, monkeypatch, tmp_path: Path) -> None:
    x = torch.zeros(2, device=device)
    monkeypatch.setenv("CAUSEWAY_OVERFLOW_SAVE", str(tmp_path / "saved"))
    monkeypatch.setenv("CAUSEWAY_OVERFLOW", "warn")
    with pytest.warns(UserWarning, match="made 2 Inf"):
        x.reciprocal()
    assert Trace(tmp_path / "saved").complete
    monkeypatch.setenv("CAUSEWAY_OVERFLOW", "raise")
    with pytest.raises(NonFiniteError):
        x.reciprocal()
    os.environ["CAUSEWAY_OVERFLOW"] = "off"
    x.reciprocal()
    assert module.running() is None
    with config.using(overflow="raise"), pytest.raises(NonFiniteError):
        x.reciprocal()
    assert module.running() is None
