"""What has rows, as devices get it whose items run in parallel: right, and by teams of items. PoCL
runs a group's items between two barriers in turn, so that a barrier or a lane left out shows.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
CASES = (HERE / "cases.py").read_text()
TEAMS = ("#define TEAM ", "#define BLOCK ")  # of rows.cpp, of attention_blocks.cpp
FAMILIES = {
    "softmax": "EXP(HELD(0) - most)",
    "reductions": "team_fold(cells, LANE, acc)",
    "searches": "team_best(cells, ats, LANE",
    "norms of rows": "OUT(base + j, v)",
    "batch norm": "SAVE_RSTD(c, r)",
    "topk": "left &= ~",
    "scans": "tile[TILE_AT(at)]",
    "losses": "ADD(loss, loss_low, one)",
    "attention": "weights[BLOCK * PAD]",
}
Run = Callable[..., subprocess.CompletedProcess[str]]

pytestmark = [pytest.mark.process, pytest.mark.once]


@pytest.fixture(scope="session")
def watched(opencl_library: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """OpenCL's CPU taken for a GPU, in a vendor that notes sources and plants faults."""
    library = tmp_path_factory.mktemp("watch") / "libcw_watch.so"
    command = ["c++", "-shared", "-fPIC", "-O1", "-std=c++17", f"-I{HERE.parents[1] / 'include'}"]
    subprocess.run([*command, str(HERE / "watch.cpp"), "-o", str(library), "-ldl"], check=True)
    return {
        "CAUSEWAY_VENDOR": str(library),
        "WATCH_VENDOR": str(opencl_library),
        "CAUSEWAY_OPENCL_IN_TURN": "0",
        "CAUSEWAY_OPENCL_CACHE": str(tmp_path_factory.mktemp("programs")),
    }


def differences(run_python: Run, which: str, timeout: float = 120, **env: str) -> list[str]:
    """What the cases print before their count, which must be there."""
    done = run_python(CASES, args=(which, "-"), timeout=timeout, PYTHONPATH=str(HERE), **env)
    lines = done.stdout.splitlines()
    assert lines, "the cases printed nothing"
    assert lines[-1].startswith("cases "), lines
    return lines[:-1]


def test_rows_agree_and_are_taken_by_teams(
    run_python: Run, watched: dict[str, str], tmp_path: Path
) -> None:
    assert differences(run_python, "rows", **watched, WATCH_SOURCES=str(tmp_path)) == []
    sources = [path.read_text() for path in tmp_path.iterdir()]
    by_teams = [source for source in sources if any(word in source for word in TEAMS)]
    assert len(by_teams) >= 15
    missing = {
        name for name, text in FAMILIES.items() if not any(text in source for source in by_teams)
    }
    assert missing == set()
    others = [source for source in sources if source not in by_teams and "acc" in source]
    assert others == []


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_rows_of_every_length_agree(run_python: Run, watched: dict[str, str]) -> None:
    assert differences(run_python, "rows-all", timeout=1700, **watched) == []


# A word of the dialect and what is put there; cases that need not say so.
FAULTS = {
    "no barrier": ("BARRIER;=>", set[str]()),
    "a lane left out of a fold": (
        "k = place + WIDTH; k < TEAM;=>k = place + WIDTH; k < TEAM - WIDTH;",
        {"cumsum", "attention"},  # they fold in their own ways
    ),
}
FEW = (HERE / "cases_rows.py").read_text().split("def every")[0]
NAMES = set(re.findall(r'"rows (\w+)', FEW))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["no barrier", pytest.param("a lane left out of a fold", marks=pytest.mark.long)],
)
def test_a_fault_among_items_is_noticed(
    run_python: Run, watched: dict[str, str], tmp_path: Path, name: str
) -> None:
    replace, spared = FAULTS[name]
    env = {**watched, "CAUSEWAY_OPENCL_CACHE": str(tmp_path), "WATCH_REPLACE": replace}
    found = differences(run_python, "rows", **env)
    noticed = {name for name in NAMES if any(line.startswith(f"rows {name}") for line in found)}
    assert len(NAMES) >= 10
    assert NAMES - spared <= noticed


PRECISE = """
import torch
from fractions import Fraction

x = torch.full((2**24,), 0.1)
exact = float(Fraction(x[0].item()) * 2**24)
there = x.to(torch.accelerator.current_accelerator())
print(abs(there.sum().item() - exact) / exact, abs(there.mean().item() * 2**24 - exact) / exact)
"""
COMPENSATION = "low += (s - (t_ - z_)) + (v_ - z_);=>"


def test_sums_of_float32_lose_nothing_at_16_million_elements(
    run_python: Run, watched: dict[str, str]
) -> None:
    errors = [float(e) for e in run_python(PRECISE, **watched).stdout.split()]
    assert max(errors) < 1e-6
    plain = run_python(PRECISE, **watched, WATCH_REPLACE=COMPENSATION).stdout.split()
    assert max(float(e) for e in plain) > 5e-6  # what is compensated is seen
