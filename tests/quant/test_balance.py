"""SmoothQuant and cross-layer equalization: the same in floating point, better in int8."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from causeway.errors import CausewayError
from causeway.quant import convert, equalize, quantize_dynamic, smooth_quant

pytestmark = pytest.mark.once


class Attends(nn.Module):
    def __init__(self, norm: type[nn.Module] = nn.LayerNorm) -> None:
        super().__init__()
        self.norm = norm(32)
        self.q, self.k, self.v = nn.Linear(32, 32), nn.Linear(32, 32), nn.Linear(32, 32)
        self.norm2, self.up, self.down = norm(32), nn.Linear(32, 64), nn.Linear(64, 32, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        q, k, v = self.q(y), self.k(y), self.v(y)
        x = x + torch.softmax(q @ k.transpose(-1, -2) / 6, -1) @ v
        return x + self.down(torch.relu(self.up(self.norm2(x))))


def attends(norm: type[nn.Module] = nn.LayerNorm) -> tuple[Any, list[torch.Tensor]]:
    torch.manual_seed(0)
    net: Any = Attends(norm).eval()
    with torch.no_grad():  # as in large language models: a few channels, a hundred times the others
        net.norm.weight[[3, 17]] *= 100
        net.norm2.weight[[5]] *= 100
        for layer in (net.q, net.k, net.v):
            layer.weight[:, [3, 17]] *= 0.01
        net.up.weight[:, [5]] *= 0.01
    return net, [torch.randn(4, 10, 32) for _ in range(3)]


def chain() -> tuple[Any, list[torch.Tensor]]:
    torch.manual_seed(0)
    net = nn.Sequential(
        *(
            nn.Conv2d(3, 16, 3),
            nn.ReLU(),
            nn.Conv2d(16, 16, 3, groups=16),
            nn.ReLU(),
            nn.MaxPool2d(2),
        ),
        *(nn.Conv2d(16, 8, 1, groups=2), nn.Flatten(), nn.Linear(72, 20), nn.Linear(20, 4)),
    ).eval()
    with torch.no_grad():  # what one layer has too large the next has too small
        size = torch.logspace(-2, 2, 16)[torch.randperm(16)]
        net[0].weight *= size.view(-1, 1, 1, 1)
        net[0].bias *= size
        net[2].weight /= size.view(-1, 1, 1, 1)
    return net, [torch.randn(4, 3, 10, 10) for _ in range(3)]


def lost(net: nn.Module, reference: nn.Module, data: list[torch.Tensor]) -> float:
    """How far int8 is from the float model, relative to its numbers."""
    q = quantize_dynamic(net, {"iteration": len(data)}, gen_quant=True)
    with torch.no_grad():
        for x in data:
            q(x)
        convert(q)
        expected = torch.stack([reference(x) for x in data])
        return float((torch.stack([q(x) for x in data]) - expected).norm() / expected.norm())


def same(a: nn.Module, b: nn.Module, data: list[torch.Tensor]) -> None:
    with torch.no_grad():
        for x in data:
            torch.testing.assert_close(a(x), b(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("norm", [nn.LayerNorm, nn.RMSNorm])
def test_outliers_cost_less_when_smoothed(norm: type[nn.Module]) -> None:
    net, data = attends(norm)
    smooth = smooth_quant(net, data)
    same(smooth, net, data)
    before, after = lost(net, net, data), lost(smooth, net, data)
    assert after < before / 3, (before, after)


def test_a_scale_is_the_formula_of_the_paper() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 4)).eval()
    data = [torch.randn(8, 6) for _ in range(2)]
    with torch.no_grad():
        inputs = torch.cat([net[0](x) for x in data]).abs().amax(0)
        for alpha in (0.0, 0.3, 1.0):
            scale = inputs**alpha / net[1].weight.abs().amax(0) ** (1 - alpha)
            smooth: Any = smooth_quant(net, data, alpha=alpha)
            torch.testing.assert_close(smooth[0].weight, net[0].weight / scale)
            torch.testing.assert_close(smooth[1].weight, net[1].weight * scale)
    pair = nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 4)).eval()
    r1, r2 = pair[0].weight.abs().amax(1), pair[2].weight.abs().amax(0)
    scale = (r1 * r2).sqrt() / r2
    equal: Any = equalize(pair)
    torch.testing.assert_close(equal[0].weight, pair[0].weight / scale[:, None])
    torch.testing.assert_close(equal[0].bias, pair[0].bias / scale)
    torch.testing.assert_close(equal[2].weight, pair[2].weight * scale)


def test_channels_of_different_size_cost_less_when_equalized() -> None:
    net, data = chain()
    equal: Any = equalize(net)
    same(equal, net, data)
    first = equal[0].weight.abs().amax((1, 2, 3))
    torch.testing.assert_close(first, equal[2].weight.abs().amax((1, 2, 3)), rtol=1e-2, atol=0)
    before, after = lost(net, net, data), lost(equal, net, data)
    assert after < before / 3, (before, after)
    one: Any = equalize(net, pairs=[("7", "8")])
    assert torch.equal(one[0].weight, net[0].weight)
    assert not torch.equal(one[7].weight, net[7].weight)
    assert equalize(net, inplace=True) is net
    assert torch.equal(net[0].weight, equal[0].weight)


def uneven(net: nn.Sequential, before: int, after: int, size: torch.Tensor) -> None:
    """Outputs of a layer `size` times as large, and the weights that read them as much smaller."""
    first: Any = net[before]
    second: Any = net[after]
    with torch.no_grad():
        rows = (1, -1) if getattr(first, "transposed", False) else (-1,)
        first.weight *= size.view(*rows, *[1] * (first.weight.dim() - len(rows)))
        first.bias *= size
        if getattr(second, "transposed", False):
            second.weight /= size.view(-1, *[1] * (second.weight.dim() - 1))
        else:
            each = size.repeat_interleave(second.weight.shape[1] // len(size))
            second.weight /= each.view(1, -1, *[1] * (second.weight.dim() - 2))


def flattened() -> tuple[Any, list[torch.Tensor]]:
    torch.manual_seed(0)
    net = nn.Sequential(
        *(nn.Conv2d(2, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.ReLU()),
        nn.Linear(72, 12),
    ).eval()
    uneven(net, 0, 5, torch.logspace(-2, 2, 8)[torch.randperm(8)])
    return net, [torch.randn(8, 2, 8, 8) for _ in range(3)]


def decoder() -> tuple[Any, list[torch.Tensor]]:
    torch.manual_seed(0)
    net = nn.Sequential(
        *(nn.ConvTranspose2d(3, 8, 3), nn.ReLU(), nn.ConvTranspose2d(8, 8, 3, 2, groups=4)),
        *(nn.LeakyReLU(), nn.Conv2d(8, 6, 3), nn.ReLU(), nn.ConvTranspose2d(6, 4, 2)),
    ).eval()
    for before, after in ((0, 2), (4, 6)):
        size = torch.logspace(-2, 2, net[before].out_channels)  # type: ignore[call-overload]
        uneven(net, before, after, size[torch.randperm(len(size))])
    return net, [torch.randn(4, 3, 6, 6) for _ in range(3)]


@pytest.mark.parametrize("made", [flattened, decoder])
def test_a_flatten_and_transposed_convolutions_are_crossed(made: Any) -> None:
    net, data = made()
    before = lost(net, net, data)
    for better in (equalize(net, batches=data), smooth_quant(net, data)):
        same(better, net, data)
        after = lost(better, net, data)
        assert after < before / 3, (before, after)


@pytest.mark.parametrize("groups", [1, 2])
def test_channels_of_transposed_convolutions_become_of_one_size(groups: int) -> None:
    torch.manual_seed(0)
    net: Any = nn.Sequential(
        nn.ConvTranspose1d(4, 6, 3, groups=groups), nn.ConvTranspose1d(6, 8, 3, groups=groups)
    ).eval()
    equal: Any = equalize(net)
    same(equal, net, [torch.randn(2, 4, 9)])
    gives = equal[0].weight.view(groups, -1, 6 // groups, 3).abs().amax((1, 3)).flatten()
    torch.testing.assert_close(gives, equal[1].weight.abs().amax((1, 2)), rtol=1e-2, atol=0)


def test_a_channel_after_a_flatten_is_all_of_its_columns() -> None:
    net, data = flattened()
    equal: Any = equalize(net, batches=data)
    r1, r2 = net[0].weight.abs().amax((1, 2, 3)), net[5].weight.view(12, 8, 9).abs().amax((0, 2))
    scale = (r1 * r2).sqrt() / r2
    torch.testing.assert_close(equal[5].weight, net[5].weight * scale.repeat_interleave(9))
    wrong = copy.deepcopy(net)  # channels last, as a flatten of another layout would have them
    with torch.no_grad():
        wrong[0].weight /= scale.view(-1, 1, 1, 1)
        wrong[0].bias /= scale
        wrong[5].weight *= scale.repeat(9)
        assert (wrong(data[0]) - net(data[0])).norm() > 0.1 * net(data[0]).norm()


@pytest.mark.parametrize(
    "way",
    [
        lambda x: x.view(x.size(0), -1),
        lambda x: x.view(x.shape[0], -1),
        lambda x: x.reshape(-1, 72),
        lambda x: torch.reshape(x, (-1, 72)),
        lambda x: x.view((x.size()[0], 72)),
    ],
)
def test_a_view_that_flattens_each_sample_is_crossed(way: Any) -> None:
    class Views(nn.Module):
        def __init__(self, layers: Any) -> None:
            super().__init__()
            self.conv, self.relu, self.pool, self.linear = layers

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(way(self.pool(self.relu(self.conv(x)))))

    net, data = flattened()
    views = Views([net[0], net[1], net[2], net[5]]).eval()
    before = lost(views, views, data)
    for better in (equalize(views, batches=data), smooth_quant(views, data)):
        same(better, views, data)
        assert lost(better, views, data) < before / 3


def test_a_view_of_several_rows_a_sample_is_not_crossed() -> None:
    class Rows(nn.Module):  # two rows a sample: a column is of several channels
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.linear = nn.Conv2d(2, 8, 3), nn.Linear(64, 5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(self.conv(x).view(-1, 64))

    torch.manual_seed(0)
    net, data = Rows().eval(), [torch.randn(2, 2, 6, 6)]
    for do in (lambda: equalize(net, batches=data), lambda: smooth_quant(net, data)):
        with pytest.raises(CausewayError, match="gives no batches"):
            do()


def test_a_flatten_of_no_batch_is_not_crossed() -> None:
    class Rows(nn.Module):  # [channels, height * width]: the linear layer's columns are pixels
        def __init__(self, way: Any) -> None:
            super().__init__()
            self.conv, self.linear, self.way = nn.Conv2d(2, 4, 3), nn.Linear(16, 5), way

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(self.way(self.conv(x)))

    torch.manual_seed(0)
    ways = (lambda x: torch.flatten(x, 1), lambda x: x.flatten(start_dim=1))
    for way in ways:
        net = Rows(way).eval()
        data = [torch.randn(2, 6, 6)]
        for do in (
            lambda m, d=data: equalize(m, batches=d),
            lambda m, d=data: smooth_quant(m, d),
            lambda m, d=data: smooth_quant(m, d, pairs=[("conv", "linear")]),
        ):
            with pytest.raises(CausewayError, match="gives no batches"):
                do(net)
    with pytest.raises(CausewayError, match="where batches are given"):
        equalize(net)
    with pytest.raises(CausewayError, match="Across a flatten, batches are needed"):
        equalize(nn.Sequential(*chain()[0]).eval(), [("5", "7")])
    for way in (lambda x: x.flatten(2), lambda x: x.flatten(), lambda x: torch.flatten(x, 1, 2)):
        with pytest.raises(CausewayError, match="found no pair"):
            smooth_quant(Rows(way).eval(), data)


def test_named_pairs_where_torch_fx_cannot_follow(device: torch.device) -> None:
    class Branches(Attends):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x if x.sum() > 0 else -x)

    torch.manual_seed(0)
    net, data = Branches().eval(), [torch.randn(2, 4, 32)]
    pairs = [("norm", ("q", "k", "v")), ("norm2", "up"), ("up", "down")]
    smooth = smooth_quant(net, data, pairs=pairs)
    same(smooth, net, data)
    on = copy.deepcopy(net).to(device)
    assert smooth_quant(on, [x.to(device) for x in data], pairs=pairs, inplace=True) is on
    for a, b in zip(on.parameters(), smooth.parameters(), strict=True):
        torch.testing.assert_close(a.cpu(), b, rtol=1e-4, atol=1e-5)
    with pytest.raises(CausewayError, match="cannot follow"):
        smooth_quant(net, data)


def test_a_pair_that_leaves_out_a_reader_changes_nothing() -> None:
    net, data = attends()
    was = copy.deepcopy(net.state_dict())
    with pytest.raises(CausewayError, match="computes something else"):
        smooth_quant(net, data, pairs=[("norm", ("q", "k"))], inplace=True)
    for name, value in net.state_dict().items():
        assert torch.equal(value, was[name]), name


def test_channels_of_zeros_stay() -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).eval()
    with torch.no_grad():
        net[0].weight[1] = 0
        net[0].bias[1] = 0
        net[2].weight[:, 2] = 0
    data = [torch.randn(9, 3)]
    same(equalize(net), net, data)
    same(smooth_quant(net, data), net, data)


def test_what_is_left_alone() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c, self.d = (nn.Linear(6, 6) for _ in range(4))
            self.e, self.f = nn.Linear(6, 6), nn.Linear(6, 6)
            self.f.weight = self.a.weight

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.b(torch.tanh(self.a(x)))  # not of one scale
            y = self.c(x) + x  # read twice
            y = self.d(self.d(y))  # runs twice
            return self.f(self.e(y))  # f shares a's weight

    net, data = Odd().eval(), [torch.randn(3, 6)]
    for do in (equalize, lambda m: smooth_quant(m, data)):
        with pytest.raises(CausewayError, match="found no pair"):
            do(net)
    more: Any = nn.Sequential(net, nn.Tanh(), nn.Linear(6, 6), nn.Linear(6, 6)).eval()
    for pair in (("0.b", "0.c"), ("0.c", "0.d"), ("0.d", "0.d")):
        with pytest.raises(CausewayError, match=r"cannot take a scale|cannot be equalized|not the"):
            equalize(more, [pair])
    with pytest.raises(CausewayError, match="shares its weights"):
        smooth_quant(net, data, pairs=[("e", "f")])


def test_what_is_refused() -> None:
    net, data = attends()
    with pytest.raises(CausewayError, match="no data"):
        smooth_quant(net, [])
    with pytest.raises(CausewayError, match=r"alpha=1\.5"):
        smooth_quant(net, data, alpha=1.5)
    with pytest.raises(CausewayError, match=r"model\.eval\(\) first"):
        equalize(copy.deepcopy(net).train())
    with pytest.raises(CausewayError, match=r"no layer called 'nrom2'.*norm2"):
        smooth_quant(net, data, pairs=[("nrom2", "up")])
    with pytest.raises(CausewayError, match="'norm' is a LayerNorm"):
        equalize(net, pairs=[("norm", "up")])
    with pytest.raises(CausewayError, match=r"32 channels .* not the 64"):
        smooth_quant(net, data, pairs=[("norm2", "down")])
    with pytest.raises(CausewayError, match="several pairs"):
        smooth_quant(net, data, pairs=[("norm", "q"), ("norm", ("k", "v"))])
    with pytest.raises(CausewayError, match="cannot be equalized"):
        equalize(net, pairs=[("q", "k")])
    bare = nn.Sequential(nn.LayerNorm(4, elementwise_affine=False), nn.Linear(4, 4)).eval()
    with pytest.raises(CausewayError, match="no weight of its own"):
        smooth_quant(bare, [torch.randn(2, 4)], pairs=[("0", "1")])
    with pytest.raises(CausewayError, match="not finite"):
        smooth_quant(net, [data[0].clone().fill_(float("inf"))])
