"""torch.compile without a code generator, FakeTensor, make_fx, export."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def net(x, w):
    return torch.nn.functional.gelu(x @ w).sum(-1) + x.mean()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_forward_and_backward_agree(device, backend):
    x = torch.randn(4, 4, device=device)
    w = torch.randn(4, 4, device=device, requires_grad=True)
    expected = net(x, w)
    (g,) = torch.autograd.grad(expected.sum(), w)
    compiled = torch.compile(net, backend=backend, fullgraph=True)
    y = compiled(x, w)
    torch.testing.assert_close(y, expected)
    torch.testing.assert_close(torch.autograd.grad(y.sum(), w)[0], g)
    compiled(torch.randn(7, 4, device=device), w)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_module_trains(device, backend):
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)).to(
        device
    )
    compiled = torch.compile(module, backend=backend)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.05)
    x = torch.randn(16, 4, device=device)
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = (compiled(x) - 1).pow(2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


def test_compiled_code_that_asks_for_the_device(device, module):
    @torch.compile(backend="eager")
    def f(x):
        return x + torch.ones(x.shape, device=x.device)

    assert f(torch.zeros(3, device=device)).tolist() == [1.0] * 3


def test_fake_tensors_keep_the_device_and_compute_nothing(device, module):
    module.init()
    allocated = module.memory_allocated()
    with FakeTensorMode() as mode:
        x = torch.empty(1000, 1000, device=device)
        y = torch.nn.functional.conv2d(
            x.view(1, 1, 1000, 1000), torch.empty(4, 1, 3, 3, device=device)
        )
        assert isinstance(y, FakeTensor)
        assert y.device == device
        assert y.shape == (1, 4, 998, 998)
        with pytest.raises(RuntimeError, match="device"):
            x + torch.empty(1000, 1000)
    assert module.memory_allocated() == allocated
    fake = mode.from_tensor(torch.ones(2, device=device))
    assert fake.device == device


def test_make_fx_traces(device):
    x = torch.randn(3, device=device)
    graph = make_fx(lambda t: t.sin() + 1)(x)
    torch.testing.assert_close(graph(x), x.sin() + 1)


def test_export(device):
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(4, 2)

        def forward(self, x):
            return self.linear(x).relu()

    module = Net().to(device).eval()
    x = torch.randn(3, 4, device=device)
    program = torch.export.export(module, (x,))
    torch.testing.assert_close(program.module()(x), module(x))


def test_questions_about_the_device_are_constants_of_a_compiled_function(device):
    module = torch.get_device_module(device)

    @torch.compile(backend="eager", fullgraph=True)
    def asked(x):
        found = (
            module.current_device(),
            module.is_initialized(),
            module.get_device_properties(0).total_memory,
            module.get_device_name(device),
            module.get_device_capability(),
            module.is_bf16_supported(),
            module.get_amp_supported_dtype(),
        )
        return x + 1, found

    plain = (
        module.current_device(),
        True,
        module.get_device_properties(0).total_memory,
        module.get_device_name(device),
        module.get_device_capability(),
        module.is_bf16_supported(),
        module.get_amp_supported_dtype(),
    )
    x = torch.ones(2, device=device)
    assert asked(x)[1] == plain
    if module.device_count() > 1:
        with module.device(1):
            assert asked(x)[1][0] == 1  # the constant is guarded
