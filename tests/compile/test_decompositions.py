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
