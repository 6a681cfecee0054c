"""Observers: Python before and after each selected operator of the device."""

from __future__ import annotations

import threading

import pytest
import torch

import causeway
from causeway.observe import observe


class Log(observe.Observer):
    def __init__(self, operators: str = ".*") -> None:
        self.operators = operators
        self.calls: list[observe.ObservedCall] = []
        self.seen: list[tuple] = []

    def after(self, call: observe.ObservedCall) -> None:
        self.calls.append(call)
        self.seen.append((call.name, call.phase, call.module, call.step))

    @property
    def names(self) -> list[str]:
        return [call.name for call in self.calls]

    def __enter__(self) -> Log:
        observe.add(self)
        return self

    def __exit__(self, *_: object) -> None:
        observe.remove(self)


def test_an_observer_gets_arguments_with_defaults_and_results(device) -> None:
    a, b = torch.arange(3.0).to(device), torch.ones(3).to(device)
    with Log("add.*") as log:
        c = a + b
    (call,) = log.calls
    assert call.name == "aten::add.Tensor"
    assert call.op is torch.ops.aten.add.Tensor
    assert call.args[0] is a
    assert call.args[2] == 1
    assert call.results[0] is c
    assert call.rung in ("native", "derived", "host")
    assert call.thread == threading.get_ident()
    assert call.error == ""


def test_dtypes_and_layouts_are_torchs_own_objects(device) -> None:
    with Log("empty.*") as log:
        torch.empty(2, dtype=torch.float16, device=device)
    assert torch.float16 in log.calls[0].args
    assert log.calls[0].rung == "core"


def test_only_selected_operators_are_observed(device) -> None:
    a = torch.ones(2, device=device)
    with Log("mul|aten::sum.dim_IntList") as log:
        (a * 2 + a).sum()
    assert set(log.names) <= {"aten::mul.Tensor", "aten::mul.out", "aten::sum.dim_IntList"}
    assert len(log.names) == 2


def test_backward_and_optimizer_are_told_apart_and_named_by_module(device) -> None:
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh()).to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with Log() as log:
        for _ in range(2):
            net(torch.ones(2, 3, device=device)).sum().backward()
            optimizer.step()
    seen = set(log.seen)
    assert ("aten::addmm", "forward", "Sequential.0", 1) in seen
    assert ("aten::tanh_backward", "backward", "Sequential.1", 2) in seen
    assert any(phase == "optimizer" and module == "SGD" for _, phase, module, _ in seen)
    assert any(c.node == "TanhBackward0" for c in log.calls)


def test_an_operator_that_fails_is_observed_with_its_error(device) -> None:
    with Log("mm") as log, pytest.raises(RuntimeError, match="cannot be multiplied"):
        torch.mm(torch.ones(2, 3, device=device), torch.ones(2, 3, device=device))
    assert "cannot be multiplied" in log.calls[0].error
    assert log.calls[0].results == ()


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_observers_exception_reaches_the_caller_and_nothing_else(device, when) -> None:
    class Bad(observe.Observer):
        operators = "add.*"

    def fail(self, call):
        raise KeyError("boo")

    setattr(Bad, when, fail)
    bad = Bad()
    observe.add(bad)
    try:
        for _ in range(2):
            with pytest.raises(observe.ObserverError, match=r"add\.Tensor: KeyError") as caught:
                torch.ones(2, device=device) + 1
            assert isinstance(caught.value.__cause__, KeyError)
    finally:
        observe.remove(bad)
    assert (torch.ones(2, device=device) + 1).tolist() == [2, 2]


def test_an_observers_own_operators_are_not_observed(device) -> None:
    class Busy(Log):
        def before(self, call):
            (torch.ones(2, device=device) + 1).cpu()

    with Busy() as log:
        torch.ones(2, device=device)
    assert log.names == ["aten::empty.memory_format", "aten::fill_.Scalar"]


def test_an_observer_runs_outside_of_autograd_and_inference_mode(device) -> None:
    states = []

    class Look(observe.Observer):
        operators = "mul.*"

        def after(self, call):
            states.append((torch.is_grad_enabled(), torch.is_inference_mode_enabled()))
            states.append(torch.ones(1).mul(2).is_inference())

    look = Look()
    observe.add(look)
    try:
        with torch.inference_mode():
            torch.ones(2, device=device) * 2
    finally:
        observe.remove(look)
    assert states == [(False, False), False]


def test_several_observers_and_threads_see_each_call_once(device) -> None:
    with Log("mul.*") as one, Log() as two:
        threads = [
            threading.Thread(target=lambda: torch.ones(2, device=device).mul(3)) for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(one.names) == 4
    assert len({c.thread for c in one.calls}) >= 1
    assert two.names.count("aten::mul.Tensor") == 4
    numbers = [c.sequence for c in two.calls]
    assert len(set(numbers)) == len(numbers)


def test_steps_are_counted_by_hand_where_there_is_no_optimizer(device) -> None:
    with Log("mul.*") as log:
        a = torch.ones(1, device=device)
        for _ in range(3):
            a.mul(2)
            causeway.step()
    assert [step for *_, step in log.seen] == [1, 2, 3]


def test_sparse_tensors_are_observed(device) -> None:
    s = torch.eye(3).to_sparse().to(device)
    with Log(".*mm.*") as log:
        s @ torch.ones(3, 3, device=device)
    assert any(isinstance(a, torch.Tensor) and a.is_sparse for c in log.calls for a in c.args)


def test_an_unknown_operator_raises_with_the_nearest_name(device) -> None:
    with pytest.raises(causeway.ConfigError, match="did you mean 'add'"):
        observe.add(Log("addd"))


def test_nothing_is_observed_after_removal(device) -> None:
    with Log() as log:
        torch.ones(1, device=device)
    count = len(log.calls)
    torch.ones(1, device=device).add(1)
    assert len(log.calls) == count
