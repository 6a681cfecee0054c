"""Mixed precision by torch.amp, and under torch.cuda.amp's names."""

import pytest
import torch


def low(module):
    dtypes = module.get_amp_supported_dtype()
    if not dtypes:
        pytest.skip("the chip has no low precision")
    return dtypes


def test_autocast_by_either_name(module, name, device):
    a = torch.randn(4, 4, device=device)
    for dtype in low(module):
        with torch.autocast(name, dtype=dtype):
            assert (a @ a).dtype == dtype
            assert torch.exp(a @ a).dtype == torch.float32
        with module.amp.autocast(dtype=dtype):
            assert (a @ a).dtype == dtype
        with module.amp.autocast(enabled=False):
            assert (a @ a).dtype == torch.float32


def test_autocast_decorates(module, device):
    @module.amp.autocast(dtype=low(module)[0])
    def product(a):
        return a @ a

    assert product(torch.randn(4, 4, device=device)).dtype == low(module)[0]


def test_autocast_trains(module, name, device):
    torch.manual_seed(0)
    net = torch.nn.Linear(8, 8).to(device)
    scaler = module.amp.GradScaler(init_scale=128.0)
    assert isinstance(scaler, torch.amp.GradScaler)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    before = net.weight.detach().clone()
    with torch.autocast(name, dtype=low(module)[0]):
        loss = net(torch.randn(4, 8, device=device)).pow(2).mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    assert not torch.equal(before, net.weight)
    assert net.weight.grad.dtype == torch.float32


def test_scaler_skips_a_step_with_infinities(module, device):
    weight = torch.ones(4, device=device, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scaler = module.amp.GradScaler(init_scale=4.0)
    scaler.scale((weight * float("inf")).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert weight.detach().cpu().tolist() == [1.0] * 4
    assert scaler.get_scale() == 2.0


def test_custom_fwd_and_bwd(module, name, device):
    dtype = low(module)[0]

    class Product(torch.autograd.Function):
        @staticmethod
        @module.amp.custom_fwd
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            return a @ b

        @staticmethod
        @module.amp.custom_bwd
        def backward(ctx, grad):
            a, b = ctx.saved_tensors
            assert torch.is_autocast_enabled(name)
            return grad @ b.t(), a.t() @ grad

    class Upcast(torch.autograd.Function):
        @staticmethod
        @module.amp.custom_fwd(cast_inputs=torch.float32)
        def forward(ctx, a):
            assert not torch.is_autocast_enabled(name)
            return a * 2

        @staticmethod
        @module.amp.custom_bwd
        def backward(ctx, grad):
            return grad * 2

    a = torch.randn(3, 3, device=device, requires_grad=True)
    with torch.autocast(name, dtype=dtype):
        y = Product.apply(a, a)
        z = Upcast.apply(y)
    assert y.dtype == dtype
    assert z.dtype == torch.float32
    z.sum().backward()
    assert a.grad is not None


def test_amp_is_available(module):
    assert module.amp.amp_definitely_not_available() is False
