"""`causeway new NAME` writes a package, whole or not at all; tests/test_wheel.py installs one."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from causeway import CausewayError, scaffold
from causeway.cli import app

ROOT = Path(__file__).parents[2]


def test_the_template_is_written_under_another_name(tmp_path: Path) -> None:
    files = scaffold.write("my_chip", tmp_path / "new")
    there = {str(p.relative_to(tmp_path / "new")) for p in (tmp_path / "new").rglob("*.*")}
    assert set(files) <= there
    for needed in (
        "my_chip.c", "CMakeLists.txt", "README.md", "pyproject.toml", ".github/workflows/test.yml",
        "causeway_my_chip/__init__.py", "tests/" + "test_my_chip.py",
    ):  # fmt: skip
        assert needed in files
        assert "template" not in (tmp_path / "new" / needed).read_text().lower()
    assert '.name = "my_chip"' in (tmp_path / "new/my_chip.c").read_text()
    assert 'my_chip = "causeway_my_chip:library"' in (tmp_path / "new/pyproject.toml").read_text()


def test_the_package_has_the_template_of_the_tree() -> None:
    def texts(folder: Path) -> dict[str, str]:
        paths = [p for p in folder.rglob("*") if p.is_file() and "__pycache__" not in p.parts]
        return {str(p.relative_to(folder)): p.read_text() for p in paths}

    shipped = texts(scaffold.template_dir())
    assert shipped == texts(ROOT / "vendors/template"), "run `make build`"


def test_an_empty_folder_is_filled(tmp_path: Path) -> None:
    (tmp_path / "chip").mkdir()
    assert "chip.c" not in scaffold.write("acme", tmp_path / "chip")
    assert (tmp_path / "chip/acme.c").is_file()


@pytest.mark.parametrize("name", ["h100", "nn", "vulkan", "My Chip", "sim", "../x"])
def test_a_name_that_no_device_can_have_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(CausewayError, match=r"cannot be called|is installed here"):
        scaffold.write(name, tmp_path / "new")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_empty_stays_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "chip").mkdir()
    (tmp_path / "chip/mine.txt").write_text("mine")
    done = CliRunner().invoke(app, ["new", "acme", "--folder", str(tmp_path / "chip")])
    assert done.exit_code == 2
    assert [p.name for p in tmp_path.rglob("*")] == ["chip", "mine.txt"]


def test_what_cannot_be_written_leaves_nothing(tmp_path: Path, monkeypatch) -> None:
    def full(self: Path, text: str) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(CausewayError, match="No space left"):
        scaffold.write("acme", tmp_path / "chip")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(CausewayError, match="cannot be written"):
        scaffold.write("acme", tmp_path / "no" / "such" / "chip")
