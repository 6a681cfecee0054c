"""Causeway's own kernels agree with the CPU: built by the C compiler for the simulated chip, and by
OpenCL where there is a runtime, in each of its models of memory.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SIM = {"CAUSEWAY_SIM_CODE": "1", "CAUSEWAY_SIM_OPS": "none"}
CASES = (HERE / "cases.py").read_text()
MODELS = (HERE / "models.py").read_text()
FUSED = (HERE / "fused.py").read_text()

pytestmark = [pytest.mark.process, pytest.mark.once]


@pytest.fixture(scope="session")
def opencl(opencl_library: Path) -> str:
    return str(opencl_library)


def differences(
    run_python: Callable[..., subprocess.CompletedProcess[str]], which: str, **env: str
):
    """What the cases print before their count, which must be there."""
    lines = run_python(CASES, args=(which, "-"), PYTHONPATH=str(HERE), **env).stdout.splitlines()
    assert lines, "the cases printed nothing"
    assert lines[-1].startswith("cases "), lines
    return lines[:-1]


@pytest.mark.parametrize("model", ["unified", "discrete"])
def test_few_cases_agree_on_the_simulated_chip(run_python, model: str) -> None:
    env = {**SIM, "CAUSEWAY_SIM_MEMORY_MODEL": model}
    env["CAUSEWAY_SIM_EXECUTION"] = "async" if model == "discrete" else "inline"
    assert differences(run_python, "few", **env) == []


@pytest.mark.parametrize(
    "model",
    ["buffer", *(pytest.param(m, marks=pytest.mark.long) for m in ("fine", "coarse"))],
)
def test_few_cases_agree_on_opencl(run_python, opencl: str, model: str) -> None:
    env = {"CAUSEWAY_VENDOR": opencl, "CAUSEWAY_OPENCL_MEMORY_MODEL": model}
    assert differences(run_python, "few", **env) == []


HALVES = [("digits", "resnet18", "unet"), ("gpt", "lstm", "gru")]


@pytest.mark.parametrize("names", HALVES, ids=["images", "words"])
def test_models_train_without_the_host_on_the_simulated_chip(
    run_python, names: tuple[str, ...]
) -> None:
    lines = run_python(MODELS, args=names, **SIM).stdout.splitlines()
    assert lines == ["models 3"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "names",
    [
        pytest.param(HALVES[0], id="images"),
        pytest.param(HALVES[1], id="words", marks=pytest.mark.long),
    ],
)
def test_models_train_without_the_host_on_opencl(
    run_python, opencl, names: tuple[str, ...]
) -> None:
    env = {"CAUSEWAY_VENDOR": opencl}
    lines = run_python(MODELS, args=names, **env).stdout.splitlines()
    assert lines == ["models 3"]


def test_an_operator_that_is_left_to_the_host_is_noticed(run_python, tmp_path) -> None:
    env = {**SIM, "CAUSEWAY_SIM_CACHE": str(tmp_path), "CAUSEWAY_PORTABLE": "0"}
    lines = run_python(MODELS, args=("digits",), **env).stdout.splitlines()
    assert lines[0].startswith("digits: on the host: aten::")
    assert lines[1] == "digits: no portable kernel"


DATABASE = (HERE / "database.py").read_text()


def test_torchs_samples_agree_on_the_simulated_chip(run_python, tmp_path) -> None:
    """One sample each of a few operators; `make test-portable` runs all of them."""
    env = {**SIM, "CAUSEWAY_SIM_CACHE": str(tmp_path)}
    lines = run_python(DATABASE, args=("few", "-"), **env).stdout.splitlines()
    assert lines[:-1] == []
    assert int(lines[-1].removeprefix("cases ")) >= 12


def test_a_wrong_start_of_sums_is_noticed(run_python, tmp_path) -> None:
    """The samples must tell a kernel that is wrong: here sums that begin with 1."""
    fake = tmp_path / "cc"
    real = shutil.which("cc")
    fake.write_text(
        "#!/bin/sh\nfor f; do case $f in *.c) sed -i 's/#define START 0/#define START 1/' $f;; "
        "esac; done\n"
        f'exec {real} "$@"\n'
    )
    fake.chmod(0o755)
    env = {**SIM, "CC": str(fake), "CAUSEWAY_SIM_CACHE": str(tmp_path)}
    lines = run_python(DATABASE, args=("cumsum", "-"), **env).stdout.splitlines()
    assert any(line.startswith("cumsum ") for line in lines), lines


STRIDES = (HERE / "strides.py").read_text()


@pytest.mark.parametrize(
    ("which", "kernels"),
    [
        pytest.param("few", SIM, id="portable"),
        pytest.param("all", SIM, id="portable, all", marks=pytest.mark.long),
        pytest.param("few", {"CAUSEWAY_SIM_OPS": "all"}, id="native"),
        pytest.param("all", {"CAUSEWAY_SIM_OPS": "all"}, id="native, all", marks=pytest.mark.long),
    ],
)
def test_strides_are_those_of_the_cpu(run_python, which: str, kernels: dict[str, str]) -> None:
    done = run_python(STRIDES, args=(which,), timeout=900, **kernels)
    lines = done.stdout.splitlines()
    assert lines[:-1] == []
    assert int(lines[-1].removeprefix("calls ")) >= (100_000 if which == "all" else 2_000)


def test_a_device_that_ignores_layouts_is_noticed(run_python) -> None:
    given = "[on_device(t) for t in tensors]"
    assert given in STRIDES
    program = STRIDES.replace(given, "[on_device(t.contiguous()) for t in tensors]")
    lines = run_python(program, status=1, args=("few",), **SIM).stdout.splitlines()
    assert any(line.startswith("sort ") for line in lines), lines


TILES = (HERE / "tiles.py").read_text()


def test_operands_that_lie_across_rows(run_python) -> None:
    done = run_python(TILES, timeout=600, **SIM)
    assert done.stdout.splitlines() == ["calls 242"]


@pytest.mark.slow
@pytest.mark.parametrize("model", ["auto", "buffer"])
def test_operands_that_lie_across_rows_on_opencl(run_python, opencl, model: str) -> None:
    env = {"CAUSEWAY_VENDOR": opencl}
    done = run_python(TILES, timeout=600, **env, CAUSEWAY_OPENCL_MEMORY_MODEL=model)
    assert done.stdout.splitlines() == ["calls 242"]


COLUMNS = (HERE / "columns.py").read_text()


def test_neighbours_that_are_taken_at_once(run_python) -> None:
    done = run_python(COLUMNS, timeout=600, **SIM)
    assert done.stdout.splitlines() == ["results 860"]


@pytest.fixture
def run_planted(run_python, tmp_path: Path) -> Callable[[str, str, str], list[str]]:
    """What a program prints where each kernel's source has `new` in the place of `old`."""

    def run(program: str, old: str, new: str) -> list[str]:
        fake, plant = tmp_path / "cc", tmp_path / "plant.py"
        plant.write_text(
            "import sys\npath = sys.argv[1]\ntext = open(path).read()\n"
            f"open(path, 'w').write(text.replace({old!r}, {new!r}))\n"
        )
        fake.write_text(
            f"#!/bin/sh\nfor f; do case $f in *.c) {sys.executable} {plant} $f;; esac; done\n"
            f'exec {shutil.which("cc")} "$@"\n'
        )
        fake.chmod(0o755)
        env = {**SIM, "CC": str(fake), "CAUSEWAY_SIM_CACHE": str(tmp_path)}
        return run_python(program, status=None, **env).stdout.splitlines()

    return run


# A tile that is elsewhere, or ends with the row; one of its rows is all of them.
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("top = v % high * HEIGHT", "top = v % high"),
        ("INNER - left < WIDTH ?", "INNER - left < 0 ?"),
        ("(j - left) * HEIGHT + t)", "(j - left) * HEIGHT)"),
    ],
)
def test_a_mistake_in_a_tile_is_noticed(run_planted, old: str, new: str) -> None:
    program = TILES.replace("more_dimensions())", "())").replace("DTYPES:", "DTYPES[:1]:")
    lines = run_planted(program, old, new)
    assert any("transpose" in line for line in lines), lines


# Only so many of the neighbours, the wrong end of a window, all columns of a row in each block.
@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("from = u % blocks * WIDTH, base", "from = 0, base", "softmax"),
        ("sums[l] = 1 / sums[l];", "sums[l] = 1 / sums[0];", "softmax"),
        ("begin = j * dx - px, at", "begin = j * dx, at", "unfold"),
        ("sums[begin + ox * sx] +=", "sums[begin + ox] +=", "fold"),
        ("past = first + wide < row ? first + wide : row", "past = row", "index_add"),
        ("if (k < lo || k >= hi) continue;", "", "index_add"),
    ],
)
def test_a_mistake_among_neighbours_is_noticed(run_planted, old: str, new: str, found: str) -> None:
    few = COLUMNS.replace("itertools.product((1, 2, 3, (2, 5)), (1, 2, 3), (0, 1, 3), (1, 2, 3))",
                          "[(3, 1, 1, 2), (2, 1, 1, 1)]")  # fmt: skip
    lines = run_planted(
        few.replace("(torch.float32, torch.float64, torch.int64)", "[torch.float32]"), old, new
    )
    assert any(found in line for line in lines), lines


PROGRAMS = (ROOT / "tests" / "random_programs.py").read_text()


def test_random_programs_do_what_they_do_on_the_cpu(run_python) -> None:
    done = run_python(PROGRAMS, args=("0", "30"), timeout=600, **SIM)
    assert done.stdout.splitlines() == ["30 programs, 0 differ"]


def test_writes_into_memory_that_overlaps(run_python) -> None:
    tests = str(ROOT / "tests" / "device" / "test_overlap.py")
    program = f"import pytest, sys; sys.exit(pytest.main(['-q', '-p', 'no:xdist', {tests!r}]))"
    run_python(program, timeout=600, new=True, **SIM)


ERRORS = (HERE / "errors.py").read_text()


@pytest.mark.parametrize("model", ["unified", "discrete"])
def test_errors_of_kernels_are_raised_on_the_simulated_chip(run_python, model: str) -> None:
    env = {**SIM, "CAUSEWAY_SIM_MEMORY_MODEL": model}
    env["CAUSEWAY_SIM_EXECUTION"] = "async" if model == "discrete" else "inline"
    assert run_python(ERRORS, **env).stdout.splitlines() == ["cases 27"]


@pytest.mark.slow
def test_errors_of_kernels_are_raised_on_opencl(run_python, opencl) -> None:
    env = {"CAUSEWAY_VENDOR": opencl}
    lines = run_python(ERRORS, **env, CAUSEWAY_OPENCL_MEMORY_MODEL="buffer").stdout.splitlines()
    assert lines == ["cases 27"]


FOREACH = (HERE / "foreach.py").read_text()
LAUNCHES = (HERE / "launches.py").read_text()


def test_torchs_samples_of_lists_agree_on_the_simulated_chip(run_python, tmp_path) -> None:
    """A few operators in two dtypes; `make test-portable` runs all of them."""
    env = {**SIM, "CAUSEWAY_SIM_CACHE": str(tmp_path)}
    lines = run_python(FOREACH, args=("few", "-"), **env).stdout.splitlines()
    assert lines[:-1] == []
    assert int(lines[-1].removeprefix("cases ")) >= 100


@pytest.mark.slow
@pytest.mark.parametrize(
    ("which", "in_turn"),
    [
        pytest.param("addcdiv", "0", marks=pytest.mark.long),
        pytest.param("norm", "0", marks=pytest.mark.long),
        pytest.param("few", "1", marks=pytest.mark.long),
    ],
)
def test_torchs_samples_of_lists_agree_on_opencl(
    run_python, opencl: str, tmp_path, which: str, in_turn: str
) -> None:
    env = {"CAUSEWAY_VENDOR": opencl, "CAUSEWAY_OPENCL_CACHE": str(tmp_path)}
    if in_turn == "0":
        env["CAUSEWAY_OPENCL_IN_TURN"] = "0"
    lines = run_python(FOREACH, args=(f"few:{which}", "-"), **env).stdout.splitlines()
    assert lines[:-1] == []
    assert lines[-1].startswith("cases ")


def compiler(folder: Path, script: str) -> str:
    """A compiler that changes the programs that it is given."""
    fake = folder / "cc"
    fake.write_text(
        f"#!/bin/sh\nfor f; do case $f in *.c) sed -i '{script}' $f;; esac; done\n"
        f'exec {shutil.which("cc")} "$@"\n'
    )
    fake.chmod(0o755)
    return str(fake)


def test_a_block_that_is_looked_for_in_the_wrong_tensor_is_noticed(run_python, tmp_path) -> None:
    cc = compiler(tmp_path, "s/blocks_before_ < had_/blocks_before_ <= had_/")
    env = {**SIM, "CC": cc, "CAUSEWAY_SIM_CACHE": str(tmp_path / "cache")}
    lines = run_python(FOREACH, args=("few:sqrt", "-"), **env).stdout.splitlines()
    assert any(line.startswith("_foreach_sqrt torch.float32") for line in lines), lines


def test_a_step_over_many_tensors_is_a_few_launches(run_python, tmp_path) -> None:
    """Two for three lists of 60, one for 20; tensor by tensor it would be 60 for each."""
    note = 'if (!item) { int f = open("%s", 02101, 0600); write(f, "x", 1); close(f); }'
    count = "s|  const idx item = group_.*;|&" + note % (tmp_path / "launches") + "|;"
    cc = compiler(tmp_path, "1i #include <fcntl.h>\\n#include <unistd.h>\n" + count)
    env = {**SIM, "CC": cc, "CAUSEWAY_SIM_CACHE": str(tmp_path / "cache")}
    lines = run_python(LAUNCHES, args=(str(tmp_path / "launches"),), **env).stdout.splitlines()
    few, many = ([int(n) for n in line.split()] for line in lines)
    assert few[0] == 20
    assert many[0] == 60
    assert few[1] <= 8, lines  # AdamW: as many as its formula has operators over lists
    assert many[1] <= 16, lines
    assert many[2] <= 6, lines
    assert many[3] <= 16, lines


COUNT = """
import torch, causeway
print(len(causeway._C.offered_portable()))
"""


def test_the_number_of_operators_is_what_the_page_says(run_python) -> None:
    there = int(run_python(COUNT, **SIM).stdout)
    said = re.search(
        r"(\d+) overloads of torch's operators", (ROOT / "docs/portable.md").read_text()
    )
    assert there >= 300
    assert said
    assert there >= int(said[1])


@pytest.mark.slow
def test_optimizers_over_lists_step_as_on_the_cpu(run_python, tmp_path) -> None:
    env = {**SIM, "CAUSEWAY_SIM_CACHE": str(tmp_path)}
    assert run_python(FUSED, **env).stdout.splitlines() == ["agree"]


FUNCTIONS = (HERE / "functions.py").read_text()


def complaints(run_python, **env: str) -> list[str]:
    lines = run_python(FUNCTIONS, args=("200000",), **env).stdout.splitlines()
    assert len([line for line in lines if ":" not in line]) == 23
    return [line for line in lines if ":" in line]


def test_functions_are_near_those_of_float64_on_the_simulated_chip(run_python) -> None:
    assert complaints(run_python, **SIM) == []


@pytest.mark.long
def test_functions_are_near_those_of_float64_on_opencl(run_python, opencl) -> None:
    assert complaints(run_python, CAUSEWAY_VENDOR=opencl) == []


@pytest.mark.long
def test_wrong_functions_are_noticed(run_python, tmp_path) -> None:
    """A digit of a polynomial, a quadrant, the bits of 2/pi for large numbers, a sign of zero."""
    scripts = {
        "log": "s/3.3333331174e-1f/3.3333431174e-1f/",
        "cos": "s/(q + 1) & 2/q \\& 2/",
        "sin": "s/FMA(m_, quarters_low\\[at_\\], \\(FMA(m_, h_, -p_)\\))/\\1/",
        "expm1": "s/return v == 0.0f ? v : r/return r + 0.0f/",
    }
    for name, script in scripts.items():
        (tmp_path / name).mkdir()
        fake = compiler(tmp_path / name, script)
        found = complaints(run_python, **SIM, CC=str(fake), CAUSEWAY_SIM_CACHE=str(tmp_path / name))
        assert any(line.startswith(f"{name}: ") for line in found), (name, found)


def test_a_wrong_kernel_is_noticed(run_python, tmp_path) -> None:
    """A compiler that adds 1 to every sum: the cases must say so."""
    fake = tmp_path / "cc"
    real = shutil.which("cc")
    fake.write_text(
        "#!/bin/sh\nfor f; do case $f in *.c) sed -i 's/r = IS_BOOL/a = a; r = 1 + IS_BOOL/; "
        f's/const T a = /T a = 1 + /\' $f;; esac; done\nexec {real} "$@"\n'
    )
    fake.chmod(0o755)
    found = differences(run_python, "few", **SIM, CC=str(fake), CAUSEWAY_SIM_CACHE=str(tmp_path))
    assert any(line.startswith("add: ") for line in found), found


PROGRAM = "import torch; x = torch.ones(5, device='sim'); print((x + x).sum().item())"


def test_a_second_process_builds_nothing(run_python, tmp_path) -> None:
    env = {**SIM, "CAUSEWAY_SIM_CACHE": str(tmp_path)}
    assert run_python(PROGRAM, **env).stdout.strip() == "10.0"
    built = {p.name: p.stat().st_mtime_ns for p in tmp_path.iterdir()}
    assert built
    assert all(name.endswith(".bin") for name in built)
    assert run_python(PROGRAM, **env).stdout.strip() == "10.0"
    assert {p.name: p.stat().st_mtime_ns for p in tmp_path.iterdir()} == built


def test_a_compiler_that_is_not_there_has_words(run_python, tmp_path) -> None:
    env = {**SIM, "CAUSEWAY_SIM_CACHE": str(tmp_path), "CC": "/nowhere/cc"}
    done = run_python(PROGRAM, **env)  # on the host, with a warning for each kernel
    assert "/nowhere/cc" in done.stderr
    assert "cannot be started" in done.stderr
    assert "goes on down the ladder" in done.stderr


def test_the_rung_can_be_switched_off(run_python, tmp_path) -> None:
    code = """
import torch, causeway
x = torch.ones(5, device="sim")
with causeway.ledger() as ledger:
    x + x
print(ledger.total(rung="portable"))
"""
    env = {**SIM, "CAUSEWAY_SIM_CACHE": str(tmp_path)}
    assert run_python(code, **env).stdout.strip() == "1"
    assert run_python(code, **env, CAUSEWAY_PORTABLE="0").stdout.strip() == "0"


def test_operators_can_be_left_out_of_the_rung(run_python, tmp_path) -> None:
    code = """
import torch, causeway
x = torch.ones(5, device="sim")
with causeway.ledger() as ledger:
    x + x, x * x
print(sorted(row.operator for row in ledger.rows if row.rung == "portable"))
causeway.config.set("portable_except", "")
with causeway.ledger() as ledger:
    x + x
print(ledger.total(rung="portable"))
"""
    env = {**SIM, "CAUSEWAY_SIM_CACHE": str(tmp_path), "CAUSEWAY_PORTABLE_EXCEPT": "add"}
    assert run_python(code, **env).stdout.split("\n")[:2] == ["['aten::mul.Tensor']", "1"]


def test_what_no_sample_of_torchs_reaches_stays_on_the_device(run_python) -> None:
    program = """
import torch, causeway

def both(work):
    with causeway.policy(fallback="error"):
        found = work("sim")
    for ours, theirs in zip(found, work("cpu"), strict=True):
        torch.testing.assert_close(ours.cpu(), theirs, equal_nan=True)
        assert ours.stride() == theirs.stride(), (ours.stride(), theirs.stride())

def update(device):  # as GradScaler.update() does
    scale = torch.full((1,), 1024.0, device=device)
    steps = torch.zeros(1, dtype=torch.int32, device=device)
    for found in (0.0, 0.0, 1.0, 0.0):
        inf = torch.full((1,), found, device=device)
        torch._amp_update_scale_(scale, steps, inf, 2.0, 0.5, 2)
    return scale, steps

x = torch.randn(5, 7)
both(update)
both(lambda device: (x.to(device).t().logcumsumexp(1), x.to(device).logcumsumexp(0)))

# The CPU counts floats alone; mixtures of experts in transformers count integers elsewhere.
for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64):
    values = torch.randint(0, 100, (3000,), dtype=dtype)
    for bins, least, most in ((8, 0, 7), (3, 0, 0), (10, -2, 3), (100, 0, 50)):
        counts = values.double().histc(bins, least, most).to(dtype)
        both(lambda device: (counts if device == "cpu" else
                             values.to(device).histc(bins, least, most),))
both(lambda device: (x.to(device).histc(4), torch.ones(3, device=device).histc(5),
                     torch.tensor([1.0, float("nan"), 2.0], device=device).histc(4, 0, 3)))

# Labels by sample or one after the other: none, as many as frames, repeated; no alignment.
def ctc(log_probs, targets, frames, labels, zero_infinity):
    def work(device):
        given = log_probs.to(device).detach().clone().requires_grad_()
        loss = torch.nn.functional.ctc_loss(
            given, targets.to(device), frames, labels, 2, "none", zero_infinity)
        loss.backward(torch.linspace(-1, 2, len(frames)).to(loss))
        return loss.detach(), given.grad
    return work

frames, labels = [12, 0, 7, 9, 12, 3], [5, 0, 7, 0, 4, 3]
classes = torch.tensor([0, 1, 3, 4, 0])
for dtype in (torch.float32, torch.float64):
    log_probs = torch.randn(12, 6, 5, dtype=dtype).log_softmax(2)
    by_sample = classes[torch.randint(0, 5, (6, 8))]
    by_sample[4], by_sample[5] = 1, 3  # repeated: a blank between each two, which 3 frames lack
    for zero_infinity in (False, True):
        both(ctc(log_probs, by_sample, frames, labels, zero_infinity))
        behind = torch.cat([row[:n] for row, n in zip(by_sample, labels)]).int()
        both(ctc(log_probs, behind, frames, labels, zero_infinity))
        across = log_probs.permute(1, 2, 0).contiguous().permute(2, 0, 1)
        both(ctc(across, by_sample.t().contiguous().t(), frames, labels, zero_infinity))
many = torch.randn(9, 40, 4).log_softmax(2)
both(ctc(many, torch.randint(0, 2, (40, 3)), [9] * 40, [3, 1] * 20, False))
"""
    run_python(program, CAUSEWAY_SIM_CODE="1", CAUSEWAY_SIM_OPS="none")


FEW_COLUMNS = """
import itertools, sys, torch, causeway
torch.manual_seed(0)
where = sys.argv[1]
for n, k, turned, added in itertools.product((1, 2, 3, 4), (1, 15, 64, 257), (0, 1), (0, 1)):
    a, b, c = torch.randn(2, n, k), torch.randn(7, k), torch.randn(7)
    def product(a, b, c):
        if turned:
            return torch.matmul(b, a.transpose(1, 2))
        return torch.nn.functional.linear(a[0], b, c) if added else a @ b.t()
    with causeway.ledger() as ledger:
        got = product(a.to(where), b.to(where), c.to(where))
    assert "host" not in {row.rung for row in ledger.rows}
    torch.testing.assert_close(got.cpu(), product(a, b, c), rtol=1e-4, atol=1e-4)
print("same")
"""


def test_products_of_few_columns_agree(run_python, tmp_path) -> None:
    env = {"CAUSEWAY_SIM_CODE": "1", "CAUSEWAY_SIM_CACHE": str(tmp_path)}
    assert run_python(FEW_COLUMNS, args=("sim",), **env).stdout == "same\n"


def test_products_of_few_columns_agree_on_opencl(run_python, opencl: str) -> None:
    env = {"CAUSEWAY_VENDOR": opencl}
    assert run_python(FEW_COLUMNS, args=("opencl",), **env).stdout == "same\n"


WINOGRAD = (HERE / "winograd.py").read_text()


def test_convolutions_by_winograd_agree_on_the_simulated_chip(run_python) -> None:
    """Odd sides, paddings, gradients; what is not finite is where a product has it."""
    assert run_python(WINOGRAD, args=("few",), **SIM).stdout.splitlines() == ["winograd 34"]


@pytest.mark.long
def test_convolutions_by_winograd_agree_on_opencl(run_python, opencl: str) -> None:
    env = {
        "CAUSEWAY_VENDOR": opencl,
    }
    assert run_python(WINOGRAD, args=("all",), **env).stdout.splitlines() == ["winograd 38"]


@pytest.mark.parametrize(
    ("what", "script"),
    [
        ("inf at (0, 0)", "s/if (bad != 0)/if (bad == 1)/"),  # what is not finite is left
        *(
            pytest.param("padding of 1", script, marks=pytest.mark.long)
            for script in (
                "s/u1 = s + h, u2 = s - h/u1 = s + h, u2 = s + h/",  # a weight's sign
                "s/b = y0\\[1\\] - y0\\[2\\]/b = y0[1] + y0[2]/",  # a result's
                "s/for (; x < width; ++x) row\\[x\\] = 0;//",  # an image's edge
            )
        ),
    ],
)
def test_a_wrong_convolution_by_winograd_is_noticed(
    run_python, tmp_path, what: str, script: str
) -> None:
    fake = compiler(tmp_path, script)
    env = {**SIM, "CC": str(fake), "CAUSEWAY_SIM_CACHE": str(tmp_path / "programs")}
    lines = run_python(WINOGRAD, args=(what,), **env).stdout.splitlines()
    assert lines[-1] == "winograd 1"
    assert any(line.startswith(f"{what}: ") for line in lines), lines
