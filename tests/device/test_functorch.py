"""vmap, grad, jvp, hessian."""

import torch
from torch.func import functional_call, grad, hessian, jacrev, jvp, vjp, vmap


def close(ours, theirs):
    torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-4, atol=1e-5)


def test_vmap(device):
    a, b = torch.randn(5, 3, 4), torch.randn(5, 4, 2)
    close(vmap(torch.mm)(a.to(device), b.to(device)), vmap(torch.mm)(a, b))
    close(vmap(lambda x: x.softmax(0).sum(), in_dims=1)(a[0].to(device)), torch.ones(4))


def test_vmap_with_randomness(device):
    x = torch.zeros(4, 3, device=device)
    different = vmap(lambda t: t + torch.rand_like(t), randomness="different")(x)
    assert different.unique().numel() == 12
    same = vmap(lambda t: t + torch.rand_like(t), randomness="same")(x)
    assert same.unique().numel() == 3


def test_grad_and_per_sample_gradients(device):
    net = torch.nn.Linear(3, 1).to(device)
    parameters = dict(net.named_parameters())
    x = torch.randn(6, 3, device=device)

    def loss(p, sample):
        return functional_call(net, p, (sample,)).pow(2).sum()

    each = vmap(grad(loss), in_dims=(None, 0))(parameters, x)
    total = grad(lambda p: functional_call(net, p, (x,)).pow(2).sum())(parameters)
    torch.testing.assert_close(each["weight"].sum(0), total["weight"], rtol=1e-4, atol=1e-5)


def test_jvp_and_vjp(device):
    x, v = torch.randn(4), torch.randn(4)
    ours = jvp(lambda t: t.sin() * t, (x.to(device),), (v.to(device),))
    theirs = jvp(lambda t: t.sin() * t, (x,), (v,))
    for a, b in zip(ours, theirs, strict=True):
        close(a, b)
    out, pull = vjp(torch.tanh, x.to(device))
    close(pull(torch.ones_like(out))[0], 1 - torch.tanh(x) ** 2)


def test_hessian_and_jacobian(device):
    x = torch.randn(4)
    f = lambda t: (t**3).sum() + t.prod()  # noqa: E731
    close(hessian(f)(x.to(device)), hessian(f)(x))
    close(jacrev(torch.sin)(x.to(device)), torch.diag(x.cos()))
