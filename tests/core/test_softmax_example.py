"""docs/softmax.md: its code is that of vendors/softmax, which builds and computes softmax."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from causeway.cli import app

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/softmax.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line]


def test_the_pages_code_is_the_files() -> None:
    source = lines((ROOT / "vendors/softmax/softmax.cpp").read_text())
    vendor = lines((ROOT / "vendors/softmax/vendor.cpp").read_text())
    shown = [lines(block) for block in blocks("cpp")]
    entries = [block for block in shown if len(block) == 1 and block[0].startswith("    b.")]
    assert len(entries) == 2
    assert all(block[0] in vendor for block in entries)
    # All of softmax.cpp but the comment that opens it, in its order.
    kernels = [line for block in shown if block not in entries for line in block]
    assert kernels == source[1:]


def test_the_page_shows_what_the_command_prints() -> None:
    (shown,) = blocks("text")
    assert CliRunner().invoke(app, ["operators", "aten::_softmax.out"]).output == shown


PROGRAM = """
import torch, causeway
from causeway import _C
assert set(_C.offered()) == {"aten::_softmax.out", "aten::_softmax_backward_data.out"}
same = lambda x: x
cases = []
for shape in [(7,), (4, 5), (2, 3, 4), (2, 3, 4, 5), (), (5, 1), (1, 6)]:
    for dim in {0, -1, len(shape) // 2} if shape else {0, -1}:
        for dtype in (torch.float32, torch.float64):
            dense = torch.randn(shape, dtype=dtype) * 4
            cases.append((dense, same, dim))
            if len(shape) > 1:
                cases.append((dense, lambda x: x.transpose(0, -1), dim))
cases.append((torch.randn(6, 8), lambda x: x[::2, 1:5], 1))
cases.append((torch.randn(3, 1), lambda x: x.expand(3, 4), 0))
odd = torch.randn(3, 4)
odd[0, 1], odd[1, :2], odd[2, 3] = float("nan"), -float("inf"), 1e4
cases += [(odd, same, 0), (odd, same, 1)]
with causeway.ledger() as ledger:
    for base, view, dim in cases:
        host, here = base.clone().requires_grad_(), base.to("example").requires_grad_()
        want, have = torch.softmax(view(host), dim), torch.softmax(view(here), dim)
        torch.testing.assert_close(have.cpu(), want, equal_nan=True)
        assert have.stride() == want.stride(), (base.shape, view(base).stride(), dim)
        grad = torch.randn(want.shape, dtype=want.dtype)
        want.backward(grad)
        have.backward(grad.to("example"))
        torch.testing.assert_close(here.grad.cpu(), host.grad, equal_nan=True)
for name in ("_softmax", "_softmax_backward_data"):
    assert ledger.total(operator=name, rung="derived") == ledger.total(operator=name) == len(cases)

x, out = torch.randn(2, 3, 4), torch.empty(2, 3, 4)
here, there = x.to("example"), out.to("example")
with causeway.ledger() as ledger:
    torch._softmax(here, 1, False, out=there)
assert [(row.operator, row.rung) for row in ledger.rows] == [("aten::_softmax.out", "native")]
torch.testing.assert_close(there.cpu(), torch.softmax(x, 1))
with causeway.ledger() as ledger:  # what the kernel does not take is computed all the same
    half = torch.softmax(x.half().to("example"), 1)
    empty = torch.softmax(torch.empty(0, 3, device="example"), 1)
assert ledger.total(rung="host", operator="_softmax") == 2 and empty.shape == (0, 3)
torch.testing.assert_close(half.cpu(), torch.softmax(x.half(), 1))
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, built as its page says."""
    (commands,) = [block for block in blocks("sh") if "cmake" in block]
    folder = tmp_path_factory.mktemp("softmax")
    command = lines(commands)[0].replace("build/softmax", str(folder))
    done = subprocess.run(
        command, shell=True, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "warning" not in done.stdout + done.stderr
    return folder / "libcw_softmax.so"


def test_softmax_and_its_gradient_are_the_cpus_and_the_vendors(run_python, library: Path) -> None:
    run_python(PROGRAM, CAUSEWAY_VENDOR=str(library), OMP_NUM_THREADS="1")


def test_the_pages_program_runs_on_the_example(run_python, library: Path) -> None:
    done = run_python("\n".join(blocks("python")), CAUSEWAY_VENDOR=str(library))
    header, _, *rows = done.stdout.splitlines()
    (row,) = [row for row in rows if row.startswith("_softmax")]
    assert dict(zip(header.split(), row.split(), strict=False)).get("host", "-") == "-"


def test_the_example_passes_the_conformance_suite(library: Path) -> None:
    done = CliRunner().invoke(
        app, ["conformance", "--vendor", str(library), "--op", "softmax", "--dtype", "float32"]
    )
    assert done.exit_code == 0, done.output
