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

    shared = {
        "--redirect": options.Redirect,
        "-m": options.IsModule,
        "--target": options.Target,
        "--compat": options.Compat,
    }
    found = get_command(cli.app).commands[command]  # type: ignore[attr-defined]
    assert "for CUDA" in found.help
    assert "untouched" in found.help
    helps = {
        word: getattr(parameter, "help", "")
        for parameter in found.params
        for word in parameter.opts
    }
    assert {word: helps.get(word) for word in shared} == {
        word: option.__metadata__[0].help  # type: ignore[attr-defined]
        for word, option in shared.items()
    }


NPU = """
import torch, torch_npu
net = torch.nn.Linear(4, 4).npu()
loss = net(torch.ones(2, 4, device="npu")).sum()
torch_npu.optim.NpuFusedSGD(net.parameters(), lr=0.1).zero_grad()
loss.backward()
print("on", net.weight.grad.device)
"""


@pytest.mark.parametrize(
    "command", [["profile"], ["record", "-o", "trace"], ["coverage", "-m"], ["run"]], ids="".join
)
def test_the_commands_that_run_a_program_take_one_for_another_system(
    tmp_path: Path, command: list[str]
) -> None:
    (tmp_path / "main.py").write_text(NPU)
    name = "main" if "-m" in command else "main.py"
    done = warm.run(["-m", "causeway", *command, name], cwd=tmp_path, timeout=120)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert "on npu:0" in said
    assert ("--compat off" in said) == (command[0] != "run")
    shutil.rmtree(tmp_path / "trace", ignore_errors=True)
    words = [command[0], "--compat", "off", *command[1:], name]
    plain = warm.run(["-m", "causeway", *words], cwd=tmp_path, timeout=120)
    assert plain.returncode != 0
    assert "No module named 'torch_npu'" in plain.stdout + plain.stderr


def test_verify_compares_what_another_systems_program_was_converted_to(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(NPU)
    for way in ("migrated", "transfer"):
        words = ["verify", "--way", way, "--no-operators", "--json", "report.json", "main.py"]
        done = warm.run(["-m", "causeway", *words], cwd=tmp_path, timeout=200)
        assert done.returncode == 0, done.stdout + done.stderr
        (script,) = json.loads((tmp_path / "report.json").read_text())["scripts"]
        assert (script["system"], script["way"], script["same"]) == ("npu", way, True)


@pytest.mark.parametrize("command", [["profile"], ["record", "-o", "trace"]], ids="".join)
def test_a_program_for_cuda_is_observed_on_the_cpu_too(tmp_path: Path, command: list[str]) -> None:
    (tmp_path / "main.py").write_text(CUDA)
    words = ["-m", "causeway", *command, "--target", "cpu", "main.py"]
    done = warm.run(words, cwd=tmp_path, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "on cuda:0" in done.stdout
    assert "redirected to the CPU" in done.stderr
    if command[0] == "record":
        calls = (tmp_path / "trace" / "calls.jsonl").read_text()
        assert '"cpu"' in calls
        assert '"sim' not in calls


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--compat", "tpu", "main.py"], "'tpu' is none of off, "),
        (["--target", "abacus", "main.py"], "not to 'abacus'"),
        (["two.py"], "choose one with --compat"),
        (["--no-redirect", "--target", "cpu", "main.py"], "--target"),
        (["--compat", "npu", "--target", "cpu", "main.py"], "--target cpu"),
    ],
)
def test_what_the_shared_options_cannot_mean_is_refused_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, words: list[str], says: str
) -> None:
    from typer.testing import CliRunner

    from causeway import cli

    monkeypatch.chdir(tmp_path)
    Path("two.py").write_text("import torch_npu\nfrom torch_mlu import core\n")
    result = CliRunner().invoke(cli.app, [command, *words])
    assert result.exit_code == 2
    assert f"causeway {command}: " in result.output
    assert says in result.output


def test_what_a_module_imports_is_read_without_running_its_package(tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__init__.py").write_text("raise SystemError('imported')\n")
    (tmp_path / "pkg" / "main.py").write_text("import os, torch_mlu as t\n")
    program_text = (
        "from causeway import program, compat\n"
        "print(compat.named_in(program.text_of('pkg.main', True)))\n"
    )
    done = warm.run(["-c", program_text], cwd=tmp_path)
    assert done.stdout == "{'mlu'}\n", done.stderr


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
