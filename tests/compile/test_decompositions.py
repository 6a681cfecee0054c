"""Where Inductor's decomposition does not hold on the device, compiled is eager all the same."""

from __future__ import annotations

import pytest

PROGRAM = """
import torch
import torch.ao.quantization.fx._decomposed

def range_of(x):
    return torch.ops.quantized_decomposed.choose_qparams.tensor(x, 0, 255, 1e-4, torch.uint8)

compiled = torch.compile(range_of, fullgraph=True)
x = torch.randn(64)
for name, x in {"both signs": x, "positive": x.abs() + 1, "negative": -x.abs() - 1, "one": x[:1],
                "zero": x * 0, "half": x.half()}.items():
    there = x.to("sim")
    for got, expected in zip(compiled(there), range_of(x), strict=True):
        assert got.device.type == "sim", name
        near = {"rtol": 1e-3, "atol": 1} if name == "half" else {"rtol": 1e-6, "atol": 0}
        torch.testing.assert_close(got.cpu(), expected.to(got.dtype), **near, msg=name)
# The CPU's graphs are as they were.
assert [t.device.type for t in torch.compile(range_of)(x)] == ["cpu", "cpu"]
print("same")
"""


@pytest.mark.process
def test_a_range_of_values_has_zero_in_it(run_python) -> None:
    done = run_python(PROGRAM, CAUSEWAY_SIM_CODE="1", CAUSEWAY_COMPILE="strict")
    assert done.stdout == "same\n"


ENCODER = """
import torch, causeway
from torch import nn

torch.manual_seed(0)
layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
net = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
x, padded = torch.randn(2, 5, 16), torch.tensor([[0, 0, 0, 1, 1], [0, 0, 0, 0, 1]]).bool()
with torch.no_grad():
    expected = net(x, src_key_padding_mask=padded)
    net.to("sim")
    for function in (net, torch.compile(net, fullgraph=True)):
        given = x.to("sim"), None, padded.to("sim")
        function(*given)
        with causeway.ledger() as ledger:
            got = function(*given)
        torch.testing.assert_close(got.cpu(), expected, rtol=1e-4, atol=1e-5)
        assert "host" not in {row.rung for row in ledger.rows}, ledger
    # The CPU keeps its operator.
    same = torch.compile(net.cpu())(x, src_key_padding_mask=padded)
    torch.testing.assert_close(same, expected, rtol=1e-4, atol=1e-5)
print("same")
"""


@pytest.mark.process
def test_an_encoders_layer_in_inference_stays_on_the_device(run_python) -> None:
    env = {"CAUSEWAY_SIM_MEMORY_MODEL": "discrete", "CAUSEWAY_SIM_CODE": "1"}
    assert run_python(ENCODER, **env).stdout == "same\n"


FACTORS = """
import torch

given = [torch.randn(8, 8) for _ in range(5)]
def of_a_product(x, a, b, c, d): return torch.add(x, a @ b, alpha=0.1), torch.add(a @ b, x, alpha=2)
def of_two(x, a, b, c, d): return torch.add(a @ b, c @ d, alpha=-3), x.add_(c @ d, alpha=0.5)
def of_integers(x, a, b, c, d):
    return torch.add(x.long(), a.int(), alpha=3), torch.add(x, b.long(), alpha=0.5)
def of_halves(x, a, b, c, d): return torch.add(x, a.bfloat16() @ b.bfloat16(), alpha=0.1)
def of_a_number(x, a, b, c, d): return torch.add(x.sum().cpu(), a @ b, alpha=0.1)
for f in (of_a_product, of_two, of_integers, of_halves, of_a_number):
    there = [t.to("sim") for t in given]
    found, expected = torch.compile(f)(*there), f(*(t.clone() for t in given))
    for one, other in zip(*[t if isinstance(t, tuple) else (t,) for t in (found, expected)]):
        near = 3e-2 if f is of_halves else 1e-5
        torch.testing.assert_close(one.cpu(), other, rtol=near, atol=near, msg=f.__name__)
print("same")
"""


@pytest.mark.process
def test_the_factor_of_what_is_added_to_a_product_is_kept(run_python) -> None:
    done = run_python(FACTORS, CAUSEWAY_SIM_CODE="1", CAUSEWAY_COMPILE="strict")
    assert done.stdout == "same\n"
