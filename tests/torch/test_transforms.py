"""vmap, jvp, vjp, jacobians and hessians of many functions, against the CPU.

vmap and forward mode of every single operator are kinds of the sweep (operators.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from same import NAME
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, linearize, vjp, vmap
from torch.utils._pytree import tree_map

FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "sin": torch.sin,
    "exp of products": lambda x: (x[:2] * x[2:4]).exp(),
    "cube and product": lambda x: (x**3).sum() + x.prod(),
    "softmax": lambda x: x.softmax(0),
    "log_softmax": lambda x: F.log_softmax(x, 0),
    "logsumexp": lambda x: x.logsumexp(0),
    "norm": lambda x: x.norm(),
    "layer_norm": lambda x: F.layer_norm(x, x.shape),
    "gelu": F.gelu,
    "silu": F.silu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "erf": torch.erf,
    "cumsum": lambda x: x.cumsum(0),
    "cumprod": lambda x: x.cumprod(0),
    "sort": lambda x: x.sort().values,
    "max": lambda x: x.max() * x.min(),
    "var": lambda x: x.var(),
    "outer": lambda x: torch.outer(x, x),
    "matrix power": lambda x: (x[:4].view(2, 2) @ x[:4].view(2, 2)).trace(),
    "determinant": lambda x: torch.linalg.det(x[:4].view(2, 2) + 3 * torch.eye(2, device=x.device)),
    "inverse": lambda x: torch.linalg.inv(x[:4].view(2, 2) + 3 * torch.eye(2, device=x.device)),
    "solve": lambda x: torch.linalg.solve(torch.diag(x.abs() + 1), x),
    "einsum": lambda x: torch.einsum("i,j,i->j", x, x, x),
    "convolution": lambda x: F.conv1d(x.view(1, 1, -1), x[:2].view(1, 1, 2)).flatten(),
    "pooling": lambda x: F.avg_pool1d(x.view(1, 1, -1), 2).flatten(),
    "index": lambda x: x[torch.arange(3, device=x.device)] * x.flip(0)[:3],
    "gather": lambda x: x.gather(0, torch.tensor([1, 1, 0], device=x.device)),
    "where": lambda x: torch.where(x > 0, x * x, -x),
    "pad and roll": lambda x: F.pad(x, (1, 1)).roll(1) ** 2,
    "stack and cat": lambda x: torch.cat([torch.stack([x, x]).sum(0), x * 2]),
    "interpolate": lambda x: F.interpolate(x.view(1, 1, -1), scale_factor=2.0).flatten(),
    "cross entropy": lambda x: F.cross_entropy(x.view(1, -1), torch.tensor([2], device=x.device)),
    "fft": lambda x: torch.fft.rfft(x).abs(),
}
X = torch.linspace(-1.3, 1.7, 6) + torch.tensor([0.0, 0.1, -0.05, 0.2, 0.0, -0.1])
V = torch.linspace(0.5, -1.0, 6)


def close(ours: Any, theirs: Any) -> None:
    tree_map(
        lambda a, b: torch.testing.assert_close(a.cpu(), b, rtol=1e-4, atol=1e-5), ours, theirs
    )


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize(
    "transform",
    [
        lambda f, x, v: vmap(f)(torch.stack([x, v])),
        lambda f, x, v: jvp(f, (x,), (v,)),
        lambda f, x, v: vjp(f, x)[1](torch.ones_like(f(x))),
        lambda f, x, v: jacrev(f)(x),
        lambda f, x, v: jacfwd(f)(x),
        lambda f, x, v: hessian(f)(x),
        lambda f, x, v: vmap(jacrev(f))(torch.stack([x, v])),
        lambda f, x, v: vmap(grad(lambda y: f(y).sum()))(torch.stack([x, v])),
    ],
    ids=["vmap", "jvp", "vjp", "jacrev", "jacfwd", "hessian", "vmap-jacrev", "vmap-grad"],
)
def test_a_transform_agrees_with_the_cpu(name: str, transform: Any) -> None:
    function = FUNCTIONS[name]
    close(transform(function, X.to(NAME), V.to(NAME)), transform(function, X, V))


@pytest.mark.parametrize("in_dims", [0, 1, -1, (0, None), (None, 1)])
def test_vmap_over_any_dimension_agrees_with_the_cpu(in_dims: Any) -> None:
    a, b = torch.randn(3, 3, 3), torch.randn(3, 3, 3)
    f = lambda x, y: (x @ y).softmax(-1)  # noqa: E731
    if isinstance(in_dims, int):
        in_dims = (in_dims, in_dims)
    mapped = vmap(f, in_dims=in_dims, out_dims=1)
    close(mapped(a.to(NAME), b.to(NAME)), mapped(a, b))


def test_vmap_in_chunks_agrees_with_the_cpu() -> None:
    a = torch.randn(7, 4, 4)
    mapped = vmap(torch.linalg.det, chunk_size=3)
    close(mapped(a.to(NAME)), mapped(a))


def test_linearize_agrees_with_the_cpu() -> None:
    out, ahead = linearize(torch.tanh, X.to(NAME))
    want, want_ahead = linearize(torch.tanh, X)
    close((out, ahead(V.to(NAME))), (want, want_ahead(V)))


def test_an_ensemble_of_models_agrees_with_the_cpu() -> None:
    nets = [torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Tanh(), torch.nn.Linear(5, 1))
            for _ in range(3)]  # fmt: skip
    parameters, buffers = torch.func.stack_module_state(nets)
    x = torch.randn(8, 3)

    def out(p: Any, b: Any, x: torch.Tensor) -> torch.Tensor:
        return functional_call(nets[0], (p, b), (x,))

    move = lambda t: t.detach().to(NAME)  # noqa: E731
    ours = vmap(out, in_dims=(0, 0, None))(tree_map(move, parameters), buffers, x.to(NAME))
    close(ours.detach(), vmap(out, in_dims=(0, 0, None))(parameters, buffers, x).detach())
