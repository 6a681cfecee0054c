"""Cases that somebody writes: they arrive as written, and a wrong kernel and a mistake in the file
are found.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from causeway.conformance import by_hand, suite
from causeway.conformance.families import family
from causeway.conformance.given import Given
from causeway.errors import TraceError

FILE = """
[[case]]
op = "aten::exp"
dtypes = ["float32", "float16"]
self = { shape = [3, 4], strides = [8, 2], low = 0, high = 2, seed = 5 }
rtol = 1e-2

[[case]]
op = "aten::div.Tensor_mode"
dtypes = ["int32"]
self = { values = [[7, -7], [9, 1]] }
other = { shape = [2], low = 1, high = 3 }
rounding_mode = "floor"

[[case]]
op = "aten::index.Tensor"
self = { shape = [5, 2] }
indices = [{ values = [4, 0], dtype = "int64" }]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "cases.toml"
    path.write_text(FILE)
    return path


def test_a_case_is_a_call_for_each_dtype(file: Path) -> None:
    given = Given(str(file))
    offered = frozenset({"aten::exp.out", "aten::div.out_mode", "aten::index.Tensor_out"})
    exp = family("aten::exp.out", offered)
    for dtype in (torch.float32, torch.float16):
        (call,) = given.calls(exp, dtype)
        (x,) = call.inputs
        assert (tuple(x.shape), x.stride(), x.dtype) == ((3, 4), (8, 2), dtype)
        assert 0 <= x.min() < x.max() <= 2
        assert call.tolerance == (1e-2, 0.0)
        assert torch.equal(x, given.calls(exp, dtype)[0].inputs[0])
    assert given.calls(exp, torch.float64) == []
    (call,) = given.calls(family("aten::div.out_mode", offered), torch.int32)
    assert call.inputs[0].tolist() == [[7, -7], [9, 1]]
    assert (call.inputs[1].dtype, call.inputs[2], call.tolerance) == (torch.int32, "floor", None)
    (call,) = given.calls(family("aten::index.Tensor_out", offered), torch.float32)
    assert [t.tolist() for t in call.inputs[1]] == [[4, 0]]
    assert given.not_offered(["aten::exp.out"]) == {
        "aten::div.Tensor_mode": 1,
        "aten::index.Tensor": 1,
    }


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('op = "aten::ex"', "op is 'aten::ex', which is no operator"),
        ('op = "aten::exp"\nself = { shape = [3] }\nother = 1', "has no argument 'other'"),
        ('op = "aten::exp"', "aten::exp needs self"),
        ('op = "aten::exp"\nself = 3', "'self' is a tensor"),
        ('op = "aten::exp"\nself = { size = [3] }', "the key 'size'"),
        ('op = "aten::exp"\nself = { seed = 3 }', "neither shape nor values"),
        ('op = "aten::exp"\nself = { shape = [3] }\ndtypes = ["fp32"]', "'fp32' is no dtype"),
        ('op = "aten::exp"\nself = { shape = [-3] }', "case 1: "),
        ('op = "aten::exp"\nself = { shape = [3] }\nrtol = -1', "not negative"),
        (
            'op = "aten::div.Tensor_mode"\nself = { shape = [3] }\nother = { shape = [3] }\n'
            'rounding_mode = "flor"',
            "torch's CPU refuses the call in float32: div expected rounding_mode",
        ),
        (
            'op = "aten::bitwise_not"\nself = { shape = [3] }\ndtypes = ["int8", "float32"]',
            "torch's CPU refuses the call in float32",
        ),
        ('op = "aten::exp', "TOML|line 2|expected|Illegal|Unterminated"),
    ],
)
def test_a_mistake_in_the_file_is_named(tmp_path: Path, line: str, words: str) -> None:
    path = tmp_path / "cases.toml"
    path.write_text(f"[[case]]\n{line}\n")
    with pytest.raises(TraceError, match=words) as caught:
        by_hand.read(str(path))
    assert str(path) in str(caught.value)


def test_a_file_of_no_cases_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cases.toml"
    path.write_text('[cases]\nop = "aten::exp"\n')
    with pytest.raises(TraceError, match=r"expected tables \[\[case\]\], and there is 'cases'"):
        by_hand.read(str(path))
    with pytest.raises(TraceError, match="No such file"):
        by_hand.read(str(tmp_path / "none.toml"))


@pytest.mark.slow
@pytest.mark.parametrize("corrupt", ["", "aten::exp.out"])
def test_the_suite_runs_them_and_finds_a_wrong_kernel(
    file: Path, monkeypatch: pytest.MonkeyPatch, corrupt: str
) -> None:
    for name in [name for name in os.environ if name.startswith("CAUSEWAY_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("CAUSEWAY_SIM_OPS", "all")
    if corrupt:
        monkeypatch.setenv("CAUSEWAY_SIM_CORRUPT", corrupt)
    report = suite.run(suite.Options(cases=str(file)))
    assert [o["operator"] for o in report.failed_operators] == ([corrupt] if corrupt else [])
    exp = next(o for o in report.operators if o["operator"] == "aten::exp.out")
    assert {name for name, cell in exp["cells"].items() if cell["passed"] + cell["failed"]} == {
        "float32",
        "float16",
    }


def test_the_tolerance_of_a_case_is_the_one_that_counts(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAUSEWAY_SIM_OPS", "all")
    monkeypatch.setenv("CAUSEWAY_SIM_CORRUPT", "aten::exp.out")  # off by 1
    file.write_text(FILE.replace("rtol = 1e-2", "atol = 1.5"))
    assert suite.run(suite.Options(cases=str(file), op="exp")).good
