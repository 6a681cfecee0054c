"""Files of more than one size, of more than one mode, and with numbers of their steps."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import struct
import subprocess
import sys
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from causeway.ship import plan
from causeway.ship.file import write

ROOT = Path(__file__).parents[2]
LIB = ROOT / "src/causeway/lib"
SIM = LIB / "libcw_sim.so"
# Nothing of Python's; where HOME is, kernels that were built are kept.
PLAIN = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}
Run = Callable[..., subprocess.CompletedProcess[str]]

pytestmark = [pytest.mark.process, pytest.mark.once]

NET = """
import torch
from torch import nn
from torch.nn import functional as F

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.line, self.norm = nn.Conv2d(1, 4, 3), nn.Linear(36, 10), nn.LayerNorm(10)

    def forward(self, image, scale):
        x = torch.relu(self.conv(image))  # the line of a convolution
        x = F.max_pool2d(x, 2).flatten(1)
        x = self.line(x)  # the line of a product
        return self.norm(F.gelu(x)) * scale, x.argmax(1)

class Long(nn.Module):
    def forward(self, sequence, memory):
        seen = sequence.cumsum(1)
        return torch.cat([seen, memory], 1), seen @ seen.transpose(1, 2)

class Rest(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("pe", torch.arange(8.0, device="sim"))

    def forward(self, x):
        return self.pe[x.shape[0]:].clone(), x[1:] * 2

def make():
    torch.manual_seed(0)
    return Net(), (torch.randn(3, 1, 8, 8), torch.rand(3, 1))
"""

WRITE = """
import sys
sys.path.insert(0, folder)
import torch, causeway, net
from causeway.ship.export import export

model, args = net.make()
model, args = model.eval().to("sim"), [a.to("sim") for a in args]
size = torch.export.Dim("batch", min=1, max=12)
both = {"image": {0: size}, "scale": {0: size}}
export(model, args, f"{folder}/fused.cw", dynamic_shapes=both)
export(model, args, f"{folder}/layer.cw", compiled=False, verify_steps=True, dynamic="batch=1..12")
export(model, args, f"{folder}/fixed.cw", verify_steps=True)
# The rest of a weight, and an output that is empty at the size of an example.
for name, batch in (("rest", 3), ("one", 1)):
    given = (torch.randn(batch, 4, device="sim"),)
    export(net.Rest(), given, f"{folder}/{name}.cw", compiled=False, dynamic="batch=1..7")
long = (torch.randn(2, 5, 3, device="sim"), torch.randn(2, 4, 3, device="sim"))
export(net.Long(), long, f"{folder}/long.cw", compiled=False, dynamic="length=2..9:0.1")
for batch in (1, 2, 5, 12):
    torch.manual_seed(batch)
    given = torch.randn(batch, 1, 8, 8), torch.rand(batch, 1)
    got = model(*[g.to("sim") for g in given])
    for name, tensor in zip(("image", "scale", "output0", "output1"), (*given, *got)):
        with open(f"{folder}/{name}.{batch}", "wb") as file:
            file.write(tensor.detach().cpu().contiguous().numpy().tobytes())
"""


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sizes")
    (folder / "net.py").write_text(NET)
    done = subprocess.run(
        [sys.executable, "-c", f"folder = {str(folder)!r}\n{WRITE}"],
        env=os.environ | {"CAUSEWAY_SIM_CODE": "1"},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def cw(command: str, *more: str | Path, run: bool = True) -> subprocess.CompletedProcess[str]:
    vendor = ("--vendor", SIM, "--allow-host-code") if run else ()
    return subprocess.run(
        [LIB / "cw", command, *vendor, *more],
        env={**PLAIN, "CAUSEWAY_SIM_CODE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def line_of(text: str) -> str:
    """The place of a line of the model."""
    number = next(i for i, line in enumerate(NET.splitlines(), 1) if text in line)
    return f"net.py:{number}"


def section(file: bytes, kind: int) -> tuple[int, int]:
    """Offset and bytes of a section."""
    return struct.unpack_from("<QQ", file, 64 + 32 * (kind - 1) + 8)  # type: ignore[return-value]


def sealed(file: bytearray) -> bytearray:
    """A changed file with its sums made right."""
    count = struct.unpack_from("<I", file, 12)[0]
    for kind in range(1, count + 1):
        offset, size = section(file, kind)
        entry = 64 + 32 * (kind - 1)
        struct.pack_into("<I", file, entry + 4, zlib.crc32(file[offset : offset + size]))
    struct.pack_into("<II", file, 24, zlib.crc32(file[64 : 64 + 32 * count]), 0)
    struct.pack_into("<I", file, 28, zlib.crc32(file[:64]))
    return file


# --- sizes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [1, 2, 5, 12])
@pytest.mark.parametrize("mode", ["fused", "layer"])
def test_one_file_runs_all_sizes_of_its_range(
    mode: str, batch: int, folder: Path, tmp_path: Path
) -> None:
    given = [f"{n}={folder}/{n}.{batch}" for n in ("image", "scale")]
    took = [f"output{i}={tmp_path}/{i}" for i in range(2)]
    arguments = [w for g in given for w in ("--input", g)]
    arguments += [w for t in took for w in ("--output", t)]
    done = cw("run", *arguments, folder / f"{mode}.cw")
    assert done.returncode == 0, done.stderr
    count = 10 * batch
    got = struct.unpack(f"<{count}f", (tmp_path / "0").read_bytes())
    want = struct.unpack(f"<{count}f", (folder / f"output0.{batch}").read_bytes())
    # Layer by layer, the kernels are eager's, and so are the bits.
    assert got == (want if mode == "layer" else pytest.approx(want, rel=1e-4, abs=1e-5))
    assert (tmp_path / "1").read_bytes() == (folder / f"output1.{batch}").read_bytes()


def test_sizes_that_do_not_fit_are_errors(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(bytes(13 * 64 * 4))
    (tmp_path / "odd").write_bytes(bytes(100))
    scale = ("--input", f"scale={folder}/scale.5")
    for name, said in (("big", '"batch" is from 1 to 12'), ("odd", "which is no size of it")):
        done = cw("run", "--input", f"image={tmp_path}/{name}", *scale, folder / "layer.cw")
        assert done.returncode == 1
        assert said in done.stderr
    done = cw("run", "--input", f"image={folder}/image.2", *scale, folder / "layer.cw")
    assert '"batch" is 2 in input "image" and 5 in input "scale"' in done.stderr


def test_outputs_have_expressions_of_the_size(folder: Path) -> None:
    said = cw("inspect", folder / "long.cw", run=False).stdout
    assert "sequence  float32 [2, length, 3]\n  memory  float32 [2, 4, 3]" in said
    assert "output0  float32 [2, length + 4, 3]\n  output1  float32 [2, length, length]" in said
    assert "length is from 2 to 9" in said


def test_a_range_that_a_file_does_not_hold_is_refused(run_python: Run, folder: Path) -> None:
    program = f"""
import os, sys, torch, pytest
os.chdir({str(folder)!r})
from causeway.errors import CausewayError
from causeway.ship.export import export
x = torch.ones(3, 4, device="sim")
two = [torch.export.Dim("b", min=1, max=4), torch.export.Dim("c", min=1, max=4)]
for module, args, more, said in [
    (lambda t: t + 1, (x,), dict(dynamic="batch=4..2"), "is no range"),
    (lambda t: t + 1, (x,), dict(dynamic="batch"), "is not of the form batch=1..64"),
    (lambda t: t + 1, (x,), dict(dynamic="batch=5..9"), "which is not in 5..9"),
    (lambda t: t + 1, (x,), dict(dynamic="batch=1..9999"), "more than 1024 sizes"),
    (lambda t: t + 1, (x,), dict(dynamic="batch=1..9:0.7"), "no dimension 7 of input 0"),
    (lambda t: t + 1, (x,), dict(dynamic_shapes=[{{0: two[0], 1: two[1]}}]), "has two sizes"),
    (lambda t, u: t, (x, x), dict(dynamic_shapes=[{{0: two[0]}}, {{0: two[1]}}]), "holds one"),
    (lambda t: t + 1, (x,), dict(dynamic_shapes=[{{0: 3}}], dynamic="b=1..2"), "give one of them"),
    (lambda t, u: t, (x, x[:2]), dict(dynamic="batch=1..4"), "have different sizes"),
    (lambda t: t[t > 0], (x,), dict(dynamic="batch=1..4"), "depends on data"),
    (lambda t: t + torch.ones(3, device="sim"), (x.T,), dict(dynamic="batch=1..9"), ""),
    (lambda t: t.reshape(3, -1) * 2, (x,), dict(dynamic="batch=1..3"), ""),
]:
    try:
        export(module, args, "never.cw", compiled=False, **more)
    except CausewayError as error:
        assert said and said in str(error), (said, str(error))
    except RuntimeError as error:  # torch's own: the model does not take such a size
        assert not said, (said, str(error))
    else:
        assert not said, said
"""
    run_python(program, CAUSEWAY_SIM_CODE="1")


def test_expressions_that_lead_out_of_a_buffer_are_refused(folder: Path, tmp_path: Path) -> None:
    """Each expression is made too large, too small or another kind, and its sums right."""
    whole = (folder / "fused.cw").read_bytes()
    offset, size = section(whole, 15)
    refused = 0
    for at in range(offset, offset + size, 48):
        what = struct.unpack_from("<I", whole, at)[0]
        for place, value in ((16, 1 << 40), (24, 1 << 61), (24, -(1 << 61)), (4, 1 << 30)):
            changed = bytearray(whole)
            wide = "<I" if place == 4 else "<q"
            struct.pack_into(wide, changed, at + place, value)
            (tmp_path / "made.cw").write_bytes(sealed(changed))
            done = cw("inspect", tmp_path / "made.cw", run=False)
            # A value that a kernel gets may be any, and what a step computes any up to 2^56.
            if what != 3 and (what < 6 or place != 16):
                table = struct.unpack_from("<Q", whole, at + 32)[0] == 0 and place in (16, 24)
                assert done.returncode == (0 if table else 1), (at, what, place, value)
            refused += done.returncode == 1
            assert done.returncode in (0, 1)
    assert refused > 20
    changed = bytearray(whole)
    profiles, _ = section(whole, 14)
    struct.pack_into("<Q", changed, profiles + 8, 3)
    (tmp_path / "made.cw").write_bytes(sealed(changed))
    assert "profile 1 does not begin" in cw("inspect", tmp_path / "made.cw", run=False).stderr


CPP = """
#include <causeway/run.hpp>
#include <cstdio>
int main(int, char** argv) {
  cw::run::Device device(argv[1]);
  cw::run::Session session(cw::run::Model(device, argv[2], CW_RUN_ALLOW_HOST_CODE));
  std::vector<float> sequence(2 * 4 * 3, 1), memory(2 * 4 * 3, 2);
  session.set("sequence", sequence);
  session.set("memory", memory);
  session.run();
  const auto square = session.get<float>("output1", 2 * 4 * 4);
  std::printf("%g %g\\n", square[0], square[31]);
  try {
    session.get<float>("output1");
  } catch (const cw::run::Error& error) {
    std::printf("%s\\n", error.what());
  }
}
"""


def test_cpp_takes_outputs_of_the_runs_size(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "infer.cpp").write_text(CPP)
    library = [LIB / "libcw_run.a", "-ldl", "-lpthread", "-o", tmp_path / "infer"]
    given = ["c++", "-std=c++17", "-I", ROOT / "include", tmp_path / "infer.cpp", *library]
    subprocess.run(given, check=True)
    done = subprocess.run(
        [tmp_path / "infer", SIM, folder / "long.cw"],
        env={**PLAIN, "CAUSEWAY_SIM_CODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    numbers, error = done.stdout.splitlines()
    assert numbers == "3 48"
    assert 'output "output1" has 128 bytes, and 648 were given' in error


def test_sizes_and_steps_on_opencl(opencl_library: Path, folder: Path, tmp_path: Path) -> None:
    program = f"""
import sys
sys.path.insert(0, {str(folder)!r})
import torch, causeway, net
model, args = net.make()
device = torch.accelerator.current_accelerator()
args = [a.to(device) for a in args]
more = dict(compiled=False, verify_steps=True, dynamic="batch=1..12")
causeway.export(model.eval().to(device), args, {str(tmp_path / "cl.cw")!r}, **more)
"""
    environment = os.environ | {"CAUSEWAY_VENDOR": str(opencl_library)}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=300)
    run = ("--vendor", opencl_library, tmp_path / "cl.cw")
    verified = cw("verify", *run, run=False)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert "as in the exported model" in verified.stdout
    given = [w for n in ("image", "scale") for w in ("--input", f"{n}={folder}/{n}.12")]
    done = cw("run", *given, "--output", f"output0={tmp_path}/0", *run, run=False)
    assert done.returncode == 0, done.stderr
    got = struct.unpack("<120f", (tmp_path / "0").read_bytes())
    want = struct.unpack("<120f", (folder / "output0.12").read_bytes())
    assert got == pytest.approx(want, rel=1e-4, abs=1e-5)


# --- modes, lines and steps -----------------------------------------------------------------------


def test_steps_have_the_models_lines(folder: Path) -> None:
    for name in ("fixed", "layer"):
        lines = cw("inspect", folder / f"{name}.cw", run=False).stdout.splitlines()
        convolution = next(line for line in lines if "aten::convolution" in line)
        product = next(line for line in lines if "aten::addmm" in line)
        assert convolution.endswith(line_of("of a convolution"))
        assert product.endswith(line_of("of a product"))
    fused = next(line for line in lines if "aten::gelu" in line)
    assert fused.endswith(line_of("F.gelu"))


def test_the_twin_has_lines_sizes_and_checks(folder: Path) -> None:
    whole = (folder / "layer.cw").read_bytes()
    offset, size = section(whole, 1)
    about = json.loads(
        next(s for s in whole[offset : offset + size].split(b"\0") if s.startswith(b'{\n "format"'))
    )
    assert about["mode"] == "layer"
    assert about["size"] == {"name": "batch", "least": 1, "most": 12}
    assert about["inputs"][0]["sizes"] == {"0": [0, 1, 1]}
    relu = [s for s in about["steps"] if s["name"] == "aten::relu"]
    assert {s["line"] for s in relu} == {line_of("of a convolution")}
    assert [0, 2 * 4 * 4 * 36, 1] in [s["bytes"] for s in relu]  # base, slope and divisor
    product = [s["operations"] for s in about["steps"] if s["name"].startswith("aten::addmm")]
    assert [0, 2 * 36 * 10, 1] in product
    assert about["steps checked"] >= 6
    assert 0 < about["bytes of checks"] <= 4096 * about["steps checked"] * 3


def test_layer_by_layer_has_more_steps_than_fused(folder: Path) -> None:
    steps = {}
    for name in ("fused", "layer"):
        said = cw("inspect", folder / f"{name}.cw", run=False).stdout
        steps[name] = said.count(" aten::")
    assert steps["layer"] > steps["fused"]


@pytest.mark.parametrize("name", ["fixed", "layer"])
def test_verify_names_the_first_step_that_differs(name: str, folder: Path, tmp_path: Path) -> None:
    good = cw("verify", folder / f"{name}.cw")
    assert good.returncode == 0, good.stdout + good.stderr
    assert "as in the exported model" in good.stdout
    assert good.stdout.count("equal bit for bit") == 2
    changed = bytearray((folder / f"{name}.cw").read_bytes())
    offset, size = section(changed, 12)
    line = next(  # 360 numbers of the product's weights, of which the first is changed
        at
        for at in range(offset, offset + size, 256)
        if all(abs(v) < 0.17 and v for v in struct.unpack_from("<360f", changed, at))
    )
    struct.pack_into("<10f", changed, line, *[3.0] * 10)
    parts, size = section(changed, 19)
    for at in range(parts, parts + size, 48):  # the SHA-256 of the weights as they are now
        place, count = struct.unpack_from("<QQ", changed, at + 32)
        data = changed[offset + place : offset + place + count]
        changed[at : at + 32] = hashlib.sha256(data).digest()
    (tmp_path / "wrong.cw").write_bytes(sealed(changed))
    wrong = cw("verify", tmp_path / "wrong.cw")
    assert wrong.returncode == 1
    first = wrong.stdout.splitlines()[0]
    assert re.match(r"step \d+, aten::addmm\S*, from " + line_of("of a product"), first), first
    assert "WRONG" in first
    assert "the first that differs" in first
    assert "output0: WRONG" in wrong.stdout


def test_bench_compares_files_at_a_size_on_streams(folder: Path) -> None:
    more = ("--rounds", "20", "--streams", "2", "--size", "3", "--steps")
    done = cw("bench", *more, "--compare", folder / "fused.cw", folder / "layer.cw")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("runs 20 after 3, on 2 streams; in ms") == 2
    for part in ("median", "99 %", "until the chip is done", "throughput", line_of("a product")):
        assert done.stdout.count(part) >= 2, part
    assert f"copies of {3 * 65 * 4} and {3 * 48} bytes" in done.stdout
    ratio = re.search(r"fused.cw takes ([\d.]+) of the time of \S+layer.cw", done.stdout)
    assert ratio
    assert float(ratio[1]) > 0
    without = cw("bench", "--rounds", "5", "--no-copies", folder / "fixed.cw").stdout
    assert "without copies" in without
    refused = cw("bench", "--size", "13", folder / "layer.cw")
    assert "--size is not in the file's range" in refused.stderr
    refused = cw("bench", "--size", "3", folder / "fixed.cw")
    assert "--size is of files with a size that may differ" in refused.stderr


def test_the_command_takes_mode_and_sizes(run_python: Run, folder: Path, tmp_path: Path) -> None:
    program = (
        "import sys; from causeway.cli import app; "
        f"sys.argv[1:] = ['export', '{folder}/net.py:make', '-o', '{tmp_path}/net.cw', "
        "'--mode', 'layer', '--verify-steps', '--dynamic', 'batch=2..4']; app()"
    )
    run_python(program, CAUSEWAY_SIM_CODE="1", new=True)
    said = cw("inspect", tmp_path / "net.cw", run=False).stdout
    assert "image  float32 [batch, 1, 8, 8]" in said
    assert "aten::relu" in said
    assert "are kept for `cw verify`" in said
    assert cw("verify", tmp_path / "net.cw").returncode == 0


# --- the checks themselves ------------------------------------------------------------------------

SANITIZERS = ["-std=gnu11", "-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover"]


def _damage(check: Path, out: Path) -> None:
    _build(Path(__file__).parent / "damage.c", check, out)


def _build(program: Path, check: Path, out: Path, *more: str) -> None:
    folders = [ROOT / "run", ROOT / "include", Path(__file__).parent]
    includes = [word for folder in folders for word in ("-I", folder)]
    built = subprocess.run(
        ["cc", *SANITIZERS, *more, *includes, program, check, "-o", out],
        capture_output=True,
        text=True,
        check=False,
    )
    if "cannot find" in built.stderr and "san" in built.stderr:
        pytest.skip("the compiler has no sanitizers")
    assert built.returncode == 0, built.stderr


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of small files, where damage meets something that counts."""
    folder = tmp_path_factory.mktemp("small")
    writer = Path(__file__).parent / "small.py"
    subprocess.run([sys.executable, writer, folder], check=True, capture_output=True)
    return folder


def _run_damage(damage: Path, file: Path, count: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run([damage, file, str(count)], capture_output=True, text=True, check=False)


def test_damaged_sizes_and_checks_are_refused_or_right(
    folder: Path, small: Path, tmp_path: Path
) -> None:
    _damage(ROOT / "run/check.c", tmp_path / "damage")
    own = ("sizes.cw", "fixed.cw", "elsewhere.cw", "small.weights", "targets.cw")
    for file in (folder / "layer.cw", *(small / name for name in own)):
        done = _run_damage(tmp_path / "damage", file, 20000 if file.parent == small else 1000)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("there", "instead"),
    [
        ("low < 0 || (uint64_t)high > f->buffers[a->of].bytes", "0"),
        ("p->place < 3 && low > 0", "p->place < 3"),
        ("within(p->place, 8, a->of)", "1"),
        ("!within(most->places[at], most->bytes[i], f->buffers[f->arguments[at].of].bytes)", "0"),
        ("if (!within(p->table, last - first + 1, f->n_tables)) return 0;", ""),
        ("return p->of < f->n_costs && low >= 0 && (uint64_t)high <= MOST_COST", "return 1"),
        ("f->costs[i].operations > MOST_COST || f->costs[i].bytes > MOST_COST", "0"),
    ],
)
def test_a_check_that_is_left_out_is_found(
    there: str, instead: str, small: Path, tmp_path: Path
) -> None:
    _must_be_found(there, instead, small / "sizes.cw", tmp_path)


@pytest.mark.parametrize(
    ("there", "instead", "file"),
    [
        ("(f->n_weights || f->elsewhere) && !weight_of(f, b)", "0", "elsewhere.cw"),
        ("!stays_inside(f->strings + f->elsewhere->name)", "0", "elsewhere.cw"),
        ("|| !within(w->place, w->bytes, f->n_constants)", "", "fixed.cw"),
        ("|| !within(e[i].place, e[i].bytes, h->bytes)", "", "small.weights"),
        ("!within(b->place, b->bytes, f->n_made)", "0", "fixed.cw"),
        ("|| !within(part.place, part.bytes, bytes)", "", "targets.cw"),
        ("(i && memcmp(e[i - 1].digest, e[i].digest, DIGEST) >= 0)", "0", "small.weights"),
    ],
)
def test_a_check_of_weights_that_is_left_out_is_found(
    there: str, instead: str, file: str, small: Path, tmp_path: Path
) -> None:
    _must_be_found(there, instead, small / file, tmp_path)


def _must_be_found(there: str, instead: str, file: Path, tmp_path: Path) -> None:
    whole = (ROOT / "run/check.c").read_text()
    assert whole.count(there) == 1
    (tmp_path / "check.c").write_text(whole.replace(there, instead))
    _damage(tmp_path / "check.c", tmp_path / "damage")
    assert _run_damage(tmp_path / "damage", file, 20000).returncode != 0


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """What `make fuzz` found worth keeping: inputs that each reach something else."""
    folder = tmp_path_factory.mktemp("corpus")
    with tarfile.open(Path(__file__).with_name("corpus.tar.xz")) as files:
        files.extractall(folder, filter="data")
    return sorted(path for path in folder.iterdir() if path.is_file())


def _read_corpus(check: Path, corpus: list[Path], out: Path) -> subprocess.CompletedProcess[str]:
    _build(Path(__file__).parent / "fuzz.c", check, out, "-DFILES")
    return subprocess.run([out, *corpus], capture_output=True, text=True, check=False)


def test_what_a_fuzzer_found_is_refused_or_right(corpus: list[Path], tmp_path: Path) -> None:
    assert len(corpus) > 100
    done = _read_corpus(ROOT / "run/check.c", corpus, tmp_path / "fuzz")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "there",
    [
        "!within(b->place, b->bytes, f->n_made)",
        "!stays_inside(f->strings + f->elsewhere->name)",
    ],
)
def test_what_a_fuzzer_found_finds_a_check_that_is_left_out(
    corpus: list[Path], there: str, tmp_path: Path
) -> None:
    whole = (ROOT / "run/check.c").read_text()
    (tmp_path / "check.c").write_text(whole.replace(there, "0"))
    assert _read_corpus(tmp_path / "check.c", corpus, tmp_path / "fuzz").returncode != 0


def test_a_small_file_is_refused_where_it_is_cut_at_any_byte(small: Path, tmp_path: Path) -> None:
    (tmp_path / "cut.c").write_text(CUT)
    _build(tmp_path / "cut.c", ROOT / "run/check.c", tmp_path / "cut")
    for name in ("sizes.cw", "fixed.cw", "elsewhere.cw", "small.weights", "targets.cw"):
        given = [tmp_path / "cut", small / name]
        done = subprocess.run(given, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert int(done.stdout) == (small / name).stat().st_size


CUT = """
#include "reads.h"
int main(int argc, char** argv) {
  FILE* f = argc > 1 ? fopen(argv[1], "rb") : NULL;
  static unsigned char whole[1 << 16];
  const size_t bytes = f ? fread(whole, 1, sizeof whole, f) : 0;
  size_t refused = 0;
  for (size_t n = 0; n < bytes; ++n) {
    void* copy = NULL;
    checked_file checked;
    char words[512] = "";
    if (posix_memalign(&copy, 64, n ? n : 1)) return 2;
    memcpy(copy, whole, n);
    if (memcmp(whole, FILE_MAGIC, 8)) {
      int good = 0;
      (void)try_other(copy, n, 0, &good);
      refused += !good;
      (void)try_other(copy, n, 1, &good);
      free(copy);
      continue;
    }
    refused += check_file(copy, n, &checked, words, sizeof words) && words[0];
    sum_again(copy, n);
    if (!check_file(copy, n, &checked, words, sizeof words)) (void)read_all(&checked);
    free(copy);
  }
  printf("%zu\\n", refused);
  return 0;
}
"""


@pytest.mark.parametrize("name", ["rest", "one"])
def test_results_that_shrink_or_are_empty(folder: Path, name: str, tmp_path: Path) -> None:
    assert cw("verify", folder / f"{name}.cw").returncode == 0
    done = cw("bench", folder / f"{name}.cw", "--rounds", "2")
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_input_that_is_empty_at_its_most_is_refused(small: Path) -> None:
    """Its other dimensions may then be anything, and a size be divided by 0."""
    spec = importlib.util.spec_from_file_location("small", Path(__file__).parent / "small.py")
    assert spec is not None
    assert spec.loader is not None
    written = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(written)
    program = written.program()
    program.steps, program.outputs = [], []
    program.sizes = plan.Sizes(
        "batch", 1, 1, 1, [plan.Patch(plan.DIMENSION, 0, 0, -1, 1)], [plan.Profile(1, 1, 0, 0, [])]
    )
    program.lay_out()
    port = {"name": "in", "kind": 0, "place": (0, 0), "dtype": 11, "vector": b""}
    write(
        small / "empty.cw", program, target=written.TARGET,
        constants=program.put_weights([bytes(64)]),
        ports=[{**port, "shape": [0, 1 << 32, 1 << 32], "bytes": 0}], about={}, tellers=["first"],
    )  # fmt: skip
    done = subprocess.run(
        [LIB / "cw", "inspect", small / "empty.cw"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "is of no dimension of an input or output" in done.stdout + done.stderr
