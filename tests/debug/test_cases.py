"""Recorded calls become cases for the vendor's suite."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import causeway
from causeway.cli import app
from causeway.conformance import suite
from causeway.conformance.families import family
from causeway.conformance.given import Given
from causeway.errors import CausewayError, TraceError
from causeway.trace import cases
from causeway.trace.reader import Trace


def record(folder: Path) -> Trace:
    """A model's calls on the CPU: the sizes are no sample's."""
    torch.manual_seed(0)
    with causeway.record(folder, via="dispatch"):
        x = torch.randn(17, 29)
        for _ in range(3):
            x.mul(x).relu_()
        torch.addmm(x[0], torch.randn(5, 17), x)
        torch.nn.functional.embedding(torch.tensor([[0, 16], [3, 3]]), x)
        x.t().exp()
        torch.zeros(3).bernoulli()
    return Trace(folder)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cases")
    record(folder / "trace")
    result = CliRunner().invoke(
        app, ["cases", str(folder / "trace"), "-o", str(folder / "cases.json")]
    )
    assert result.exit_code == 0, result.output
    assert "cases of" in result.output
    return folder / "cases.json"


def test_each_kind_of_call_is_one_case_with_its_count(file: Path) -> None:
    found = {case.operator: case for case in cases.read(file)}
    assert found["aten::mul.Tensor"].times == 3
    assert found["aten::addmm"].times == 1
    assert found["aten::mul.Tensor"].dtype == torch.float32
    assert found["aten::embedding"].dtype == torch.float32
    text = file.read_text()
    assert '"data"' not in text  # the user's numbers stay with the user
    assert '"digest"' not in text


def test_inputs_have_the_layout_of_the_model_and_are_the_same_each_time(file: Path) -> None:
    found = {case.operator: case for case in cases.read(file)}
    (x,) = found["aten::exp"].inputs(torch.ops.aten.exp.default._schema)
    assert (tuple(x.shape), x.stride()) == ((29, 17), (1, 29))
    schema = torch.ops.aten.embedding.default._schema
    weight, index, *_ = found["aten::embedding"].inputs(schema)
    assert int(index.max()) < weight.shape[0]
    again, *_ = found["aten::embedding"].inputs(schema)
    assert torch.equal(weight, again)


def test_a_case_reaches_the_family_of_an_operator_in_any_form(file: Path) -> None:
    given = Given(str(file))
    offered = frozenset({"aten::mul.out", "aten::relu.out", "aten::mm.out"})
    relu = family("aten::relu.out", offered)  # the model called relu_
    (call,) = given.calls(relu, torch.float32)
    assert [tuple(t.shape) for t in call.inputs] == [(17, 29)]
    assert given.calls(relu, torch.float16) == []
    assert not given.has("aten::mm.out", offered)
    missing = given.not_offered(offered)
    assert missing["aten::addmm"] == 1
    assert "aten::mul.Tensor" not in missing


@pytest.mark.slow
def test_the_suite_runs_the_cases_and_finds_a_wrong_kernel(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("CAUSEWAY_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("CAUSEWAY_SIM_OPS", "all")
    monkeypatch.setenv("CAUSEWAY_SIM_CORRUPT", "aten::exp.out")
    report = suite.run(suite.Options(cases=str(file)))
    found = {o["operator"]: o for o in report.operators}
    assert "aten::mul.out" in found
    assert found["aten::mul.out"]["cells"]["float32"]["passed"] >= 3
    assert found["aten::mul.out"]["cells"]["float32"]["failed"] == 0
    assert [o["operator"] for o in report.failed_operators] == ["aten::exp.out"]
    (failure, *_) = found["aten::exp.out"]["cells"]["float32"]["failures"]
    assert "[29, 17]/(1, 29)" in failure["call"]
    assert f"--cases {file}" in report.repro("aten::exp.out", "float32", failure["case"])
    assert "aten::bernoulli" in report.about["cases_not_offered"]
    assert not report.checks


BROKEN = {
    "no JSON": ("{", "Expecting"),
    "no cases": ('{"format": "x"}', "no file of cases"),
    "a later version": ('{"format": "causeway-cases", "version": 9}', "version 9"),
    "no list": ('{"format": "causeway-cases", "version": 1, "cases": 3}', "no list"),
}
HEAD = {"format": "causeway-cases", "version": 1}
BAD_CASES = {
    "a path": {"operator": "../../etc", "args": []},
    "no arguments": {"operator": "aten::exp"},
    "an unknown field": {"operator": "aten::exp", "args": [], "code": 1},
    "a huge tensor": {"operator": "aten::exp", "args": [{"tensor": {
        "shape": [1 << 61], "dtype": "float32", "device": "", "stride": [1]}}]},
}  # fmt: skip


@pytest.mark.parametrize("what", BROKEN)
def test_a_file_that_is_none_is_refused(tmp_path: Path, what: str) -> None:
    content, why = BROKEN[what]
    (tmp_path / "c.json").write_text(content)
    with pytest.raises(TraceError, match=why):
        cases.read(tmp_path / "c.json")


@pytest.mark.parametrize("what", BAD_CASES)
def test_a_bad_case_is_refused_with_its_number(tmp_path: Path, what: str) -> None:
    good = {"operator": "aten::exp", "args": [1]}
    (tmp_path / "c.json").write_text(json.dumps(HEAD | {"cases": [good, BAD_CASES[what]]}))
    with pytest.raises(TraceError, match=r"c\.json case 2: "):
        cases.read(tmp_path / "c.json")


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CausewayError, match="no such file"):
        suite.run(suite.Options(cases=str(tmp_path / "none.json")))
