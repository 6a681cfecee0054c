"""Gradients on the device, by every way that autograd knows."""

import pytest
import torch
from torch.utils.checkpoint import checkpoint


def leaf(device, *shape):
    return torch.randn(*shape, device=device, dtype=torch.float32, requires_grad=True)


def same_on_cpu(function, *tensors):
    """Values and gradients of `function` agree with the CPU's."""
    copies = [t.detach().cpu().requires_grad_(t.requires_grad) for t in tensors]
    ours, theirs = function(*tensors), function(*copies)
    torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-4, atol=1e-5)
    ours.sum().backward()
    theirs.sum().backward()
    for a, b in zip(tensors, copies, strict=True):
        if a.requires_grad:
            assert a.grad.device == a.device
            torch.testing.assert_close(a.grad.cpu(), b.grad, rtol=1e-4, atol=1e-5)


def test_backward_agrees_with_the_cpu(device):
    same_on_cpu(
        lambda a, b: (a @ b).relu().softmax(-1) * a.exp(), leaf(device, 4, 4), leaf(device, 4, 4)
    )


def test_double_backward(device):
    x = leaf(device, 5)
    (grad,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(grad.sum(), x)
    torch.testing.assert_close(second, 6 * x.detach())


def test_gradcheck(device, needs):
    needs(torch.float64)
    x = torch.randn(3, 3, dtype=torch.float64, device=device, requires_grad=True)
    assert torch.autograd.gradcheck(lambda t: t.sigmoid() @ t, x)
    assert torch.autograd.gradgradcheck(lambda t: t.tanh(), x)


def test_hooks(device):
    x, seen = leaf(device, 3), []
    x.register_hook(lambda g: g * 2)
    x.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.device))
    net = torch.nn.Linear(3, 3).to(device)
    net.register_full_backward_hook(lambda m, gi, go: seen.append(go[0].device))
    net(x).sum().backward()
    assert seen == [device, device]


def test_custom_function_saves_tensors(device):
    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x * x
            ctx.save_for_backward(x, y)
            return y * x

        @staticmethod
        def backward(ctx, grad):
            x, y = ctx.saved_tensors
            assert x.device == grad.device
            return grad * 3 * y

    x = leaf(device, 4)
    Cube.apply(x).sum().backward()
    torch.testing.assert_close(x.grad, 3 * x.detach() ** 2)


def test_in_place_on_slices(device):
    def f(x):
        y = x * 1
        y[1:3] *= 2
        y[:, 0].add_(1)
        y[0] = y[1] + 3
        return y

    same_on_cpu(f, leaf(device, 4, 4))


def test_changed_saved_tensor_is_noticed(device):
    x = leaf(device, 3)
    y = x.exp()
    z = y.sum()
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.backward()


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_checkpoint(device, use_reentrant):
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Linear(4, 4), torch.nn.Dropout(0.5), torch.nn.Linear(4, 4)
    ).to(device)
    x = leaf(device, 2, 4)
    torch.manual_seed(1)
    net(x).sum().backward()
    expected = x.grad.clone()
    x.grad = None
    torch.manual_seed(1)
    checkpoint(net, x, use_reentrant=use_reentrant).sum().backward()
    torch.testing.assert_close(x.grad, expected)


def test_saved_tensor_hooks_and_offload(device):
    x = leaf(device, 4)
    places = []

    def pack(t):
        places.append(t.device)
        return t.cpu()

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t.to(device)):
        y = (x.exp() * 2).sum()
    y.backward()
    assert device in places
    with torch.autograd.graph.save_on_cpu(pin_memory=True):
        z = (x.exp() * 2).sum()
    before, x.grad = x.grad, None
    z.backward()
    torch.testing.assert_close(x.grad, before)


def test_no_grad_and_inference_mode(device):
    x = leaf(device, 2)
    with torch.no_grad():
        assert not (x * 2).requires_grad
    with torch.inference_mode():
        inference = x * 2
    assert inference.is_inference()
    with pytest.raises(RuntimeError, match="Inference tensors cannot be saved"):
        inference * x


@pytest.mark.filterwarnings("ignore")
def test_anomaly_detection_finds_the_nan(device):
    y = (leaf(device, 2) * float("nan")).sqrt().sum()
    with torch.autograd.detect_anomaly(), pytest.raises(RuntimeError, match="nan"):
        y.backward()


def test_backward_from_many_threads(device):
    from concurrent.futures import ThreadPoolExecutor

    def work(seed):
        x = torch.full((64,), float(seed), device=device, requires_grad=True)
        (x**2).sum().backward()
        return x.grad[0].item()

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(16))) == [2.0 * seed for seed in range(16)]


def test_gradient_between_cpu_and_device(device):
    x = torch.ones(3, requires_grad=True)
    (x.to(device) * 2).cpu().sum().backward()
    assert x.grad.tolist() == [2.0] * 3


def test_what_an_operator_over_lists_changed_is_no_longer_good_for_the_backward(name: str) -> None:
    x = torch.ones(3, device=name, requires_grad=True)
    saved = x * 2
    out = saved.square().sum()
    torch._foreach_add_([saved.detach()], 1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.backward()
