"""torch.jit.trace and torch.jit.script on the device: the graph computes from what it is given."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (nn.Conv1d(2, 3, 3), (1, 2, 7)),
        (nn.Conv2d(2, 4, 3, groups=2, padding=1), (1, 2, 6, 6)),
        (nn.Conv3d(1, 2, 2), (1, 1, 3, 4, 4)),
        (nn.ConvTranspose2d(2, 3, 2, stride=2), (1, 2, 4, 4)),
        (nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU()), (2, 1, 5, 5)),
    ],
)
@pytest.mark.parametrize("make", ["trace", "script"])
def test_a_convolution_of_a_graph_computes_from_its_input(
    device: torch.device, module: nn.Module, shape: tuple[int, ...], make: str
) -> None:
    module = module.to(device).eval()
    first, second = (torch.randn(shape, device=device, requires_grad=True) for _ in range(2))
    graph = torch.jit.script(module) if make == "script" else torch.jit.trace(module, first)
    result, expected = graph(second), module(second)
    assert result.device == device
    torch.testing.assert_close(result, expected)
    torch.testing.assert_close(
        torch.autograd.grad(result.sum(), second), torch.autograd.grad(expected.sum(), second)
    )


def test_a_trace_records_convolutions_as_on_the_cpu(device: torch.device) -> None:
    def kinds(where: str | torch.device) -> list[str]:
        module, x = nn.Conv2d(1, 2, 3).to(where), torch.randn(1, 1, 5, 5, device=where)
        return [node.kind() for node in torch.jit.trace(module, x).graph.nodes()]

    assert kinds(device) == kinds("cpu")


def test_a_script_with_control_flow_runs_on_the_device(device: torch.device) -> None:
    @torch.jit.script
    def function(x: Tensor, n: int) -> Tensor:
        for _ in range(n):
            if bool(x.sum() > 0):
                x = x * 2 - 1
        return x

    x = torch.arange(4.0)
    result = function(x.to(device), 3)
    assert result.device == device
    torch.testing.assert_close(result.cpu(), function(x, 3))
