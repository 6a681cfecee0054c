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


def scaled_step(scaler, optimizers, params, factor=1.0):
    """A step with gradient `factor` for each parameter; give whether they were left alone."""
    before = [p.detach().clone() for p in params]
    for optimizer in optimizers:
        optimizer.zero_grad()
    loss = sum(p.sum() for p in params) * factor
    scaler.scale(loss).backward()
    for optimizer in optimizers:
        scaler.step(optimizer)
    scaler.update()
    return [torch.equal(a, b) for a, b in zip(before, params, strict=True)]


@pytest.mark.parametrize("kind", ["foreach", "fused", "loop"])
@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW])
def test_the_scale_halves_at_overflow_and_grows_after_its_interval(name, device, make, kind):
    """The dynamic scale, whatever form of the optimizer sees it: fused ones skip by themselves."""
    options = {"fused": kind == "fused", "foreach": kind == "foreach"}
    ours, plain = (torch.ones(3, device=device, requires_grad=True) for _ in range(2))
    optimizer = make([ours], lr=0.125, **options)
    reference = make([plain], lr=0.125)
    scaler = torch.amp.GradScaler(name, init_scale=8.0, growth_interval=2)
    scales = []
    for factor in (1, float("inf"), 1, 1, float("nan"), 1, 1, 1):
        (same,) = scaled_step(scaler, [optimizer], [ours], factor)
        assert same == (factor != 1)
        if factor == 1:
            plain.grad = torch.ones_like(plain)
            reference.step()
        scales.append(scaler.get_scale())
    assert scales == [8, 4, 4, 8, 4, 4, 8, 8]
    torch.testing.assert_close(ours, plain)


def test_an_optimizer_skips_alone_where_only_its_gradients_overflow(name, device):
    params = [torch.ones(3, device=device, requires_grad=True) for _ in range(2)]
    optimizers = [torch.optim.SGD([p], lr=0.5) for p in params]
    scaler = torch.amp.GradScaler(name, init_scale=8.0)
    scaler.scale(params[0].sum() + (params[1] * float("inf")).sum()).backward()
    for optimizer in optimizers:
        scaler.unscale_(optimizer)
    with pytest.raises(RuntimeError, match="already been called"):
        scaler.unscale_(optimizers[0])
    assert params[0].grad.tolist() == [1.0] * 3
    for optimizer in optimizers:
        scaler.step(optimizer)
    scaler.update()
    assert params[0].tolist() == [0.5] * 3
    assert params[1].tolist() == [1.0] * 3
    assert scaler.get_scale() == 4.0


def test_the_scalers_state_goes_on_where_it_was_saved(name, device):
    p = torch.ones(3, device=device, requires_grad=True)
    optimizer = torch.optim.SGD([p], lr=0.125)
    scaler = torch.amp.GradScaler(name, init_scale=8.0, growth_interval=3)
    for factor in (1, float("inf"), 1, 1):
        scaled_step(scaler, [optimizer], [p], factor)
    saved = scaler.state_dict()
    assert (saved["scale"], saved["_growth_tracker"]) == (4.0, 2)
    other = torch.amp.GradScaler(name)
    other.load_state_dict(saved)
    scaled_step(other, [optimizer], [p])
    assert other.get_scale() == 8.0
    assert torch.amp.GradScaler(name, enabled=False).state_dict() == {}


def test_a_disabled_scaler_does_nothing(name, device):
    p = torch.ones(3, device=device, requires_grad=True)
    optimizer = torch.optim.SGD([p], lr=0.5)
    scaler = torch.amp.GradScaler(name, init_scale=8.0, enabled=False)
    scaler.scale(p.sum()).backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    assert p.tolist() == [0.5] * 3
    assert scaler.get_scale() == 1.0


def test_one_scaler_serves_several_devices(name, device, other):
    params = [torch.ones(3, device=d, requires_grad=True) for d in (device, other)]
    optimizer = torch.optim.SGD(params, lr=0.5)
    scaler = torch.amp.GradScaler(name, init_scale=8.0)
    for factor, moved in ((float("inf"), False), (1.0, True)):
        optimizer.zero_grad()
        scaler.scale(params[0].sum()).backward()
        scaler.scale((params[1] * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        assert [p.tolist() == [0.5] * 3 for p in params] == [moved] * 2
    assert scaler.get_scale() == 4.0


def test_float16_gradients_are_refused_and_sparse_ones_unscaled(name, device):
    scaler = torch.amp.GradScaler(name, init_scale=8.0)
    half = torch.ones(3, device=device, dtype=torch.float16, requires_grad=True)
    scaler.scale(half.sum()).backward()
    with pytest.raises(ValueError, match="FP16"):
        scaler.unscale_(torch.optim.SGD([half], lr=1.0))
    table = torch.nn.Embedding(4, 2, sparse=True).to(device)
    optimizer = torch.optim.SparseAdam(list(table.parameters()))
    scaler.scale(table(torch.tensor([1, 1], device=device)).sum()).backward()
    scaler.unscale_(optimizer)
    assert table.weight.grad.to_dense().tolist() == [[0, 0], [2, 2], [0, 0], [0, 0]]
