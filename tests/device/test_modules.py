"""nn.Module on the device: moving keeps parameters what they are, as for CUDA."""

import pytest
import torch


def test_to_keeps_parameter_objects(name, device):
    net = torch.nn.Linear(3, 3)
    weight, optimizer = net.weight, torch.optim.SGD(net.parameters(), lr=1.0)
    net.to(device)
    assert net.weight is weight
    assert weight.device == device
    net(torch.ones(1, 3, device=device)).sum().backward()
    before = weight.detach().clone()
    optimizer.step()
    assert not torch.equal(before, net.weight)
    net.cpu()
    assert net.weight is weight
    assert weight.device.type == "cpu"
    assert getattr(net, name)().weight is weight


def test_to_moves_gradients_too(device):
    net = torch.nn.Linear(2, 2)
    net(torch.ones(1, 2)).sum().backward()
    grad = net.weight.grad
    net.to(device)
    assert net.weight.grad is grad
    assert grad.device == device


def test_tied_weights_stay_tied(device):
    net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))
    net[1].weight = net[0].weight
    net.to(device)
    assert net[0].weight is net[1].weight


def test_between_devices(device, other):
    net = torch.nn.Linear(2, 2).to(device)
    weight = net.weight
    net.to(other)
    assert net.weight is weight
    assert weight.device == other


def test_lazy_modules_materialize(device):
    net = torch.nn.Sequential(torch.nn.LazyLinear(4), torch.nn.LazyBatchNorm1d()).to(device)
    assert net(torch.ones(3, 5, device=device)).shape == (3, 4)
    assert net[0].weight.device == device


def test_parametrized_and_weight_norm(device):
    net = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(3, 3)).to(device)
    assert net(torch.ones(1, 3, device=device)).device == device


def test_set_data_both_ways(device):
    p = torch.nn.Parameter(torch.zeros(2))
    p.data = torch.ones(3, device=device)
    assert p.device == device
    assert p.sum().item() == 3
    p.data = torch.ones(2)
    assert p.device.type == "cpu"
    with pytest.raises(RuntimeError, match="incompatible tensor type"):
        p.data = torch.ones(2, device="meta")


def test_set_data_of_a_tensor_subclass_asks_the_subclass_nothing(device):
    class Wrapped(torch.Tensor):
        @staticmethod
        def __new__(cls, tensor):
            return torch.Tensor._make_wrapper_subclass(
                cls, tensor.shape, dtype=tensor.dtype, device=tensor.device
            )

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            raise AssertionError(f"asked for {func}")

    ours, cpus = Wrapped(torch.ones(2, device=device)), Wrapped(torch.ones(2))
    assert torch._has_compatible_shallow_copy_type(ours, cpus)
    assert torch._has_compatible_shallow_copy_type(cpus, ours)


def test_meta_then_empty(device):
    with torch.device("meta"):
        net = torch.nn.Linear(2, 2)
    net.to_empty(device=device)
    net.reset_parameters()
    assert net(torch.ones(1, 2, device=device)).device == device


def test_load_state_dict_with_assign(device):
    net, source = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2).to(device)
    net.load_state_dict(source.state_dict(), assign=True)
    assert net.weight.device == device


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_to_dtype_and_device_at_once(device, module, dtype):
    if dtype not in module.get_device_properties().dtypes:
        pytest.skip("the chip lacks it")
    net = torch.nn.Linear(2, 2)
    weight = net.weight
    net.to(device, dtype)
    assert net.weight is weight
    assert weight.dtype == dtype


def test_rnn_and_transformer_agree_with_the_cpu(device):
    torch.manual_seed(0)
    for make in (
        lambda: torch.nn.LSTM(4, 6, 2, batch_first=True),
        lambda: torch.nn.GRU(4, 6, bidirectional=True),
        lambda: torch.nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True),
    ):
        cpu, x = make(), torch.randn(2, 3, 4)
        expected = cpu(x)
        ours = cpu.to(device)(x.to(device))
        first = lambda r: r[0] if isinstance(r, tuple) else r  # noqa: E731
        torch.testing.assert_close(first(ours).cpu(), first(expected), rtol=1e-4, atol=1e-5)
