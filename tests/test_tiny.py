"""The first tests to run, in seconds: is there a device, and does it do what a network needs.

They need nothing but torch, Causeway and pytest: an installed wheel is tested with them too.
"""

from __future__ import annotations

import io

import pytest
import torch

import causeway


@pytest.fixture(scope="module")
def device() -> torch.device:
    found = torch.accelerator.current_accelerator(check_available=True)
    assert found is not None, "no device: see `causeway doctor`"
    return found


def test_import_finds_the_device(device: torch.device) -> None:
    assert torch.accelerator.device_count() >= 1
    module = torch.get_device_module(device)
    assert module.is_available()


def test_tensors_come_back_as_they_went(device: torch.device) -> None:
    a = torch.arange(12).reshape(3, 4)
    assert torch.equal(a.to(device).t().cpu(), a.t())


def test_add_equals_the_cpu(device: torch.device) -> None:
    a, b = torch.randn(3, 4), torch.randn(4)
    assert torch.equal((a.to(device) + b.to(device)).cpu(), a + b)


def test_backward_equals_the_cpu(device: torch.device) -> None:
    weight, x = torch.randn(4, 3), torch.randn(2, 4)
    grads = []
    for place in (torch.device("cpu"), device):
        w = weight.clone().to(place).requires_grad_()
        torch.relu(x.to(place) @ w).pow(2).sum().backward()
        grads.append(w.grad.cpu())
    torch.testing.assert_close(grads[1], grads[0])


def test_a_step_of_sgd_equals_the_cpu(device: torch.device) -> None:
    torch.manual_seed(0)
    stock = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    other = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    other.load_state_dict(stock.state_dict())
    other.to(device)
    x, y = torch.randn(16, 4), torch.randint(2, (16,))
    for model in (stock, other):
        place = next(model.parameters()).device
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for _ in range(3):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x.to(place)), y.to(place)).backward()
            optimizer.step()
    for mine, theirs in zip(other.parameters(), stock.parameters(), strict=True):
        torch.testing.assert_close(mine.cpu(), theirs)


def test_a_checkpoint_loads_on_the_cpu(device: torch.device) -> None:
    a = torch.randn(5, device=device)
    file = io.BytesIO()
    torch.save({"a": a}, file)
    file.seek(0)
    loaded = torch.load(file, map_location="cpu", weights_only=True)["a"]
    assert loaded.device.type == "cpu"
    assert torch.equal(loaded, a.cpu())


def test_the_ledger_counts_each_call_once(device: torch.device) -> None:
    a = torch.ones(3, device=device)
    with causeway.ledger() as ledger:
        a.add_(1)
        a.add_(1)
    rows = [row for row in ledger.rows if row.operator.startswith("aten::add")]
    assert sum(row.calls for row in rows) == 2
    assert {row.dtype for row in rows} == {"float32"}
    assert "add" in str(ledger.table())
