"""torch.utils.flop_counter counts on the device what it counts on the CPU."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode


def cnn():
    layers = nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 4, 3, stride=2), nn.Flatten()
    return nn.Sequential(*layers, nn.Linear(4 * 7 * 7, 5)), (torch.randn(2, 3, 16, 16),)


def attention():
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
    return layer, (torch.randn(2, 10, 32),)


class SDPA(nn.Module):
    def forward(self, q, k, v):
        return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def sdpa():
    return SDPA(), tuple(torch.randn(2, 4, 16, 8, requires_grad=True) for _ in range(3))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, 16, 2, batch_first=True)
        self.gru = nn.GRU(16, 8, batch_first=True)

    def forward(self, x):
        return self.gru(self.lstm(x)[0])[0]


def rnn():
    return Recurrent(), (torch.randn(3, 7, 8),)


def count(make, device, backward):
    torch.manual_seed(0)
    model, inputs = make()
    model = model.to(device)
    inputs = tuple(x.detach().to(device).requires_grad_(x.requires_grad) for x in inputs)
    # The CPU's fused RNN and attention are of another kind: the counter of torch 2.13 has no
    # formula for them, and counts nothing.
    plain = torch.backends.mkldnn.flags(enabled=False), sdpa_kernel(SDPBackend.MATH)
    with plain[0], plain[1], FlopCounterMode(display=False) as counter:
        result = model(*inputs)
        if backward:
            result.sum().backward()
    return counter.get_total_flops(), counter.get_flop_counts()


@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize("make", [cnn, attention, sdpa, rnn], ids=lambda f: f.__name__)
def test_flops_are_those_of_the_cpu(device, make, backward) -> None:
    total, counts = count(make, device, backward)
    expected, expected_counts = count(make, torch.device("cpu"), backward)
    assert expected > 0
    assert total == expected
    assert {k: sum(v.values()) for k, v in counts.items()} == {
        k: sum(v.values()) for k, v in expected_counts.items()
    }


def test_the_counter_sees_what_a_layer_of_lstm_is_made_of(device) -> None:
    steps, batch, hidden = 5, 2, 8
    layer, x = torch.nn.LSTM(4, hidden).to(device), torch.randn(steps, batch, 4, device=device)
    with FlopCounterMode(display=False) as counter:
        layer(x)
    assert counter.get_total_flops() == 2 * steps * batch * (4 + hidden) * 4 * hidden
