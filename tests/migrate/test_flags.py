"""Options named after CUDA, and branches that are never taken: reported, and changed on request."""

from __future__ import annotations

from pathlib import Path

import pytest

from causeway.migrate import engine, flags
from causeway.migrate.finding import Result
from causeway.migrate.python import convert_source
from causeway.migrate.settings import Settings

ARGPARSE = """\
import argparse
import torch

p = argparse.ArgumentParser()
p.add_argument("--no-cuda", action="store_true", help="disables CUDA training")
p.add_argument("--no-mps", action="store_true", help="disables macOS GPU training")
p.add_argument("--gpu-id", help="the cuda device to use")
args = p.parse_args()
on = not args.no_cuda and torch.accelerator.is_available()
"""
CLICK = """\
import click


@click.command()
@click.option("--use-cuda/--no-cuda", help="use a CUDA device")
@click.option("--cuda", is_flag=True, help="use a CUDA device")
def main(cuda, use_cuda):
    cuda = bool(cuda)
    return cuda
"""
CLICK_RENAMED = """\
import click


@click.command()
@click.option("--use-accel/--no-accel", help="use an accelerator")
@click.option("--accel", is_flag=True, help="use an accelerator")
def main(accel, use_accel):
    accel = bool(accel)
    return accel
"""


def tree(folder: Path, files: dict[str, str], **settings: object) -> Result:
    for name, text in files.items():
        (folder / name).write_text(text)
    return engine.run([folder], Settings(**settings))  # type: ignore[arg-type]


def said(result: Result) -> list[tuple[str, int, str, str]]:
    return [(f.file, f.line, f.rule, f.kind) for f in result.findings() if not f.is_advice]


def after(result: Result) -> dict[str, str]:
    return {file.path: file.after for file in result.files if file.changed}


FILES = {
    "train.py": ARGPARSE,
    "model.py": "def build(args):\n    return args.no_cuda, self.no_cuda, other.no_cuda\n",
    "run.sh": "python train.py --no-cuda --lr 1\npython train.py --no-cuda-graphs\n",
    "README.md": "# Train\n\n    python train.py --no-cuda\n",
}


def test_options_that_speak_of_cuda_are_reported_with_file_and_line(tmp_path: Path) -> None:
    result = tree(tmp_path, FILES)
    assert after(result) == {}
    assert said(result) == [
        ("README.md", 3, "CW613", "portable"),
        ("run.sh", 1, "CW613", "portable"),
        ("train.py", 5, "CW122", "portable"),
        ("train.py", 6, "CW122", "portable"),
        ("train.py", 7, "CW122", "portable"),
    ]


def test_they_are_renamed_in_the_whole_tree_where_that_is_asked_for(tmp_path: Path) -> None:
    result = tree(tmp_path, FILES, rename_flags=True)
    assert after(result) == {
        "train.py": ARGPARSE.replace("no-cuda", "no-accel")
        .replace("no_cuda", "no_accel")
        .replace("disables CUDA", "disables accelerator"),
        "model.py": FILES["model.py"].replace("args.no_cuda", "args.no_accel"),
        "run.sh": FILES["run.sh"].replace("--no-cuda --", "--no-accel --"),
    }
    assert ("README.md", 3, "CW613", "manual") in said(result)
    for name, text in after(result).items():
        (tmp_path / name).write_text(text)
    assert after(engine.run([tmp_path], Settings(rename_flags=True))) == {}


def test_clicks_parameter_is_renamed_with_its_option(tmp_path: Path) -> None:
    result = tree(tmp_path, {"main.py": CLICK}, rename_flags=True)
    assert after(result)["main.py"] == CLICK_RENAMED


@pytest.mark.parametrize(
    "more",
    [
        "getattr(args, 'no_cuda')\n",
        "main(no_cuda=True)\n",
        "p.add_argument('--no-accel')\n",
    ],
)
def test_an_option_that_is_named_in_another_way_stays(tmp_path: Path, more: str) -> None:
    result = tree(tmp_path, {"train.py": ARGPARSE + more}, rename_flags=True)
    assert after(result) == {}
    assert ("train.py", 5, "CW122", "portable") in said(result)


def test_parameters_that_typer_and_fire_make_options_of_are_reported() -> None:
    typed = "import typer\napp = typer.Typer()\n\n\n@app.command()\ndef f(no_cuda: bool): ...\n"
    fired = (
        "import fire\n\n\ndef f(use_cuda=True): ...\n\n\ndef g(use_cuda): ...\n\n\nfire.Fire(f)\n"
    )
    for text, line in ((typed, 6), (fired, 4)):
        found = convert_source(text, Settings())[1]
        assert [(f.rule, f.line) for f in found] == [("CW122", line)]


def test_a_help_text_says_accelerator() -> None:
    assert (
        flags.reworded("use CUDA devices, or a cuda GPU") == "use accelerators, or an accelerator"
    )


BRANCHES = """\
import torch

if torch.cuda.is_available():
    name = torch.device("cuda")
# Apple's
elif torch.backends.mps.is_available():
    name = torch.device("mps")
    y = x.cuda()
elif hasattr(torch, "xpu") and torch.xpu.is_available():
    name = torch.device("xpu")
# none
else:
    name = torch.device("cpu")
d = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
"""
NOW = "torch.accelerator.current_accelerator()"
FOLDED = f"""\
import torch

if torch.accelerator.is_available():
    name = {NOW}
# none
else:
    name = torch.device("cpu")
d = {NOW}.type if torch.accelerator.is_available() else "cpu"
"""


def test_branches_that_are_never_taken_are_reported() -> None:
    text, found = convert_source(BRANCHES, Settings())
    assert "mps" in text
    assert [(f.line, f.kind) for f in found if f.rule == "CW123"] == [
        (6, "portable"), (9, "portable"), (14, "portable"),
    ]  # fmt: skip


def test_branches_that_are_never_taken_go_where_that_is_asked_for() -> None:
    text, found = convert_source(BRANCHES, Settings(fold_branches=True))
    assert text == FOLDED
    assert convert_source(text, Settings(fold_branches=True))[0] == FOLDED
    assert {f.line for f in found if f.rule == "CW102"} == set(), "nothing is said of what is gone"


@pytest.mark.parametrize(
    "text",
    [
        # another condition may be false where there is an accelerator
        "if torch.accelerator.is_available() and not args.no_cuda:\n    f()\n"
        "elif torch.backends.mps.is_available():\n    g()\n",
        "if torch.backends.mps.is_available():\n    f()\nelif torch.accelerator.is_available():\n"
        "    g()\n",
        "if torch.accelerator.is_available():\n    f()\nelif torch.backends.mps.is_built():\n"
        "    g()\n",
    ],
)
def test_a_branch_that_may_be_taken_stays(text: str) -> None:
    text = "import torch\n\n" + text
    after, found = convert_source(text, Settings(fold_branches=True))
    assert after == text
    assert not [f for f in found if f.rule == "CW123"]


@pytest.mark.parametrize(
    ("before", "after_"),
    [
        ("@click.option('--cuda/--no-cuda')\ndef main(cuda):\n    f(cuda)\n",
         "@click.option('--accel/--no-accel')\ndef main(accel):\n    f(accel)\n"),
        ("p.add_argument('--cuda', action=argparse.BooleanOptionalAction)\n",
         "p.add_argument('--accel', action=argparse.BooleanOptionalAction)\n"),
        ("def main(cuda: bool = typer.Option(True, '--cuda/--no-cuda')):\n    f(cuda)\n",
         "def main(cuda: bool = typer.Option(True, '--accel/--no-accel')):\n    f(cuda)\n"),
    ],
)  # fmt: skip
def test_both_names_of_a_pair_are_renamed_with_the_launch_scripts(
    tmp_path: Path, before: str, after_: str
) -> None:
    files = {"train.py": before, "run.sh": "python train.py --no-cuda\n"}
    result = tree(tmp_path, files, rename_flags=True)
    assert after(result) == {"train.py": after_, "run.sh": "python train.py --no-accel\n"}


def test_a_pair_of_which_one_name_is_not_cudas_stays(tmp_path: Path) -> None:
    result = tree(tmp_path, {"train.py": "@click.option('--cuda/--cpu')\ndef f(cuda): 0\n"},
                  rename_flags=True)  # fmt: skip
    assert after(result) == {}
    assert ("train.py", 1, "CW122", "portable") in said(result)
