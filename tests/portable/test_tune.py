"""Products are cut as was measured: no cut shows in a number, and what was measured is kept."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
CUTS = (HERE / "cuts.py").read_text()
SIM = {"CAUSEWAY_SIM_CODE": "1", "CAUSEWAY_SIM_OPS": "none", "CAUSEWAY_POLICY": "error"}
Run = Callable[..., object]

pytestmark = [pytest.mark.process, pytest.mark.once]


@pytest.fixture
def sim(tmp_path: Path) -> dict[str, str]:
    """The simulated chip with its compiler; what is measured is the test's own."""
    return {**SIM, "CAUSEWAY_TUNE_FOLDER": str(tmp_path / "tune")}


SOME = {
    "float32": ("float32", "turned", "wide transposed", "large", "convolution",
                "gradient of few channels"),
    "loops": ("float32", "sum", "sum of some", "largest", "sum of rows", "elements"),
    "others": (
        "bfloat16", "edges", "transposed", "float16", "wide transposed", "deep", "float64", "edges",
    ),
}  # fmt: skip


@pytest.mark.parametrize("which", SOME)
def test_every_cut_gives_the_same_bits(run_python, sim: dict[str, str], which: str) -> None:
    lines = run_python(CUTS, args=SOME[which], **sim).stdout.splitlines()
    assert lines == ["cuts 8 of 5 products"]


@pytest.mark.long
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
def test_every_cut_gives_the_same_bits_for_all_products(run_python, sim, dtype: str) -> None:
    lines = run_python(CUTS, args=(dtype,), **sim).stdout.splitlines()
    assert lines == ["cuts 8 of 22 products"]


@pytest.mark.long
def test_items_that_take_turns_give_the_same_bits(run_python, opencl_library: Path) -> None:
    env = {
        "CAUSEWAY_VENDOR": str(opencl_library),
    }
    which = ("float32", "large", "large convolution", "wide transposed", "bfloat16", "large")
    assert run_python(CUTS, args=which, **env).stdout.splitlines() == ["cuts 8 of 4 products"]


@pytest.mark.parametrize(
    "which",
    [
        pytest.param(("float32", "edges"), marks=pytest.mark.long),
        *(
            pytest.param(which, marks=pytest.mark.long)
            for which in (
                ("float32", "deep"), ("float32", "convolution"), ("float32", "gradient"),
                ("float32", "wild"), ("bfloat16", "edges"), ("float64", "edges"),
            )
        ),
    ],
    ids="-".join,
)  # fmt: skip
def test_every_cut_of_a_gpu_gives_the_same_bits(
    run_python, opencl_library: Path, which: tuple[str, ...]
) -> None:
    env = {
        "CAUSEWAY_VENDOR": str(opencl_library),
        "CAUSEWAY_OPENCL_IN_TURN": "0",
    }
    assert run_python(CUTS, args=which, **env).stdout.splitlines() == ["cuts 8 of 1 products"]


def test_a_cut_that_rounds_otherwise_is_noticed(run_python, sim, tmp_path: Path) -> None:
    """A compiler that adds in another order in one of the cuts: the comparison must say so."""
    fake = tmp_path / "cc"
    fake.write_text(
        "#!/bin/sh\nfor f; do case $f in *.c) grep -q 'define WIDE 32' $f && "
        "sed -i 's/T v = tile\\[i \\* WIDE + l\\];/T v = tile[i * WIDE + l] * (T)1.0000002;/' $f;; "
        'esac; done\nexec cc "$@"\n'
    )
    fake.chmod(0o755)
    env = {**sim, "CC": str(fake), "CAUSEWAY_SIM_CACHE": str(tmp_path / "programs")}
    lines = run_python(CUTS, args=("float32", "edges"), **env).stdout.splitlines()
    assert [line for line in lines if "8x32 k512 gives other bits" in line], lines
    assert not [line for line in lines if "6x16" in line]


COMMAND = "import sys; from causeway.cli import app; app(sys.argv[1:])"

# One product until its class has a cut; what is known, and how many calls it took.
PRODUCT = """
import json, sys, torch
from causeway import _C
a = torch.randn(256, 256, device="sim")
for calls in range(int(sys.argv[1])):
    b = a @ a
    if any(t["cut"] for t in _C.tuned(0)):
        break
print(json.dumps([calls, _C.tuned(0), b.sum().item() == b.sum().item()]))
"""


def product(run_python, env: dict[str, str], calls: int = 99) -> tuple[int, dict | None]:
    done = run_python(PRODUCT, args=(str(calls),), **env)
    took, known, _ = json.loads(done.stdout)
    return took, known[0] if known else None


def test_a_second_process_measures_nothing(run_python, sim: dict[str, str]) -> None:
    took, first = product(run_python, {**sim, "CAUSEWAY_TUNE": "now"})
    assert first
    assert (first["name"], first["source"]) == ("f32 mm many", "measured")
    assert took >= 6  # a call builds, five measure
    took, second = product(run_python, {**sim, "CAUSEWAY_TUNE": "passing"})
    assert took == 0
    assert second == first | {"source": "kept", "measurements": 0, "gain": second["gain"]}
    report = json.loads(run_python(COMMAND, args=("doctor", "--json"), **sim).stdout)
    (tuned,) = report["tuned"]
    assert (tuned["name"], tuned["cut"], tuned["source"]) == (first["name"], first["cut"], "kept")


LOOPS = """
import json, torch
from causeway import _C
a = torch.ones(16 << 20, device="sim")
for f in (lambda: a * 3.0, lambda: a.sum(), lambda: a.view(-1, 1024).sum(1)):
    for _ in range(40):
        f()
        torch.accelerator.synchronize()
print(json.dumps(_C.tuned(0)))
"""


def test_the_order_of_reading_is_measured_in_passing_and_kept(run_python, sim) -> None:
    sim |= {"CAUSEWAY_TUNE": "passing"}
    first = json.loads(run_python(LOOPS, **sim).stdout)
    assert [t["name"] for t in first] == ["elements", "long rows", "rows"]
    assert {t["source"] for t in first} == {"measured"}
    assert {t["cut"] for t in first} <= {"by turns", "in order"}
    second = json.loads(run_python(LOOPS, **sim).stdout)
    assert [(t["cut"], t["source"]) for t in second] == [(t["cut"], "kept") for t in first]


def test_a_size_that_comes_once_leaves_the_class_to_others(run_python, sim) -> None:
    once = "import torch; x = torch.ones(250, 250, device='sim'); x @ x; x @ x; x @ x\n"
    done = run_python(once + PRODUCT, args=("400",), **sim | {"CAUSEWAY_TUNE": "now"})
    took, (known,), _ = json.loads(done.stdout)
    assert known["source"] == "measured", took


def kept(sim: dict[str, str]) -> Path:
    (file,) = Path(sim["CAUSEWAY_TUNE_FOLDER"]).iterdir()
    return file


@pytest.mark.long
def test_a_damaged_file_is_measured_anew(run_python, sim: dict[str, str]) -> None:
    env = {**sim, "CAUSEWAY_TUNE": "now"}
    product(run_python, env)
    for damage in (b"damaged", kept(sim).read_bytes()[:-1] + b"x"):
        kept(sim).write_bytes(damage)
        assert product(run_python, env, 1)[1]["source"] == "under way"


def test_a_folder_that_cannot_be_written_is_said_once(run_python, sim, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("no folder")
    env = {**sim, "CAUSEWAY_TUNE": "now", "CAUSEWAY_TUNE_FOLDER": str(file)}
    twice = PRODUCT + "a, b = (torch.randn(s, device='sim') for s in ((2048, 512), (512, 16)))\n"
    twice += "for _ in range(60): a @ b\n"
    twice += "print(len([t for t in _C.tuned(0) if t['source'] == 'measured']))\n"
    done = run_python(twice, args=("99",), **env)
    assert done.stdout.splitlines()[-1] == "2"
    assert done.stderr.count("cannot be kept in") == 1
    assert "CAUSEWAY_TUNE_FOLDER names another folder" in done.stderr
    assert file.read_text() == "no folder"


def test_what_is_kept_is_taken(run_python, sim: dict[str, str], tmp_path: Path) -> None:
    """It shows in the source that is built; with the setting off, or `again`, it does not."""
    product(run_python, {**sim, "CAUSEWAY_TUNE": "now"})
    seen, fake = tmp_path / "seen", tmp_path / "bin/cc"
    fake.parent.mkdir()
    fake.write_text(
        "#!/bin/sh\nfor f; do case $f in *.c) grep -hE 'define (TILE|WIDE|DEPTH) ' $f >> "
        f'{seen};; esac; done\nexec {shutil.which("cc")} "$@"\n'
    )
    fake.chmod(0o755)
    code = "import torch\nx = torch.ones(200, 200, device='sim')\nprint((x @ x)[0, 0].item())"
    _rewrite(kept(sim), "4x16 k512")
    for mode, (rows, depth) in {"passing": (4, 512), "off": (6, 512), "again": (6, 512)}.items():
        seen.unlink(missing_ok=True)
        env = {"PATH": f"{fake.parent}:{os.environ['PATH']}", "CAUSEWAY_TUNE": mode}
        env["CAUSEWAY_SIM_CACHE"] = str(tmp_path / mode)
        assert run_python(code, **sim | env).stdout.strip() == "200.0"
        lines = sorted(seen.read_text().splitlines())
        assert lines == [f"#define DEPTH {depth}", f"#define TILE {rows}", "#define WIDE 16"]


def _rewrite(file: Path, cut: str) -> None:
    """Put another cut into the file, with the checksum that it then has."""
    data = bytearray(file.read_bytes())
    key_bytes, bytes_, _ = (int.from_bytes(data[i : i + 8], "little") for i in (8, 16, 24))
    fields = bytes(data[32 + key_bytes :]).decode().split("\t")
    body = "\t".join([fields[0], cut, *fields[2:]]).encode()
    sum_ = 0
    for byte in body:
        sum_ = ((sum_ ^ byte) * 0x100000001B3) % (1 << 64)
    assert len(data) == 32 + key_bytes + bytes_
    head = data[:16] + len(body).to_bytes(8, "little") + sum_.to_bytes(8, "little")
    file.write_bytes(bytes(head + data[32 : 32 + key_bytes] + body))


@pytest.mark.long
def test_a_short_program_builds_nothing_to_try(run_python, sim, tmp_path: Path) -> None:
    """A build is worth a tenth of what the products themselves took, and no more."""
    built = {}
    for mode in ("passing", "off"):
        folder = tmp_path / mode
        env = {**sim, "CAUSEWAY_SIM_CACHE": str(folder), "CAUSEWAY_TUNE": mode}
        _, known = product(run_python, env, 8)
        built[mode] = len(list(folder.iterdir()))
        assert known is None or known["source"] == "under way"
    assert built["passing"] == built["off"]


@pytest.mark.long
def test_a_long_program_measures_in_passing(run_python, sim: dict[str, str]) -> None:
    product(run_python, {**sim, "CAUSEWAY_TUNE": "now"})  # all is built
    kept(sim).unlink()
    took, known = product(run_python, {**sim, "CAUSEWAY_TUNE": "passing"}, 50000)
    assert known["source"] == "measured"
    assert took > 12


def test_a_chip_without_a_compiler_has_nothing_to_tune(run_python) -> None:
    done = run_python(COMMAND, args=("tune",), status=1)
    assert "has nothing to tune: the vendor has no compiler (code.v1)" in done.stderr
