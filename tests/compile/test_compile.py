"""torch.compile on the device: the CPU's numbers by fused kernels; what is not fused says so."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PROGRAMS = (HERE / "programs.py").read_text()
SIM = {"CAUSEWAY_SIM_CODE": "1", "CAUSEWAY_COMPILE": "strict"}
Run = Callable[..., subprocess.CompletedProcess[str]]

pytestmark = [pytest.mark.process, pytest.mark.once]


@pytest.fixture(scope="session")
def caches(tmp_path_factory) -> dict[str, str]:
    """Inductor's cache, shared by the tests of this file and by nobody else."""
    return {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path_factory.getbasetemp() / "inductor")}


def assert_as_the_cpu(done: subprocess.CompletedProcess[str]) -> None:
    """All programs ran, and none differs."""
    lines = [line for line in done.stdout.splitlines() if ": " in line]
    assert len(lines) >= 25, done.stdout + done.stderr
    assert [line for line in lines if not line.endswith(": as the CPU")] == []


@pytest.mark.timeout(900)
def test_programs_give_the_numbers_of_the_cpu(run_python: Run, caches: dict[str, str]) -> None:
    assert_as_the_cpu(run_python(PROGRAMS, status=None, timeout=800, **SIM, **caches))


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("in_turn", ["1", "0"])
def test_programs_give_the_numbers_of_the_cpu_on_opencl(
    run_python: Run, caches: dict[str, str], opencl_library: Path, in_turn: str
) -> None:
    env = {"CAUSEWAY_VENDOR": str(opencl_library), "CAUSEWAY_OPENCL_IN_TURN": in_turn}
    env |= {"CAUSEWAY_COMPILE": "strict", **caches}
    assert_as_the_cpu(run_python(PROGRAMS, status=None, timeout=1700, **env))


GRAPHS = (HERE / "random_graphs.py").read_text()
A_WRONG_FOLD = """
from causeway.compile import folds
text = folds.functions
folds.functions = lambda has: text(has).replace("sum += lanes[l]", "sum = lanes[l]")
"""


@pytest.mark.timeout(900)
def test_random_graphs_give_the_numbers_of_float64(run_python: Run, caches: dict[str, str]) -> None:
    run_python(GRAPHS, args=("0", "4"), timeout=800, **SIM, **caches)


def test_random_graphs_find_a_wrong_fold(
    run_python: Run, caches: dict[str, str], tmp_path: Path
) -> None:
    own = caches | {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor")}
    program = GRAPHS.replace("import torch\n", "import torch\n" + A_WRONG_FOLD, 1)
    assert "is off by" in run_python(program, args=("0", "2"), status=1, **SIM, **own).stdout


@pytest.mark.long
@pytest.mark.timeout(3000)
def test_models_of_transformers_give_the_numbers_of_the_cpu(
    run_python: Run, caches: dict[str, str]
) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    program = f"import runpy; runpy.run_path({str(HERE / 'models.py')!r}, run_name='__main__')"
    said = run_python(program, timeout=2900, new=True, **SIM, **caches).stdout.splitlines()
    assert len(said) >= 14
    assert [line for line in said if not line.endswith(": equal")] == []


NETWORKS = f"import runpy\nfound = runpy.run_path({str(HERE / 'networks.py')!r}, run_name=NAME)\n"
EVERY_NETWORK = "NAME = '__main__'\n" + NETWORKS
PLANTED = f"""
NAME = "networks"
{NETWORKS}
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 4)

    def forward(self, x):
        y = self.layer(x).mean(1).sin()
        return y * 2 if mends and x.shape[0] == 5 else y * x.shape[0]

def change(net):
    with torch.no_grad():
        net.layer.bias[0] += 0.01

found["NETWORKS"]["net"] = found["Network"](Net, found["sequences"])
device = torch.device("sim")
for mends, changed in ((False, None), (False, change), (True, None)):
    print("; ".join(line.splitlines()[0] for line in found["differences"]("net", device, changed)))
"""


@pytest.mark.long
@pytest.mark.timeout(900)
def test_networks_make_one_set_of_kernels_for_two_batches(
    run_python: Run, caches: dict[str, str]
) -> None:
    some = ("rnn", "digits", "graph", "detector")
    done = run_python(EVERY_NETWORK, args=some, timeout=800, **SIM, **caches)
    assert done.stdout.splitlines() == [f"{name}: equal" for name in some]


def test_a_changed_weight_and_a_second_set_of_kernels_are_found(
    run_python: Run, caches: dict[str, str]
) -> None:
    none, weight, kernels = run_python(PLANTED, **SIM, **caches).stdout.splitlines()
    assert none == ""
    assert "net, a batch of 5: outputs" in weight
    assert kernels.startswith("net: kernels made by batches of (5, 6): [")


PRODUCTS = (HERE / "products.py").read_text()
SOME_PRODUCTS = ("addmm, residual", "bmm", "convolution, groups", "Winograd", "read twice", "GELU")
SOME_PRODUCTS += ("a cast to bfloat16", "a cast to float32", "a result and its mask", "to uint8")
SOME_PRODUCTS += ("a cast of many rows by default", "convolution, channels scaled")


def test_what_follows_a_product_is_done_in_its_kernel(run_python: Run, caches: dict) -> None:
    done = run_python(PRODUCTS, args=SOME_PRODUCTS, compiles=True, **SIM, **caches)
    assert done.stdout.splitlines() == [f"{name}: right, right" for name in SOME_PRODUCTS]


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("where", ["sim", "teams", "opencl"])
def test_what_follows_any_product_is_done_in_its_kernel(
    run_python: Run, caches: dict[str, str], opencl_library: Path, where: str
) -> None:
    env = {"CAUSEWAY_COMPILE": "strict", **caches}
    if where == "opencl":
        env["CAUSEWAY_VENDOR"] = str(opencl_library)
    elif where == "sim":
        env |= SIM
    else:
        env |= {"CAUSEWAY_SIM_TEAMS": "1", "CAUSEWAY_SIM_OPS": "none", "CAUSEWAY_TUNE": "off"}
        env |= {"CAUSEWAY_SIM_MEMORY_MODEL": "discrete", "CAUSEWAY_MEMORY_CACHE": "0"}
    said = run_python(PRODUCTS, compiles=True, timeout=1700, **env).stdout.splitlines()
    assert len(said) >= 55
    assert [line for line in said if not line.endswith(": right, right")] == []


def text_with(old: str, new: str) -> str:
    """An epilogue's text with another load or store."""
    return f"""
made = epilogues.KernelText
epilogues.KernelText = lambda name, parameters, body, cost: made(
    name, parameters, body.replace("{old}(", "{new}("), cost)
"""


# What a hurried colleague would get wrong: a case, and the text that is planted. The memory of a
# result of another dtype given to the product; a store of another size, a residual of another
# dtype; a product in halves not rounded; steps to integers cut off, or not clamped; a product and
# a sum in one operation.
WRONG_PRODUCTS = {
    "addmm, columns scaled": """
place = epilogues.EpilogueKernel._place_of
epilogues.EpilogueKernel._place_of = lambda s, e: place(s, e).replace("AT_COLUMN", "AT_ROW")
""",
    "Winograd, images scaled": """
import inspect
text = inspect.getsource(epilogues._by_rows)
exec(text.replace('{"AT_ROW"}', '{"AT_ROW", "AT_BATCH"}'), epilogues.__dict__)
""",
    "both are results": """
epilogues.is_epilogue = lambda before, after: not after.is_reduction()
""",
    "convolution, columns scaled": """
is_flat = epilogues.EpilogueKernel._is_flat
epilogues.EpilogueKernel._is_flat = lambda self, index: index.is_Symbol or is_flat(self, index)
""",
    "a mask": "epilogues.ProductLine._as_product = lambda self: self.out",
    "a cast to bfloat16": text_with("ST_bf16", "ST_u8"),
    "a residual of another dtype": text_with("LD_f16", "LD_bf16"),
    "a cast to float32": 'epilogues.through_memory = lambda x, dtype: "v"',
    "to uint8": "epilogues.EpilogueOverrides.round = staticmethod(epilogues.Overrides.trunc)",
    "to int8": 'epilogues.EpilogueOverrides.minimum = staticmethod(lambda a, b: f"{a}")',
    "convolution, channels scaled": "epilogues._uncontracted = lambda text, *of: text",
}


@pytest.mark.parametrize("case", WRONG_PRODUCTS)
def test_a_wrong_epilogue_is_found(
    run_python: Run, caches: dict[str, str], tmp_path: Path, case: str
) -> None:
    own = caches | {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor")}
    planted = f"from causeway.compile import epilogues\n{WRONG_PRODUCTS[case]}\n"
    program = PRODUCTS.replace("CASES: dict", planted + "CASES: dict", 1)
    done = run_python(program, args=(case,), compiles=True, status=None, **SIM, **own)
    assert "right, right" not in done.stdout
    refused = ("Expected out tensor", "NameError: name 'buf0'")
    assert "calls in the product's kernel" in done.stdout or any(r in done.stderr for r in refused)


MEASURED = """
import sys, time, torch, causeway
import torch.nn.functional as F
from causeway.compile import runtime

slow = sys.argv[1]
follow = runtime.Product._follow
def slower(way):
    def call(self, *given):
        done = way(self, *given)
        if done is not False:
            time.sleep(0.02)
        return done
    return call
if slow in ("_together", "_follow"):
    setattr(runtime.Product, slow, slower(getattr(runtime.Product, slow)))

def f(x, w, b, r, image, filters):
    return F.gelu(F.linear(x, w, b)) * r, F.conv2d(image, filters).tanh()

def given(rows):
    rest = torch.randn(64), torch.randn(rows, 64), torch.randn(2, 12, 17, 19)
    return torch.randn(rows, 48), torch.randn(64, 48), *rest, torch.randn(20, 12, 3, 3)

compiled = torch.compile(f, mode="max-autotune-no-cudagraphs", dynamic=True)
for rows in (32, 200, 32):
    one = given(rows)
    for _ in range(2):
        got = compiled(*(t.to("sim") for t in one))
        for mine, theirs in zip(got, f(*one), strict=True):
            torch.testing.assert_close(mine.cpu(), theirs, rtol=2e-5, atol=2e-5)
report = causeway.compile_report()
print(len(report.measured), "measured:" in str(report), all(
    (ratio > 1) == (slow == "_together") for ratio in report.measured.values()))
torch.compiler.reset()
torch.compile(f, dynamic=True)(*(t.to("sim") for t in given(40)))
print(len(causeway.compile_report().measured))
"""


@pytest.mark.parametrize("slow", ["_together", "_follow"])
def test_max_autotune_measures_what_follows_a_product(
    run_python: Run, caches: dict[str, str], slow: str
) -> None:
    done = run_python(MEASURED, args=(slow,), **SIM, **caches)
    assert done.stdout.split() == ["3", "True", "True", "3"]


NOT_BUILT = """
from causeway.compile import epilogues
rows = epilogues._by_rows
epilogues._by_rows = lambda lines: (["this is no C;"], rows(lines)[1])
"""


def test_where_no_product_can_be_built_with_it_what_follows_runs_by_itself(
    run_python: Run, caches: dict[str, str], tmp_path: Path
) -> None:
    own = caches | {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor")}
    program = PRODUCTS.replace("CASES: dict", NOT_BUILT + "CASES: dict", 1)
    names = ("mm", "convolution", "convolution, groups")  # the last has launched before it builds
    done = run_python(program, args=names, compiles=True, **SIM, **own)
    apart = "equal, 0 of 2 calls in the product's kernel, 1 apart"
    assert done.stdout.splitlines() == [f"{name}: {apart}, {apart}" for name in names]
    said = "the portable kernel of aten::{} does not run together with what follows it"
    assert all(said.format(name) in done.stderr for name in ("mm.out", "convolution"))


ONCE_A_ROW = """
import torch
from causeway.compile import runtime

texts, add = [], runtime.Program.add
runtime.Program.add = lambda self, *given: [add(self, *given), texts.append(given[4])][0]

def norm(x, mean, variance):
    return torch.relu((x - mean[:, None]) / torch.sqrt(variance[:, None] + 1e-5))

def picked(x, table, index):
    return x * table[index][:, None]

x, mean, variance = torch.randn(64, 300), torch.randn(64), torch.rand(64)
got = torch.compile(norm)(*(t.to("sim") for t in (x, mean, variance)))
torch.testing.assert_close(got.cpu(), norm(x, mean, variance), rtol=1e-5, atol=1e-6)
(text,) = texts
print(text.index("sqrt(") < text.index("INDEPENDENT"))
index = torch.tensor([1, 0, 3, 1] * 16)
compiled = torch.compile(picked)
got = compiled(*(t.to("sim") for t in (x, mean, index)))
print(torch.equal(got.cpu(), picked(x, mean, index)))
index[40] = 1 << 40
try:
    compiled(*(t.to("sim") for t in (x, mean, index)))
    torch.accelerator.synchronize()
except Exception as error:
    print("out of range" in str(error) or "out of bounds" in str(error) or str(error))
"""


def test_what_is_the_same_for_a_row_is_computed_once(
    run_python: Run, caches: dict[str, str]
) -> None:
    done = run_python(ONCE_A_ROW, **SIM, **caches)
    assert done.stdout.split() == ["True", "True", "True"]


EXPONENTIALS = """
import torch
from causeway.compile import runtime

texts, add = [], runtime.Program.add
runtime.Program.add = lambda self, *given: [add(self, *given), texts.append(given[4])][0]

def masked(x, mask, other):
    return torch.softmax(x.masked_fill(mask, -1e9), -1)

def of_another(x, mask, other):
    return torch.exp(x - other.amax(-1, keepdim=True)) + other

def of_half(x, mask, other):
    return torch.exp(x - (0.5 * x).amax(-1, keepdim=True))

def negative(x, mask, other):
    return torch.exp(x * x * -0.5)

def positive(x, mask, other):
    return torch.exp(x * x * 0.5)

def no_square(x, mask, other):
    return torch.exp(x * other * -0.5)

for width in (300, 5000):  # a row at once, and in chunks
    x, mask = 4 * torch.randn(20, width), torch.rand(20, width) < 0.3
    mask[3], x[5, 7], x[6, 8] = True, float("nan"), float("inf")
    given = x, mask, torch.randn(20, width)
    for f in (masked, of_another, of_half, negative, positive, no_square):
        texts.clear()
        torch.compiler.reset()
        got = torch.compile(f, dynamic=False)(*(t.to("sim") for t in given)).cpu()
        torch.testing.assert_close(got, f(*given), rtol=2e-5, atol=1e-6, equal_nan=True)
        text = "".join(texts)
        print(f.__name__, "exp_down_f32(" in text, "exp_f32(" in text)
"""


def test_what_is_not_above_0_has_the_shorter_exponential(
    run_python: Run, caches: dict[str, str]
) -> None:
    done = run_python(EXPONENTIALS, **SIM, **caches)
    shorter = ["masked True False", "negative True False"]
    longer = [f"{f} False True" for f in ("of_another", "of_half", "positive", "no_square")]
    expected = [shorter[0], *longer[:2], shorter[1], *longer[2:]]
    assert done.stdout.splitlines() == expected * 2


VANISHES = """
import statistics, time, torch

def seconds(f, *given):
    begin = time.process_time()
    for _ in range(4):
        f(*given)
    torch.accelerator.synchronize()
    return time.process_time() - begin

small, none = (torch.full((1 << 19,), v).to("sim") for v in (-1.0, -1e9))
compiled = torch.compile(lambda x: torch.exp(x) + 1)
for f in (torch.exp, torch.sigmoid, compiled):
    f(small), f(none)
    torch.accelerator.synchronize()
    ratios = [seconds(f, none) / seconds(f, small) for _ in range(9)]
    print(statistics.median(ratios) < 2 or ratios)
"""


def test_an_exponential_that_is_0_takes_no_longer(run_python: Run, caches: dict[str, str]) -> None:
    done = run_python(VANISHES, **{**SIM, "CAUSEWAY_SIM_OPS": "none"}, **caches)
    assert done.stdout.split() == ["True"] * 3, done.stdout


ACROSS = """
import sys, torch
from causeway.compile import runtime

texts, add = [], runtime.Program.add
def keep(self, name, parameters, cost, lanes, body, *more):
    wrong = body.replace(*sys.argv[1:3]) if sys.argv[1:] else body
    texts.append(body)
    return add(self, name, parameters, cost, lanes, wrong, *more)
runtime.Program.add = keep

def transposed(a, b, x): return a + b.t()
def both(a, b, x): return (a.t() * 2).contiguous() + b * b[:1], a.sin()
def last(a, b, x): return (x * 2).contiguous(memory_format=torch.channels_last), x + 1
def first(a, b, x):
    return (x.permute(0, 2, 3, 1).contiguous() * 2).permute(0, 3, 1, 2).contiguous()
def heads(a, b, x):
    return (x.permute(0, 3, 1, 2) * 3).contiguous(), x.permute(1, 0, 3, 2).contiguous()
def narrow(a, b, x):
    return (a.t() > 0).contiguous(), a.t().half().contiguous(), a.t().long() * 2 + b.long()
def chosen(a, b, x): return torch.where(a.t() > b, a.t(), b).relu()
def written(a, b, x): return b.clone().add_(a.t()).mul_(b)

torch.manual_seed(0)
for sizes in ((70, 37, 3, 21, 9, 18), (64, 128, 2, 16, 8, 8), (9, 65, 1, 33, 17, 10)):
    n, m, *image = sizes
    given = torch.randn(n, m), torch.randn(m, n), torch.randn(image)
    for f in (transposed, both, last, first, heads, narrow, chosen, written):
        for dynamic in (False, True):
            torch.compiler.reset()
            tensors = [given[1].t().contiguous(), *given[1:]] if f is transposed else given
            want = f(*tensors)
            got = torch.compile(f, dynamic=dynamic)(*(t.to("sim") for t in tensors))
            want, got = ([v] if isinstance(v, torch.Tensor) else v for v in (want, got))
            for one, other in zip(got, want, strict=True):
                close = torch.allclose(one.cpu(), other, rtol=1e-5, atol=1e-5)
                if not close or one.stride() != other.stride():
                    print("wrong", f.__name__, sizes, dynamic)
print("tiles", sum("_tile[" in text for text in texts))
"""


def test_what_lies_across_a_row_is_read_and_written_in_tiles(
    run_python: Run, caches: dict[str, str]
) -> None:
    done = run_python(ACROSS, timeout=800, **SIM, **caches)
    (line,) = done.stdout.splitlines()
    assert int(line.removeprefix("tiles ")) >= 30


@pytest.mark.parametrize(
    ("old", "new"),
    [("(top + t)", "(t)"), ("x_count - left < 64", "0"), (" * 16 + t]);", " * 16]);")],
)
def test_a_mistake_in_a_tile_shows(
    run_python: Run, caches: dict[str, str], tmp_path: Path, old: str, new: str
) -> None:
    own = {**caches, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor")}
    program = ACROSS.replace("(9, 65, 1, 33, 17, 10)", "").replace("(64, 128, 2, 16, 8, 8),", "")
    program = program.replace("(False, True)", "(False,)")
    assert "wrong" in run_python(program, args=(old, new), status=None, **SIM, **own).stdout


ONE_KERNEL = """
import json, torch, causeway

def f(x):
    return torch.softmax(torch.sin(x) * 2 + 1, -1)

x = torch.randn(64, 100)
y = torch.compile(f)(x.to("sim"))
torch.testing.assert_close(y.cpu(), f(x), rtol=1e-4, atol=1e-5)
report = causeway.compile_report()
(graph,) = report.graphs
kernels = {name: made.operators for name, made in graph.kernels.items()}
print(json.dumps([kernels, graph.extern, report.unfused, str(report)]))
"""


def test_what_is_fused_is_one_kernel_and_the_report_names_its_operators(
    run_python: Run, caches: dict[str, str]
) -> None:
    kernels, extern, unfused, text = json.loads(run_python(ONE_KERNEL, **SIM, **caches).stdout)
    ((name, operators),) = kernels.items()
    assert "softmax" in name
    assert {"aten.sin.default", "aten._softmax.default"} <= set(operators)
    assert (extern, unfused) == ([], [])
    assert name in text


EXPLAINED = """
import sys, torch

def f(x):
    y = torch.sin(x) * 2
    print("break")
    return torch.linalg.eigvalsh((y + 1).cumsum(0).T @ y)

g = torch.compile(f)
for rows in sys.argv[1:]:
    g(torch.randn(int(rows), 5, device="sim"))
sys.exit(3)
"""


@pytest.mark.parametrize("as_json", [False, True])
def test_explain_compile_says_what_was_made_of_a_script(
    run_python: Run, caches: dict[str, str], tmp_path: Path, as_json: bool
) -> None:
    script = tmp_path / "model.py"
    script.write_text(EXPLAINED)
    command = ["explain", "--compile", *["--json"][:as_json], str(script), "--", "4", "6"]
    program = (
        f"import sys; sys.argv = ['causeway', *{command!r}]; from causeway.cli import app; app()"
    )
    done = run_python(program, status=3, **SIM, **caches)
    assert done.stdout.splitlines() == ["break", "break"]
    if as_json:
        report = json.loads(done.stderr[done.stderr.index("{") :])
        made = report["graphs"][0]["kernels"]
        assert [one["operators"] for one in made.values()] == [
            ["aten.sin.default", "aten.mul.Tensor"]
        ]
        assert [one["lines"] for one in made.values()] == [[f"{script}:5"]]
        assert [(one["bytes"], one["eager_bytes"]) for one in made.values()] == [(160, 320)]
        assert report["graphs"][0]["launches"] == 1
        assert report["breaks"]
        assert report["recompiles"]
        left = {one["operator"]: one for one in report["left"]}["aten::_linalg_eigh"]
        assert left["in_graph"]
        assert left["dtype"] == "float32"
        assert left["calls"] == 2
        assert "the vendor does not offer aten::_linalg_eigh" in left["why"]
        assert list(report["seconds"]) == [
            "tracing the program", "autograd and decompositions", "fusing", "writing kernels",
            "the device's compiler",
        ]  # fmt: skip
        assert report["seconds"]["tracing the program"] > 0
        assert report["seconds"]["the device's compiler"] > 0
    else:
        for text in ("aten.cumsum", f"{script}:5", "graph break", "recompiled: ", "160 bytes"):
            assert text in done.stderr
        assert "left the chip: aten::_linalg_eigh of float32 (2 times, " in done.stderr
        assert "compiling took " in done.stderr


def test_explain_compile_of_no_script_is_an_error(run_python: Run) -> None:
    program = "import sys; sys.argv = ['causeway', 'explain', '--compile', 'none.py']; "
    program += "from causeway.cli import app; app()"
    assert "there is no script none.py" in run_python(program, status=2).stderr


WITHOUT_COMPILER = """
import warnings, torch, causeway
def f(x):
    return torch.relu(x @ x.t()).sum()
x = torch.randn(5, 7)
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    for n in (5, 6):
        torch._dynamo.reset()
        x = torch.randn(n, 7)
        y = torch.compile(f)(x.to("sim"))
        torch.testing.assert_close(y.cpu(), f(x))
print([str(w.message) for w in seen if "causeway" in str(w.message)])
print(torch.compile(f)(torch.ones(2, 2)))  # the CPU's graphs are Inductor's
"""


def test_a_chip_without_a_compiler_runs_a_graph_by_the_ladder_and_says_so_once(
    run_python: Run, caches: dict[str, str]
) -> None:
    said, cpu = run_python(WITHOUT_COMPILER, **caches).stdout.splitlines()
    assert said.count("fuses nothing") == 1
    assert "the vendor offers no compiler (code.v1)" in said
    assert cpu == "tensor(8.)"


FAULTY = """
import sys, torch
from causeway.compile import runtime
add = runtime.Program.add
def faulty(self, name, parameters, cost, lanes, body, *more):
    wrong = body.replace(sys.argv[1], sys.argv[2])
    assert wrong != body, body
    return add(self, name, parameters, cost, lanes, wrong, *more)
runtime.Program.add = faulty
x = torch.randn(64, 100)
f = lambda x: (torch.sin(x) * 2).sum(-1)
try:
    torch.testing.assert_close(torch.compile(f)(x.to("sim")).cpu(), f(x), rtol=1e-4, atol=1e-4)
except AssertionError:
    print("found")
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("sin_32(", "cos_32("),
        ("2.000000000e+00f", "2.100000000e+00f"),
        ("r_j = r_b + r_v;", "r_j = r_b;"),
        ("row_sum_f32(", "row_max_f32("),
    ],
)
def test_a_mistake_in_a_kernel_shows(
    run_python: Run, caches: dict[str, str], tmp_path: Path, old: str, new: str
) -> None:
    own = {**caches, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor")}
    assert run_python(FAULTY, args=(old, new), **SIM, **own).stdout == "found\n"


CHECKED = """
import sys, warnings, torch, causeway
from torch import nn
from torch.nn import functional as F
from causeway.compile import runtime
warnings.simplefilter("ignore")
planted = []
add = runtime.Program.add
def faulty(self, name, parameters, cost, lanes, body, *more):
    wrong = body.replace(*sys.argv[1:3]) if len(sys.argv) > 1 else body
    if wrong != body:
        planted.append(name)
    return add(self, name, parameters, cost, lanes, wrong, *more)
runtime.Program.add = faulty
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(32, 64), nn.LayerNorm(64), nn.Linear(64, 32)
        self.conv, self.batch = nn.Conv1d(4, 8, 3, padding=1), nn.BatchNorm1d(8)
    def forward(self, x):
        y = F.dropout(F.gelu(self.norm(self.first(x))), 0.1)
        y = torch.softmax(self.second(y) + x, -1)
        y = y.masked_fill(x > 1, 0.25)
        return F.relu(self.batch(self.conv(y))).mean(1)
torch.manual_seed(0)
net = Net().to("sim")
x = torch.randn(6, 4, 32, device="sim")
compiled = torch.compile(net)
for _ in range(2):
    compiled(x).square().sum().backward()
report = causeway.compile_report()
compared = sum(one.compared for one in report.checked.values())
assert compared >= 30, str(report)
for one in report.wrong[:1]:
    print(one.kernel in planted, "net.py" in one.line)
print(len({one.kernel for one in report.wrong}))
"""


@pytest.fixture
def run_checked(run_python: Run, caches: dict[str, str], tmp_path: Path) -> Callable[..., str]:
    """Run CHECKED from a file, with a text of its kernels replaced; give what it printed."""
    path = tmp_path / "net.py"
    path.write_text(CHECKED)
    program = f"import runpy; runpy.run_path({str(path)!r}, run_name='__main__')"

    def run(*args: str) -> str:
        checking = SIM | {"CAUSEWAY_COMPILE": "check"}
        return run_python(program, args=args, **checking, **caches).stdout

    return run


def test_each_kernel_is_compared_with_its_operators(run_checked: Callable[..., str]) -> None:
    assert run_checked() == "0\n"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("row_sum_f32(", "row_max_f32("),  # a wrong fold
        ("erf_f32(", "tanh_f32("),  # a wrong function
        ("64*x0", "63*x0"),  # a wrong stride
        ("(f32)(2.500000000e-01f /* 0.25 */)", "(f32)0"),  # a dropped mask's value
    ],
)
def test_the_kernel_with_a_mistake_is_named(
    run_checked: Callable[..., str], old: str, new: str
) -> None:
    assert run_checked(old, new).startswith("True True\n")


FOLDED = """
import os, struct, warnings, torch, causeway
from pathlib import Path
from causeway.compile import runtime
warnings.simplefilter("ignore")
add, fault = runtime.Program.add, []
def faulty(self, name, parameters, cost, lanes, body, *more):
    changed = body.replace(*fault) if fault else body
    assert not fault or changed != body, body
    return add(self, name, parameters, cost, lanes, changed, *more)
runtime.Program.add = faulty
x = torch.randn(64, 100, device=torch.accelerator.current_accelerator())
def wrong(*planted):
    fault[:] = planted
    torch._dynamo.reset()
    before = len(causeway.compile_report().wrong)
    torch.compile(lambda x: (torch.sin(x) * 2).sum(-1))(x)
    return [one.operator for one in causeway.compile_report().wrong[before:]]
"""
MISSING_BARRIER = (
    FOLDED
    + """
print(wrong(), wrong("} BARRIER; }", "} }"))
"""
)
# Of a kept program the binary is replaced by another's, whole: program_cache.hpp has the header.
STALE = (
    FOLDED
    + """
folder, header = Path(os.environ["CAUSEWAY_SIM_CACHE"]), struct.Struct("8sQQQ")
def entry(path):
    data = path.read_bytes()
    magic, of_key, size, checksum = header.unpack_from(data)
    return data[header.size : header.size + of_key], data[-size:], checksum, magic
def made(*planted):
    before = set(folder.glob("*.bin"))
    found = wrong(*planted)
    new = set(folder.glob("*.bin")) - before
    one, = [path for path in new if b"row_sum_f32(acc0" in entry(path)[0]]
    return found, one
first, right = made()
second, other = made("sin_32(", "cos_32(")
key, (_, binary, checksum, magic) = entry(right)[0], entry(other)
right.write_bytes(header.pack(magic, len(key), len(binary), checksum) + key + binary)
print(first, second, wrong())
"""
)


def test_a_missing_barrier_is_found(
    run_python: Run, caches: dict[str, str], opencl_library: Path
) -> None:
    teams = {"CAUSEWAY_VENDOR": str(opencl_library), "CAUSEWAY_OPENCL_IN_TURN": "0"}
    done = run_python(MISSING_BARRIER, **teams, **caches, CAUSEWAY_COMPILE="check")
    assert done.stdout == "[] ['aten.sum.dim_IntList']\n"


def test_a_stale_program_of_the_cache_is_found(
    run_python: Run, caches: dict[str, str], tmp_path: Path
) -> None:
    own = SIM | caches | {"CAUSEWAY_SIM_CACHE": str(tmp_path), "CAUSEWAY_COMPILE": "check"}
    found = "['aten.sum.dim_IntList']"
    assert run_python(STALE, **own).stdout == f"[] {found} {found}\n"


CONDITION = """
import torch, causeway
def f(x):
    return torch.cond(x.sum() > 0, lambda x: x.sin() + 1, lambda x: x.cos() * 2, (x,)) * 3
x = torch.randn(5, 7)
expected = (x.sin() + 1 if x.sum() > 0 else x.cos() * 2) * 3
torch.testing.assert_close(torch.compile(f)(x.to("sim")).cpu(), expected)
report = causeway.compile_report()
print(sum(one.compared for one in report.checked.values()), report.wrong)
"""


def test_a_graph_within_a_graph_is_checked_with_the_outer_one(
    run_python: Run, caches: dict[str, str]
) -> None:
    checking = SIM | {"CAUSEWAY_COMPILE": "check"}
    assert run_python(CONDITION, **checking, **caches).stdout == "2 []\n"


BROKEN = """
import warnings, torch
from causeway.compile import runtime
add = runtime.Program.add
runtime.Program.add = lambda self, *a: add(self, *a[:4], "this is no C;" , *a[5:])
x = torch.randn(4, 4, device="sim")
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    y = torch.compile(lambda x: x.sin() + 1)(x)
torch.testing.assert_close(y, x.sin() + 1)
print(sum("does not build" in str(w.message) for w in seen))
"""


def test_a_kernel_that_does_not_build_costs_the_fusion_and_is_reported(
    run_python: Run, caches: dict[str, str], tmp_path: Path
) -> None:
    own = {**caches, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor")}
    assert run_python(BROKEN, **{**SIM, "CAUSEWAY_COMPILE": "fused"}, **own).stdout == "1\n"
    refused = run_python(BROKEN, status=1, **SIM, **own).stderr
    assert "does not build the kernels of a graph" in refused


def test_every_name_of_inductors_that_is_used_is_there() -> None:
    from causeway.compile import names

    assert names.missing() == ""


def test_a_name_that_moved_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from causeway.compile import names

    monkeypatch.setitem(names.NAMES, "torch._inductor.virtualized", ("V", "ops", "gone"))
    names.missing.cache_clear()
    try:
        assert names.missing() == "torch._inductor.virtualized.gone"
    finally:
        names.missing.cache_clear()


SECOND_DEVICE = """
import torch
def f(x):
    return (x * 2 + 1).cumsum(0)
x = torch.randn(33)
y = torch.compile(f)(x.to("sim:1"))
print(y.device, torch.allclose(y.cpu(), f(x), atol=1e-5))
"""


def test_a_graph_of_the_second_device_stays_there(run_python: Run, caches: dict[str, str]) -> None:
    assert run_python(SECOND_DEVICE, **SIM, **caches).stdout == "sim:1 True\n"


OUT_OF_RANGE = """
import torch
x, at = torch.randn(5, device="sim"), torch.tensor([0, 7], device="sim")
try:
    print(torch.compile(lambda x, at: x[at] + 1)(x, at).cpu())
except IndexError as error:
    print(error)
"""


POSITIONS = """
import torch

def embedded(x, weight):
    at = torch.arange(x.shape[0], device=x.device)
    first = torch.nn.functional.embedding(at, weight)
    return x + first + torch.nn.functional.embedding(at + 2, weight)

f = torch.compile(embedded, dynamic=True)
x, weight = torch.randn(9, 4), torch.randn(10, 4)
for n in (5, 8, 9):  # the last reads one row too many
    try:
        got = f(x[:n].to("sim"), weight.to("sim")).cpu()
        torch.testing.assert_close(got, embedded(x[:n], weight))
        print("equal")
    except IndexError as error:
        print("10" in str(error))
"""


def test_an_index_made_of_a_loops_numbers_is_checked(
    run_python: Run, caches: dict[str, str]
) -> None:
    assert run_python(POSITIONS, **SIM, **caches).stdout == "equal\nequal\nTrue\n"


def test_an_index_out_of_range_is_an_error(run_python: Run, caches: dict[str, str]) -> None:
    assert "7" in run_python(OUT_OF_RANGE, **SIM, **caches).stdout


RANDOM = """
import torch
from torch.nn import functional as F
f = torch.compile(lambda x: (torch.rand_like(x), torch.randn_like(x), F.dropout(x, 0.25)))
x = torch.ones(400, 500, device="sim")
torch.manual_seed(3)
first, second = f(x), f(x)
torch.manual_seed(3)
again = f(x)
assert all(torch.equal(a, b) for a, b in zip(first, again))
assert not any(torch.equal(a, b) for a, b in zip(first, second))
rand, randn, kept = (t.cpu().double() for t in first)
assert 0 <= rand.min() and rand.max() < 1 and abs(rand.mean() - 0.5) < 3e-3
assert abs(rand.var() - 1 / 12) < 1e-3
assert abs(randn.mean()) < 1e-2 and abs(randn.var() - 1) < 2e-2 and 3.5 < randn.abs().max() < 6
assert abs(randn[:, 1:].mul(randn[:, :-1]).mean()) < 1e-2  # neighbours
assert set(kept.unique().tolist()) == {0, 4 / 3} or kept.unique().numel() == 2
assert abs((kept == 0).double().mean() - 0.25) < 5e-3
import torch._inductor.config as config
config.fallback_random = True
torch._dynamo.reset()
g = lambda x: torch.rand_like(x) * 2
torch.manual_seed(5)
want = g(x)
torch.manual_seed(5)
assert torch.equal(torch.compile(g)(x), want)
print("random")
"""


def test_random_numbers_are_random_repeat_and_equal_eagers_where_asked(
    run_python: Run, caches: dict[str, str]
) -> None:
    assert run_python(RANDOM, **SIM, **caches).stdout == "random\n"


DRAWN = """
import torch
def drawn(f):
    torch._dynamo.reset()
    torch.manual_seed(7)
    return torch.compile(f)(zeros).cpu()
zeros = torch.zeros(30, 77, device="sim")
# Neighbours, four in a call; across, one by one; a row at a time, with its sum.
first = drawn(lambda z: torch.rand_like(z) + z)
across = drawn(lambda z: (torch.rand_like(z).t() + z.t().contiguous()).contiguous())
rows = drawn(lambda z: (torch.rand_like(z) + z).sum(1))
assert torch.equal(across, first.t())
torch.testing.assert_close(rows, first.sum(1))
print("equal")
"""


def test_random_numbers_do_not_depend_on_the_form_of_a_kernel(
    run_python: Run, caches: dict[str, str]
) -> None:
    assert run_python(DRAWN, **SIM, **caches).stdout == "equal\n"


MADE_OF_SIZES = """
import math, torch
x, y = torch.rand(5), torch.rand(5)
FUNCTIONS = [
    lambda x, y, n: torch.dist(x, y, n),
    lambda x, y, n: x / (x.shape[0] / n) + x.shape[0] ** 0.5,
    lambda x, y, n: x.pow(1 / x.shape[0]) * n,
    lambda x, y, n: torch.full_like(x, n) / x.numel() + (x.shape[0] - 7) // 2,
    lambda x, y, n: (x * x.shape[0] * 0.3).sum() * (n % 2) + round(n / 2),
    lambda x, y, n: x * math.sqrt(x.shape[0]) + x.mean() * max(n, 2) * min(x.shape[0], 3),
    lambda x, y, n: x * int(x.shape[0] / n) + math.floor(n / 2) + math.ceil(x.shape[0] / n),
    lambda x, y, n: x * math.tanh(n / 9) - math.acos(1 / n) + round(n / 7, 2) + 2 ** (n - 2),
    lambda x, y, n: (x.outer(y) @ y) * (n / 20) ** 1.5 - math.tanh(x.shape[0] / n),
    lambda x, y, n: (x * (n / 20) ** 1.5).softmax(0) + (y * math.tanh(n)).sum(),
]
for number, f in enumerate(FUNCTIONS):
    for n in (3, 5):
        torch._dynamo.reset()
        got = torch.compile(f, dynamic=True)(x.to("sim"), y.to("sim"), n)
        if not torch.allclose(got.cpu(), f(x, y, n), atol=1e-5):
            print(number, n, got, f(x, y, n))
"""


def test_numbers_made_of_sizes_are_not_truncated(run_python: Run, caches: dict[str, str]) -> None:
    assert run_python(MADE_OF_SIZES, **SIM, **caches).stdout == ""


DRAWN_AGAIN = """
import torch
from torch.utils.checkpoint import checkpoint

def drawn(x):  # an operator of random numbers that stays one, and is computed again in the backward
    rows = torch.multinomial(x.detach().abs(), 4)
    return x.gather(1, rows).sin(), rows

for backend in ("aot_eager", "inductor"):
    torch._dynamo.reset()
    f = torch.compile(lambda x: checkpoint(drawn, x, use_reentrant=False), backend=backend)
    x = torch.randn(5, 16, device="sim", requires_grad=True)
    y, rows = f(x)
    y.sum().backward()
    expected = torch.zeros_like(x).scatter(1, rows, x.detach().gather(1, rows).cos())
    torch.testing.assert_close(x.grad, expected)
"""


def test_what_is_computed_again_draws_the_same_numbers(
    run_python: Run, caches: dict[str, str]
) -> None:
    run_python(DRAWN_AGAIN, timeout=200, CAUSEWAY_SIM_CODE="1", **caches)


AFTER_A_BREAK = """
import torch
from torch.testing._utils import wrapper_set_seed
x = torch.tensor(3.5, device="sim")
# It restores the device's random numbers at run time, where nothing may be compiled.
print(torch.compile(lambda x: wrapper_set_seed(torch.Tensor.item, x))(x))
"""


def test_the_devices_own_functions_are_not_compiled_when_torch_calls_them(
    run_python: Run, caches: dict[str, str]
) -> None:
    assert run_python(AFTER_A_BREAK, **SIM, **caches).stdout == "3.5\n"


POOLS = """
import torch
from torch.nn import functional as F
x = torch.randn(1, 3, 9)
for given in ({"ceil_mode": True}, {}):
    def f(x):
        return F.avg_pool1d(x, 6, stride=3, padding=2, **given).square().sum()
    grads = []
    for device, g in (("cpu", f), ("sim", torch.compile(f))):
        y = x.detach().to(device).requires_grad_()
        g(y).backward()
        grads.append(y.grad.cpu())
    torch.testing.assert_close(*grads)
    torch._dynamo.reset()
"""


def test_a_lowering_of_torch_that_is_wrong_is_not_used(
    run_python: Run, caches: dict[str, str]
) -> None:
    run_python(POOLS, **SIM, **caches)


MAX_POOLS = """
import itertools, os
import torch, causeway
from torch.nn import functional as F
in_turn = os.environ.get("CAUSEWAY_OPENCL_IN_TURN") != "0"
where = torch.accelerator.current_accelerator()
x = torch.randn(2, 3, 9, 11)
by_ladder = {}
for window, stride, padding, dilation in (
    (2, 2, 0, 1), (2, 1, 1, 1), ((2, 1), 2, 0, 1), (3, 2, 1, 1), (3, 1, 1, 2), ((3, 2), 1, 0, 1),
):
    def f(x):
        return F.max_pool2d(torch.relu(x), window, stride, padding, dilation, return_indices=True)
    expected, indices = f(a := x.clone().requires_grad_())
    expected.square().sum().backward()
    torch._dynamo.reset()
    before = len(causeway.compile_report().graphs)
    for memory in (torch.contiguous_format, torch.channels_last):
        b = x.to(where, memory_format=memory).requires_grad_()
        found, found_indices = torch.compile(f)(b)
        found.square().sum().backward()
        assert torch.equal(found.cpu(), expected) and torch.equal(found_indices.cpu(), indices)
        torch.testing.assert_close(b.grad.cpu(), a.grad)
    graphs = causeway.compile_report().graphs[before:]
    extern = sorted({e.split(".")[1] for g in graphs for e in g.extern})
    large = window in (3, (3, 2))
    pools = ["max_pool2d_with_indices", "max_pool2d_with_indices_backward"]
    assert "scatter_add" not in extern, extern
    assert not in_turn or extern == (pools if large else []), (window, extern)
"""


def test_max_pooling_is_fused_where_its_window_is_small(
    run_python: Run, caches: dict[str, str]
) -> None:
    run_python(MAX_POOLS, **SIM, **caches)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("in_turn", ["1", "0"])
def test_max_pooling_on_opencl(
    run_python: Run, caches: dict[str, str], opencl_library: Path, in_turn: str
) -> None:
    env = {"CAUSEWAY_VENDOR": str(opencl_library), "CAUSEWAY_OPENCL_IN_TURN": in_turn}
    run_python(MAX_POOLS, timeout=800, **env, **caches)


IMAGES = """
import torch, causeway
convolutions = [torch.nn.Conv2d(64, 64, 3, bias=False) for _ in range(3)]
net = torch.nn.Sequential(*convolutions).to("sim").eval()
with torch.no_grad():
    torch.compile(net)(torch.randn(4, 64, 32, 32, device="sim"))
(graph,) = causeway.compile_report().graphs
print(len(graph.kernels), len(graph.extern))
"""


def test_convolutions_copy_nothing_into_another_layout(
    run_python: Run, caches: dict[str, str]
) -> None:
    assert run_python(IMAGES, **SIM, **caches).stdout == "0 3\n"


FIRST_ON_THE_CPU = """
import torch
from torch._inductor.utils import run_and_get_code
a, s = torch.randn(5, 6), torch.tensor(2.5)
f = lambda a, s: (s + a.sum(), s / a)
got, (code,) = run_and_get_code(torch.compile(f), a.to("sim"), s)
for mine, theirs in zip(got, f(a, s)):
    assert mine.device.type == "sim"
    torch.testing.assert_close(mine.cpu(), theirs)
print("async_compile.cpp" in code)
"""


def test_a_cpu_scalar_that_comes_first_makes_no_kernel_of_the_cpu(
    run_python: Run, caches: dict[str, str]
) -> None:
    # It would read the device's memory: right by luck where the host can address it.
    assert run_python(FIRST_ON_THE_CPU, **SIM, **caches).stdout == "False\n"


NOTHING_KEPT = """
import torch
torch._dynamo.config.capture_dynamic_output_shape_ops = True

def pairs(x, t):
    kept = x[x > t]
    return (kept[:, None] * kept[None, :]).sum()

f = torch.compile(pairs, fullgraph=True)
x = torch.arange(24.0)
for t in (3.5, 100.0, 20.5):
    t = torch.tensor(t)
    torch.testing.assert_close(f(x.to("sim"), t.to("sim")).cpu(), pairs(x, t))
"""


def test_a_reduction_over_a_size_that_turns_out_to_be_0(
    run_python: Run, caches: dict[str, str]
) -> None:
    # Rows of no elements: their number was a division by 0, which ended the process.
    run_python(NOTHING_KEPT, **SIM, **caches)


PUT_IN_PLACE = """
import torch

def mean(x, i, s):
    return x.index_reduce(0, i, s, "mean", include_self=False)

x, i, s = torch.tensor(-4.0), torch.tensor([0]), torch.tensor(-1.5)
got = torch.compile(mean)(x.to("sim"), i.to("sim"), s.to("sim"))
torch.testing.assert_close(got.cpu(), mean(x, i, s))
"""


def test_the_memory_of_a_put_is_not_given_to_another_buffer(
    run_python: Run, caches: dict[str, str]
) -> None:
    run_python(PUT_IN_PLACE, **SIM | {"CAUSEWAY_COMPILE": "fused"}, **caches)


# --- mode="reduce-overhead" -----------------------------------------------------------------------

REPLAYED = """
import warnings
warnings.simplefilter("error", UserWarning)
import torch, causeway
from torch import nn

def make():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Dropout(0.2), nn.Linear(32, 4)).to("sim")
    return net, torch.optim.AdamW(net.parameters(), lr=1e-2)

def train(mode):
    torch._dynamo.reset()
    net, optimizer = make()
    step = torch.compile(lambda x, y: nn.functional.cross_entropy(net(x), y), mode=mode)
    torch.manual_seed(3)
    kept = []
    for i in range(16):
        x = torch.randn(8 if i % 4 else 5, 16, device="sim")
        y = torch.randint(0, 4, (x.shape[0],), device="sim")
        if i % 3 == 0:
            optimizer.zero_grad()  # else gradients add up
        loss = step(x, y)
        loss.backward()
        optimizer.step()
        kept.append(loss.detach())  # read after later replays
    return [k.item() for k in kept], [p.detach().cpu() for p in net.parameters()]

a, pa = train("default")
b, pb = train("reduce-overhead")
assert a == b, (a, b)
assert all(torch.equal(p, q) for p, q in zip(pa, pb))
report = causeway.compile_report()
print(sum(report.replays.values()), report.not_replayed)
assert not report.not_replayed and sum(report.replays.values()) >= 12, report
"""
LIVES = """
import torch, causeway

f = torch.compile(lambda x: (x.sin() * 2 + x).cumsum(0), mode="reduce-overhead")
kept = []
inputs = [torch.full((6,), float(i), device="sim") for i in range(6)]
for x in inputs:
    kept.append(f(x))
for x, y in zip(inputs, kept):
    torch.testing.assert_close(y, (x.sin() * 2 + x).cumsum(0))
views = [f(x)[2:4] for x in inputs]
for x, y in zip(inputs, views):
    torch.testing.assert_close(y, (x.sin() * 2 + x).cumsum(0)[2:4])

def changes(x):  # an input that is written, in other places each time
    x.mul_(2).add_(1)
    return x.sum()

g = torch.compile(changes, mode="reduce-overhead")
held = []
for i in range(8):
    x = torch.full((4,), float(i), device="sim")
    held.append(x)
    assert g(x).item() == 4 * (2 * i + 1), i
    assert x.tolist() == [2.0 * i + 1] * 4, i
assert sum(causeway.compile_report().replays.values()) >= 14, causeway.compile_report()

e = torch.compile(lambda x: x.exp() + 1, mode="reduce-overhead")
held = []
for i in range(5):  # an expanded input that moves runs as it is
    held.append(torch.full((1, 4), float(i), device="sim"))
    x = held[-1].expand(3, 4)
    torch.testing.assert_close(e(x), x.exp() + 1)
assert "expanded" in str(causeway.compile_report().not_replayed)
"""
REFUSED = """
import warnings, torch, causeway

f = torch.compile(lambda x: torch.linalg.eigvalsh(x @ x.T) + 1, mode="reduce-overhead")
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    for i in range(5):
        x = torch.randn(4, 4, device="sim")
        torch.testing.assert_close(f(x), torch.linalg.eigvalsh(x @ x.T) + 1, rtol=1e-4, atol=1e-4)
said = [str(w.message) for w in seen if "reduce-overhead" in str(w.message)]
assert len(said) == 1 and "linalg" in said[0] and "runs on the host" in said[0], said
assert len(causeway.compile_report().not_replayed) == 1
assert "not replayed" in str(causeway.compile_report())
"""


ON_THE_CPU = """
import warnings, torch, causeway

def train(where, capturable, **how):
    torch.manual_seed(0)
    net = torch.nn.Linear(4, 3).to(where)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1, capturable=capturable)
    step = torch.compile(optimizer.step, **how) if how else optimizer.step
    for i in range(8):
        for p in net.parameters():
            p.grad = torch.full_like(p, i - 3.0)
        step()
    return net.weight.detach().cpu()

with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    scaled = torch.compile(lambda x, s: x * s + 1, mode="reduce-overhead")
    for i in range(7):
        found = scaled(torch.ones(4, device="sim"), torch.tensor(float(i)))
        assert found.tolist() == [i + 1.0] * 4, (i, found)
    expected = train("cpu", False)  # its steps are counted by tensors of the CPU
    found = train("sim", False, mode="reduce-overhead")
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
said = [str(w.message) for w in seen if "tensors of the CPU" in str(w.message)]
assert len(said) == 2, said
assert len(causeway.compile_report().not_replayed) == 2 and not causeway.compile_report().replays
torch._dynamo.reset()
torch.testing.assert_close(
    train("sim", True, mode="reduce-overhead"), expected, rtol=1e-4, atol=1e-4
)
assert len(causeway.compile_report().not_replayed) == 2 and causeway.compile_report().replays
if torch.accelerator.device_count() > 1:
    both = torch.compile(lambda x, y: (x + 1, y * 2), mode="reduce-overhead")
    for i in range(5):
        a, b = both(torch.full((4,), i, device="sim:0"), torch.full((4,), i, device="sim:1"))
        assert a.tolist() == [i + 1] * 4 and b.tolist() == [2 * i] * 4, (i, a, b)
    assert "several devices" in str(causeway.compile_report().not_replayed)
"""


@pytest.mark.parametrize("program", [REPLAYED, LIVES, REFUSED], ids=["train", "lives", "refused"])
@pytest.mark.parametrize(
    "more", [{}, {"CAUSEWAY_SIM_EXECUTION": "async", "CAUSEWAY_SIM_MEMORY_MODEL": "discrete"}]
)
def test_compiled_graphs_are_replayed(
    run_python: Run, caches: dict[str, str], program: str, more: dict[str, str]
) -> None:
    run_python(program, timeout=300, **SIM, **caches, **more)


def test_a_graph_with_tensors_of_the_cpu_is_not_replayed(
    run_python: Run, caches: dict[str, str]
) -> None:
    run_python(ON_THE_CPU, timeout=300, CAUSEWAY_SIM_DEVICES="2", **SIM, **caches)


LONG_LOOPS = """
import causeway, torch
x = torch.randn(4, 40_000)
there = x.to("sim")
total = torch.compile(lambda x: x.exp().sum(-1))
few = torch.compile(lambda x: x.exp() * 2)
torch.testing.assert_close(few(there[0, :1000]).cpu(), x[0, :1000].exp() * 2)
try:
    torch.testing.assert_close(total(there).cpu(), x.exp().sum(-1))
    print("right")
except causeway.CausewayError as error:
    print(error)
"""


@pytest.mark.parametrize("teams", ["0", "1"])
def test_a_kernel_of_longer_loops_than_the_chip_makes_is_refused(
    run_python: Run, caches: dict[str, str], teams: str
) -> None:
    env = {**SIM, **caches, "CAUSEWAY_SIM_TEAMS": teams, "CAUSEWAY_SIM_OPS": "none"}
    said = [
        run_python(LONG_LOOPS, **env, CAUSEWAY_SIM_LOOP_LIMIT=limit).stdout
        for limit in ("0", "4294967295", "65535" if teams == "0" else "300")
    ]
    assert said[:2] == ["right\n"] * 2
    assert "may take more turns of its loops than device 0 makes" in said[2]
