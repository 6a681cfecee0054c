"""Tensors of the device print, format and turn into Python values."""

import pytest
import torch


def test_print_names_the_device(device):
    assert (
        repr(torch.tensor([1.5, 2.0], device=device))
        == f"tensor([1.5000, 2.0000], device='{device}')"
    )
    assert f"device='{device}'" in str(torch.zeros(2, 2, device=device, dtype=torch.int32))
    text = repr(torch.ones(1, device=device, requires_grad=True))
    assert "requires_grad=True" in text


@pytest.mark.parametrize(
    "make",
    [
        lambda d: torch.randn(3, 4, device=d),
        lambda d: torch.arange(2000, device=d),
        lambda d: torch.tensor([True, False], device=d),
        lambda d: torch.tensor([float("nan"), float("inf"), -1e30], device=d),
        lambda d: torch.randn(3, device=d).half(),
        lambda d: torch.randn(2, dtype=torch.complex64, device=d),
        lambda d: torch.tensor([], device=d),
        lambda d: torch.tensor(3, device=d),
        lambda d: torch.randn(2, 3, 4, device=d).transpose(0, 2),
        lambda d: torch.randn(30, 40, device=d),
    ],
)
def test_print_is_the_cpus_but_for_the_device(device, make):
    x = make(device)
    ours, theirs = repr(x), repr(x.cpu())
    assert f"device='{device}'" in ours
    bare = (
        "".join(ours.replace(f"device='{device}'", "").split())
        .replace(",,", ",")
        .replace(",)", ")")
    )
    assert bare == "".join(theirs.split()).replace(",)", ")")


def test_format_strings(device):
    x = torch.tensor(3.14159, device=device)
    assert f"{x:.2f}" == "3.14"
    assert f"{x}" == format(x)
    assert f"{x.item():6.1f}" == "   3.1"


def test_python_values(device):
    x = torch.tensor([[1, 2], [3, 4]], device=device)
    assert x.tolist() == [[1, 2], [3, 4]]
    assert int(x[0, 1]) == 2
    assert float(x.float().mean()) == 2.5
    assert bool(x.any())
    assert len(x) == 2
    assert [int(v) for row in x for v in row] == [1, 2, 3, 4]
    assert list(range(5))[x[0, 0]] == 1


def test_device_methods(name, device, module):
    x = getattr(torch.ones(2), name)()
    assert getattr(x, f"is_{name}")
    assert not getattr(x.cpu(), f"is_{name}")
    assert getattr(torch.nn.Linear(1, 1), name)().weight.device == device
    assert x.get_device() == 0
    assert x.device.type == name
    assert not x.is_cuda
    assert torch.get_device_module(x.device) is module
