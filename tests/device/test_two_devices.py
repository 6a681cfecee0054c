"""Work stays on the device where it was put, and devices do not mix by accident."""

import pytest
import torch

pytestmark = pytest.mark.usefixtures("other")


def test_results_stay(other):
    x = torch.randn(4, 4, device=other)
    for y in (x + 1, x @ x, x.sum(), x.t(), torch.zeros_like(x), x.to(torch.float16), x.nonzero()):
        assert y.device == other
    x.requires_grad_()
    (x.exp() @ x).sum().backward()
    assert x.grad.device == other


@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad"])
@pytest.mark.parametrize("foreach", [True, False])
def test_optimizer_states_stay(other, kind, foreach):
    net = torch.nn.Linear(3, 3).to(other)
    options = {"momentum": 0.9} if kind == "SGD" else {}
    optimizer = getattr(torch.optim, kind)(net.parameters(), lr=0.1, foreach=foreach, **options)
    for _ in range(2):
        net(torch.ones(1, 3, device=other)).sum().backward()
        optimizer.step()
    for state in optimizer.state.values():
        for key, value in state.items():
            if isinstance(value, torch.Tensor) and value.dim():
                assert value.device == other, key
    assert all(p.device == p.grad.device == other for p in net.parameters())


def test_training_on_the_second_device_equals_the_first(device, other):
    def train(place):
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)).to(
            place
        )
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
        x = torch.linspace(-1, 1, 32).reshape(8, 4).to(place)
        for _ in range(5):
            optimizer.zero_grad()
            net(x).pow(2).mean().backward()
            optimizer.step()
        return net(x).detach().cpu()

    torch.testing.assert_close(train(device), train(other), rtol=0, atol=0)


def test_mixing_devices_is_an_error_that_names_both(name, device, other):
    a, b = torch.ones(2, 2, device=device), torch.ones(2, 2, device=other)
    for mix in (
        lambda: a + b,
        lambda: a @ b,
        lambda: torch.cat([a, b]),
        lambda: a.add_(b),
        lambda: torch.add(a, a, out=b),
        lambda: a + torch.ones(2, 2),
        lambda: torch.nn.functional.linear(a, b),
    ):
        with pytest.raises(
            RuntimeError, match=f"(?s){name}:0.*(cpu|{name}:1)|(cpu|{name}:1).*{name}:0"
        ):
            mix()


def test_scalars_of_the_cpu_mix(device):
    assert (torch.ones(2, device=device) * torch.tensor(3.0)).tolist() == [3.0, 3.0]


def test_copies_between_devices(device, other):
    x = torch.randn(100, 70, device=device)
    for y in (
        x.to(other),
        x.t().to(other),
        x[::2, 1:].to(other),
        torch.empty_like(x, device=other).copy_(x),
    ):
        assert y.device == other
    torch.testing.assert_close(x.t().to(other).cpu(), x.cpu().t(), rtol=0, atol=0)
    torch.testing.assert_close(x.to(other, torch.float16).cpu(), x.cpu().half())
    torch.testing.assert_close(x.to(other, non_blocking=True).cpu(), x.cpu())


def test_pipeline_over_two_devices(device, other):
    first, second = torch.nn.Linear(3, 4).to(device), torch.nn.Linear(4, 1).to(other)
    second(first(torch.ones(2, 3, device=device)).to(other)).sum().backward()
    assert first.weight.grad.device == device
    assert second.weight.grad.device == other


def test_data_parallel_names_are_there(module):
    assert torch.nn.parallel.data_parallel is not None
    assert module.comm.scatter is not None
