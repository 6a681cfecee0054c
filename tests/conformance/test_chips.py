"""`causeway chips`: reports side by side, of a chip that conforms and of one that does not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from causeway.errors import ConfigError
from conformance import published

CAUSEWAY = "from causeway.cli import app; import sys; app(sys.argv[1:])"


@pytest.fixture(scope="module")
def reports(run_python, tmp_path_factory) -> list[Path]:
    folder = tmp_path_factory.mktemp("reports")
    chips = {
        "good": ("^aten::(mul|neg).out$", {}),
        "bad": ("^aten::(mul|exp).out$", {"CAUSEWAY_SIM_CORRUPT": "aten::mul.out"}),
    }
    for name, (op, settings) in chips.items():
        args = ("conformance", "--level", "0", "--op", op, "--dtype", "float32|int64")
        args += ("--json", str(folder / f"{name}.json"))
        run_python(CAUSEWAY, args=args, status=None, CAUSEWAY_SIM_OPS="all", **settings)
    return [folder / f"{name}.json" for name in chips]


def test_each_operator_has_a_line_and_each_chip_a_column(reports, run_python, tmp_path) -> None:
    page = tmp_path / "chips.html"
    given = ("chips", *map(str, reports), "--html", str(page))
    said = run_python(CAUSEWAY, args=given, COLUMNS="160").stdout
    lines = {
        line.split()[1]: line for line in said.splitlines() if "aten::" in line and "│" in line
    }
    cells = {name: [c.strip() for c in line.split("│")[2:4]] for name, line in lines.items()}
    assert cells["aten::neg.out"] == ["f32 i64", ""]
    assert cells["aten::exp.out"] == ["", "f32 i64"]
    assert cells["aten::mul.out"][0] == "f32 i64"
    assert "failed f32" in cells["aten::mul.out"][1]
    last = said.splitlines()[-2:]
    assert [" conforms: " in line for line in last] == [True, False]
    assert all("not all was asked: --op ^aten" in line for line in last)
    text = page.read_text()
    assert "of --op ^aten::(mul|neg).out$, --dtype float32|int64" in text
    assert "aten::exp.out" in text
    assert "failed f32" in text


def test_only_what_is_asked_for(reports, run_python) -> None:
    given = ("chips", str(reports[0]), "--op", "neg")
    said = run_python(CAUSEWAY, args=given, COLUMNS="160").stdout
    assert "aten::neg.out" in said
    assert "aten::mul.out" not in said


def test_only_reports_of_all_operators_are_published(reports, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"is not of all that the chip has: --op [^,]*$"):
        published.kept(str(reports[1]))
    whole = json.loads(reports[1].read_text())
    whole["about"]["only"] = ["--dtype float32|int64"]
    (tmp_path / "some.json").write_text(json.dumps(whole))
    name, found = published.kept(str(tmp_path / "some.json"))
    assert f"| {name} | no | f32, i64 | 1 | 1 |" in published.markdown({name: found})
    del whole["about"]["only"]
    (tmp_path / "whole.json").write_text(json.dumps(whole))
    name, found = published.kept(str(tmp_path / "whole.json"))
    head, _, row, *rest = published.markdown({name: found}).splitlines()
    assert head.startswith("| chip | conforms |")
    assert row.startswith(f"| {name} | no | all | 1 | 1 |")
    assert "| `exp.out` | f32 i64 |" in rest
    assert any(line.startswith("| `mul.out` |") and "**failed** f32" in line for line in rest)


def test_what_is_no_report_is_said(reports, run_python, tmp_path: Path) -> None:
    half = json.loads(reports[0].read_text())
    del half["operators"][0]["cells"]
    for name, text in (("half", json.dumps(half)), ("list", "[]"), ("cut", '{"about": {')):
        (tmp_path / name).write_text(text)
    page = tmp_path / "page.html"
    for name, why in (
        ("half", "is no conformance report: KeyError 'cells'"),
        ("list", "is no conformance report: it is a list"),
        ("cut", "is not JSON"),
        ("none", "cannot be read"),
    ):
        given = ("chips", str(reports[0]), str(tmp_path / name), "--html", str(page))
        done = run_python(CAUSEWAY, args=given, status=2)
        assert f"{name} {why}" in " ".join(done.stderr.split())
    assert not page.exists()
    assert (
        "--op '(' is no"
        in run_python(CAUSEWAY, args=("chips", str(reports[0]), "--op", "("), status=2).stderr
    )
