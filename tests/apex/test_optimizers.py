"""apex.optimizers against torch's, and against plain float64 formulas."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from causeway.apex import optimizers
from causeway.apex.contrib.clip_grad import clip_grad_norm_
from causeway.apex.parallel import LARC

SHAPES = [(3, 4), (5,), (2, 3, 2)]
STEPS = 5


def tensors(seed: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(s, generator=generator, dtype=torch.float64) for s in SHAPES]


def run(
    make: Callable[[list[torch.Tensor]], Any], where: Any, dtype: torch.dtype = torch.float32
) -> list[torch.Tensor]:
    """The parameters after some steps, with gradients that do not depend on them."""
    params = [t.to(where, dtype).requires_grad_() for t in tensors(0)]
    optimizer = make(params)
    for step in range(STEPS):
        for p, g in zip(params, tensors(step + 1), strict=True):
            p.grad = g.to(where, dtype)
        optimizer.step()
    return [p.detach().cpu().double() for p in params]


def near(found: list[torch.Tensor], expected: list[torch.Tensor], rtol: float = 1e-5) -> None:
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=rtol, atol=rtol)


TORCHS = {
    "AdamW": (
        lambda p: optimizers.FusedAdam(p, lr=0.1, weight_decay=0.1),
        lambda p: torch.optim.AdamW(p, lr=0.1, weight_decay=0.1),
    ),
    "Adam": (
        lambda p: optimizers.FusedAdam(p, lr=0.1, weight_decay=0.1, adam_w_mode=False),
        lambda p: torch.optim.Adam(p, lr=0.1, weight_decay=0.1),
    ),
    "SGD": (
        lambda p: optimizers.FusedSGD(p, lr=0.1, momentum=0.9, weight_decay=0.1, nesterov=True),
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1, nesterov=True),
    ),
    "SGD, dampened": (
        lambda p: optimizers.FusedSGD(p, lr=0.1, momentum=0.9, dampening=0.5),
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.5),
    ),
    "Adagrad": (
        lambda p: optimizers.FusedAdagrad(p, lr=0.1, weight_decay=0.1),
        lambda p: torch.optim.Adagrad(p, lr=0.1, weight_decay=0.1),
    ),
    "NpuFusedAdamW": (
        lambda p: optimizers.NpuFusedAdamW(p, lr=0.1),
        lambda p: torch.optim.AdamW(p, lr=0.1),
    ),
    "NpuFusedSGD": (
        lambda p: optimizers.NpuFusedSGD(p, lr=0.1, momentum=0.9),
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    ),
}


@pytest.mark.parametrize("name", list(TORCHS))
def test_an_optimizer_is_that_of_torch(where, name):
    ours, torchs = TORCHS[name]
    near(run(ours, where), run(torchs, "cpu", torch.float64))


def adam_without_correction(p: Any, step: int, g: Any, state: dict[str, Any]) -> Any:
    m = state["m"] = 0.9 * state.get("m", 0) + 0.1 * g
    v = state["v"] = 0.999 * state.get("v", 0) + 0.001 * g * g
    return p * (1 - 0.1 * 0.1) - 0.1 * m / (v.sqrt() + 1e-8)


def lamb(
    p: Any, step: int, g: Any, state: dict[str, Any], norm: float = 0.0, *, l2: bool = False,
    decay: float = 0.1, nv: bool = False, averaging: bool = True,
) -> Any:  # fmt: skip
    g = g / max(1.0, norm) + (decay * p if l2 else 0)
    m = state["m"] = 0.9 * state.get("m", 0) + (0.1 if averaging else 1) * g
    v = state["v"] = 0.999 * state.get("v", 0) + 0.001 * g * g
    u = m / (1 - 0.9**step) / ((v / (1 - 0.999**step)).sqrt() + 1e-6)
    u = u if l2 else u + decay * p
    ratio = p.norm() / u.norm() if decay or nv else 1.0
    return p - 0.1 * ratio * u


def novograd(
    p: Any, step: int, g: Any, state: dict[str, Any], *, inside: bool = False, kind: float = 2,
    zero: bool = False,
) -> Any:  # fmt: skip
    n = g.norm() if kind == 2 else g.abs().max()
    former = state.get("n", 0 * n if zero else n)
    if kind == 2:
        n = (0.98 * former**2 + 0.02 * n**2) ** 0.5
    else:
        n = 0.98 * former + 0.02 * n
    state["n"] = n
    denominator = n / math.sqrt(1 - 0.98**step) + 1e-8
    if inside:
        g = g / denominator + 0.1 * p
    m = state["m"] = 0.95 * state.get("m", 0) + 0.05 * g
    u = m / (1 - 0.95**step)
    return p - 0.1 * (u if inside else u / denominator + 0.1 * p)


def adagrad_w(p: Any, step: int, g: Any, state: dict[str, Any]) -> Any:
    h = state["h"] = state.get("h", 0) + g * g
    return p - 0.1 * (g / (h.sqrt() + 1e-10) + 0.1 * p)


def sgd_late_decay(p: Any, step: int, g: Any, state: dict[str, Any]) -> Any:
    m = state["m"] = 0.9 * state["m"] + g if "m" in state else g
    return p - 0.1 * (m + 0.1 * p)


def reference(
    formula: Callable[..., Any], clip: bool = False, **options: Any
) -> list[torch.Tensor]:
    params = tensors(0)
    states: list[dict[str, Any]] = [{} for _ in params]
    for step in range(1, STEPS + 1):
        grads = tensors(step)
        given = (torch.cat([g.flatten() for g in grads]).norm().item(),) if clip else ()
        params = [
            formula(p, step, g, s, *given, **options)
            for p, g, s in zip(params, grads, states, strict=True)
        ]
    return params


LAMB = {"lr": 0.1, "weight_decay": 0.1}
NOVO = {"lr": 0.1, "betas": (0.95, 0.98), "weight_decay": 0.1}
FORMULAS: dict[str, tuple[Any, list[torch.Tensor]]] = {
    "FusedAdam without correction": (
        lambda p: optimizers.FusedAdam(p, lr=0.1, weight_decay=0.1, bias_correction=False),
        reference(adam_without_correction),
    ),
    "FusedLAMB": (lambda p: optimizers.FusedLAMB(p, **LAMB), reference(lamb, clip=True)),
    "FusedLAMB, L2": (
        lambda p: optimizers.FusedLAMB(p, **LAMB, adam_w_mode=False),
        reference(lamb, clip=True, l2=True),
    ),
    "FusedLAMB without decay": (
        lambda p: optimizers.FusedLAMB(p, lr=0.1, weight_decay=0, max_grad_norm=0),
        reference(lamb, decay=0),
    ),
    "FusedLAMB, NVLAMB": (
        lambda p: optimizers.FusedLAMB(
            p, lr=0.1, weight_decay=0, max_grad_norm=0, use_nvlamb=True, grad_averaging=False
        ),
        reference(lamb, decay=0, nv=True, averaging=False),
    ),
    "FusedNovoGrad": (lambda p: optimizers.FusedNovoGrad(p, **NOVO), reference(novograd)),
    "FusedNovoGrad, inside": (
        lambda p: optimizers.FusedNovoGrad(p, **NOVO, reg_inside_moment=True),
        reference(novograd, inside=True),
    ),
    "FusedNovoGrad, largest, from zero": (
        lambda p: optimizers.FusedNovoGrad(p, **NOVO, norm_type=0, init_zero=True),
        reference(novograd, kind=0, zero=True),
    ),
    "FusedAdagrad, decoupled": (
        lambda p: optimizers.FusedAdagrad(p, lr=0.1, weight_decay=0.1, adagrad_w_mode=True),
        reference(adagrad_w),
    ),
    "FusedSGD, decay after": (
        lambda p: optimizers.FusedSGD(
            p, lr=0.1, momentum=0.9, weight_decay=0.1, wd_after_momentum=True
        ),
        reference(sgd_late_decay),
    ),
}


@pytest.mark.parametrize("name", list(FORMULAS))
def test_an_optimizer_follows_its_formula(where, name):
    make, expected = FORMULAS[name]
    near(run(make, where), expected)


def test_the_formulas_tell_a_wrong_step_from_a_right_one(device):
    """A test of the tests: other decay, other averaging, no clipping."""
    _, expected = FORMULAS["FusedLAMB"]
    wrong: dict[str, Any]
    for wrong in ({"weight_decay": 0.11}, {"grad_averaging": False}, {"max_grad_norm": 0}):
        found = run(lambda p, w=wrong: optimizers.FusedLAMB(p, **(LAMB | w)), device)
        with pytest.raises(AssertionError):
            near(found, expected)


FUSED = [
    lambda p: optimizers.FusedAdam(p, lr=0.1, weight_decay=0.1),
    lambda p: optimizers.FusedSGD(p, lr=0.1, momentum=0.9),
    lambda p: optimizers.FusedLAMB(p, lr=0.1),
    lambda p: optimizers.FusedNovoGrad(p, lr=0.1),
    lambda p: optimizers.FusedAdagrad(p, lr=0.1),
]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("make", FUSED)
def test_half_precision_parameters_have_float32_state_which_survives_a_checkpoint(
    where, make, dtype
):
    expected = run(make, "cpu", torch.float64)
    near(run(make, where, dtype), expected, 0.02 if dtype == torch.float16 else 0.1)
    params = [t.to(where, dtype).requires_grad_() for t in tensors(0)]
    first, second = make(params), make(params)
    for p, g in zip(params, tensors(1), strict=True):
        p.grad = g.to(where, dtype)
    first.step()
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    for p in params:
        for name, value in first.state[p].items():
            assert value.dtype == torch.float32
            assert torch.equal(second.state[p][name], value)
    assert second.param_groups[0]["step"] == 1


def test_fused_adam_with_masters_loses_no_small_step(where):
    params = [torch.ones(4, device=where, dtype=torch.bfloat16, requires_grad=True)]
    optimizer = optimizers.FusedAdam(params, lr=1e-4, master_weights=True)
    for _ in range(100):
        params[0].grad = torch.ones_like(params[0])
        optimizer.step()
    assert params[0].tolist() == pytest.approx([0.99] * 4, rel=4e-3)
    plain = [torch.ones(4, device=where, dtype=torch.bfloat16, requires_grad=True)]
    rounded = optimizers.FusedAdam(plain, lr=1e-4)
    for _ in range(100):
        plain[0].grad = torch.ones_like(plain[0])
        rounded.step()
    assert plain[0].tolist() == [1.0] * 4


@pytest.mark.parametrize("make", FUSED)
def test_a_fused_optimizer_works_with_a_grad_scaler(where, make):
    params = [t.to(where, torch.float32).requires_grad_() for t in tensors(0)]
    same = [p.detach().clone().requires_grad_() for p in params]
    scaled, plain = make(params), make(same)
    scaler = torch.amp.GradScaler(where.type, init_scale=8.0)
    for factor in (1.0, float("inf"), 1.0):
        scaled.zero_grad()
        plain.zero_grad()
        scaler.scale(sum((p.square().sum() * factor) for p in params)).backward()
        scaler.step(scaled)
        scaler.update()
        if factor == 1.0:
            sum(p.square().sum() for p in same).backward()
            plain.step()
    near([p.detach().cpu() for p in params], [p.detach().cpu() for p in same])
    assert scaler.get_scale() == 4.0


def test_zero_grad_follows_what_the_optimizer_was_made_with(where):
    for keep in (True, False):
        p = torch.ones(2, device=where, requires_grad=True)
        optimizer = optimizers.FusedLAMB([p], set_grad_none=keep)
        p.grad = torch.ones_like(p)
        optimizer.zero_grad()
        assert (p.grad is None) == keep


def test_what_an_optimizer_does_not_take_is_refused(device):
    p = [torch.ones(2, device=device, requires_grad=True)]
    with pytest.raises(RuntimeError, match="AMSGrad"):
        optimizers.FusedAdam(p, amsgrad=True)
    with pytest.raises(RuntimeError, match="before 2019"):
        optimizers.FusedAdam(p).step(scale=2.0)
    with pytest.raises(RuntimeError, match="norm"):
        optimizers.FusedNovoGrad(p, norm_type=1)
    table = torch.nn.Embedding(4, 2, sparse=True).to(device)
    optimizer = optimizers.FusedAdam(table.parameters())
    table(torch.tensor([1], device=device)).sum().backward()
    with pytest.raises(RuntimeError, match="SparseAdam"):
        optimizer.step()


def test_larc_scales_each_gradient_by_its_norms(where):
    p = torch.tensor([3.0, 4.0], device=where, requires_grad=True)
    optimizer = LARC(torch.optim.SGD([p], lr=0.1, weight_decay=0.5), trust_coefficient=0.02)
    p.grad = torch.tensor([0.0, 10.0], device=where)
    optimizer.step()
    # |p| 5, |g| 10: rate 0.02 * 5 / (10 + 0.5 * 5) = 0.008, of 0.1 the part 0.08.
    expected = [3 - 0.1 * 0.08 * 1.5, 4 - 0.1 * 0.08 * 12.0]
    assert p.tolist() == pytest.approx(expected)
    assert optimizer.param_groups[0]["weight_decay"] == 0.5
    assert isinstance(optimizer, torch.optim.Optimizer)


def test_clipping_is_that_of_torch(where):
    params = [t.to(where, torch.float32).requires_grad_() for t in tensors(0)]
    for p in params:
        p.grad = p.detach().clone()
    norm = torch.cat([p.detach().flatten() for p in params]).norm().item()
    assert clip_grad_norm_(params, 1.0).item() == pytest.approx(norm)
    again = torch.cat([p.grad.flatten() for p in params]).norm().item()
    assert again == pytest.approx(1.0, rel=1e-4)
    optimizer = optimizers.NpuFusedSGD(params)
    assert optimizer.clip_optimizer_grad_norm_fused_(0.5).item() == pytest.approx(1.0, rel=1e-4)
