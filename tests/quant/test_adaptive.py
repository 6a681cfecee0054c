"""Training in fixed point: the formulas, bits that adapt, runs that go on exactly."""

from __future__ import annotations

import copy
import itertools
import math
import pickle
import subprocess
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from causeway.errors import ConfigError
from causeway.quant import adaptive_quantize, bits_of, dequantize, quantize_dynamic
from causeway.quant.adaptive import rounded, shift_of

Run = Callable[..., subprocess.CompletedProcess[str]]

pytestmark = pytest.mark.once


@settings(max_examples=300, deadline=None)
@given(
    st.floats(width=32, min_value=2.0**-100, max_value=2.0**100),
    st.sampled_from([8, 16, 24, 31]),
)
def test_shifts_are_exact(largest: float, bits: int) -> None:
    s = shift_of(largest, bits)
    levels = 2 ** (bits - 1) - 1
    assert Fraction(largest) <= levels * Fraction(2) ** s
    assert Fraction(largest) > levels * Fraction(2) ** (s - 1)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.floats(width=32, min_value=-(2.0**60), max_value=2.0**60), min_size=1, max_size=6),
    st.sampled_from([8, 16, 24]),
    st.integers(-50, 50),
)
def test_rounding_is_exact(xs: list[float], bits: int, shift: int) -> None:
    levels = 2 ** (bits - 1) - 1
    expected = []
    for x in torch.tensor(xs).tolist():
        q = round(Fraction(x) / Fraction(2) ** shift)  # half to even
        expected.append(float(min(max(q, -levels), levels) * Fraction(2) ** shift))
    assert rounded(torch.tensor(xs), bits, shift).tolist() == expected


def test_zeros_have_a_shift() -> None:
    assert shift_of(0.0, 8) == -12


def digits() -> tuple[torch.Tensor, torch.Tensor]:
    from sklearn.datasets import load_digits

    d = load_digits()
    return torch.tensor(d.images, dtype=torch.float32).unsqueeze(1) / 16, torch.tensor(d.target)


def network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.ReLU()),
        *(nn.MaxPool2d(2), nn.Flatten(), nn.Linear(288, 64), nn.ReLU(), nn.Linear(64, 10)),
    )


BATCH = 50
STEPS = 1200 // BATCH


def train(
    net: nn.Module, epochs: range, optimizer: torch.optim.Optimizer, device: torch.device
) -> None:
    x, y = digits()
    for epoch in epochs:
        order = torch.randperm(1200, generator=torch.Generator().manual_seed(epoch))
        for part in order.split(BATCH):
            optimizer.zero_grad()
            F.cross_entropy(net(x[part].to(device)), y[part].to(device)).backward()
            optimizer.step()


def accuracy(net: nn.Module, device: torch.device) -> float:
    x, y = digits()
    with torch.no_grad():
        return float((net.eval()(x[1200:].to(device)).argmax(1).cpu() == y[1200:]).float().mean())


def sgd(net: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(net.parameters(), 0.05, momentum=0.9)


def test_digits_train_and_go_on_exactly(tmp_path: Path, device: torch.device) -> None:
    plain = network().to(device)
    train(plain, range(6), sgd(plain), device)

    net = adaptive_quantize(network(), STEPS).to(device)
    optimizer = sgd(net)
    train(net, range(3), optimizer, device)
    torch.save((net.state_dict(), optimizer.state_dict()), tmp_path / "half.pt")
    train(net, range(3, 6), optimizer, device)
    assert accuracy(net, device) >= accuracy(plain, device) - 0.03
    net.train()

    rows = bits_of(net)
    looks = sum(r.looks for r in rows) / sum(sum(r.steps) for r in rows)
    assert looks <= 0.15, rows
    assert {r.bits for r in rows if r.stream == "weight"} == {8}
    assert {r.bits for r in rows if r.stream == "gradient"} != {8}, "gradients need more bits"

    model, state = torch.load(tmp_path / "half.pt", weights_only=True)
    resumed = adaptive_quantize(network(1), STEPS).to(device)
    resumed.load_state_dict(model)
    optimizer = sgd(resumed)
    optimizer.load_state_dict(state)
    train(resumed, range(3, 6), optimizer, device)
    assert bits_of(resumed) == rows
    assert all(
        torch.equal(a, b) for a, b in zip(net.parameters(), resumed.parameters(), strict=True)
    )


def test_numbers_of_every_stream_are_in_fixed_point(device: torch.device) -> None:
    torch.manual_seed(0)
    layer = adaptive_quantize(nn.Linear(16, 8), 10, inplace=True).to(device)
    x = torch.randn(4, 16, device=device, requires_grad=True)
    seen: list[torch.Tensor] = []
    layer.weight.register_hook(seen.append)
    layer(x).backward(torch.randn(4, 8, device=device))
    rows = {r.stream: r for r in bits_of(layer)}
    assert all(sum(r.steps) == r.looks == 1 for r in rows.values())
    w = rounded(layer.weight.detach(), rows["weight"].bits, rows["weight"].shift)
    xq = rounded(x.detach(), rows["input"].bits, rows["input"].shift)
    assert torch.equal(layer.eval()(x).detach(), F.linear(xq, w, layer.bias.detach()))
    assert not torch.equal(w, layer.weight.detach())


def test_more_bits_where_rounding_changes_the_mean() -> None:
    # Many small numbers and a large one: 8 bits make zeros of all the small ones, 16 bits steps of
    # 2**-14, which are 2 % too small for them.
    layer = adaptive_quantize(nn.Linear(1000, 1), 10, inplace=True)
    x = torch.full((1, 1000), 1e-3)
    x[0, 0] = 1.0
    layer(x).sum().backward()
    assert {r.stream: r.bits for r in bits_of(layer)}["input"] == 24
    whole = adaptive_quantize(nn.Linear(1000, 1), 10, bitwidth=31)
    whole(x).sum().backward()
    assert {r.bits for r in bits_of(whole)} == {31}


def test_checkpointing_changes_nothing(device: torch.device) -> None:
    results = []
    for recompute in (False, True):
        net = adaptive_quantize(network(), 8).to(device)
        optimizer = sgd(net)
        x, y = digits()
        for i in range(12):
            optimizer.zero_grad()
            part = x[i * 20 : i * 20 + 20].to(device)
            out = checkpoint(net, part, use_reentrant=False) if recompute else net(part)
            F.cross_entropy(out, y[i * 20 : i * 20 + 20].to(device)).backward()
            optimizer.step()
        results.append((bits_of(net), [p.detach().cpu() for p in net.parameters()]))
    assert results[0][0] == results[1][0]
    assert all(torch.equal(a, b) for a, b in zip(results[0][1], results[1][1], strict=True))


def test_looks_are_close_at_first() -> None:
    """An epoch of few steps, in which the numbers that are to come are larger than the first."""
    layer = adaptive_quantize(nn.Linear(4, 2), 50, inplace=True)
    looked = []
    for step in range(60):
        before = bits_of(layer)[0].looks
        layer(torch.ones(2, 4) * (1 + step)).sum().backward()
        if bits_of(layer)[0].looks > before:
            looked.append(step)
    assert looked[:2] == [0, 1]
    assert all(b <= 2 * a + 1 for a, b in itertools.pairwise(looked)), looked


def test_an_overflow_of_a_loss_scaler_teaches_nothing() -> None:
    layer = adaptive_quantize(nn.Linear(4, 4), 10)
    layer(torch.randn(2, 4)).backward(torch.full((2, 4), math.inf))
    assert {r.stream: r.looks for r in bits_of(layer)}["gradient"] == 0


def test_copies_are_layers_of_their_own() -> None:
    net = adaptive_quantize(nn.Linear(4, 4), 10)
    other = copy.deepcopy(net)
    net(torch.randn(2, 4)).sum().backward()
    assert [sum(r.steps) for r in bits_of(net)] == [1, 1, 1]
    assert [sum(r.steps) for r in bits_of(other)] == [0, 0, 0]


def test_a_model_can_be_pickled() -> None:
    net = adaptive_quantize(nn.Sequential(nn.Linear(4, 4), nn.Conv1d(1, 1, 1)), 10)
    net[0](torch.randn(2, 4)).sum().backward()
    other = pickle.loads(pickle.dumps(net))
    assert bits_of(other) == bits_of(net)
    x = torch.randn(2, 4)
    assert torch.equal(other[0](x), net[0](x))
    other[0](x).sum().backward()
    assert sum(bits_of(net)[0].steps) == 1


def test_dequantized_models_can_be_calibrated() -> None:
    net = adaptive_quantize(network(), 10)
    x, _ = digits()
    net(x[:4])
    back = dequantize(net)
    assert [type(m) for m in back.modules()] == [type(m) for m in network().modules()]
    assert list(back.state_dict()) == list(network().state_dict())
    q = quantize_dynamic(back, gen_quant=True)
    assert torch.allclose(q(x[:4]), back(x[:4]))


def test_float_checkpoints_load() -> None:
    net = adaptive_quantize(network(), 10)
    missing = net.load_state_dict(network(3).state_dict(), strict=False)
    assert all("_extra_state" in k for k in missing.missing_keys)
    assert not missing.unexpected_keys


def test_what_is_refused() -> None:
    with pytest.raises(ConfigError, match="8, 16 or 31"):
        adaptive_quantize(network(), 10, bitwidth=12)
    with pytest.raises(ConfigError, match=r"len\(loader\)"):
        adaptive_quantize(network(), 0)
    with pytest.raises(ConfigError, match="no convolution"):
        adaptive_quantize(nn.ReLU(), 10)


COMPILED = """
import torch, causeway
from torch import nn
from causeway.quant import adaptive_quantize, bits_of
device = torch.accelerator.current_accelerator()
results = []
for compiled in (False, True):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3))
    net = adaptive_quantize(net, 5).to(device)
    optimizer = torch.optim.SGD(net.parameters(), 0.05)
    forward = torch.compile(net, fullgraph=True) if compiled else net
    for i in range(12):
        optimizer.zero_grad()
        torch.manual_seed(i)
        forward(torch.randn(6, 1, 8, 8).to(device)).square().mean().backward()
        optimizer.step()
    results.append((bits_of(net), [p.detach().cpu() for p in net.parameters()]))
assert [r.steps for r in results[0][0]] == [r.steps for r in results[1][0]], results
assert [r.looks for r in results[0][0]] == [r.looks for r in results[1][0]], results
for a, b in zip(results[0][1], results[1][1]):
    torch.testing.assert_close(a, b)
print("same")
"""


@pytest.mark.process
@pytest.mark.timeout(300)
def test_compiled(run_python: Run) -> None:
    assert "same" in run_python(COMPILED, timeout=280, CAUSEWAY_SIM_CODE="1").stdout
