"""A user's program runs in this process as `python` would run it."""

import json
import shutil
import sys
from pathlib import Path

import pytest

import warm
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


@pytest.mark.parametrize(
    ("text", "asked", "way"),
    [
        ("x.cuda()", None, "transfer"),
        ("x.to('cuda:0')", None, "transfer"),
        ("device = 'cuda' if torch.cuda.is_available() else 'sim'", None, ""),
        ("if torch.sim.is_available(): pass\nelif torch.cuda.is_available(): pass", None, ""),
        ("torch.accelerator.synchronize()", None, ""),
        ("import barracuda", None, ""),
        ("import main", True, "transfer"),
        ("x.cuda()", False, ""),
    ],
)
def test_a_program_that_names_cuda_and_no_device_is_redirected(
    tmp_path: Path, text: str, asked: bool | None, way: str
) -> None:
    script = tmp_path / "main.py"
    script.write_text(text)
    assert program.way(script, asked, "sim") == way


CUDA = """
import torch
assert torch.cuda.is_available()
net = torch.nn.Linear(4, 4).cuda()
net(torch.ones(2, 4, device="cuda")).sum().backward()
print("on", net.weight.grad.device)
"""


@pytest.mark.parametrize(
    "command",
    [["profile", "-m"], ["record", "-o", "trace"], ["coverage", "--redirect", "-m"]],
    ids="".join,
)
def test_the_commands_that_run_a_program_take_one_for_cuda(
    tmp_path: Path, command: list[str]
) -> None:
    (tmp_path / "main.py").write_text(CUDA)
    name = "main" if "-m" in command else "main.py"
    done = warm.run(["-m", "causeway", *command, name], cwd=tmp_path, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "on cuda:0" in done.stdout + done.stderr
    assert "CUDA's calls redirected" in done.stdout + done.stderr
    if command[0] == "record":
        described = json.loads((tmp_path / "trace" / "trace.json").read_text())
        assert described["device"] == described["accelerator"] != "cuda"
        assert (tmp_path / "trace" / "calls.jsonl").stat().st_size > 0
    if command[0] != "coverage":  # which has nothing to lose by a second run
        shutil.rmtree(tmp_path / "trace", ignore_errors=True)
        words = [*command, "--no-redirect", name]
        plain = warm.run(["-m", "causeway", *words], cwd=tmp_path, timeout=120)
        assert plain.returncode == 1
        assert "AssertionError" in plain.stderr


COMMANDS = ("run", "record", "profile", "coverage", "verify")


@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_that_run_a_program_have_the_same_options_for_it(command: str) -> None:
    from typer.main import get_command

    from causeway import cli, options

    shared = {"redirect": options.Redirect, "module": options.IsModule}
    if command == "verify":  # several scripts, and files to convert
        del shared["module"]
    found = get_command(cli.app).commands[command]  # type: ignore[attr-defined]
    assert "for CUDA" in found.help
    assert "untouched" in found.help
    helps = {parameter.name: getattr(parameter, "help", "") for parameter in found.params}
    assert {name: helps.get(name) for name in shared} == {
        name: option.__metadata__[0].help  # type: ignore[attr-defined]
        for name, option in shared.items()
    }


@pytest.mark.parametrize("words", [["--target", "cpu"], ["--report", "calls.json"]])
def test_a_program_that_is_run_as_it_is_reports_no_calls(words: list[str]) -> None:
    from typer.testing import CliRunner

    from causeway import cli

    result = CliRunner().invoke(cli.app, ["run", "--no-redirect", *words, "main.py"])
    assert result.exit_code == 2
    assert "--no-redirect" in result.output


def test_verify_says_why_it_does_not_run_a_program_as_it_is() -> None:
    from typer.testing import CliRunner

    from causeway import cli

    result = CliRunner().invoke(cli.app, ["verify", "--no-redirect", "main.py"])
    assert result.exit_code == 2
    assert "nothing to compare" in result.output
    result = CliRunner().invoke(cli.app, ["verify", "--redirect", "--way", "migrated", "main.py"])
    assert result.exit_code == 2
    assert "--way transfer" in result.output
