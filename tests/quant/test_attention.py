"""Attention with its products in integers."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import causeway.quant.attention as attention_
from causeway.quant import convert, integer_attention, quantize_dynamic
from causeway.quant.attention import QuantizedAttention

pytestmark = pytest.mark.once


def noise(expected: torch.Tensor, got: torch.Tensor) -> float:
    error = float((expected - got).square().sum()) + 1e-30
    return 10 * math.log10(float(expected.square().sum()) / error)


def heads(tokens: int = 7, seen: int = 9) -> list[torch.Tensor]:
    g = torch.Generator().manual_seed(0)
    sizes = (tokens, seen, seen)
    # Heads of very different size: one scale for all would lose the small ones.
    by = torch.tensor([1.0, 0.01, 3.0]).view(1, 3, 1, 1)
    return [torch.randn(2, 3, n, 16, generator=g) * (1 if i else by) for i, n in enumerate(sizes)]


@pytest.mark.parametrize(("dtype", "least"), [(torch.int8, 32), (torch.int16, 80)])
def test_it_is_attention(dtype: torch.dtype, least: float, device: torch.device) -> None:
    q, k, v = heads()
    masks: list[Any] = [None, torch.randn(7, 9), torch.rand(2, 1, 7, 9) > 0.2]
    for mask in masks:
        expected = F.scaled_dot_product_attention(q, k, v, mask)
        got, weights = integer_attention(q, k, v, mask, dtype=dtype)
        assert noise(expected, got) > least
        torch.testing.assert_close(weights.sum(-1), torch.ones(2, 3, 7))
        there, _ = integer_attention(
            q.to(device), k.to(device), v.to(device),
            mask if mask is None else mask.to(device), dtype=dtype,
        )  # fmt: skip
        assert noise(got, there.cpu()) > 45
    expected = F.scaled_dot_product_attention(q, q, q, is_causal=True, scale=0.3)
    got, _ = integer_attention(q, q, q, causal=True, scale=0.3, dtype=dtype)
    assert noise(expected, got) > least


def test_products_are_of_integers_and_exact(device: torch.device) -> None:
    g = torch.Generator().manual_seed(1)
    a, b = (torch.randint(-127, 128, (5, n, 33), generator=g).to(torch.int8) for n in (4, 6))
    scale = torch.rand(5)
    expected = (a.long() @ b.long().transpose(1, 2)).float() * scale.view(-1, 1, 1)
    assert torch.equal(attention_._product(a, b, scale), expected)
    there = attention_._product(a.to(device), b.to(device), scale.to(device))
    assert torch.equal(there.cpu(), expected)


@pytest.mark.parametrize("fault", ["scale of another head", "rounded half up", "sum of floats"])
def test_a_fault_would_be_seen(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    q, k, v = heads()
    plain = attention_._integers
    if fault == "scale of another head":

        def changed(x: torch.Tensor, *rest: Any) -> Any:
            integers, scale = plain(x, *rest)
            return integers, scale.roll(1)

        monkeypatch.setattr(attention_, "_integers", changed)
        got, _ = integer_attention(q, k, v)
        assert noise(F.scaled_dot_product_attention(q, k, v), got) < 20
    elif fault == "rounded half up":
        x = torch.tensor([[[127.0, 0.5, 1.5, 2.5, -0.5]]])  # a scale of 1
        integers, _ = plain(x, 127, torch.int8)
        assert integers.tolist() == [[[127, 0, 2, 2, 0]]]
        assert (x + 0.5).floor().tolist() != integers.tolist()
    else:  # weights that do not add up to what values are multiplied by
        many = torch.zeros(1, 400, 16)  # each weight is 1 / 400, less than a step of 1 / 255
        got, _ = integer_attention(many[:, :1], many, torch.ones(1, 400, 16))
        torch.testing.assert_close(got, torch.ones(1, 1, 16))


@pytest.mark.parametrize("batch_first", [True, False])
def test_a_transformer_layer(batch_first: bool, device: torch.device) -> None:
    torch.manual_seed(0)
    net = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=batch_first).eval()
    x = torch.randn(3, 9, 32)
    mask = nn.Transformer.generate_square_subsequent_mask(9 if batch_first else 3)
    padding = torch.zeros(3, 9, dtype=torch.bool)
    padding[1, 7:] = True
    given = {"src_mask": mask, "src_key_padding_mask": padding if batch_first else padding.t()}
    q = quantize_dynamic(net, {"per_channel": True}, gen_quant=True)
    with torch.no_grad():
        expected = net(x, **given)
        q(x, **given)
        state = q.state_dict()
        assert state["self_attn.weight_in"].dtype == torch.int8
        assert not [k for k in state if "source" in k or "out_proj" in k]
        got = convert(q)(x, **given)
        assert isinstance(q.self_attn, QuantizedAttention)
        assert noise(expected, got) > 35
        again = quantize_dynamic(net)
        again.load_state_dict(state)
        assert torch.equal(again(x, **given), got)
        on_device = {k: v.to(device) for k, v in given.items()}
        there = again.to(device)(x.to(device), **on_device)
        assert noise(got, there.cpu()) > 45
        left = quantize_dynamic(net, gen_quant=True, mixed_layer={"self_attn": "float"})
        left(x, **given)
        back = quantize_dynamic(net)
        back.load_state_dict(left.state_dict())
        back.load_state_dict(back.state_dict())
        assert torch.equal(convert(left)(x, **given), back(x, **given))


def test_weights_and_one_sample_are_as_of_the_module() -> None:
    torch.manual_seed(0)
    net = nn.MultiheadAttention(32, 4, batch_first=True).eval()
    x = torch.randn(2, 7, 32)
    q = quantize_dynamic(net, dtype="int16", gen_quant=True)
    with torch.no_grad():
        q(x, x, x)
        convert(q)
        for given in ({}, {"average_attn_weights": False}, {"attn_mask": torch.randn(8, 7, 7)}):
            for ours, theirs in zip(q(x, x, x, **given), net(x, x, x, **given), strict=True):
                torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3)
        y, none = q(x[0], x[0], x[0], need_weights=False)
        assert none is None
        torch.testing.assert_close(y, net(x[0], x[0], x[0])[0], rtol=1e-3, atol=1e-3)


def test_what_it_cannot_compute_stays() -> None:
    odd = nn.MultiheadAttention(32, 4, kdim=16, vdim=16)
    assert quantize_dynamic(odd, gen_quant=True) is not None
    net = nn.Sequential(nn.MultiheadAttention(32, 4, add_zero_attn=True), nn.Linear(2, 2))
    q = quantize_dynamic(net, gen_quant=True)
    assert type(q[0]) is nn.MultiheadAttention  # type: ignore[index]
