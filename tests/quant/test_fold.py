"""Batch norms folded into the layers before them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from causeway.errors import CausewayError
from causeway.quant import fold_norms, quantize_dynamic

pytestmark = pytest.mark.once


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6)
        self.kept, self.after = nn.Conv2d(6, 6, 1), nn.BatchNorm2d(6)
        self.head, self.last = nn.Linear(6, 4), nn.BatchNorm1d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.norm(self.conv(x)))
        y = self.kept(x)
        y = self.after(y) + y  # used twice: not folded
        return self.last(self.head(y.mean((2, 3))))


def warmed() -> nn.Module:
    torch.manual_seed(0)
    net = Block()
    for _ in range(20):
        net(torch.randn(8, 3, 6, 6) * 3 + 1)
    return net.eval()


def test_a_norm_becomes_part_of_the_layer_before() -> None:
    net, x = warmed(), torch.randn(5, 3, 6, 6)
    folded = fold_norms(net)
    kinds = {name: type(m).__name__ for name, m in folded.named_children()}
    assert kinds["norm"] == kinds["last"] == "Identity"
    assert kinds["after"] == "BatchNorm2d"
    with torch.no_grad():
        torch.testing.assert_close(folded(x), net(x), rtol=1e-4, atol=1e-5)
        q = quantize_dynamic(folded, {"per_channel": True}, gen_quant=True)
        torch.testing.assert_close(q(x), net(x), rtol=1e-4, atol=1e-5)
    assert isinstance(net.norm, nn.BatchNorm2d)
    assert fold_norms(net, inplace=True) is net
    assert isinstance(net.norm, nn.Identity)


def test_a_norm_after_a_transposed_convolution_folds_where_it_has_no_groups() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(
        *(nn.ConvTranspose2d(3, 6, 3, bias=False), nn.BatchNorm2d(6), nn.ReLU()),
        *(nn.ConvTranspose2d(6, 4, 2, groups=2), nn.BatchNorm2d(4)),
    )
    for _ in range(20):
        net(torch.randn(8, 3, 6, 6) * 3 + 1)
    folded: Any = fold_norms(net.eval())
    assert [type(m) for m in folded][1::3] == [nn.Identity, nn.BatchNorm2d]
    x = torch.randn(5, 3, 6, 6)
    with torch.no_grad():
        torch.testing.assert_close(folded(x), net(x), rtol=1e-4, atol=1e-5)


def test_what_is_refused() -> None:
    with pytest.raises(CausewayError, match=r"model\.eval\(\) first"):
        fold_norms(Block())

    class Branches(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x if x.sum() > 0 else -x

    with pytest.raises(CausewayError, match="cannot follow"):
        fold_norms(Branches().eval())
