"""Bias correction: means of outputs are those in floating point."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from causeway.errors import CausewayError
from causeway.quant import convert, correct_bias, quantize_dynamic

pytestmark = pytest.mark.once


def made() -> tuple[nn.Module, nn.Module, list[torch.Tensor]]:
    torch.manual_seed(0)
    net = nn.Sequential(
        *(nn.Conv2d(2, 6, 3), nn.ReLU(), nn.Conv2d(6, 8, 3, bias=False), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(128, 5)),
    ).eval()
    with torch.no_grad():  # channels of very different size: one scale for all rounds badly
        net[2].weight *= torch.logspace(-2, 0, 8).view(-1, 1, 1, 1)
        net[5].weight *= torch.logspace(-2, 0, 5).view(-1, 1)
    data = [torch.rand(16, 2, 8, 8) for _ in range(3)]
    q = quantize_dynamic(net, {"iteration": 3}, gen_quant=True)
    with torch.no_grad():
        for x in data:
            q(x)
    return net, convert(q), data


def off(net: nn.Module, q: nn.Module, data: list[torch.Tensor], upto: int) -> float:
    """The largest difference of a channel's mean after `upto` modules."""
    with torch.no_grad():
        means = [
            torch.cat([m[:upto](x) for x in data]).flatten(2 if upto < 4 else 1)  # type: ignore[index]
            for m in (net, q)
        ]
        dims = (0, 2) if means[0].dim() == 3 else (0,)
        return float((means[0].mean(dims) - means[1].mean(dims)).abs().max())


def test_means_are_those_of_the_float_model(device: torch.device) -> None:
    net, q, data = made()
    places = (1, 3, 6)
    before = [off(net, q, data, n) for n in places]
    assert correct_bias(q, net, data) is q
    after = [off(net, q, data, n) for n in places]
    # What a mean over other orders of sums leaves.
    assert all(a < 1e-6 for a in after), after
    assert all(b > 20 * a for a, b in zip(after, before, strict=True)), (before, after)
    assert q[2].bias is not None  # type: ignore[index]
    again = quantize_dynamic(net)
    again.load_state_dict(q.state_dict())
    with torch.no_grad():
        expected = q(data[0])
        assert torch.equal(again(data[0]), expected)
        assert torch.equal(again.to(device)(data[0].to(device)).cpu(), expected)


def test_a_bias_of_another_channel_would_be_seen() -> None:
    net, q, data = made()
    correct_bias(q, net, data)
    wrong = copy.deepcopy(q)
    wrong[5].bias = wrong[5].bias.roll(1)  # type: ignore[index]
    assert off(net, wrong, data, 6) > 1e-3


def test_what_it_cannot_correct_is_said() -> None:
    net, q, data = made()
    with pytest.raises(CausewayError, match="no data"):
        correct_bias(q, net, [])
    with pytest.raises(CausewayError, match="has no '0'"):
        correct_bias(q, nn.Linear(2, 2), data)
    with pytest.raises(CausewayError, match="no layer in integers"):
        correct_bias(net, net, data)
    with pytest.raises(CausewayError, match="convert it first"):
        correct_bias(quantize_dynamic(net, gen_quant=True), net, data)
