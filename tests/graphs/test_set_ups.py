"""The graphs of tests/device on the simulated chip with a compiler, in several set-ups."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
Run = Callable[..., subprocess.CompletedProcess[str]]
FILES = [f"{ROOT}/tests/device/{name}.py" for name in ("test_graphs", "test_graphs_as_cuda")]
PROGRAM = f"import pytest, sys; sys.exit(pytest.main(['-q', '-x', *{FILES}]))"

pytestmark = [pytest.mark.process, pytest.mark.once]


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "sim",
    [
        {},
        {"GRAPHS": "1", "EXECUTION": "async", "MEMORY_MODEL": "discrete"},
        pytest.param({"MEMORY_MODEL": "discrete", "EXECUTION": "async"}, marks=pytest.mark.long),
        pytest.param({"OPS": "all", "EXECUTION": "async"}, marks=pytest.mark.long),
        pytest.param({"OPS": "all", "GRAPHS": "1"}, marks=pytest.mark.long),
    ],
    ids=lambda sim: "-".join(sim.values()) or "as it comes",
)
def test_graphs(run_python: Run, sim: dict[str, str]) -> None:
    env = {f"CAUSEWAY_SIM_{key}": value for key, value in sim.items()}
    said = run_python(PROGRAM, timeout=850, new=True, CAUSEWAY_SIM_CODE="1", **env).stdout
    assert " passed" in said


FAILING = """
import torch
x = torch.zeros(2000, device="sim")
for _ in range(2):  # two graphs, one warning
    graph = torch.sim.CUDAGraph()
    x + 1
    with torch.sim.graph(graph):
        for _ in range(4):
            x += 1
    graph.replay()
    graph.replay()
print(x.unique().tolist())
"""


@pytest.mark.parametrize("fault", ["graph_begin", "graph_end"])
def test_a_graph_that_the_vendor_fails_to_make_costs_speed_alone(
    run_python: Run, fault: str
) -> None:
    done = run_python(
        FAILING,
        CAUSEWAY_SIM_CODE="1",
        CAUSEWAY_SIM_GRAPHS="1",
        CAUSEWAY_SIM_FAULT=f"{fault}:*=FAILED",
    )
    assert done.stdout == "[16.0]\n"
    assert done.stderr.count(f"could not make a graph of its own ({fault.replace('_', '.')}") == 1


def test_a_device_lost_while_a_graph_is_made_is_told(run_python: Run) -> None:
    program = FAILING.replace("import torch", "import causeway, torch")
    done = run_python(
        program, status=1, CAUSEWAY_SIM_CODE="1", CAUSEWAY_SIM_GRAPHS="1",
        CAUSEWAY_SIM_FAULT="graph_end:1=DEVICE_LOST",
    )  # fmt: skip
    assert "DeviceLostError" in done.stderr


UNASKED = """
import torch
from causeway import _C
x = torch.arange(6.0, device="sim")
y = torch.empty_like(x)
def work():
    torch.sigmoid(x, out=y)
graph = torch.sim.CUDAGraph()
try:
    with torch.sim.graph(graph):
        work()
except RuntimeError as error:
    print(error)
else:
    print("captured")
work()  # neither the stream nor the operator is the worse for it
expected = y.clone()
graph = torch.sim.CUDAGraph()
with torch.sim.graph(graph):
    work()
y.zero_()
graph.replay()
print(torch.equal(y, expected))
"""


@pytest.mark.parametrize("without", ["check.v1", ""])
def test_a_kernel_that_may_decline_is_refused_with_the_way_out(
    run_python: Run, without: str
) -> None:
    """A vendor's kernel is not called in a capture; without check.v1 nothing says what it takes."""
    done = run_python(UNASKED, CAUSEWAY_SIM_WITHOUT=without, CAUSEWAY_SIM_OPS="all")
    first, *rest, last = done.stdout.splitlines()
    assert last == "True"
    if not without:
        assert (first, rest) == ("captured", [])
        return
    said = "\n".join([first, *rest])
    assert "aten::sigmoid" in said
    assert "whose kernel this process has not called with such arguments" in said
    assert "Run the same work once before the capture. sim could say it without a call" in said
