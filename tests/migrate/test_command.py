"""`causeway migrate` on trees: previews, writing, undoing, copies, settings, what must stay."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from causeway.cli import app
from causeway.migrate import engine, journal
from causeway.migrate.finding import FileInput
from causeway.migrate.python import OUR_MISTAKE, convert
from causeway.migrate.settings import Settings

CUDA = "import torch\n\nx = torch.zeros(2).cuda()  # keep me\n"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    (root / "pkg").mkdir(parents=True)
    (root / "train.py").write_text(CUDA)
    (root / "pkg" / "net.py").write_text("import torch\n\nn = torch.cuda.device_count()\n")
    (root / "pkg" / "plain.py").write_text("print('nothing')\n")
    (root / "data.bin").write_bytes(b"\0cuda")
    return root


def migrate(*args: object) -> Result:
    return CliRunner().invoke(app, ["migrate", *map(str, args)])


def snapshot(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def test_a_preview_shows_a_diff_writes_nothing_and_exits_with_1(tree: Path) -> None:
    before = snapshot(tree)
    result = migrate(tree)
    assert result.exit_code == 1
    assert "+x = torch.zeros(2).to(accelerator)  # keep me" in result.output
    assert snapshot(tree) == before


def test_a_file_name_cannot_forge_a_patchs_header(tree: Path) -> None:
    name = 'a.py\n--- forged.py\n+++ forged.py\n"é'
    (tree / f"{name}.py").write_text(CUDA)
    done = migrate(tree)
    quoted = r"a.py\n--- forged.py\n+++ forged.py\n\"\303\251.py"
    headers = [line for line in done.stdout.splitlines() if line.startswith(("---", "+++"))]
    assert f'--- "a/{quoted}"' in headers
    assert f'+++ "b/{quoted}"' in headers
    assert not any(line.endswith(" forged.py") for line in headers)


def test_check_names_the_files_that_would_change(tree: Path) -> None:
    result = migrate(tree, "--check")
    assert result.exit_code == 1
    assert "train.py" in result.output
    assert "plain.py" not in result.output
    assert "+" not in result.stdout


def test_a_second_run_has_nothing_to_do(tree: Path) -> None:
    assert migrate(tree, "--write").exit_code == 0
    after = snapshot(tree)
    assert migrate(tree, "--check").exit_code == 0
    assert migrate(tree, "--write").exit_code == 0
    assert snapshot(tree) == after


def test_undo_gives_back_every_byte_and_mode(tree: Path) -> None:
    (tree / "train.py").chmod(0o755)
    before = snapshot(tree)
    assert migrate(tree, "--write").exit_code == 0
    assert (tree / "train.py").stat().st_mode & 0o777 == 0o755
    assert snapshot(tree) != before
    assert migrate(tree, "--undo").exit_code == 0
    assert snapshot(tree) == before
    assert (tree / "train.py").stat().st_mode & 0o777 == 0o755


def test_undo_refuses_where_a_file_changed_and_names_it(tree: Path) -> None:
    migrate(tree, "--write")
    (tree / "train.py").write_text("mine\n")
    converted = snapshot(tree)
    result = migrate(tree, "--undo")
    assert result.exit_code == 2
    assert "train.py" in result.output
    assert snapshot(tree) == converted


def test_undo_takes_back_one_write_after_another(tree: Path) -> None:
    first = snapshot(tree)
    migrate(tree, "--write")
    (tree / "more.py").write_text(CUDA)
    migrate(tree, "--write")
    assert migrate(tree, "--undo").exit_code == 0
    assert (tree / "more.py").read_text() == CUDA
    (tree / "more.py").unlink()
    assert migrate(tree, "--undo").exit_code == 0
    assert snapshot(tree) == first
    assert "nothing to undo" in migrate(tree, "--undo").output


def test_nothing_is_written_where_a_file_changes_under_the_conversion(tree: Path) -> None:
    result = engine.run([tree], Settings(jobs=1))
    (tree / "pkg" / "net.py").write_text("mine\n")
    with pytest.raises(engine.MigrateError, match=r"net\.py"):
        journal.write(result)
    assert (tree / "train.py").read_text() == CUDA


def test_undo_leaves_what_was_written_above_and_is_not_about_this_folder(tree: Path) -> None:
    (tree.parent / "other.py").write_text(CUDA)
    migrate(tree.parent / "other.py", "--write")
    written = snapshot(tree.parent)
    refused = migrate(tree, "--undo")
    assert refused.exit_code == 2
    assert "nothing to undo" in refused.output
    assert snapshot(tree.parent) == written
    assert migrate(tree.parent, "--undo").exit_code == 0
    assert (tree.parent / "other.py").read_text() == CUDA


def test_undo_works_from_a_folder_within(tree: Path) -> None:
    first = snapshot(tree)
    migrate(tree, "--write")
    assert migrate(tree / "pkg", "--undo").exit_code == 0
    assert snapshot(tree) == first


def test_an_interrupted_write_is_undone(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = snapshot(tree)
    replace, calls = os.replace, []

    def failing(a: str, b: str) -> None:
        calls.append(b)
        if len(calls) == 2:
            raise OSError("disk full")
        replace(a, b)

    monkeypatch.setattr(os, "replace", failing)
    assert migrate(tree, "--write").exit_code == 2
    monkeypatch.undo()
    assert snapshot(tree) != before
    assert not list(tree.rglob(".*.py.*")), "temporary files stay"
    assert migrate(tree, "--undo").exit_code == 0
    assert snapshot(tree) == before


def test_neither_a_journal_nor_a_link_reaches_out_of_the_tree(tree: Path, tmp_path: Path) -> None:
    import hashlib
    import json

    victim = tmp_path / "victim"
    victim.write_text("mine")
    mine = hashlib.sha256(b"mine").hexdigest()
    journals = tree / ".causeway" / "migrate" / "0001"
    (journals / "originals").mkdir(parents=True)
    entry = {"path": "../victim", "before": "", "after": mine}
    (journals / "journal.json").write_text(json.dumps({"version": 1, "files": [entry]}))
    assert migrate(tree, "--undo").exit_code == 2
    assert victim.read_text() == "mine"
    outside = tmp_path / "outside"
    outside.mkdir()
    other = tmp_path / "other"
    other.mkdir()
    (other / "a.py").write_text(CUDA)
    (other / ".causeway").symlink_to(outside)
    assert migrate(other, "--write").exit_code == 2
    assert not list(outside.iterdir())
    assert (other / "a.py").read_text() == CUDA


def test_a_copy_has_all_files_and_leaves_the_tree(tree: Path, tmp_path: Path) -> None:
    before = snapshot(tree)
    (tree / "link.py").symlink_to("train.py")
    assert migrate(tree, "-o", tmp_path / "out").exit_code == 0
    copied = snapshot(tmp_path / "out")
    assert copied.keys() - {"link.py"} == before.keys()
    assert copied["data.bin"] == before["data.bin"]
    assert b"accelerator" in copied["train.py"]
    assert (tmp_path / "out" / "link.py").is_symlink()
    assert (tree / "train.py").read_text() == CUDA
    assert migrate(tree, "-o", tmp_path / "out").exit_code == 2  # not empty
    assert migrate(tree, "-o", tree / "inside").exit_code == 2


def test_one_file_is_converted_alone(tree: Path) -> None:
    assert migrate(tree / "train.py", "--write").exit_code == 0
    assert "accelerator" in (tree / "train.py").read_text()
    assert "cuda" in (tree / "pkg" / "net.py").read_text()


def test_links_are_not_followed(tree: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "theirs.py").write_text(CUDA)
    (tree / "folder").symlink_to(outside)
    (tree / "file.py").symlink_to(outside / "theirs.py")
    result = migrate(tree, "--write")
    assert (outside / "theirs.py").read_text() == CUDA
    assert "file.py: left as it is: a symbolic link" in result.output


def test_ignored_and_excluded_files_stay(tree: Path) -> None:
    (tree / ".gitignore").write_text("build/\n*_pb2.py\n!keep_pb2.py\n")
    for name in ("build/a.py", "a_pb2.py", "keep_pb2.py", "vendor/b.py", "env/lib/c.py"):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(CUDA)
    (tree / "env" / "pyvenv.cfg").write_text("")
    assert migrate(tree, "--write", "--exclude", "vendor/").exit_code == 0
    changed = {p for p, data in snapshot(tree).items() if b".to(accelerator)" in data}
    assert changed == {"train.py", "keep_pb2.py"}


def test_files_that_do_not_parse_or_decode_are_reported_and_stay(tree: Path) -> None:
    (tree / "old.py").write_text("print 'cuda'\n")
    (tree / "bytes.py").write_bytes(b"x = 'cuda \xff'\n")
    (tree / "null.py").write_bytes(b"cuda\0")
    before = snapshot(tree)
    result = migrate(tree, "--check")
    for name in (
        "old.py: left as it is: line 1",
        "bytes.py: left as it is: cannot be decoded",
        "null.py",
    ):
        assert name in result.output
    migrate(tree, "--write")
    after = snapshot(tree)
    assert all(after[n] == before[n] for n in ("old.py", "bytes.py", "null.py"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("print 'x'\nx.cuda()\n", "looks like Python 2"),
        ("try:\n    x.cuda()\nexcept E, e:\n    pass\n", "looks like Python 2"),
        ("def f[T](x: T) -> T:\n    return x.cuda()\n", "newer than 3"),
        ("type D = str | int\nx.cuda()\nif\n", "newer than 3"),
        ("print 'x'\n" + "x.cuda()\n" * 9, "2, 3, 4, 5, 6, 7, 8, 9, …"),
    ],
)
def test_of_a_file_that_does_not_parse_it_is_said_what_to_do_and_where_cuda_is(
    text: str, said: str
) -> None:
    result = convert(FileInput("a.py", text.encode()), Settings())
    if result.status == "unparsable":  # a newer Python reads some of them
        assert said in result.reason
        assert "lines that name CUDA: 2" in result.reason
    else:
        assert sys.version_info >= (3, 12)


def test_encodings_and_marks_stay(tree: Path) -> None:
    latin = "# -*- coding: latin-1 -*-\nimport torch\nname = 'é'\nx = torch.zeros(1).cuda()\n"
    (tree / "latin.py").write_bytes(latin.encode("latin-1"))
    (tree / "mark.py").write_bytes(b"\xef\xbb\xbf" + CUDA.replace("\n", "\r\n").encode())
    migrate(tree, "--write")
    assert "name = 'é'".encode("latin-1") in (tree / "latin.py").read_bytes()
    assert b".to(accelerator)" in (tree / "latin.py").read_bytes()
    marked = (tree / "mark.py").read_bytes()
    assert marked.startswith(b"\xef\xbb\xbf")
    assert marked.count(b"\n") == marked.count(b"\r\n")


def test_the_users_code_is_never_run(tree: Path) -> None:
    (tree / "bomb.py").write_text("import torch\nraise SystemExit('cuda')\n")
    (tree / "conftest.py").write_text("open('cuda', 'w')\n")
    assert migrate(tree, "--check").exit_code == 1
    assert not (tree / "cuda").exists()


def test_settings_come_from_pyproject_and_options_win(tree: Path) -> None:
    (tree / "pyproject.toml").write_text(
        '[tool.causeway.migrate]\ntarget = "npu"\nexclude = ["pkg/"]\n'
    )
    result = migrate(tree)
    assert "x.npu()" in result.output.replace("torch.zeros(2)", "x")
    assert "net.py" not in result.output
    assert "accelerator" in migrate(tree, "--target", "portable").output


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ('targt = "npu"', "no setting 'targt'"),
        ("unsafe = 1", "true or false"),
        ('exclude = "pkg"', "a list of strings"),
        ('target = "cuda"', "name of a device"),
        ('select = ["E501"]', "no code of a rule"),
        ("target = ", "is no TOML"),
    ],
)
def test_wrong_settings_are_errors(tree: Path, table: str, says: str) -> None:
    (tree / "pyproject.toml").write_text(f"[tool.causeway.migrate]\n{table}\n")
    result = migrate(tree)
    assert result.exit_code == 2
    assert says in result.output


def test_rules_can_be_selected_and_ignored(tree: Path) -> None:
    assert "train.py" not in migrate(tree, "--select", "CW105").output
    assert "net.py" not in migrate(tree, "--ignore", "CW105").output


def test_unsafe_rules_wait_for_the_option(tree: Path) -> None:
    (tree / "load.py").write_text("import torch\n\ns = torch.load('a.pt')\n")
    assert "map_location=" not in migrate(tree, "--findings").stdout.partition("CW152")[0]
    assert "+s = torch.load('a.pt', map_location=accelerator)" in migrate(tree, "--unsafe").output


def test_findings_name_places_and_tips(tree: Path) -> None:
    output = migrate(tree, "--findings").output
    assert re.search(r"^CW102 changed: .+\. .+\n  train\.py:3:5$", output, re.M)


def test_contradicting_options_are_refused(tree: Path) -> None:
    assert migrate(tree, "--write", "--check").exit_code == 2
    assert migrate(tree / "no_such").exit_code == 2


def test_processes_give_the_same_as_one(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for i in range(12):
        (tree / f"m{i}.py").write_text(CUDA * (i + 1))
    alone = engine.run([tree], Settings(jobs=1))
    monkeypatch.setattr(engine, "_WORTH_PROCESSES", 0)
    told: list[tuple[int, int]] = []
    several = engine.run([tree], Settings(jobs=2), lambda a, b: told.append((a, b)))
    assert several.files == alone.files
    assert several.totals() == alone.totals()
    assert told[-1] == (len(alone.files), len(alone.files))


def test_classes_with_a_cuda_of_their_own_are_known_across_files(tree: Path) -> None:
    (tree / "pkg" / "batch.py").write_text(
        "class Batch:\n    def cuda(self):\n        self.x = self.x.cuda()\n        return self\n"
    )
    (tree / "use.py").write_text(
        "import torch\nfrom pkg.batch import Batch\n\nb = Batch()\nb.cuda()\ntorch.ones(1).cuda()\n"
    )
    migrate(tree, "--write")
    text = (tree / "use.py").read_text()
    assert "b.cuda()" in text
    assert "torch.ones(1).to(accelerator)" in text
    assert "self.x.to(accelerator)" in (tree / "pkg" / "batch.py").read_text()


def test_a_mistake_of_a_rule_costs_one_file_and_is_said(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted fault: a rule that writes what does not parse."""
    from causeway.migrate import python
    from causeway.migrate.source import Edit

    def breaks(module: object) -> None:
        if "zeros" in module.source.text:  # type: ignore[attr-defined]
            module.edits.append(Edit(0, 0, "def ("))  # type: ignore[attr-defined]

    monkeypatch.setattr(python, "RUNS", (*python.RUNS, breaks))
    result = migrate(tree, "--write")
    assert f"train.py: left as it is: {OUR_MISTAKE}" in result.output
    assert (tree / "train.py").read_text() == CUDA
    assert "accelerator" in (tree / "pkg" / "net.py").read_text()


def test_calls_of_a_run_are_sorted_by_what_became_of_them(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tree / "lib.py").write_text(
        "import torch\n\n\ndef move(x, device):\n    return x.to(device)\n"
    )
    (tree / "quiet.py").write_text(CUDA)
    (tree / "graph.py").write_text("import torch\n\ng = torch.cuda.CUDAGraph()\n")
    rows = [
        ("torch.Tensor.cuda", "train.py", 3), ("torch.cuda.device_count", "pkg/net.py", 3),
        ("torch.Tensor.to", "lib.py", 5), ("torch.cuda.CUDAGraph", "graph.py", 3),
        ("torch.Tensor.cuda", "venv/site-packages/x.py", 1),
    ]  # fmt: skip
    places = [
        {"api": a, "file": str(tree / f), "line": n, "calls": 7, "to": ""} for a, f, n in rows
    ]
    report = tree / "calls.json"
    report.write_text(json.dumps({"target": "sim", "places": places, "unfixed": []}))
    monkeypatch.chdir(tree)
    result = migrate("--calls", report)
    assert (
        "5 places used CUDA at run time: 2 are converted or portable, 1 need a hand, "
        "1 take their device from elsewhere, 1 are in files not converted here"
    ) in result.output
    assert "graph.py:3: torch.cuda.CUDAGraph, 7 calls: CW112" in result.output
    assert "a/train.py" in result.output
    assert "quiet.py" not in result.output, "it made no call"
    report.write_text("[]")
    assert "is no report of calls" in migrate("--calls", report).output
    assert migrate("--calls", tree / "nowhere.json").exit_code == 2


def test_a_report_of_a_run_feeds_the_conversion(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the redirection's own report, with its names and places."""
    from causeway import transfer

    program = tree / "program.py"
    program.write_text(CUDA + "torch.cuda.nvtx.range_push('a')\ntorch.cuda.nvtx.range_pop()\n")
    transfer.report(clear=True)  # of other tests in this process
    with transfer.enable():
        exec(compile(program.read_text(), str(program), "exec"), {"__name__": "program"})
        (tree / "calls.json").write_text(transfer.report().to_json())
    monkeypatch.chdir(tree)
    result = migrate("--calls", "calls.json", "--write")
    assert "3 places used CUDA at run time: 1 are converted or portable, 2 need" in result.output
    assert ".to(accelerator)" in program.read_text()
    assert (tree / "train.py").read_text() == CUDA
