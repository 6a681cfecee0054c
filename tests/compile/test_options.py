"""What torch.compile's options do on the device: they have an effect, or a warning says no."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.process

START = """
import torch, warnings, causeway
from torch.nn import functional as F

def f(x, w): return F.gelu(x @ w).softmax(-1), w.sin().sum(0)
def given(rows=8): return torch.randn(rows, 16, device="sim"), torch.randn(16, 16, device="sim")
def compiled(**how):
    torch._dynamo.reset()
    before = len(causeway.compile_report().graphs)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        tensors = given()
        torch.testing.assert_close(torch.compile(f, **how)(*tensors), f(*tensors))
    made = causeway.compile_report().graphs[before:]
    assert any(graph.kernels for graph in made), how
    return [str(w.message) for w in said if "causeway" in str(w.message)]
"""

OPTIONS = (
    START
    + """
for option, value in (
    ("cpp_wrapper", True), ("fx_wrapper", True), ("combo_kernels", True),
    ("triton.multi_kernel", 1), ("cpp.threads", 1),
    ("coordinate_descent_tuning", True), ("max_autotune_gemm_backends", "TRITON"),
):
    said = compiled(options={option: value})
    assert len(said) == 1 and f"option '{option}' has no effect" in said[0], (option, said)
    assert not compiled(options={option: value}), "said twice"
for options in ({"epilogue_fusion": False}, {"nan_asserts": True}):
    assert not compiled(options=options), options
for mode in ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"):
    assert not compiled(mode=mode), mode
try:
    compiled(options={"no_such": 1})
except RuntimeError as error:
    assert "Unexpected optimization option no_such" in str(error)
else:
    raise AssertionError("an unknown option was taken")
with torch._inductor.config.patch(cpp_wrapper=True):
    compiled()
def f(x, w): return *torch.var_mean(x.view(2, 4, 4, 4), [1, 3]), w.t() + 1
tiles = {"triton.prefer_nd_tiling": True, "triton.tile_reductions": True}
assert len(compiled(options=tiles)) == 2
print("said")
"""
)


def test_an_option_without_effect_is_said_once_and_the_graph_is_fused(run_python) -> None:
    done = run_python(OPTIONS, CAUSEWAY_SIM_CODE="1", CAUSEWAY_COMPILE="strict")
    assert done.stdout == "said\n"


NAN = """
import torch

def root(x): return (x - 1).sqrt().sum(-1)
def product(x): return (x @ x - 12).sqrt()
compiled = [torch.compile(f, options={"nan_asserts": True}) for f in (root, product)]
x = torch.rand(4, 4, device="sim") + 2
for function in compiled:
    function(x)
for function, value in zip(compiled, (0.5, -9.0)):
    bad = x.clone()
    bad[1, 2] = value
    try:
        function(bad)
    except AssertionError:
        continue
    raise AssertionError(value)
print("found")
"""


def test_nan_asserts_finds_what_a_kernel_writes(run_python) -> None:
    done = run_python(NAN, CAUSEWAY_SIM_CODE="1", CAUSEWAY_COMPILE="strict")
    assert done.stdout == "found\n"


AHEAD = """
import torch, causeway

net = torch.nn.Linear(4, 2).to("sim")
program = torch.export.export(net, (torch.randn(3, 4, device="sim"),))
for compile in (
    lambda: torch._inductor.aoti_compile_and_package(program),
    lambda: torch._inductor.aot_compile(program.module(), (torch.randn(3, 4, device="sim"),)),
):
    try:
        compile()
    except causeway.CausewayError as error:
        assert "AOTInductor has no code for 'sim'" in str(error) and "causeway.export" in str(error)
    else:
        raise AssertionError("it was made")
print("refused")
"""


def test_aotinductor_is_refused_with_the_way_out(run_python) -> None:
    assert run_python(AHEAD, CAUSEWAY_SIM_CODE="1").stdout == "refused\n"
