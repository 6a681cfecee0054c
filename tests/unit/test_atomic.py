"""Files that commands write: there whole or not at all, and refused before the work is done."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from causeway import atomic
from causeway.cli import app

SOURCE = "import torch\nx = torch.ones(2).cuda()\n"


@pytest.mark.parametrize("command", [
    ("migrate", "--write", "a.py", "--json", "{}"),
    ("migrate", "--write", "a.py", "--html", "{}"),
    ("migrate", "--write", "a.py", "--sarif", "{}"),
    ("conformance", "--json", "{}"),
    ("conformance", "--html", "{}"),
    ("chips", "none.json", "--html", "{}"),
    ("coverage", "a.py", "--csv", "{}"),
    ("coverage", "a.py", "--sarif", "{}"),
    ("verify", "a.py", "--html", "{}"),
    ("replay", "none", "--json", "{}"),
    ("diff", "none", "none", "--json", "{}"),
    ("quantize", "a.py:make", "--data", "a.py:data", "--html", "{}"),
    ("quantize", "--log", "none", "--html", "{}"),
    ("export", "a.py:make", "-o", "{}", "--target", "c"),
    ("export", "a.py:make", "-o", "{}"),
    ("export", "a.py:make", "-o", "x.cw", "--weights", "{}"),
    ("cases", "none", "-o", "{}"),
])  # fmt: skip
def test_a_command_says_before_its_work_that_a_file_cannot_be_written(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, [part.format("no/such/folder/x") for part in command])
    assert done.exit_code == 2
    assert "no/such/folder/x cannot be written: there is no folder no/such/folder" in done.output
    assert {p.name for p in tmp_path.iterdir()} <= {"a.py", "__pycache__"}
    assert (tmp_path / "a.py").read_text() == SOURCE


def test_no_file_needs_no_folder() -> None:
    atomic.check(None, "")


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError, match="cannot be written: it is a folder"):
        atomic.check(tmp_path / "new", tmp_path)
