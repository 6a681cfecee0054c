"""Operators of other libraries: what a vendor names in operators.v1, and what a library brings,
takes back or changes while the device is in use.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ABI = Path(__file__).parents[1] / "abi/vendors"
INCLUDE = Path(__file__).parents[2] / "include"

# A library that is imported after the device was used. torch takes its operator apart for a device
# that has no kernel (custom_op), and differentiates it by a formula.
AXPY = """
import torch, causeway
seen = []
x = torch.arange(4.0, device="sim")
@torch.library.custom_op("simkit::axpy", mutates_args=())
def axpy(x: torch.Tensor, y: torch.Tensor, a: float) -> torch.Tensor:
    seen.append(x.device.type)
    return a * x + y
axpy.register_fake(lambda x, y, a: torch.empty_like(x))
axpy.register_autograd(lambda ctx, g: (g * ctx.a, g, None),
                       setup_context=lambda ctx, inputs, output: setattr(ctx, "a", inputs[2]))
def rungs(call):
    with causeway.ledger() as ledger:
        call()
    return {r.rung for r in ledger.rows if r.operator == "simkit::axpy"}
y = x.clone().requires_grad_()
"""

# torchvision's own way: a schema, kernels, and a fake one whose size is a symbol.
NMS = """
import torch, causeway
x = torch.ones(1, device="sim")
lib = torch.library.Library("torchvision", "DEF")
lib.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
def area(b):
    return (b[2] - b[0]) * (b[3] - b[1])
def overlap(a, b):
    both = (torch.min(a[2:], b[2:]) - torch.max(a[:2], b[:2])).clamp(min=0).prod()
    return both / (area(a) + area(b) - both)
@torch.library.impl(lib, "nms", "CPU")
def nms(dets, scores, threshold):
    kept = []
    for i in scores.argsort(descending=True).tolist():
        if all(overlap(dets[i], dets[j]) <= threshold for j in kept):
            kept.append(i)
    return torch.tensor(kept, dtype=torch.long)
@torch.library.register_fake("torchvision::nms", lib=lib)
def fake(dets, scores, threshold):
    return dets.new_empty(torch.library.get_ctx().new_dynamic_size(), dtype=torch.long)
"""


def test_a_named_operator_of_a_library_imported_later_is_native(run) -> None:
    program = (
        AXPY
        + """
z = torch.ops.simkit.axpy(y, x, 3.0)
z.sum().backward()
print(z.tolist(), y.grad.tolist(), seen, rungs(lambda: axpy(x, x, 2.0)))
"""
    )
    said = "[0.0, 4.0, 8.0, 12.0] [3.0, 3.0, 3.0, 3.0] [] {'native'}\n"
    assert run(program, ops="all") == said


def test_where_its_kernel_does_not_take_the_call_the_composite_is_called(run) -> None:
    program = (
        AXPY
        + """
print(rungs(lambda: axpy(x.long(), x.long(), 2.0)), seen)
with causeway.fallback("simkit::axpy"):
    print(rungs(lambda: axpy(x, x, 2.0)), seen)
"""
    )
    assert run(program, ops="all") == "{'decomposed'} ['sim']\n{'host'} ['sim', 'cpu']\n"


def test_a_composite_that_records_gradients_itself_keeps_them(run) -> None:
    program = """
        import torch, causeway
        x = torch.arange(4.0, device="sim")
        lib = torch.library.Library("simkit", "DEF")
        lib.define("axpy(Tensor x, Tensor y, float a) -> Tensor")
        lib.impl("axpy", lambda x, y, a: a * x + y, "CompositeImplicitAutograd")
        y = x.clone().requires_grad_()
        with causeway.ledger() as ledger:
            torch.ops.simkit.axpy(y, x, 3.0).sum().backward()
            assert y.grad.tolist() == [3.0] * 4
            assert not [r for r in ledger.rows if r.operator == "simkit::axpy"]
            with torch.no_grad():
                assert torch.ops.simkit.axpy(y, x, 3.0).tolist() == [0.0, 4.0, 8.0, 12.0]
        print([(r.rung, r.calls) for r in ledger.rows if r.operator == "simkit::axpy"])
    """
    assert run(program, ops="all") == "[('native', 1)]\n"


def test_a_result_whose_size_depends_on_data_is_found_by_the_vendors_kernel(run) -> None:
    program = (
        NMS
        + """
torch.manual_seed(0)
start = torch.rand(40, 2) * 10
boxes, scores = torch.cat([start, start + torch.rand(40, 2) * 8], 1), torch.rand(40)
with causeway.ledger() as ledger:
    for threshold in (0.1, 0.3, 0.9):
        want = torch.ops.torchvision.nms(boxes, scores, threshold)
        got = torch.ops.torchvision.nms(boxes.to("sim"), scores.to("sim"), threshold)
        assert got.dtype == torch.int64 and got.tolist() == want.tolist()
    torch.ops.torchvision.nms(boxes.to("sim")[:0], scores.to("sim")[:0], 0.5)
print(sorted((r.rung, r.calls) for r in ledger.rows if r.operator == "torchvision::nms"))
"""
    )
    for execution in ("inline", "async"):
        said = run(program, ops="all", execution=execution)
        assert said == "[('host', 1), ('native', 3)]\n"


def test_settings_hold_for_operators_that_come_later(run) -> None:
    program = AXPY + "print(rungs(lambda: axpy(x, x, 2.0)))"
    assert run(program, ops="all", CAUSEWAY_FALLBACK="simkit::axpy") == "{'host'}\n"
    program = NMS + "torch.ops.torchvision.nms(x.expand(1, 4), x, 0.5)"
    said = run(program, status=1, CAUSEWAY_POLICY="error", CAUSEWAY_POLICY_ONLY="torchvision::nms")
    assert "torchvision::nms would run on the host" in said
    program = "import torch; torch.ones(3, device='sim')"
    said = run(program, status=None, CAUSEWAY_FALLBACK="aten::nms")
    assert "matches no operator" in said


def test_an_operator_that_is_defined_anew_is_the_new_one(run) -> None:
    # As a cell of a notebook does: torch gives the next schema the address of the last.
    program = """
        import torch
        x = torch.arange(4.0, device="sim")
        def define(schema, function):
            lib = torch.library.Library("again", "DEF")
            lib.define(schema)
            lib.impl("op", function, "CPU")
            return lib
        for _ in range(5):
            lib = define("op(Tensor x) -> Tensor", lambda x: x * 2)
            assert torch.ops.again.op.default(x).tolist() == [0, 2, 4, 6]
            lib._destroy()
            lib = define("op(Tensor x, int n, Tensor y) -> Tensor", lambda x, n, y: x * n + y)
            assert torch.ops.again.op.default(x, 3, x).tolist() == [0, 4, 8, 12]
            lib._destroy()
    """
    assert run(program, status=0) == ""


def test_an_out_form_of_a_library_imported_later_serves_the_others(run_python, tmp_path) -> None:
    library = _vendor(tmp_path, "late::twice.out", offers="late::twice.out")
    program = """
import torch, causeway
x = torch.arange(4.0, device="test")
x + x
lib = torch.library.Library("late", "DEF")
lib.define("twice(Tensor x) -> Tensor")
lib.define("twice.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)")
for name in ("twice", "twice.out"):
    lib.impl(name, lambda x, out=None: x * 2 if out is None else out.copy_(x * 2), "CPU")
lib.impl("twice", lambda x: torch.empty_like(x), "Meta")
lib.impl("twice.out", lambda x, out: out, "Meta")
with causeway.ledger() as ledger:
    assert torch.ops.late.twice(x).tolist() == [0, 2, 4, 6]
print([r.rung for r in ledger.rows if r.operator == "late::twice"])
"""
    assert run_python(program, CAUSEWAY_VENDOR=str(library)).stdout == "['derived']\n"


@pytest.mark.parametrize(
    ("names", "why"),
    [
        ("nms", "it has no namespace"),
        ("torchvision:nms", "it has no namespace"),
        ("torchvision::", "it is no name of torch's"),
        ("torchvision::n ms", "it is no name of torch's"),
        ("torchvision::nms.", "its overload is no name"),
        ("aten::add.out", "torch's own operators are asked for by op_find"),
        ("mylib::op\\nmylib::op", "it is there twice"),
    ],
)
def test_a_bad_name_is_refused_with_the_reason(run_python, tmp_path, names: str, why: str) -> None:
    program = "import torch; from causeway.state import state; print(state.error)"
    done = run_python(program, CAUSEWAY_VENDOR=str(_vendor(tmp_path, names)))
    first = names.split("\\n")[0]
    assert f'its operators.v1 names "{first}": {why}' in done.stdout


VENDOR = """
#include "base.h"
static cw_status twice(const cw_arg* args, int32_t n, cw_stream stream) {
  const DLTensor *out = args[0].v.tensor, *in = args[1].v.tensor;
  (void)n, (void)stream;
  const float* from = in->data;
  for (int64_t i = 0; i < in->shape[0]; ++i) ((float*)out->data)[i] = 2 * from[i];
  return CW_OK;
}
static cw_status find(const char* name, cw_op* out) {
  if (strcmp(name, OFFERS) != 0) return CW_UNSUPPORTED;
  out->needs = CW_NEEDS_CONTIGUOUS, out->dtypes = CW_FLOAT32, out->kernel = twice;
  return CW_OK;
}
static cw_status extension(const char* name, const void** out) {
  if (strcmp(name, "operators.v1") != 0) return CW_UNSUPPORTED;
  *out = NAMES;
  return CW_OK;
}
CW_EXPORT const cw_backend* cw_open_v1(const cw_host* host) {
  static const cw_backend table = {
    BASE_HEAD, BASE_LEVEL_0, .op_find = find, .extension = extension};
  (void)host;
  return &table;
}
"""


def _vendor(folder: Path, names: str, offers: str = "none") -> Path:
    source, library = folder / "named.c", folder / "libcw_named.so"
    source.write_text(f'#define NAMES "{names}"\n#define OFFERS "{offers}"\n{VENDOR}')
    flags = ["-std=c11", "-shared", "-fPIC", f"-I{ABI}", f"-I{INCLUDE}"]
    subprocess.run(["gcc", *flags, str(source), "-o", str(library)], check=True)
    return library
