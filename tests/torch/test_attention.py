"""scaled_dot_product_attention under every switch of torch.nn.attention, against the CPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from same import NAME, Gradients, compare
from torch.nn.attention import SDPBackend, sdpa_kernel

BACKENDS = [b for b in SDPBackend.__members__.values() if b != SDPBackend.ERROR]
SHAPES = {
    "same": ((2, 4, 6, 8), (2, 4, 6, 8)),
    "cross": ((2, 4, 3, 8), (2, 4, 6, 8)),
    "odd head": ((2, 4, 5, 7), (2, 4, 5, 7)),
    "no heads": ((2, 3, 8), (2, 6, 8)),
}
MASKS = ["none", "causal", "bool", "float"]


def attend(backend: SDPBackend | None, mask: str, **kwargs: Any) -> Any:
    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
        chosen = kwargs | ({"is_causal": True} if mask == "causal" else {})
        if mask in ("bool", "float"):
            rows = torch.arange(q.shape[-2] * k.shape[-2], device=q.device)
            keep = (rows % 3 != 0).view(q.shape[-2], k.shape[-2])
            chosen["attn_mask"] = keep if mask == "bool" else keep.to(q.dtype)
        if backend is None:
            out = F.scaled_dot_product_attention(q, k, v, **chosen)
        else:
            with sdpa_kernel(backend):
                out = F.scaled_dot_product_attention(q, k, v, **chosen)
        grads = torch.autograd.grad(out, (q, k, v), torch.ones_like(out))
        return out, Gradients(g.contiguous() for g in grads)

    return call


def given(shapes: str, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, ...]:
    query, key = SHAPES[shapes]
    makers = (query, key, key)
    return tuple(torch.randn(shape, dtype=dtype, requires_grad=True) for shape in makers)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_agrees_with_the_cpu(shapes: str, mask: str, dtype: torch.dtype) -> None:
    assert not compare(attend(None, mask), given(shapes, dtype)).words


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("backend", [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION], ids=str)
def test_a_backend_of_the_cpu_may_be_asked_for(backend: SDPBackend, mask: str) -> None:
    for shapes in ("same", "cross"):
        assert not compare(attend(backend, mask), given(shapes)).words


@pytest.mark.parametrize("backend", BACKENDS, ids=str)
def test_a_backend_allowed_beside_math_changes_no_number(backend: SDPBackend) -> None:
    q, k, v = given("same")
    expected = F.scaled_dot_product_attention(q, k, v)
    with sdpa_kernel([backend, SDPBackend.MATH]):
        ours = F.scaled_dot_product_attention(q.to(NAME), k.to(NAME), v.to(NAME))
    torch.testing.assert_close(ours.cpu(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "backend",
    [
        None,
        SDPBackend.MATH,
        SDPBackend.EFFICIENT_ATTENTION,
        SDPBackend.CUDNN_ATTENTION,
        SDPBackend.OVERRIDEABLE,
    ],
    ids=str,
)
def test_steps_in_the_last_dimension_change_no_number(backend: SDPBackend | None) -> None:
    whole = [torch.randn(2, 4, 6, 16) for _ in range(3)]
    weight = torch.randn(2, 4, 6, 8)

    def run(place: str, backend: SDPBackend | None) -> list[torch.Tensor]:
        leaves = [t.detach().to(place).requires_grad_() for t in whole]
        q, k, v = (t[..., ::2] for t in leaves)
        assert q.stride(-1) == 2
        with sdpa_kernel(backend if backend is not None else BACKENDS):
            out = F.scaled_dot_product_attention(q, k, v)
        grads = torch.autograd.grad((out * weight.to(place)).sum(), leaves)
        return [t.detach().cpu() for t in (out, *grads)]

    for ours, expected in zip(run(NAME, backend), run("cpu", None), strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-6)


def test_grouped_heads_and_scale_agree_with_the_cpu() -> None:
    q = torch.randn(2, 8, 6, 8, requires_grad=True)
    k, v = (torch.randn(2, 2, 6, 8, requires_grad=True) for _ in range(2))
    assert not compare(attend(None, "causal", enable_gqa=True, scale=0.3), (q, k, v)).words


def test_dropout_obeys_the_seed_and_keeps_the_mean() -> None:
    q, k, v = (x.detach().to(NAME) for x in given("same"))

    def draw(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        return F.scaled_dot_product_attention(q, k, v.fill_(1), dropout_p=0.3).cpu()

    assert torch.equal(draw(1), draw(1))
    assert not torch.equal(draw(1), draw(2))
    assert 0.8 < draw(3).mean() < 1.2


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("training", [True, False])
def test_multi_head_attention_agrees_with_the_cpu(need_weights: bool, training: bool) -> None:
    net = torch.nn.MultiheadAttention(8, 2, batch_first=True).train(training)
    x = torch.randn(2, 5, 8)
    padding = torch.tensor([[False] * 5, [False, False, False, True, True]])
    want = net(x, x, x, key_padding_mask=padding, need_weights=need_weights)
    net.to(NAME)
    x, padding = x.to(NAME), padding.to(NAME)
    have = net(x, x, x, key_padding_mask=padding, need_weights=need_weights)
    torch.testing.assert_close(have[0].cpu(), want[0], rtol=1e-5, atol=1e-6)
    assert (have[1] is None) == (want[1] is None)
    if want[1] is not None:
        torch.testing.assert_close(have[1].cpu(), want[1], rtol=1e-5, atol=1e-6)
