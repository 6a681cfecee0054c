"""op.hpp and operators.hpp: arguments arrive in their types and places; what does not fit is said.

tests/core/vendors/records.cpp offers operators of every sort. Its kernels write down what they are
given, and decline.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from causeway.cli import app
from causeway.ops import schema

ROOT = Path(__file__).parents[2]
GXX = ["g++", "-std=c++17", f"-I{ROOT / 'include'}"]

# A call; the operator that the vendor is asked for, and its arguments. Tensors are t<dtype>[sizes],
# inputs with their first element. x is 5 everywhere, y is 7.
CALLS: dict[str, list[str]] = {
    # Pointwise, through its three forms.
    "torch.add(x, y, alpha=2.5, out=z)": [
        "aten::add.out | t11[2,3] | t11[2,3] 5 | t11[2,3] 7 | double 2.5"
    ],
    "x + y[0]": ["aten::add.out | t11[2,3] | t11[2,3] 5 | t11[3] 7 | int 1"],
    "z.fill_(4).add_(y)": [
        "aten::fill_.Scalar | t11[2,3] | int 4",
        "aten::add.out | t11[2,3] | t11[2,3] 4 | t11[2,3] 7 | int 1",
    ],
    "z.mul_(y)": ["aten::mul_.Tensor | t11[2,3] | t11[2,3] 7"],
    "z.copy_(x.t().contiguous().t())": [
        "aten::copy_ | t11[3,2] | t11[3,2] strided 5 | false",
        "aten::copy_ | t11[2,3] | t11[2,3] strided 5 | false",
    ],
    "torch.where(x > 3, x, y)": [
        "aten::where.self_out | t11[2,3] | t0[2,3] | t11[2,3] 5 | t11[2,3] 7"
    ],
    # Numbers of every kind, also in a tensor's place.
    "z.fill_(True)": ["aten::fill_.Scalar | t11[2,3] | true"],
    "c.fill_(1 - 2j)": ["aten::fill_.Scalar | t14[2] | complex double 1 double -2"],
    "x - torch.tensor(3.5)": ["aten::sub.out | t11[2,3] | t11[2,3] 5 | number double 3.5 | int 1"],
    "torch.sub(x, y, alpha=3)": ["aten::sub.out | t11[2,3] | t11[2,3] 5 | t11[2,3] 7 | int 3"],
    "torch.arange(1, 7, 2, device=D)": ["aten::arange.start_out | t8[3] | int 1 | int 7 | int 2"],
    "torch.arange(0., 1., .25, device=D)": [
        "aten::arange.start_out | t11[4] | double 0 | double 1 | double 0.25"
    ],
    # Optional arguments, strings.
    "x.clamp(max=2.5)": ["aten::clamp.out | t11[2,3] | t11[2,3] 5 | none | double 2.5"],
    "x.argmax()": ["aten::argmax.out | t8[] | t11[2,3] 5 | none | false"],
    "x.argmax(-1, keepdim=True)": ["aten::argmax.out | t8[2,1] | t11[2,3] 5 | int -1 | true"],
    "x.std()": ["aten::std.correction_out | t11[] | t11[2,3] 5 | none | none | false"],
    "x.std(1, correction=0)": [
        "aten::std.correction_out | t11[2] | t11[2,3] 5 | (int 1) | int 0 | false"
    ],
    "F.gelu(x, approximate='tanh')": ["aten::gelu.out | t11[2,3] | t11[2,3] 5 | 'tanh'"],
    # Dtypes, lists of ints, a reduction.
    "x.sum((0, 1), keepdim=True, dtype=torch.float64)": [
        "aten::sum.IntList_out | t12[1,1] | t11[2,3] 5 | (int 0; int 1) | true | dtype 12"
    ],
    "torch.sum(x, 1)": ["aten::sum.IntList_out | t11[2] | t11[2,3] 5 | (int 1) | false | none"],
    "torch._softmax_backward_data(x, y, -1, torch.float32)": [
        "aten::_softmax_backward_data.out | t11[2,3] | t11[2,3] 5 | t11[2,3] 7 | int -1 | dtype 11"
    ],
    "torch.tril_indices(2, 3, 1, device=D, dtype=torch.int32)": [
        "aten::tril_indices | t6[2,5] | int 2 | int 3 | int 1 | dtype 6 | none | device 0 | false"
    ],
    # Several outputs, products.
    "x.max(-1)": ["aten::max.dim_max | t11[2] | t8[2] | t11[2,3] 5 | int -1 | false"],
    "x.topk(2, largest=False)": [
        "aten::topk.values | t11[2,2] | t8[2,2] | t11[2,3] 5 | int 2 | int -1 | false | true"
    ],
    "F.layer_norm(x, (3,), weight=y[0])": [
        "aten::native_layer_norm | t11[2,3] | t11[2,1] | t11[2,1] | t11[2,3] 5 | (int 3) "
        "| t11[3] 7 | none | double 1e-05"
    ],
    "F.linear(x, y, w[:2, 0, 0, 0])": [
        "aten::addmm.out | t11[2,2] | t11[2] strided 4 | t11[2,3] 5 | t11[3,2] strided 7 "
        "| int 1 | int 1"
    ],
    "F.conv2d(i, w, stride=(1, 2), padding=1)": [
        "aten::convolution | t11[1,2,4,2] | t11[1,2,4,4] 3 | t11[2,2,3,3] 4 | none "
        "| (int 1; int 2) | (int 1; int 1) | (int 1; int 1) | false | (int 0; int 0) | int 1"
    ],
    # Outputs switched off by an output_mask.
    "torch.ops.aten.convolution_backward(i, i, w, [2], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, "
    "[False, True, False])": [
        "aten::convolution_backward | none | t11[2,2,3,3] | none | t11[1,2,4,4] 3 | t11[1,2,4,4] 3 "
        "| t11[2,2,3,3] 4 | (int 2) | (int 1; int 1) | (int 1; int 1) | (int 1; int 1) | false "
        "| (int 0; int 0) | int 1 | (false; true; false)"
    ],
    # Lists of tensors, also with undefined ones.
    "torch.cat([x, y], -1)": [
        "aten::cat.out | t11[2,6] | (t11[2,3] 5; t11[2,3] 7) | int -1",
    ],
    "x[:, whole]": ["aten::index.Tensor_out | t11[2,2] | t11[2,3] 5 | (none; t8[2])"],
    "F.interpolate(i, scale_factor=(2., 3.))": [
        "aten::upsample_nearest2d.out | t11[1,2,8,12] | t11[1,2,4,4] 3 | (int 8; int 12) "
        "| double 2 | double 3"
    ],
    # Random numbers.
    "z.normal_(1, 2, generator=torch.Generator(D).manual_seed(5))": [
        "aten::normal_ | t11[2,3] | double 1 | double 2 | philox 5+0"
    ],
    "torch.manual_seed(42); z.uniform_(-1, 3)": [
        "aten::uniform_ | t11[2,3] | double -1 | double 3 | philox 42+0"
    ],
    # Lists that change in place.
    "torch._fused_adam_([z], [x], [x.clone()], [y.clone()], [], [s], lr=.1, "
    "beta1=.9, beta2=.99, weight_decay=0., eps=1e-8, amsgrad=False, maximize=True)": [
        "aten::_fused_adam_ | (t11[2,3] 4) | (t11[2,3] 5) | (t11[2,3] 5) | (t11[2,3] 7) | () "
        "| (t11[] 1) | double 0.1 | double 0.9 | double 0.99 | double 0 | double 1e-08 | false "
        "| true | none | none"
    ],
    "torch._amp_foreach_non_finite_check_and_unscale_([z, z], s.clone(), s)": [
        "aten::_amp_foreach_non_finite_check_and_unscale_ | (t11[2,3] 4; t11[2,3] 4) | t11[] 1 "
        "| t11[] 1"
    ],
    # Declared by the vendor.
    "torch.ops.causeway_test.scaled(x, scale=.5)": [
        "causeway_test::scaled | t11[2,3] | t11[2,3] 5 | double 0.5"
    ],
    # Served, by a function that returns nothing.
    "torch.exp(x).tolist() == [[1.] * 3] * 2 or 1/0": [],
}
# torch has no meta kernel for it, and the core asks for one though it has no results.
WITHOUT_META = (
    "torch._fused_sgd_([z], [x], [], weight_decay=0., momentum=0., lr=.5, dampening=0., "
    "nesterov=False, maximize=True, is_first_step=True)"
)
WRONG = {
    "torch.neg(x)": "aten::neg.out: 2 arguments came, the kernel was built for 3",
    "x.cumprod(0)": "aten::cumprod.out: argument 2 is an int, the kernel was built for a double",
    "torch.tan(x)": "aten::tan.out: something was thrown",
}

PROGRAM = """
import ctypes, json, os, torch, torch.nn.functional as F
library = ctypes.CDLL(os.environ["CAUSEWAY_VENDOR"])
library.records_take.restype = ctypes.c_char_p
take = lambda: library.records_take().decode().splitlines()
custom = torch.library.Library("causeway_test", "DEF")
custom.define("scaled(Tensor self, *, float scale=2.0) -> Tensor")
custom.impl("scaled", lambda self, scale=2.0: self * scale, "CPU")
custom.impl("scaled", lambda self, scale=2.0: torch.empty_like(self), "Meta")
D = "test:0"
x, y, s = torch.full((2, 3), 5.).to(D), torch.full((2, 3), 7.).to(D), torch.tensor(1.).to(D)
i, w = torch.full((1, 2, 4, 4), 3.).to(D), torch.full((2, 2, 3, 3), 4.).to(D)
whole, c = torch.tensor([0, 2]).to(D), torch.zeros(2, dtype=torch.complex64).to(D)
found = {}
for call in json.loads(os.environ["CALLS"]):
    z = torch.full((2, 3), 4.).to(D)
    take()
    try:
        exec(call)
        found[call] = take()
    except Exception as error:
        found[call] = str(error)
print(json.dumps(found))
"""


def build(name: str, folder: Path) -> Path:
    """The library of vendors/<name>.cpp, built into `folder`, whose files it may include."""
    library = folder / f"libcw_{name}.so"
    here = Path(__file__).parent
    flags = ["-O0", "-g0", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", f"-I{folder}"]
    flags += ["-Wno-missing-field-initializers", f"-I{here.parent / 'abi/vendors'}"]
    source = here / "vendors" / f"{name}.cpp"
    subprocess.run([*GXX, *flags, str(source), "-o", str(library)], check=True)
    return library


@pytest.fixture(scope="session")
def arrived(run_python, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str] | str]:
    """For each call what the vendor wrote down, or the error."""
    library = build("records", tmp_path_factory.mktemp("vendor"))
    calls = json.dumps([*CALLS, WITHOUT_META, *WRONG])
    done = run_python(PROGRAM, CAUSEWAY_VENDOR=str(library), CALLS=calls, OMP_NUM_THREADS="1")
    found: dict[str, list[str] | str] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("call", CALLS)
def test_typed_arguments_arrive_in_their_places(arrived, call: str) -> None:
    assert arrived[call] == CALLS[call]


def test_an_operator_without_results_needs_no_meta_kernel(arrived) -> None:
    assert arrived[WITHOUT_META]


@pytest.mark.parametrize("call", WRONG)
def test_a_call_that_does_not_fit_is_refused_with_words(arrived, call: str) -> None:
    assert WRONG[call] in arrived[call]


# --- all operators --------------------------------------------------------------------------------

# torch's own samples for its operators, two each.
SWEEP = """
import ctypes, os, sys, torch
try:
    from torch.testing._internal.common_methods_invocations import op_db
except ImportError as error:
    sys.exit(f"SKIP {error}")
def to(value):
    strided = isinstance(value, torch.Tensor) and value.layout == torch.strided
    return value.to("test") if strided else value
for op in op_db:
    dtype = torch.float32 if torch.float32 in op.dtypes else torch.int64
    if dtype not in op.dtypes:
        continue
    try:
        for sample, _ in zip(op.sample_inputs("cpu", dtype), range(2)):
            sample = sample.transform(to)
            op.op(sample.input, *sample.args, **sample.kwargs)
    except Exception:
        pass  # what the CPU does not do
library = ctypes.CDLL(os.environ["CAUSEWAY_VENDOR"])
library.everything_seen.restype = ctypes.c_char_p
print(library.everything_seen().decode(), end="")
"""
ABI = (ROOT / "include/causeway/abi.h").read_text()
TAGS = re.findall(
    r"#define CW_(\w+) \d+u", ABI[ABI.index("One argument") : ABI.index("cw_philox {")]
)
NUMBERS = {"INT", "DOUBLE", "BOOLEAN", "COMPLEX"}


@pytest.mark.long
def test_every_call_has_the_tags_that_the_schema_says(run_python, tmp_path: Path) -> None:
    known = {o.name: (*o.outputs, *o.inputs) for o in schema.operators()}
    # To copy a conjugated tensor the core resolves it, by a copy of a conjugated tensor.
    names = [name for name in known if not name.startswith("aten::copy")]
    (tmp_path / "names.inc").write_text("".join(f'"{name}",\n' for name in names))
    library = str(build("everything", tmp_path))
    done = run_python(SWEEP, status=None, CAUSEWAY_VENDOR=library, OMP_NUM_THREADS="1")
    if "SKIP" in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    calls = [line.split() for line in done.stdout.splitlines()]
    assert len({name for name, *_ in calls}) > 600
    for name, *numbers in calls:
        tags = [TAGS[int(number)] for number in numbers]
        assert len(tags) == len(known[name]), (name, tags)
        for tag, argument in zip(tags, known[name], strict=True):
            wanted = argument.tag.removesuffix("?")
            right = NUMBERS if wanted == "number" else {wanted}
            assert tag in right | ({"NONE"} if argument.optional else set()), (name, argument, tag)


CUDAS = """
import ctypes, os, torch, torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
q = torch.randn(2, 4, 6, 16)
for backend in (SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION):
    with sdpa_kernel(backend):
        x = q.to("test").requires_grad_()
        out = F.scaled_dot_product_attention(x, x, x)
        out.sum().backward()
    torch.testing.assert_close(out.cpu(), F.scaled_dot_product_attention(q, q, q))
a, b, ends = torch.randn(4, 16), torch.randn(2, 16, 8), torch.tensor([1, 4], dtype=torch.int32)
got = torch._grouped_mm(a.to("test"), b.to("test"), offs=ends.to("test"))
torch.testing.assert_close(got.cpu(), torch._grouped_mm(a, b, offs=ends))
dense = torch.randn(128, 128).half().masked_fill(torch.tensor([0, 0, 1, 1]).tile(128, 32) == 0, 0)
for cutlass in (True, False):
    torch.sparse.SparseSemiStructuredTensor._FORCE_CUTLASS = cutlass
    sparse = torch.sparse.to_sparse_semi_structured(dense.to("test"))
    assert torch.equal(torch.mm(sparse, torch.eye(128).half().to("test")).cpu(), dense)
library = ctypes.CDLL(os.environ["CAUSEWAY_VENDOR"])
library.everything_seen.restype = ctypes.c_char_p
print(library.everything_seen().decode(), end="")
"""
OF_CUDA = (
    "aten::_scaled_dot_product_efficient_attention",
    "aten::_scaled_dot_product_efficient_attention_backward",
    "aten::_scaled_dot_product_cudnn_attention",
    "aten::_scaled_dot_product_cudnn_attention_backward",
    "aten::_grouped_mm",
    "aten::_sparse_semi_structured_mm",
    "aten::_cslt_compress",
    "aten::_cslt_sparse_mm",
)


def test_a_vendor_is_asked_for_what_torch_keeps_for_cuda(run_python, tmp_path: Path) -> None:
    # Its kernels decline, and the numbers are right all the same.
    (tmp_path / "names.inc").write_text("".join(f'"{name}",\n' for name in OF_CUDA))
    done = run_python(CUDAS, CAUSEWAY_VENDOR=str(build("everything", tmp_path)))
    seen = {line.split()[0] for line in done.stdout.splitlines()}
    assert seen == set(OF_CUDA), done.stderr


# --- what does not compile ------------------------------------------------------------------------

HEAD = """
#include "causeway/operators.hpp"
using cw::Tensor;
using cw::Operand;
static cw_status good(Tensor, const Tensor&, int64_t, bool, cw_stream) noexcept { return CW_OK; }
"""
TABLE = "constexpr cw::Entry table[] = {{cw::op<cw::aten::{}>({})}};"
REFUSED = {
    "an int for an int64_t": (
        "static void f(Tensor, Tensor, int, bool) {}"
        + TABLE.format("_softmax_out, f", "cw::dense(0)"),
        "an argument of the function is not of the operator's type",
    ),
    "an argument less": (
        "static void f(Tensor, Tensor, int64_t) {}"
        + TABLE.format("_softmax_out, f", "cw::dense(0)"),
        "more or fewer arguments than the operator",
    ),
    "a result": (
        "static Tensor f(Tensor t, Tensor) { return t; }"
        + TABLE.format("exp_out, f", "cw::dense(0)"),
        "the function returns cw_status or void",
    ),
    "an output that may be a number": (
        "static void f(Operand, Tensor) {}" + TABLE.format("exp_out, f", "cw::dense(0)"),
        "an output is a Tensor",
    ),
    "an input of two that may be a number": (
        "static void f(Tensor, Operand, Tensor) {}" + TABLE.format("mul_out, f", "cw::dense(0)"),
        "where one input is an Operand",
    ),
    "a softmax that is broadcast": (
        TABLE.format("_softmax_out, good", "cw::pointwise(0)"),
        "only_inputs_of_a_pointwise_operator_can_be_broadcast_to_its_output",
    ),
    "a copy that is not strided": (
        "static void f(Tensor, Tensor, bool) {}" + TABLE.format("copy_, f", "cw::dense(0)"),
        "copy_takes_strides_since_the_core_makes_tensors_dense_with_it",
    ),
}


def syntax(text: str, folder: Path) -> str:
    """What the compiler says of `text`."""
    source = folder / "unit.cpp"
    source.write_text(HEAD + text)
    flags = ["-fsyntax-only", "-pedantic", "-Wall", "-Wextra", "-Wno-unused", "-Werror"]
    return subprocess.run(
        [*GXX, *flags, str(source)], capture_output=True, text=True, check=False
    ).stderr


@pytest.mark.parametrize("what", REFUSED)
def test_a_function_that_does_not_fit_does_not_compile(tmp_path: Path, what: str) -> None:
    text, words = REFUSED[what]
    errors = syntax(text, tmp_path)
    assert words in errors
    assert "incomplete type" not in errors, "one mistake, one error"


def test_what_fits_compiles_without_a_warning(tmp_path: Path) -> None:
    text = (
        TABLE.format("_softmax_out, good", "cw::dense(CW_FLOAT32).takes(cw::strides)")
        + """
    static_assert(table[0].op.needs == CW_NEEDS_ELEMENTS && table[0].op.dtypes == CW_FLOAT32, "");
    static void add(Tensor, Operand, Operand, cw::Scalar) {}
    constexpr auto each = cw::pointwise(CW_FLOAT32).takes(cw::strides | cw::zero_size);
    constexpr auto entry = cw::op<cw::aten::add_out, add>(each.dtypes(CW_INT64));
    static_assert(entry.op.dtypes == CW_INT64, "");
    constexpr uint32_t asked = CW_NEEDS_BROADCAST | CW_NEEDS_PROMOTION;
    static_assert(entry.op.needs == (asked | CW_TAKES_NUMBERS), "");
    static void stack(Tensor, cw::List<Tensor>, int64_t) {}
    constexpr auto lists = cw::dense(0).needs(CW_NEEDS_PROMOTION);
    constexpr auto stacked = cw::op<cw::aten::cat_out, stack>(lists);
    static_assert(stacked.op.needs & CW_NEEDS_PROMOTION, "");
    """
    )
    assert syntax(text, tmp_path) == ""


def test_lists_of_numbers_and_lookup_work_without_torch(tmp_path: Path) -> None:
    source, program = tmp_path / "unit.cpp", tmp_path / "unit"
    source.write_text(
        HEAD
        + """
struct powers : cw::Operator<0, void(cw::List<Tensor>, cw::List<cw::Scalar>, cw::List<double>)> {
  static constexpr const char* name = "mylib::powers";
};
static double sum;
static void f(cw::List<Tensor> tensors, cw::List<cw::Scalar> numbers, cw::List<double> doubles) {
  for (cw::Scalar n : numbers) sum += n.to<double>();
  for (double d : doubles) sum += d;
  for (Tensor t : tensors) sum += double(t.numel());
}
constexpr cw::Entry table[] = {cw::op<powers, f>(cw::dense(0))};
int main() {
  cw_op op = {};
  op.struct_size = sizeof op;
  if (cw::find(table, "mylib::power", &op) != CW_UNSUPPORTED) return 1;
  if (cw::find(table, "mylib::powers", &op) != CW_OK || op.struct_size != sizeof op) return 2;
  int64_t shape[] = {2, 3}, strides[] = {3, 1};
  DLTensor t = {nullptr, {kDLExtDev, 1}, 2, {kDLFloat, 32, 1}, shape, strides, 0};
  const DLTensor* list[] = {&t, nullptr};
  const double doubles[] = {0.5, 0.25};
  cw_arg numbers[2] = {{CW_INT, 0, {2}}, {CW_DOUBLE, 0, {0}}};
  numbers[1].v.d = 1.5;
  cw_arg args[3] = {{CW_TENSOR_LIST, 1, {}}, {CW_SCALAR_LIST, 2, {}}, {CW_DOUBLE_LIST, 2, {}}};
  args[0].v.tensors = list, args[1].v.args = numbers, args[2].v.doubles = doubles;
  if (op.kernel(args, 3, nullptr) != CW_OK || sum != 2 + 1.5 + 0.75 + 6) return 3;
  args[0].n = 2;  // an undefined one, which the function does not take
  if (op.kernel(args, 3, nullptr) != CW_INVALID) return 4;
  const Tensor view(&t);
  if (view.size(-1) != 3 || view.stride(0) != 3 || view.itemsize() != 4) return 5;
  if (view.dtype() != cw::Dtype::float32 || view.dim() != 2 || view.device() != 1) return 6;
  if (!view.is_contiguous() || view.numel() != 6) return 6;
  for (int b = 0; b <= 21; ++b)  // codes and bits of each dtype lead back to it
    if (cw::bit(cw::Dtype(b)) != UINT64_C(1) << b) return 7;
  const auto of = [](uint8_t code, uint8_t bits) { return cw::dtype_of_dl({code, bits, 1}); };
  if (of(kDLInt, 64) != cw::dtype_of<int64_t> || of(kDLUInt, 8) != cw::dtype_of<uint8_t>) return 8;
  if (of(kDLInt, 16) != cw::Dtype::int16 || of(kDLUInt, 32) != cw::Dtype::uint32) return 9;
  const auto done = [](auto) { return CW_OK; };
  if (cw::with_dtype<float, double>(cw::Dtype::int8, done) != CW_UNSUPPORTED) return 10;
  if (cw::with_dtype<float, double>(cw::Dtype::float64, done) != CW_OK) return 10;
  return 0;
}
"""
    )
    flags = ["-O0", "-pedantic", "-Wall", "-Wextra", "-Wno-unused", "-Werror"]
    subprocess.run([*GXX, *flags, str(source), "-o", str(program)], check=True)
    assert subprocess.run([str(program)], check=False).returncode == 0


# --- what is generated ----------------------------------------------------------------------------


def needs_same_torch(path: Path) -> None:
    made_for = path.read_text().split("torch ", 1)[1].split()[0].strip(".,;")
    release = ".".join(torch.__version__.split(".")[:2])
    if made_for != release:
        pytest.skip(f"{path.name} is of torch {made_for}, this is {release}: schemas differ")


def written(option: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "causeway", "operators", option], capture_output=True, check=True
    )
    return done.stdout.decode()


def test_operators_hpp_is_what_the_code_writes() -> None:
    path = ROOT / "include/causeway/operators.hpp"
    needs_same_torch(path)
    assert path.read_text() == written("--header"), "run `make docs`"


def test_operators_md_is_what_the_code_writes() -> None:
    path = ROOT / "docs/operators.md"
    needs_same_torch(path)
    assert path.read_text() == written("--markdown"), "run `make docs`"


def test_calls_before_do_not_change_what_is_written(device: torch.device) -> None:
    before = schema.header()
    torch.ones(2, device=device).view(1, 2).sum()
    with pytest.raises((RuntimeError, NotImplementedError)):
        torch._cudnn_init_dropout_state(0.1, True, 1, dtype=torch.float32, device=device)
    schema.operators.cache_clear()
    assert schema.header() == before


def test_the_command_lists_and_refuses() -> None:
    runner = CliRunner()
    done = runner.invoke(app, ["operators", "_softmax.out"])
    assert "cw::aten::_softmax_out" in done.output
    assert "Tensor out, Tensor self, int64_t dim, bool half_to_float" in done.output
    assert "serves aten::_softmax" in done.output
    done = runner.invoke(app, ["operators", "no_such_operator"])
    assert done.exit_code == 1
    assert "composites" in done.output
