"""Kernels as GPUs get them, under the simulated chip's model of one (docs/sim.md): nothing is found
in them, and what is planted is. `make test-teams` runs all of them.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from causeway.vendor import sim_library

HERE = Path(__file__).parent
CASES = (HERE / "cases.py").read_text()
MODEL = {
    "CAUSEWAY_SIM_TEAMS": "1",
    "CAUSEWAY_SIM_OPS": "none",
    "CAUSEWAY_SIM_MEMORY_MODEL": "discrete",
    "CAUSEWAY_MEMORY_CACHE": "0",
    "CAUSEWAY_TUNE": "off",
}
Run = Callable[..., subprocess.CompletedProcess[str]]

pytestmark = [pytest.mark.process, pytest.mark.once]


@pytest.fixture(scope="session")
def watched(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The simulated chip, in a vendor that plants faults in the sources of its kernels."""
    folder = tmp_path_factory.mktemp("teams")
    library = folder / "libcw_sim.so"
    command = ["c++", "-shared", "-fPIC", "-O1", "-std=c++17", f"-I{HERE.parents[1] / 'include'}"]
    subprocess.run([*command, str(HERE / "watch.cpp"), "-o", str(library), "-ldl"], check=True)
    return MODEL | {"CAUSEWAY_VENDOR": str(library), "WATCH_VENDOR": sim_library()}


def test_rows_by_teams_have_no_fault(run_python: Run) -> None:
    done = run_python(CASES, args=("rows",), timeout=280, PYTHONPATH=str(HERE), **MODEL)
    assert done.stdout == "cases 12\n"


# A name, what replaces what in the kernel's text, what runs, and words of the error.
PLANTED = [
    (
        "no barrier in a fold",
        "BARRIER;=>",
        "x.softmax(1)",
        "reads local memory that its group has not written: cells +",
    ),
    (
        "no barrier behind a stretch of a product",
        "ADD(kk)\n    }\n    BARRIER;=>ADD(kk)\n    }",
        "x @ x.t()",
        "no barrier orders them: item",
    ),
    (
        "an index past the end",
        "if (j < n)=>if (j <= n)",
        "x.var(1)",
        "reads 4 bytes outside what the launch was given: argument",
    ),
    (
        "local memory too small",
        "cells[2 * ITEMS]=>cells[ITEMS + 1]",
        "x.log_softmax(1)",
        "bytes past the end of cells, line",
    ),
    (
        "no mask around the fold's second half",
        "if (place < WIDTH) {=>{",
        "x.argmax(1)",
        "no barrier orders them: item",
    ),
    (
        "a cell that is not written",
        "ats[CELL(place, TEAM)] = *at;=>",
        "x.argmin(0)",
        "has not written: ats +",
    ),
    (
        "two teams that write one element",
        "for (idx u_from = GROUP * TEAMS;=>for (idx u_from = GROUP / 2 * TEAMS;",
        "torch.nn.functional.layer_norm(x, (300,))",
        "of group",
    ),
    (
        "a barrier in a branch",
        "if (place < WIDTH) {=>if (place < WIDTH) { BARRIER;",
        "x.sum(1)",
        "a barrier that not all items reach: item",
    ),
    (
        "an item that leaves early",
        "const idx place = PLACE(LANE),=>if (LANE == 5) return; const idx place = PLACE(LANE),",
        "x.prod(1)",
        "and item 5 has ended",
    ),
    (
        "memory that nothing wrote",
        "no such text=>",
        "torch.empty(700, device=x.device) + 1",
        "reads what nothing has written: argument",
    ),
    (
        "memory behind what was written",
        "no such text=>",
        "part[2990:3010] * 2",
        "reads what nothing has written: argument",
    ),
]
PROGRAM = f"""
import os, re, torch

planted = {PLANTED!r}
x = torch.randn(70, 300, generator=torch.Generator().manual_seed(0))
x = x.to(torch.accelerator.current_accelerator())
part = torch.empty(5000, device=x.device)
part[7:3000].copy_(torch.ones(2993))
assert (part[7:3000] * 3).sum().item() == 3 * 2993
for name, replace, program, words in planted:
    os.environ["WATCH_REPLACE"] = replace
    try:
        eval(program)
        torch.accelerator.synchronize()
        print(f"{{name}}: not found")
    except RuntimeError as error:
        said = " ".join(str(error).split())
        if words not in said or not re.search(r"line \\d+: .*CAUSEWAY_SIM_SEED=7\\)", said):
            print(f"{{name}}: {{said}}")
print("planted", len(planted), (x + 1).sum().isfinite().item())
"""


def test_each_fault_that_is_planted_is_found(
    run_python: Run, watched: dict[str, str], tmp_path: Path
) -> None:
    env = watched | {"CAUSEWAY_SIM_CACHE": str(tmp_path), "CAUSEWAY_SIM_SEED": "7"}
    assert run_python(PROGRAM, timeout=280, **env).stdout == f"planted {len(PLANTED)} True\n"


COMPILED = """
import torch

@torch.compile
def f(x, w):
    y = torch.nn.functional.layer_norm(x, x.shape[1:], w).relu()
    return y.softmax(1) * y.amax(0), y.argmax(1), y.var(0)

x, w = torch.randn(37, 300), torch.randn(300)
wanted = f(x, w)
device = torch.accelerator.current_accelerator()
torch.testing.assert_close([t.cpu() for t in f(x.to(device), w.to(device))], list(wanted))
print("the CPU's")
"""


@pytest.mark.long
def test_a_compiled_graph_has_no_fault(run_python: Run) -> None:
    env = MODEL | {"CAUSEWAY_COMPILE": "strict"}
    assert run_python(COMPILED, timeout=280, **env).stdout == "the CPU's\n"
