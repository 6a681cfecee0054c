"""`causeway conformance --import`: operators of other libraries are examined as torch's are."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "core"))

from test_named import AXPY, NMS


@pytest.fixture
def conformance(run_python, tmp_path: Path):
    (tmp_path / "simkit.py").write_text(AXPY)
    (tmp_path / "torchvision.py").write_text(NMS)

    def run(*args: str, status: int = 0, **settings: str) -> str:
        program = "from causeway.cli import app; import sys; app(['conformance', *sys.argv[1:]])"
        variables = {f"CAUSEWAY_SIM_{k.upper()}": v for k, v in settings.items()}
        done = run_python(program, args=args, status=status, PYTHONPATH=str(tmp_path), **variables)
        return done.stdout + done.stderr

    return run


@pytest.mark.long
def test_operators_of_imported_libraries_pass_and_a_planted_fault_is_found(
    conformance, tmp_path: Path
) -> None:
    report = tmp_path / "report.json"
    which = ("--import", "simkit", "--import", "torchvision", "--json", str(report))
    conformance(*which, "--op", "^(simkit|torchvision)::", "--dtype", "float32", ops="all")
    for operator in json.loads(report.read_text())["operators"]:
        cell = operator["cells"]["float32"]
        assert cell["rungs"]["native"] > 5, operator
        assert not cell["failed"], operator
    name = "torchvision::nms"
    conformance(*which, "--op", name, "--dtype", "float32", ops="all", corrupt=name, status=1)
    (operator,) = json.loads(report.read_text())["operators"]
    assert operator["operator"] == name
    assert operator["cells"]["float32"]["failed"]


@pytest.mark.long
def test_one_that_is_not_offered_is_examined_on_its_rung(conformance) -> None:
    said = conformance("--import", "torchvision", "--op", "torchvision::nms", ops="none")
    assert "torchvision::nms" in said


def test_what_is_not_imported_is_said(conformance) -> None:
    said = conformance("--op", "^nowhere::op$", status=2)
    assert "--import nowhere" in " ".join(said.split())
    said = conformance("--import", "no_such_module", "--op", "no::op", status=2)
    assert "--import no_such_module cannot be imported: ModuleNotFoundError" in " ".join(
        said.split()
    )
