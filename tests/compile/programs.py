"""Programs that torch.compile must run on the device as eager does on the CPU.

`python tests/compile/programs.py [NAME ...]` runs them and prints what differs; test_programs.py
runs them by the simulated chip's C compiler and by PoCL, with items in turn and in parallel.
Inductor computes halves in float32 between a load and a store, so that those have a wider tolerance.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

Program = Callable[[torch.device], list[torch.Tensor]]
PROGRAMS: dict[str, Callable[[Any, torch.device], list[torch.Tensor]]] = {}


def program(function: Any) -> Any:
    """A function of (compile, device): what it returns must not depend on either."""
    PROGRAMS[function.__name__] = function
    return function


def _rand(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).to(dtype)


def _whole(low: int, high: int, *shape: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(low, high, shape, generator=generator).to(dtype)


def _forward(
    compile_: Any, device: torch.device, function: Any, *given: torch.Tensor
) -> list[torch.Tensor]:
    out = compile_(function)(*[g.to(device) for g in given])
    return list(out) if isinstance(out, tuple | list) else [out]


@program
def pointwise(c: Any, d: torch.device) -> list[torch.Tensor]:
    return _forward(
        c,
        d,
        lambda a, b: torch.sigmoid(torch.sin(a * b) + 1).sqrt() / 2,
        _rand(64, 100),
        _rand(100),
    )


@program
def transposed(c: Any, d: torch.device) -> list[torch.Tensor]:
    return _forward(
        c, d, lambda a: (a.t() * 2, a.t().contiguous(), a[::2, 3:].exp()), _rand(33, 65)
    )


@program
def softmax(c: Any, d: torch.device) -> list[torch.Tensor]:
    return _forward(c, d, lambda a: (a.softmax(-1), a.softmax(0), a.log_softmax(1)), _rand(37, 129))


@program
def reductions(c: Any, d: torch.device) -> list[torch.Tensor]:
    def f(a: torch.Tensor) -> Any:
        return (a.sum(0), a.sum(1), a.sum(), a.mean((0, 2)), a.var(1), a.std(2), a.argmax(1), a.argmin(0), a.amax(0),
                a.amin(2), a.prod(1), (a > 3).any(1), (a > -3).all(0), a.argmax())  # fmt: skip

    return _forward(c, d, f, _rand(5, 70, 131))


@program
def variance_far_from_zero(c: Any, d: torch.device) -> list[torch.Tensor]:
    def f(a: torch.Tensor) -> Any:
        return a.var(1), a.var(0), F.layer_norm(a, (90,)), a.std()

    return _forward(c, d, f, _rand(40, 90) + 30)


@program
def ties_and_nan(c: Any, d: torch.device) -> list[torch.Tensor]:
    a = _whole(0, 3, 6, 300).float()
    a[2, 77] = float("nan")
    a[4, 10:12] = float("nan")
    return _forward(
        c, d, lambda a: (a.argmax(1), a.argmin(1), a.amax(1), a.argmax(0), a.amin(0)), a
    )


@program
def layer_norm(c: Any, d: torch.device) -> list[torch.Tensor]:
    return _forward(
        c, d, lambda a, w: F.gelu(F.layer_norm(a, (100,), w, w)), _rand(64, 100), _rand(100)
    )


@program
def views(c: Any, d: torch.device) -> list[torch.Tensor]:
    def f(a: torch.Tensor, b: torch.Tensor) -> Any:
        return (
            F.pad(torch.cat([a, b], 1)[:, 3:150], (2, 3)),
            torch.stack([a, b], 1).flip(2).roll(3, 0),
            a.tril(2),
        )

    return _forward(c, d, f, _rand(64, 100), _rand(64, 100, seed=1))


@program
def gathers(c: Any, d: torch.device) -> list[torch.Tensor]:
    def f(a: torch.Tensor, i: torch.Tensor) -> Any:
        return a[i] * 2, a[:, i].sum(1), F.embedding(i, a) + 1, a.gather(1, i.abs().view(30, 1))

    return _forward(c, d, f, _rand(64, 100), _whole(0, 60, 30))


@program
def scatters(c: Any, d: torch.device) -> list[torch.Tensor]:
    def f(a: torch.Tensor, i: torch.Tensor) -> Any:
        zero = torch.zeros_like(a)
        return (zero.scatter_add(0, i, a) * 2, zero.index_put((i[:, 0],), a, accumulate=True),
                zero.index_add(0, i[:, 0], a) + 1)  # fmt: skip

    return _forward(c, d, f, _rand(40, 30), _whole(0, 40, 40, 30))


@program
def scans_and_sorts(c: Any, d: torch.device) -> list[torch.Tensor]:
    def f(a: torch.Tensor) -> Any:
        return torch.cumsum(a * 2, 1) + 1, torch.sort(a + 1, 1)[0] * 2, torch.topk(a * 3, 5)[0] + 1

    return _forward(c, d, f, _rand(20, 50))


@program
def integers(c: Any, d: torch.device) -> list[torch.Tensor]:
    def f(a: torch.Tensor, b: torch.Tensor) -> Any:
        return (a % b, a // b, torch.fmod(a, b), a << 2, a >> 1, a**2, a ^ b, ~a, a.clamp(-5, 9),
                torch.div(a, b, rounding_mode="trunc"), a.to(torch.int8) * 100, a.abs().to(torch.uint8) + 250,
                a.to(torch.int32) * 2, (a > b) & (b > 0), a / b)  # fmt: skip

    return _forward(c, d, f, _whole(-50, 50, 200), _whole(1, 9, 200) - 10)


@program
def mathematics(c: Any, d: torch.device) -> list[torch.Tensor]:
    def f(a: torch.Tensor) -> Any:
        p = a.abs() + 0.1
        return (p.log(), p.log2(), p.log10(), p.log1p(), a.expm1(), a.exp2(), a.sin(), a.cos(), a.tan(), a.tanh(),
                a.erf(), a.erfc(), a.atan(), a.sinh(), a.cosh(), p.rsqrt(), p.pow(1.7), torch.atan2(a, p),
                torch.fmod(a, p), a % 0.7, a.round(), a.floor(), a.sign(), a.frac(), p.lgamma(), p.digamma(),
                torch.copysign(p, a), a.isnan(), (a / 0).isinf(), torch.hypot(a, p), a.asinh())  # fmt: skip

    return _forward(c, d, f, _rand(500))


@program
def mathematics_of_two_types(c: Any, d: torch.device) -> list[torch.Tensor]:
    def f(a: torch.Tensor, b: torch.Tensor) -> Any:
        return b.log() + a.log(), b.exp2() + a.exp2(), b.sin() + a.sin(), b.pow(1.7) + a.pow(1.7)

    return _forward(c, d, f, _rand(500).abs() + 0.1, _rand(500).double().abs() + 0.1)


@program
def halves(c: Any, d: torch.device) -> list[torch.Tensor]:
    def f(a: torch.Tensor, b: torch.Tensor) -> Any:
        return torch.tanh(a * b) + 1, b.softmax(-1), a.sum(1), a.to(torch.bfloat16) * 2

    return _forward(
        c, d, f, _rand(32, 80, dtype=torch.float16), _rand(32, 80, dtype=torch.float16, seed=1)
    )


@program
def doubles(c: Any, d: torch.device) -> list[torch.Tensor]:
    return _forward(
        c,
        d,
        lambda a: (a.exp().sum(0), a.sin() % 0.3, a.var(1)),
        _rand(30, 40, dtype=torch.float64),
    )


@program
def complex_numbers(c: Any, d: torch.device) -> list[torch.Tensor]:
    return _forward(c, d, lambda a: torch.fft.fft(a).abs() * 2, _rand(8, 32))


@program
def mutation(c: Any, d: torch.device) -> list[torch.Tensor]:
    def f(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        a.add_(b).mul_(2)
        b[3:5] = a[1:3]
        return a.view(-1)[5:] + 1

    a, b = _rand(10, 7).to(d), _rand(10, 7, seed=2).to(d)
    out = c(f)(a, b)
    return [out, a, b]


@program
def cpu_scalars(c: Any, d: torch.device) -> list[torch.Tensor]:
    def f(a: torch.Tensor, s: torch.Tensor, k: torch.Tensor) -> Any:
        return a * s + k, s + a.sum(), s * 2 - a, torch.where(s > k, a, -a)

    return list(c(f)(_rand(5, 6).to(d), torch.tensor(2.5), torch.tensor(3)))


@program
def dynamic_shapes(c: Any, d: torch.device) -> list[torch.Tensor]:
    made = c(
        lambda a, b: (F.layer_norm(a @ b, (b.shape[1],)).relu(), a.sum(0), (a * 2).view(-1)),
        dynamic=True,
    )
    out: list[torch.Tensor] = []
    for n, m in ((8, 16), (33, 7), (65, 130)):
        out += made(_rand(n, m).to(d), _rand(m, 20).to(d))
    return out


@program
def graph_break(c: Any, d: torch.device) -> list[torch.Tensor]:
    def f(a: torch.Tensor) -> torch.Tensor:
        a = a * 2
        if a.sum() > 0:
            return a + 1
        return a - 1

    return [c(f)(_rand(10).to(d)), c(f)(-_rand(10).abs().to(d))]


@program
def vmap_and_grad(c: Any, d: torch.device) -> list[torch.Tensor]:
    def f(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.func.vmap(torch.func.grad(lambda w, x: (w * x).sin().sum()), (None, 0))(w, x)

    return [c(f)(_rand(6).to(d), _rand(4, 6).to(d))]


def _train(
    c: Any, d: torch.device, model: nn.Module, given: list[torch.Tensor], loss: Any, steps: int = 3
) -> list[torch.Tensor]:
    torch.manual_seed(0)
    for p in model.parameters():
        nn.init.normal_(p, std=0.1)
    model.to(d)
    made = c(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    found = []
    for _ in range(steps):
        value = loss(made(given[0].to(d)), *(g.to(d) for g in given[1:]))
        value.backward()
        optimizer.step()
        found.append(value.detach())
        last = [p.grad.clone() for p in model.parameters() if p.grad is not None]
        optimizer.zero_grad()
    return [*found, *last, *(p.detach() for p in model.parameters()), *model.buffers()]


@program
def trains_cnn(c: Any, d: torch.device) -> list[torch.Tensor]:
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3), nn.ReLU(),
        nn.AvgPool2d(2), nn.Flatten(), nn.Linear(128, 10),
    )  # fmt: skip
    return _train(c, d, model, [_rand(32, 1, 22, 22), _whole(0, 10, 32)], F.cross_entropy)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 32)
        self.norm, self.norm2 = nn.LayerNorm(32), nn.LayerNorm(32)
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)
        self.up, self.down = nn.Linear(32, 64), nn.Linear(64, 32)
        self.head = nn.Linear(32, 50)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        b, n, e = x.shape
        q, k, v = self.qkv(self.norm(x)).view(b, n, 3, 4, 8).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, n, e)
        x = x + self.out(y)
        x = x + self.down(F.gelu(self.up(self.norm2(x))))
        return self.head(x)


@program
def trains_gpt(c: Any, d: torch.device) -> list[torch.Tensor]:
    tokens = _whole(0, 50, 3, 17)

    def loss(out: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(out.flatten(0, 1), target.flatten())

    return _train(c, d, Block(), [tokens[:, :-1], tokens[:, 1:]], loss)


@program
def trains_with_checkpoints(c: Any, d: torch.device) -> list[torch.Tensor]:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(16, 32), nn.Linear(32, 16)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            inner = lambda x: self.b(torch.tanh(self.a(x)))  # noqa: E731
            return torch.utils.checkpoint.checkpoint(inner, x, use_reentrant=False)

    return _train(c, d, Model(), [_rand(9, 16), _rand(9, 16, seed=3)], F.mse_loss)


@program
def optimizer_step(c: Any, d: torch.device) -> list[torch.Tensor]:
    parameters = [_rand(20, 5, seed=i).to(d).requires_grad_() for i in range(3)]
    optimizer = torch.optim.AdamW(parameters, lr=0.01)

    def step() -> None:
        optimizer.step()

    made = c(step)
    for k in range(3):
        for p in parameters:
            p.grad = (p.detach() * 2 + k).clone()
        made()
    return [p.detach() for p in parameters]


@program
def autocast(c: Any, d: torch.device) -> list[torch.Tensor]:
    def f(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        with torch.autocast(a.device.type, torch.bfloat16):
            return F.relu(a @ b).float() + 1

    return [c(f)(_rand(9, 16).to(d), _rand(16, 5).to(d))]


def _never(function: Any, **options: Any) -> Any:
    return function


def run(name: str, device: torch.device) -> str:
    """ "" where the compiled program gives the CPU's numbers; else what differs."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    want = PROGRAMS[name](_never, torch.device("cpu"))
    torch.manual_seed(0)
    try:
        got = PROGRAMS[name](torch.compile, device)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    if len(want) != len(got):
        return f"{len(got)} results, not {len(want)}"
    for i, (a, b) in enumerate(zip(got, want, strict=True)):
        try:
            half = b.dtype in (torch.float16, torch.bfloat16)
            close = (
                {"rtol": 2e-2, "atol": 5e-3}
                if half or name == "autocast"
                else (
                    {"rtol": 1e-4, "atol": 2e-5}
                    if b.dtype == torch.float32
                    else {"rtol": None, "atol": None}
                )
            )
            torch.testing.assert_close(a.detach().cpu(), b.detach(), equal_nan=True, **close)
        except AssertionError as error:
            return f"result {i}: {error}"
    return ""


def differences(names: list[str], device: torch.device) -> Iterator[tuple[str, str]]:
    for name in names or list(PROGRAMS):
        yield name, run(name, device)


if __name__ == "__main__":
    accelerator = torch.accelerator.current_accelerator()
    assert accelerator is not None
    wrong = 0
    for name, said in differences(sys.argv[1:], accelerator):
        print(f"{name}: {said or 'as the CPU'}", flush=True)
        wrong += bool(said)
    sys.exit(wrong > 0)
