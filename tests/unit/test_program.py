"""A user's program runs in this process as `python` would run it."""

import sys
from pathlib import Path

import pytest

from causeway import program
from causeway.errors import CausewayError


@pytest.fixture(autouse=True)
def beside(own_main: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def write(text: str, name: str = "script.py") -> Path:
    path = Path(name)
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("end", "status", "words"),
    [
        ("0", 0, ""),
        ("None", 0, ""),
        ("7", 7, ""),
        ("'too bad'", 1, "too bad\n"),
        ("(1, 2)", 1, "(1, 2)\n"),
    ],
)
def test_exit_statuses_are_pythons(end: str, status: int, words: str, capsys) -> None:
    assert program.status(write(f"raise SystemExit({end})")) == status
    assert capsys.readouterr().err == words


def test_an_error_is_shown_without_frames_of_ours(capsys) -> None:
    assert program.status(write("def f():\n    return 1 / 0\n\nf()\n")) == 1
    said = capsys.readouterr().err
    assert "ZeroDivisionError" in said
    assert program.__file__ not in said


def test_a_text_that_is_no_program_is_shown_as_python_shows_it(capsys) -> None:
    assert program.status(write("a = = 1")) == 1
    assert "SyntaxError" in capsys.readouterr().err


def test_it_stays_main_with_its_arguments_and_its_folder() -> None:
    write("word = 'beside'", "code/beside.py")
    script = write("import sys, beside\nclass Own: pass\nargs = sys.argv", "code/script.py")
    program.run(script, ["--lr", "1"])
    main = sys.modules["__main__"]
    assert main.args == [str(script), "--lr", "1"]
    assert main.Own.__module__ == "__main__"
    assert main.__file__ == str(script)
    assert main.beside.word == "beside"


@pytest.mark.parametrize("name", ["tools.train", "tools"])
def test_a_module_runs_by_its_name(name: str) -> None:
    write("", "tools/__init__.py")
    write("from . import other\nword = other.word", "tools/train.py")
    write("from . import train\nword = train.word", "tools/__main__.py")
    write("word = 'relative'", "tools/other.py")
    program.run(name, module=True)
    main = sys.modules["__main__"]
    assert main.word == "relative"
    assert main.__package__ == "tools"


@pytest.mark.parametrize(
    ("name", "module"), [("none.py", False), ("no.such.module", True), ("sys", True)]
)
def test_what_is_not_there_is_said(name: str, module: bool) -> None:
    with pytest.raises(CausewayError, match=name):
        program.run(name, module=module)
