"""Reports of a conversion: the same figures everywhere, columns that users know, no formula."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import os
import re
from collections import Counter
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from causeway import cli
from causeway.errors import ConfigError
from causeway.migrate import engine, reports
from causeway.migrate.finding import FileResult, Finding, Result
from causeway.migrate.reports import figures, machine, page, tables, terminal
from causeway.migrate.settings import Settings

EVIL = "<script>alert(1)</script>"
COLUMNS = {
    "change_list.csv": ["File", "Start Line", "End Line", "Operation Type", "Message"],
    "unsupported_api.csv": ["File", "Start Line", "End Line", "OP", "Tips"],
    "unknown_api.csv": ["File", "Start Line", "End Line", "OP", "Tips"],
    "cuda_op_list.csv": ["File", "Start Line", "End Line", "OP", "Tips"],
    "api_precision_advice.csv": ["File", "Start Line", "End Line", "OP", "Tips"],
    "api_performance_advice.csv": ["File", "Start Line", "End Line", "OP", "Tips"],
}
TREE = {
    "train.py": "import torch\nimport flash_attn\n\n"
    "x = torch.zeros(3, dtype=torch.float64).cuda()\n"
    "torch.cuda.not_a_name()\nrt = torch.cuda.cudart()\n"
    "for b in loader:\n    model(b).backward()\n    print(loss.item())\n",
    "run.sh": "export NCCL_DEBUG=INFO\nCUDA_VISIBLE_DEVICES=0 python train.py --backend nccl\n",
    "k.cu": "__global__ void scale(float* x) {}\n",
    "broken.yaml": "device: cuda\n  a: [\n",
    "quiet.py": "print(1)\n",
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    for name, text in TREE.items():
        (root / name).write_text(text)
    return root


@pytest.fixture
def result(tree: Path) -> Result:
    return engine.run([tree], Settings(target="npu", jobs=1))


def rows(folder: Path, name: str) -> list[dict[str, str]]:
    with (folder / name).open(newline="") as file:
        return list(csv.DictReader(file))


def test_every_report_is_written_and_holds_the_same_figures(result: Result, tmp_path: Path) -> None:
    out = tmp_path / "reports"
    written = reports.write(result, out)
    assert sorted(os.listdir(out)) == sorted(p.name for p in written)
    assert {"migrate.json", "migrate.html", "migrate.sarif", *COLUMNS} <= set(os.listdir(out))
    places = [f for f in result.findings() if not f.is_advice]
    kinds = Counter(f.kind for f in places)
    numbers = figures.of_result(result)
    assert numbers.kinds == kinds
    assert numbers.done + numbers.open == numbers.places == len(places)
    data = json.loads((out / "migrate.json").read_text())
    assert data["totals"]["kinds"] == {k: kinds[k] for k in data["totals"]["kinds"]}
    assert len(json.loads((out / "migrate.sarif").read_text())["runs"][0]["results"]) == (
        len(result.findings()) + 1
    )  # and one for the file that could not be read
    html = (out / "migrate.html").read_text()
    assert numbers.verdict in html
    assert len(rows(out, "change_list.csv")) == kinds["changed"]
    assert len(rows(out, "findings.csv")) == len(result.findings())


def test_tables_have_the_columns_that_users_know_and_a_rule(result: Result, tmp_path: Path) -> None:
    reports.write(result, tmp_path)
    for name, columns in COLUMNS.items():
        head = (tmp_path / name).read_text().splitlines()[0]
        assert head == ",".join([*columns, "Rule"])
        for row in rows(tmp_path, name):
            assert all(row[column] for column in [*columns, "Rule"])
    assert {r["OP"] for r in rows(tmp_path, "unknown_api.csv")} == {"torch.cuda.not_a_name"}
    assert "torch.cuda.cudart" in {r["OP"] for r in rows(tmp_path, "unsupported_api.csv")}
    assert {"scale", "flash_attn"} <= {r["OP"] for r in rows(tmp_path, "cuda_op_list.csv")}
    assert {"CW701"} <= {r["Rule"] for r in rows(tmp_path, "api_precision_advice.csv")}
    assert {"CW751"} <= {r["Rule"] for r in rows(tmp_path, "api_performance_advice.csv")}
    kinds = {r["Operation Type"] for r in rows(tmp_path, "change_list.csv")}
    assert kinds <= {"INSERT", "DELETE", "MODIFY"}


def test_every_open_place_is_in_one_of_the_lists(result: Result, tmp_path: Path) -> None:
    reports.write(result, tmp_path)
    listed = {
        (r["File"], r["Start Line"], r["Rule"])
        for name in ("unsupported_api.csv", "unknown_api.csv", "cuda_op_list.csv")
        for r in rows(tmp_path, name)
    }
    for found in result.findings():
        if found.kind in ("manual", "unsupported"):
            assert (found.file, str(found.line), found.rule) in listed


def finding(**more: object) -> Finding:
    given = {
        "file": "a.py", "line": 1, "column": 1, "end_line": 1, "end_column": 2, "rule": "CW101",
        "kind": "changed", "message": "m", "tip": "t", "severity": "info", "safe": True,
        "before": "b", "after": "a",
    }  # fmt: skip
    return Finding(**given | more)  # type: ignore[arg-type]


@pytest.mark.parametrize("cell", ["=1+1", "+1", "-1", "@a", "\t=1", "\r=1", "\uff1d1", "--gpus"])
def test_no_cell_is_a_formula(cell: str) -> None:
    columns = tables.ALL
    found = finding(file=cell, message=cell, tip=cell, api=cell, rule=cell, kind="manual")
    text = tables.table(columns, [found])
    row = next(iter(csv.DictReader(io.StringIO(text, newline=""))))
    for column in ("File", "OP", "Message", "Tips", "Rule"):
        assert row[column] == f"'{cell}"


def test_a_cell_keeps_commas_quotes_and_line_ends() -> None:
    found = finding(message='a,"b"\nc', tip="x,y", kind="manual", before="f(\n  1)")
    row = next(iter(csv.DictReader(io.StringIO(tables.table(tables.ALL, [found]), newline=""))))
    assert (row["Message"], row["Tips"], row["OP"]) == ('a,"b"\nc', "x,y", "f( 1)")


@pytest.mark.parametrize(
    ("before", "after", "operation"),
    [("", "a", "INSERT"), ("b", "", "DELETE"), ("b", "a", "MODIFY")],
)
def test_a_change_says_what_sort_it_is(before: str, after: str, operation: str) -> None:
    assert tables.operation(finding(before=before, after=after)) == operation


def evil_result(tmp_path: Path) -> Result:
    before = f"x = 1  # {EVIL}\ny = 2\n"
    found = [
        finding(
            file=f"{EVIL}.py", message=EVIL, tip=EVIL, before=EVIL, after=EVIL, api=EVIL, kind=k
        )
        for k in ("changed", "portable", "manual", "unsupported")
    ]
    file = FileResult(
        f"{EVIL}.py", "converted", EVIL, before, before.replace("1", f"'{EVIL}'"), findings=found
    )
    broken = FileResult("b.py", "unparsable", f"[red]{EVIL}")
    return Result(str(tmp_path / EVIL), [file, broken], Settings(target=EVIL))


def test_the_page_shows_a_script_and_runs_none(tmp_path: Path) -> None:
    html = page.build(evil_result(tmp_path)).to_html()
    assert EVIL not in html
    assert "&lt;script&gt;alert(1)" in html


def test_sarif_escapes_paths_and_is_of_its_version(tmp_path: Path) -> None:
    document = machine.to_sarif(evil_result(tmp_path))
    run = document["runs"][0]
    assert (document["version"], run["columnKind"]) == ("2.1.0", "unicodeCodePoints")
    rules = {rule["id"] for rule in run["tool"]["driver"]["rules"]}
    levels = []
    for result in run["results"]:
        assert result["ruleId"] in rules
        assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
        levels.append(result["level"])
        uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
        assert re.fullmatch(r"[A-Za-z0-9%._/()-]+", uri)
    assert sorted(levels) == ["error", "none", "note", "warning", "warning"]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("last", ["x = torch.ones(1).cuda()", "y = 1\n", "\n\n"])
def test_the_fixes_of_sarif_make_the_converted_file(tmp_path: Path, end: str, last: str) -> None:
    text = "import torch\nz = '\u00e4'\nfrom torch.cuda.amp import autocast\n"
    text += f"with autocast(): pass\n{last}"
    path = tmp_path / "a.py"
    path.write_bytes(text.replace("\n", end).encode())
    result = engine.run([path], Settings(jobs=1))
    fixes = [f for r in machine.to_sarif(result)["runs"][0]["results"] for f in r.get("fixes", ())]
    assert len(fixes) == 1
    (change,) = fixes[0]["artifactChanges"]
    assert change["artifactLocation"]["uri"] == "a.py"
    before = path.read_bytes().decode()
    starts = [0]
    for line in before.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    after, at = "", 0
    for replacement in change["replacements"]:
        region = replacement["deletedRegion"]
        begin = starts[region["startLine"] - 1] + region["startColumn"] - 1
        after += before[at:begin] + replacement.get("insertedContent", {"text": ""})["text"]
        at = starts[region["endLine"] - 1] + region["endColumn"] - 1
        assert at <= len(before)
    assert after + before[at:] == result.files[0].after != before


def test_sarif_has_the_page_of_each_rule(result: Result) -> None:
    rules = machine.to_sarif(result)["runs"][0]["tool"]["driver"]["rules"]
    pages = Path(__file__).parents[2] / "docs/rules"
    assert len(rules) > 3
    for rule in [r for r in rules if r["id"] != "CW000"]:  # a file that could not be read
        assert rule["help"]["markdown"] == (pages / f"{rule['id']}.md").read_text()


def test_sarif_has_the_address_of_each_rules_page_where_there_is_one(result: Result) -> None:
    def rules() -> list[dict[str, object]]:
        return machine.to_sarif(result)["runs"][0]["tool"]["driver"]["rules"]  # type: ignore[no-any-return]

    assert not any("helpUri" in rule for rule in rules())
    url = "https://example.org/rules/{code}.html"
    result.settings = dataclasses.replace(result.settings, rules_url=url).checked()
    for rule in rules():
        assert rule.get("helpUri") in (url.format(code=rule["id"]), None)
    assert sum("helpUri" in rule for rule in rules()) >= len(rules()) - 1  # CW000 has no page
    with pytest.raises(ConfigError, match="code"):
        Settings(rules_url="https://example.org/rules").checked()


def test_a_terminal_shows_markup_as_text(tmp_path: Path) -> None:
    out = io.StringIO()
    result = evil_result(tmp_path)
    result.files[0].findings[2] = finding(rule="[red]", kind="manual", file="[bold]x.py")
    terminal.show(result, Console(file=out, width=120))
    assert "[bold]x.py" in out.getvalue()


def test_json_is_versioned_and_complete(result: Result) -> None:
    data = machine.to_dict(result)
    assert (data["format"], data["version"]) == ("causeway-migrate", 1)
    assert json.loads(json.dumps(data))["totals"] == data["totals"]
    assert data["settings"]["target"] == "npu"
    files = {file["path"]: file for file in data["files"]}
    assert files["broken.yaml"]["status"] == "unparsable"
    assert files["broken.yaml"]["reason"]
    used = {f["rule"] for file in data["files"] for f in file["findings"]}
    assert used == set(data["rules"])
    assert all(rule["title"] and rule["by_hand"] for rule in data["rules"].values())
    assert all(f["tip"] for file in data["files"] for f in file["findings"])


def test_a_run_with_nothing_of_cuda_says_so(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("print(1)\n")
    found = engine.run([tmp_path], Settings(jobs=1))
    assert figures.of_result(found).verdict == "Nothing in 1 file concerns CUDA."
    assert "Nothing in 1 file" in page.build(found).to_html()


def test_a_report_that_cannot_be_written_leaves_what_was_there(
    result: Result, tmp_path: Path
) -> None:
    (tmp_path / "migrate.html").mkdir()
    (tmp_path / "migrate.json").write_text("old")
    with pytest.raises(OSError, match=r"migrate\.html"):
        reports.write(result, tmp_path)
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".")]
    assert json.loads((tmp_path / "migrate.json").read_text())["version"] == 1


def test_the_command_writes_the_reports_that_it_is_asked_for(tree: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    arguments = ["migrate", str(tree), "--target", "npu", "-j", "1", "--check"]
    arguments += ["--html", str(out / "a.html"), "--json", str(out / "a.json")]
    arguments += ["--sarif", str(out / "a.sarif"), "--csv", str(out / "csv")]
    done = CliRunner().invoke(cli.app, arguments)
    assert done.exit_code == 1, done.output
    assert sorted(os.listdir(out)) == ["a.html", "a.json", "a.sarif", "csv"]
    assert set(COLUMNS) <= set(os.listdir(out / "csv"))
    assert (tree / "run.sh").read_text() == TREE["run.sh"]
    done = CliRunner().invoke(cli.app, [*arguments[:2], "--report", str(tmp_path / "x" / "y")])
    assert done.exit_code == 1
    assert (tmp_path / "x" / "y" / "migrate.html").is_file()


def test_the_command_writes_a_whole_project(tree: Path) -> None:
    done = CliRunner().invoke(cli.app, ["migrate", str(tree), "--target", "npu", "-w", "-j", "1"])
    assert done.exit_code == 0, done.output
    assert (
        "ASCEND_RT_VISIBLE_DEVICES=0 python train.py --backend hccl"
        in (tree / "run.sh").read_text()
    )
    assert (tree / "broken.yaml").read_text() == TREE["broken.yaml"]
    assert CliRunner().invoke(cli.app, ["migrate", str(tree), "--undo"]).exit_code == 0
    assert {name: (tree / name).read_text() for name in TREE} == TREE


def many(files: int, places: int) -> Result:
    """A large conversion: a third of the places changed, a third by hand, a third for CUDA only."""
    found = []
    for i in range(files):
        name, lines = f"package{i % 20}/module_{i}.py", []
        findings = []
        for n in range(places):
            kind = ("changed", "manual", "unsupported")[n % 3]
            rule = {"changed": "CW102", "manual": "CW113", "unsupported": "CW161"}[kind]
            api = "flash_attn" if n % 2 else "cupy.zeros"
            before = f"    x{i}_{n} = x{n}.cuda()"
            lines.append(before)
            findings.append(
                finding(file=name, line=n + 1, kind=kind, rule=rule, before=before,
                        message=f"says {n % 7}", api=api if kind == "unsupported" else "")
            )  # fmt: skip
        text = "\n".join(lines)
        after = "\n".join(
            line.replace("cuda()", "to(accelerator)") if n % 3 == 0 else line
            for n, line in enumerate(lines)
        )
        found.append(FileResult(name, "converted", "", text, after, findings=findings))
    return Result("/project", found, Settings(), files * places)


def test_the_page_of_20000_places_is_small_and_has_them_all() -> None:
    result = many(400, 51)
    html = page.build(result).to_html()
    assert len(result.findings()) > 20_000
    assert len(html.encode()) < 3_000_000
    shown: set[tuple[str, int]] = set()
    for file, numbers in re.findall(r">([\w/]+\.py):([\d,]+)<", html):
        shown |= {(file, int(n)) for n in numbers.split(",")}
    stay = {(f.file, f.line) for f in result.findings() if f.kind != "changed"}
    assert stay <= shown
    for file in result.files[::57]:
        for n in range(0, 51, 3):
            assert f"x{file.before.split('_')[0].strip()[1:]}_{n} = " in html


def test_a_package_is_one_row_in_every_report() -> None:
    result = many(2, 12)
    assert [(p.name, len(p.places)) for p in figures.packages(result.findings())] == [
        ("cupy", 4), ("flash_attn", 4),
    ]  # fmt: skip
    assert [p["name"] for p in machine.to_dict(result)["packages"]] == ["cupy", "flash_attn"]
    out = io.StringIO()
    terminal.show(result, Console(file=out, width=80))
    assert out.getvalue().count("flash_attn ") == out.getvalue().count("cupy ") == 1
    html = page.build(result).to_html()
    assert html.count('<code class="whole">flash_attn</code>') == 1


def test_a_packages_name_on_the_index_is_the_one_that_is_imported(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("flash-attn==2.5\n")
    (tmp_path / "a.py").write_text("import flash_attn\n")
    found = engine.run([tmp_path], Settings(jobs=1)).findings()
    assert [(p.name, len(p.places)) for p in figures.packages(found)] == [("flash_attn", 2)]


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_terminal_cuts_no_code_and_no_number(width: int) -> None:
    out = io.StringIO()
    result = many(3, 30)
    terminal.show(result, Console(file=out, width=width))
    lines = out.getvalue().splitlines()
    assert all(len(line) <= width for line in lines)
    text = out.getvalue()
    for word in ("CW102", "CW113", "CW161", "changed", "portable", "by hand", "CUDA only", "30"):
        assert word in text
    assert text.index("CW161") < text.index("CW113") < text.index("CW102"), "what stops it first"


def test_by_hand_is_the_same_number_everywhere() -> None:
    result = many(2, 12)
    hand = sum(f.kind == "manual" for f in result.findings())
    assert hand == 8
    numbers = figures.of_result(result)
    assert f"{hand} need a hand" in numbers.verdict
    assert "8 exist for CUDA only" in numbers.verdict
    assert machine.to_dict(result)["totals"]["kinds"]["manual"] == hand
    assert f'Needs a hand <span class="note">{hand}<' in page.build(result).to_html()
    out = io.StringIO()
    terminal.show(result, Console(file=out, width=80))
    row = next(line for line in out.getvalue().splitlines() if line.startswith("all"))
    assert row.split() == ["all", "8", "0", str(hand), "8"]
