"""Linear layers whose weights alone are integers."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from causeway.errors import ConfigError
from causeway.quant import quantize_weights
from causeway.quant.weights import WeightOnlyLinear, pack4, unpack4

pytestmark = pytest.mark.once


def test_packing_is_undone() -> None:
    q = torch.randint(0, 16, (5, 96))
    packed = pack4(q)
    assert packed.shape == (5, 48)
    assert packed.dtype == torch.uint8
    assert torch.equal(unpack4(packed).long(), q)
    assert int(packed[0, 3]) == int(q[0, 3]) + 16 * int(q[0, 19])  # as the page on formats says


@pytest.mark.parametrize(("bits", "least"), [(8, 40.0), (4, 18.0)])
@pytest.mark.parametrize("group", [32, 128])
def test_a_model(bits: int, least: float, group: int, device: torch.device) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(128, 256), nn.GELU(), nn.Linear(256, 10)).eval()
    x = torch.randn(4, 128)
    q = quantize_weights(net, bits, group)
    with torch.no_grad():
        expected, got = net(x), q(x)
        noise = 10 * torch.log10(expected.square().sum() / (got - expected).square().sum())
        assert noise > least
        # Exactly the integers: by an unpacked weight of one's own.
        layer = q[0]
        integers = unpack4(layer.weight).float() if bits == 4 else layer.weight.float()
        grouped = integers.view(256, -1, layer.group)
        if bits == 4:
            grouped = grouped - layer.zero.unsqueeze(-1)
        w = (grouped * layer.scale.unsqueeze(-1)).view(256, 128)
        assert (w - net[0].weight).abs().max() <= layer.scale.max() * (0.51 if bits == 8 else 1.01)
        torch.testing.assert_close(layer(x), x @ w.t() + net[0].bias)
        other = quantize_weights(net, bits, group)
        other.load_state_dict(q.state_dict())
        on_device = other.to(device)(x.to(device))
        torch.testing.assert_close(on_device.cpu(), got, rtol=1e-4, atol=1e-4)
    size = sum(t.numel() * t.element_size() for t in q.state_dict().values())
    before = sum(t.numel() * t.element_size() for t in net.state_dict().values())
    assert before / size > (3.3 if bits == 8 else 5 if group == 128 else 4)


def test_what_stays(device: torch.device) -> None:
    net = nn.ModuleDict({"odd": nn.Linear(33, 4), "head": nn.Linear(64, 4), "in": nn.Linear(64, 4)})
    q = quantize_weights(net, 4, mixed_layer={"head": "float"})
    assert [type(q[k]) for k in net] == [nn.Linear, nn.Linear, WeightOnlyLinear]
    q8 = quantize_weights(net, 8)
    assert q8["odd"].group == 33
    x = torch.randn(2, 33)
    torch.testing.assert_close(
        q8.to(device)["odd"](x.to(device)).cpu(), net["odd"](x), rtol=0.1, atol=0.05
    )


def test_what_is_refused() -> None:
    net = nn.Linear(64, 4)
    with pytest.raises(ConfigError, match="4 or 8 bits"):
        quantize_weights(net, 3)
    with pytest.raises(ConfigError, match="multiple of 32"):
        quantize_weights(net, 4, 48)
    with pytest.raises(ConfigError, match="Did you mean"):
        quantize_weights(
            nn.Sequential(nn.Linear(32, 2), nn.Linear(2, 2)), mixed_layer={"00": "float"}
        )
    layer = quantize_weights(net, 4)
    with pytest.raises(RuntimeError, match="does not go with weights of 4 bits"):
        layer(torch.randn(2, 32))
