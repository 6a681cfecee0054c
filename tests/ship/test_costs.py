"""What a file says that its steps compute and move, at two sizes, and how fast each was."""

from __future__ import annotations

import math
import os
import re
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIB = ROOT / "src/causeway/lib"
SIM = LIB / "libcw_sim.so"
PLAIN = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), "CAUSEWAY_SIM_CODE": "1"}
COSTS, PATCHES = 18, 15  # sections
OPERATIONS, MOVED = 6, 7

pytestmark = [pytest.mark.process, pytest.mark.once]

WRITE = """
import sys, torch, causeway
from torch import nn
from torch.nn import functional as F
from causeway.ship.export import export

folder = sys.argv[1]
torch.manual_seed(0)

def new(*shape):
    return torch.randn(*shape, device="sim")

def chain(t):
    return torch.relu(t * 2 + 1).sum(1)

class Bag(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(1000, 8)
    def forward(self, words):
        return self.table(words)

models = {
    "linear": (nn.Linear(20, 64), (new(8, 20),)),
    "conv": (nn.Conv2d(3, 8, 3, padding=1, bias=False), (new(2, 3, 10, 10),)),
    "chain": (chain, (new(8, 20),)),
    "attention": (F.scaled_dot_product_attention, tuple(new(2, 4, 16, 8) for _ in range(3))),
    "bag": (Bag(), (torch.arange(6, device="sim").view(2, 3),)),
    "vector": (lambda t, v: t @ v, (new(8, 20), new(20))),
}
for name, (model, args) in models.items():
    model = model.to("sim").eval() if isinstance(model, nn.Module) else model
    names = ["a", "b", "c"][: len(args)]
    sizes = "batch=2..8:0.0" if name == "vector" else "batch=2..8"
    for mode in (True, False) if name in ("linear", "conv", "chain", "bag") else (False,):
        path = f"{folder}/{name}-{'fused' if mode else 'layer'}.cw"
        export(model, args, path, compiled=mode, dynamic=sizes, names=names)
export(chain, (new(8, 20),), f"{folder}/fixed.cw")
strided = nn.Conv2d(16, 32, 3, stride=2, padding=1, bias=False).to("sim").eval()
export(strided, (new(2, 16, 56, 56),), f"{folder}/strided.cw", compiled=False)
export(lambda q: (q @ q.transpose(1, 2)), (new(2, 5, 3),), f"{folder}/square.cw", compiled=False,
       dynamic="length=5..12:0.1")
print("written")
"""


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("costs")
    done = subprocess.run(
        [sys.executable, "-c", WRITE, str(folder)],
        env=os.environ | {"CAUSEWAY_SIM_CODE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.stdout.endswith("written\n"), done.stdout + done.stderr
    return folder


def cw(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [LIB / "cw", *arguments], env=PLAIN, capture_output=True, text=True, check=False
    )


def sums(file: Path, *more: str) -> tuple[int, int]:
    """Operations and bytes of a run, as the last line has them."""
    said = cw("inspect", *more, file)
    assert said.returncode == 0, said.stderr
    found = re.search(r"(\d+) FLOP, (\d+) bytes read and written$", said.stdout.strip())
    assert found, said.stdout
    return int(found[1]), int(found[2])


@pytest.mark.parametrize("batch", [3, 8])
@pytest.mark.parametrize("mode", ["fused", "layer"])
def test_a_run_has_the_known_operations(folder: Path, mode: str, batch: int) -> None:
    """Two for each multiplication with its addition; of a chain one for each operation, and none
    for its ReLU."""
    known = {
        "linear": 2 * batch * 20 * 64,
        "conv": 2 * batch * 8 * 100 * 3 * 9,
        "chain": 3 * batch * 20,
        "bag": 0,
    }
    if mode == "layer":
        known |= {"attention": 2 * (2 * batch * 4 * 16 * 16 * 8), "vector": 2 * batch * 20}
    for name, operations in known.items():
        got, _ = sums(folder / f"{name}-{mode}.cw", "--size", str(batch))
        assert got == operations, name


def test_a_product_has_the_operations_and_not_what_packs_for_it(folder: Path) -> None:
    """Which moves more: steps of two read an image that is larger than the result."""
    said = cw("inspect", folder / "strided.cw").stdout
    found = re.findall(r"aten::convolution .* (\d+) FLOP", said)
    assert len(found) > 1, said
    assert list(map(int, found)) == [0] * (len(found) - 1) + [2 * 2 * 32 * 28 * 28 * 16 * 9]


@pytest.mark.parametrize("batch", [3, 8])
def test_a_run_has_the_known_bytes(folder: Path, batch: int) -> None:
    known = {
        "linear-layer": 4 * (batch * 20 + 20 * 64 + 64 + batch * 64),
        "linear-fused": 4 * (batch * 20 + 20 * 64 + 64 + batch * 64),
        "chain-fused": 4 * (batch * 20 + batch),
        "chain-layer": 4 * (3 * 2 * batch * 20 + batch * 20 + batch),
        # Of the table no more is read than is picked.
        "bag-fused": batch * 3 * (8 + 2 * 8 * 4),
        "bag-layer": batch * 3 * (8 + 2 * 8 * 4),
    }
    for name, moved in known.items():
        assert sums(folder / f"{name}.cw", "--size", str(batch))[1] == moved, name


def test_steps_have_expressions_of_the_size(folder: Path) -> None:
    said = cw("inspect", folder / "chain-fused.cw").stdout
    assert "  60 * batch FLOP, 84 * batch bytes" in said
    assert "a run with batch 2  120 FLOP, 168 bytes read and written" in said
    assert "a run with batch 8  480 FLOP, 672 bytes read and written" in said
    at_five = cw("inspect", "--size", "5", folder / "chain-fused.cw").stdout
    assert "  300 FLOP, 420 bytes" in at_five
    assert "* batch FLOP" not in at_five
    assert sums(folder / "fixed.cw") == (8 * 60, 8 * 84)
    refused = cw("inspect", "--size", "13", folder / "chain-fused.cw")
    assert "--size is not in the file's range" in refused.stderr


def test_what_is_no_expression_is_a_table(folder: Path) -> None:
    """A product of a sequence with itself grows by the square of its length; up to 4 it has another
    kernel, so a profile of its own.
    """
    for length in (5, 8, 12):
        got, _ = sums(folder / "square.cw", "--size", str(length))
        assert got == 2 * 2 * length * length * 3
    assert f"{2 * 2 * 5 * 5 * 3} to {2 * 2 * 12 * 12 * 3} FLOP" in (
        cw("inspect", folder / "square.cw").stdout
    )


def test_bench_says_what_a_step_computes_in_a_second(folder: Path) -> None:
    given = ("--vendor", SIM, "--allow-host-code", "--rounds", "3", "--size", "8", "--steps")
    said = cw("bench", *given, folder / "linear-layer.cw")
    assert said.returncode == 0, said.stderr
    pattern = r"([\d.]+) ms +(\d+) % +([\d.]+) GFLOP/s +([\d.]+) GB/s  (.*)"
    rows = [re.search(pattern, line) for line in said.stdout.splitlines()]
    step, total = [r for r in rows if r]
    assert step[5].startswith("aten::addmm")
    assert total[5] == "one by one"
    gflop, seconds, rounded = 2 * 8 * 20 * 64 / 1e9, float(step[1]) / 1e3, 0.51e-6  # three decimals
    most = gflop / (seconds - rounded) if seconds > rounded else math.inf
    assert gflop / (seconds + rounded) <= float(step[3]) <= most


def test_old_files_say_nothing_of_it() -> None:
    said = cw("inspect", Path(__file__).parent / "version2.cw")
    assert said.returncode == 0
    assert "FLOP" not in said.stdout


def _section(file: bytes, kind: int) -> tuple[int, int]:
    return struct.unpack_from("<QQ", file, 64 + 32 * (kind - 1) + 8)  # type: ignore[return-value]


def _sealed(file: bytearray) -> bytearray:
    """A changed file with its sums made right."""
    count = struct.unpack_from("<I", file, 12)[0]
    for kind in range(1, count + 1):
        offset, size = _section(file, kind)
        entry = 64 + 32 * (kind - 1)
        struct.pack_into("<I", file, entry + 4, zlib.crc32(file[offset : offset + size]))
    struct.pack_into("<II", file, 24, zlib.crc32(file[64 : 64 + 32 * count]), 0)
    struct.pack_into("<I", file, 28, zlib.crc32(file[:64]))
    return file


def test_wrong_costs_are_refused(folder: Path, tmp_path: Path) -> None:
    whole = (folder / "chain-fused.cw").read_bytes()
    made = tmp_path / "made.cw"

    def refused(file: bytearray) -> str:
        made.write_bytes(_sealed(file))
        done = cw("inspect", made)
        assert done.returncode == 1, done.stdout
        return done.stderr

    offset, _ = _section(whole, COSTS)
    changed = bytearray(whole)
    struct.pack_into("<Q", changed, offset + 8, 1 << 57)
    assert "step 0 computes or moves more than any can" in refused(changed)
    patches, size = _section(whole, PATCHES)
    tried = 0
    for at in range(patches, patches + size, 48):
        if struct.unpack_from("<I", whole, at)[0] not in (OPERATIONS, MOVED):
            continue
        # A step that is not there, less than nothing, and more than any can.
        for place, value in ((4, 99), (16, -(1 << 40)), (24, 1 << 58)):
            changed = bytearray(whole)
            struct.pack_into("<I" if place == 4 else "<q", changed, at + place, value)
            assert "leads out of what it is of" in refused(changed)
            tried += 1
    assert tried == 6
    entry = 64 + 32 * (COSTS - 1)
    changed = bytearray((folder / "chain-layer.cw").read_bytes())
    struct.pack_into("<Q", changed, entry + 16, 16)
    assert "and says what 1 compute" in refused(changed)
