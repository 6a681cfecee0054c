"""`causeway profile` runs a script as Python would, and says where its time went."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import warm

TRAIN = """
import sys
import torch
import helper  # beside the script

assert __name__ == "__main__"
assert sys.argv[1:] == ["--lr", "0.1"], sys.argv
model = torch.nn.Linear(64, 64).to("DEVICE")
optimizer = torch.optim.SGD(model.parameters(), lr=float(sys.argv[2]))
x = torch.randn(32, 64, device="DEVICE")
for _ in range(6):
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    loss.item()
print("the script's own line")
"""


@pytest.fixture
def run(tmp_path: Path, name: str):
    """Run `causeway profile` on a script of this text, in a process of its own."""

    def run(text: str, *options: str, args: tuple[str, ...] = ()):
        (tmp_path / "train.py").write_text(text.replace("DEVICE", name))
        (tmp_path / "helper.py").write_text("")
        words = [*options, str(tmp_path / "train.py")]
        if args:
            words += ["--", *args]
        done = warm.run(["-m", "causeway", "profile", *words], timeout=120)
        done.stderr = without_kineto(done.stderr)
        return done

    return run


def without_kineto(text: str) -> str:
    """Without what Kineto of torch 2.13 says about each trace."""
    return "".join(line for line in text.splitlines(True) if not line.startswith("USDT:"))


def command(*words: str):
    """`causeway profile` in this process: for what ends before a script runs."""
    from causeway.cli import app

    return CliRunner().invoke(app, ["profile", *words])


def test_a_script_is_summed_up_and_traced(run, tmp_path: Path) -> None:
    options = [
        *("--trace", str(tmp_path / "trace.json")),
        *("--json", str(tmp_path / "sums.json")),
        *("--html", str(tmp_path / "page.html")),
        *("--steps", "2:5"),
    ]
    done = run(TRAIN, *options, args=("--lr", "0.1"))
    assert done.returncode == 0, done.stderr
    assert done.stdout == "the script's own line\n"
    for words in ("operators", "rungs", "aten::addmm"):
        assert words in done.stderr
    sums = json.loads((tmp_path / "sums.json").read_text())
    calls = {row["name"]: row["calls"] for row in sums["operators"]}
    assert calls["aten::addmm"] == 3  # of the steps asked for
    trace = json.loads((tmp_path / "trace.json").read_text())
    steps = {
        e["name"]
        for e in trace["traceEvents"]
        if e.get("cat") == "user_annotation" and e["name"].startswith("ProfilerStep")
    }
    assert len(steps) == 3
    assert "aten::addmm" in (tmp_path / "page.html").read_text()
    # The same sums from the file alone.
    again = command(str(tmp_path / "trace.json"), "--json", str(tmp_path / "again.json"))
    assert again.exit_code == 0, again.output
    assert json.loads((tmp_path / "again.json").read_text()) == sums
    assert sorted(p.name for p in tmp_path.iterdir() if p.name.startswith(".")) == []


PROFILES = """
import torch
x = torch.ones(8, 8, device={name!r})
x.neg()
with torch.profiler.profile() as own:
    x.exp()
x.abs()
print([e.key for e in own.key_averages() if e.key in ("aten::neg", "aten::exp", "aten::abs")])
"""


def test_a_program_with_a_profiler_of_its_own_ends_this_one(run, name, tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    done = run(PROFILES.format(name=name), "--trace", str(trace))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "['aten::exp']"
    assert "the program started a profiler of its own" in done.stderr
    names = {event.get("name") for event in json.loads(trace.read_text())["traceEvents"]}
    assert "aten::neg" in names
    assert not {"aten::exp", "aten::abs"} & names
    done = run(PROFILES.format(name=name), "--steps", "2:3")
    assert done.returncode != 0
    assert "a profiler of its own" in done.stderr


def test_the_scripts_exception_is_the_commands_end(run) -> None:
    done = run(
        "import torch\n"
        "def f():\n"
        "    torch.ones(2, device='DEVICE').add(1)\n"
        "    raise KeyError('lost')\n"
        "f()\n"
    )
    assert done.returncode == 1
    # Before 2.13 torch's profiler warns of its cycles first.
    before, traceback, _ = done.stderr.partition("Traceback (most recent call last):\n")
    assert traceback
    assert before == "" or torch.__version__ < torch.torch_version.TorchVersion("2.13")
    assert "KeyError: 'lost'" in done.stderr
    assert "profile/run.py" not in done.stderr
    assert "aten::add" in done.stderr  # and what ran until then


def test_what_is_left_for_later_finds_the_script(run) -> None:
    text = """
import atexit, pickle, sys, torch
class Own: pass
torch.ones(2, device="DEVICE").add(1)
assert isinstance(pickle.loads(pickle.dumps(Own())), Own)
atexit.register(lambda: print("at exit", sys.modules["__main__"].Own is Own))
sys.exit(7)
"""
    done = run(text)
    assert done.returncode == 7, done.stderr
    assert done.stdout == "at exit True\n"


def test_steps_that_never_came_are_said(run) -> None:
    done = run("import torch\ntorch.ones(2, device='DEVICE').add(1)", "--steps", "2:5")
    assert done.returncode == 2
    assert done.stderr.startswith("causeway profile: there is no trace of steps 2:5: no optimizer")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--steps", "3:1"), "holds no step"),
        (("--steps", "few"), "neither a number"),
        (("--trace", "no/such/folder/trace.json"), "there is no folder no/such/folder"),
        (("--html", "no/such/folder/page.html"), "there is no folder no/such/folder"),
        ((), "cannot be read"),
    ],
)
def test_what_cannot_be_done_is_said_before_the_script_runs(
    tmp_path: Path, options: tuple[str, ...], words: str
) -> None:
    done = command(*options, str(tmp_path / "none.py"))
    assert done.exit_code == 2
    assert words in done.output
    assert "causeway profile: " in done.output


def test_a_damaged_trace_is_refused(tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_text("{")
    done = command(str(tmp_path / "trace.json"))
    assert done.exit_code == 2
    assert "is no trace" in done.output
