"""Causeway's own kernels in the C++ of Ascend's threads, which the 950 has: compiled by the host's
compiler with headers that stand for the chip's names, and run in turn on the stand-in. It shows
that the text is of the language and that results are the CPU's. It shows nothing of a chip.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PROGRAMS = str(HERE / "programs.py")
CAUSEWAY = "import sys; from causeway.cli import app; app(sys.argv[1:])"
Run = Callable[..., subprocess.CompletedProcess[str]]

pytestmark = [
    pytest.mark.process,
    pytest.mark.once,
    pytest.mark.slow,
    pytest.mark.skipif(
        not shutil.which("clang") and not shutil.which("c++"),
        reason="no compiler: apt-get install clang",
    ),
]


@pytest.fixture
def on_950(on_ascend: Run, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Without the chip's own operators, so that the portable rung serves."""
    cache = tmp_path_factory.getbasetemp() / "ascend-kernels"

    def run(name: str, *args: str, **given: str) -> subprocess.CompletedProcess[str]:
        settings = {
            "ASCEND_STAND_IN_SOC": "Ascend950PR_9599",
            "CAUSEWAY_ASCEND_OPS": "0",
            "CAUSEWAY_ASCEND_CACHE": str(cache),
            "CAUSEWAY_TUNE": "off",
        }
        return on_ascend(name, *args, **settings | given)

    return run


def test_a_kernel_of_each_family_is_the_cpus(on_950: Run) -> None:
    served = json.loads(on_950(PROGRAMS, "kernels").stdout.splitlines()[-1])
    assert {name for name, rungs in served.items() if rungs != ["portable"]} == set()
    assert len(served) > 10


@pytest.mark.long  # a kernel with barriers, of which another test has some, in all its cases
def test_a_kernel_with_barriers_conforms(on_950: Run) -> None:
    one = ("--portable", "--level", "0", "--op", "^aten::_softmax.out$", "--dtype", "^float32$")
    assert "\nconforms: 1 operators passed" in on_950("-c", CAUSEWAY, "conformance", *one).stdout


def test_what_needs_float64_is_served_by_the_host_and_counted(on_950: Run) -> None:
    served = json.loads(on_950(PROGRAMS, "float64").stdout.splitlines()[-1])
    assert "host" in served["logsumexp"]
    assert served["normal_"] == ["host"]  # its numbers are drawn in float64
    assert served["strides"] == [[1, 100]] * 2  # of what is decomposed, at each call the CPU's


def test_a_captured_graph_launches_kernels_again(on_950: Run, tmp_path: Path) -> None:
    log = {"ASCEND_STAND_IN_CALLS": str(tmp_path / "calls")}
    assert on_950(PROGRAMS, "graph", **log).stdout.endswith("equal\n")
    called = (tmp_path / "calls").read_text().split()
    assert int(called[called.index("aclmdlRIExecuteAsync") - 1]) == 4
    launches = int(called[called.index("aclrtLaunchSIMTKernelWithArgsArray") - 1])
    assert launches == 8  # four kernels, before the capture and in it


def test_a_program_of_ones_own_says_its_language(on_950: Run) -> None:
    program = "import causeway.code as c; l = c.limits(); print(l.language, l.single_values)"
    assert on_950("-c", f"import torch; {program}").stdout == "Ascend SIMT C++ True\n"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "libacl_rtc.so"),
        ({"ASCEND_STAND_IN_SOC": "Ascend910B1"}, "Ascend910B1 has no threads (SIMT)"),
    ],
)
def test_the_vendor_says_what_compiles_or_why_nothing_does(
    on_950: Run, given: dict[str, str], words: str
) -> None:
    program = "import torch; from causeway import _C; print(_C.vendor_notes())"
    assert words in on_950("-c", program, **given).stdout


def test_a_compiler_that_fails_sends_its_operator_down_and_says_so(on_950: Run) -> None:
    program = "import torch; x = torch.tensor([1., 2.]).to('ascend'); print((x + x).tolist())"
    done = on_950(
        "-W", "always", "-c", program,
        CAUSEWAY_ASCEND_CACHE="/dev/null/cache",
        ASCEND_STAND_IN_FAULT="aclrtcCompileProg:1=176003",
    )  # fmt: skip
    assert done.stdout == "[2.0, 4.0]\n"
    assert "aten::add.out, which goes on down the ladder" in done.stderr
