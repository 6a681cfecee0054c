"""Sums of residual blocks in integers: eager, on the device and compiled the same numbers."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from causeway.errors import CausewayError
from causeway.quant import convert, integer_sums, quantize_dynamic

Run = Callable[..., subprocess.CompletedProcess[str]]


class Block(nn.Module):
    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, width, 3, stride, 1)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1)
        self.around: nn.Module = nn.Identity()
        if stride > 1:
            self.around = nn.Conv2d(before, width, 1, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.conv2(F.relu(self.conv1(x))) + self.around(x))


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 16, 5, 2, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1), Block(16, 16, 1),
        Block(16, 32, 2), Block(32, 32, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(32, 10),
    ).eval()  # fmt: skip


def decibels(wanted: torch.Tensor, got: torch.Tensor) -> float:
    return float(10 * torch.log10(wanted.square().sum() / (got - wanted).square().sum()))


def quantized(
    model: nn.Module, x: torch.Tensor, spec: dict[str, object] | None = None
) -> nn.Module:
    q = quantize_dynamic(model, spec or {"per_channel": True}, gen_quant=True)
    with torch.no_grad():
        q(x)
    return convert(q)


@pytest.mark.parametrize(
    "spec", [{"per_channel": True}, {"symmetric": False}, {"fixed_point": True}], ids=str
)
def test_sums_are_near_and_those_of_the_cpu(device: torch.device, spec: dict[str, object]) -> None:
    model, x = net(), torch.randn(2, 3, 32, 32)
    q = quantized(model, x, spec)
    sums = integer_sums(q)
    with torch.no_grad():
        wanted, apart, got = model(x), q(x), sums(x)
        assert decibels(wanted, got) > decibels(wanted, apart) - 3
        assert not torch.equal(apart, got)
        assert torch.equal(q(x), apart), "the model itself changed"
        assert torch.equal(sums.to(device)(x.to(device)).cpu(), got)


def test_what_is_added_and_what_layers_take_are_the_same_integers() -> None:
    seen: dict[str, torch.Tensor] = {}
    model, x = net(), torch.randn(2, 3, 32, 32)
    sums = integer_sums(quantized(model, x))
    for name in ("3.conv1", "4.conv1", "4.around", "5.conv1"):
        layer = sums.get_submodule(name)
        layer.register_forward_pre_hook(
            lambda _, given, name=name: seen.__setitem__(name, given[0])
        )
    with torch.no_grad():
        sums(x)
    assert {str(v.dtype) for v in seen.values()} == {"torch.int8"}
    assert torch.equal(seen["4.conv1"], seen["4.around"])
    # One of the pool, and one of each of the first two blocks; the last sum stays as it was.
    targets = [str(n.target) for n in sums.graph.nodes]
    assert sum("quantize" in t for t in targets) == 3
    assert sum("numbers_of" in t for t in targets) == 2


class Odd(nn.Module):
    """Values that stay in floating point: padded by reflection, or taken by a layer twice."""

    def __init__(self) -> None:
        super().__init__()
        self.reflected = nn.Conv2d(4, 4, 3, padding=1, padding_mode="reflect")
        self.twice = nn.Conv2d(4, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.reflected(x)
        y = self.twice(x)
        return self.twice(y) + y + x


def test_values_that_cannot_be_integers_stay_as_they_are() -> None:
    torch.manual_seed(0)
    model, x = Odd().eval(), torch.randn(1, 4, 6, 6)
    q = quantized(model, x)
    with torch.no_grad():
        assert torch.equal(integer_sums(q)(x), q(x))


def test_a_model_of_other_ranges_keeps_them() -> None:
    """Two layers that take the same value, one in 16 bits: each has its own integers."""

    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 6)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.a(x) + self.b(x) + x

    torch.manual_seed(0)
    x = torch.randn(5, 6)
    q = quantize_dynamic(
        nn.Sequential(Two()).eval(), {"per_channel": True}, gen_quant=True,
        mixed_layer={"0.b": "int16"},
    )  # fmt: skip
    with torch.no_grad():
        q(x)
        sums = integer_sums(convert(q))
        a, b = (sums.get_submodule(f"0.{n}") for n in "ab")
        assert (a.given_integers, b.given_integers) == (True, False)
        assert decibels(q(x), sums(x)) > 30


def test_errors_say_what_to_do() -> None:
    q = quantize_dynamic(net(), gen_quant=True)
    with pytest.raises(CausewayError, match=r"'0' has no integers yet: convert\(model\)"):
        integer_sums(q)

    with pytest.raises(CausewayError, match=r"no layer in integers: quantize_dynamic\(model"):
        integer_sums(net())

    class Branches(nn.Module):
        def __init__(self, layer: nn.Module) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x) if x.sum() > 0 else -x

    q = quantized(net(), torch.randn(2, 3, 32, 32), {})
    with pytest.raises(CausewayError, match=r"torch\.fx cannot follow"):
        integer_sums(Branches(q))


COMPILED = """
import sys, torch, causeway
sys.path.append({folder!r})
from test_sums import net, quantized
from causeway.quant import integer_sums
torch.set_grad_enabled(False)
device = torch.accelerator.current_accelerator()
model, x = net(), torch.randn(2, 3, 32, 32)
for sums in (True, False):
    q = quantized(model, x, {spec!r})
    q = integer_sums(q) if sums else q
    expected = q(x)
    for given in (x, x.to(memory_format=torch.channels_last)):
        torch._dynamo.reset()
        got = torch.compile(q.to(device))(given.to(device))
        assert torch.equal(got.cpu(), expected) and got.stride() == expected.stride(), sums
    last = str(causeway.compile_report()).split("graph ")[-1]
    names = ("qconv.", "qconv_add.", "quantize.", "max_pool2d.")
    print(*(last.count("by the ladder: causeway." + n) for n in names), last.count("aten.add"))
# A result that is an image lies as in eager.
# A layer whose image nobody reads is left as it lies: floats are not copied into another layout.
for layers in (4, 1):
    image = integer_sums(quantized(model[:layers], x, {spec!r})).to(device)
    torch._dynamo.reset()
    got, expected = torch.compile(image)(x.to(device)), image(x.to(device))
    assert torch.equal(got.cpu(), expected.cpu()) and got.stride() == expected.stride()
    last = str(causeway.compile_report()).split("graph ")[-1]
    assert ("clone" in last) == (layers > 1), last
"""


@pytest.mark.process
@pytest.mark.timeout(600)
@pytest.mark.parametrize("spec", [{"per_channel": True}, {"symmetric": False}], ids=str)
def test_compiled_sums_are_part_of_products(
    request: pytest.FixtureRequest, run_python: Run, spec: dict[str, object]
) -> None:
    program = COMPILED.format(folder=str(request.path.parent), spec=spec)
    said = run_python(program, timeout=580, CAUSEWAY_SIM_CODE="1").stdout.split("\n")
    # In integers the input and the last layer's are quantized; with floats around, blocks' too.
    assert said[0] == "5 3 2 1 0", said
    assert said[1] == "5 3 6 0 0", said
