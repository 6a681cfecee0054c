"""einops asks for no device: what it makes of torch's operators gives the CPU's numbers."""

from __future__ import annotations

import pytest
import torch

einops = pytest.importorskip("einops", reason="einops is not installed")
pytestmark = pytest.mark.once

CALLS = {
    "patches": lambda x: einops.rearrange(x, "b c (h p) (w q) -> b (h w) (p q c)", p=2, q=4),
    "a swap": lambda x: einops.rearrange(x, "b c h w -> w h (c b)"),
    "pooling": lambda x: einops.reduce(x, "b c (h 2) (w 2) -> b c h w", "max"),
    "means": lambda x: einops.reduce(x, "b c h w -> b 1 w", "mean"),
    "logsumexp": lambda x: einops.reduce(x, "b c h w -> b w", torch.logsumexp),
    "copies": lambda x: einops.repeat(x, "b c h w -> b (3 c) h (w 2)"),
    "a product": lambda x: einops.einsum(x, x, "b c h w, b d h w -> b c d"),
    "packed": lambda x: einops.pack([x, x[:, :, 0]], "b c *")[0],
}


@pytest.mark.parametrize("call", CALLS)
def test_a_pattern_and_its_gradient(call: str, device) -> None:
    x = torch.randn(2, 3, 4, 8, generator=torch.Generator().manual_seed(0))
    given = [x.to(place, copy=True).requires_grad_() for place in ("cpu", device)]
    right, found = (CALLS[call](t) for t in given)
    assert found.device == given[1].device
    torch.testing.assert_close(found.cpu(), right)
    weight = torch.randn(right.shape, generator=torch.Generator().manual_seed(1))
    (right * weight).sum().backward()
    (found * weight.to(device)).sum().backward()
    torch.testing.assert_close(given[1].grad.cpu(), given[0].grad)


def test_its_layers(device) -> None:
    from einops.layers.torch import EinMix, Rearrange, Reduce

    torch.manual_seed(0)
    model = torch.nn.Sequential(
        Rearrange("b c (h p) w -> b (h w) (p c)", p=2),
        EinMix("b t c -> b t d", weight_shape="c d", bias_shape="d", c=6, d=5),
        Reduce("b t d -> b d", "mean"),
    )
    x = torch.randn(2, 3, 4, 8)
    right = model(x)
    torch.testing.assert_close(model.to(device)(x.to(device)).cpu(), right)
