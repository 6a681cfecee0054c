"""`causeway profile` runs a script as Python would, and says where its time went."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

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
def command(tmp_path: Path, name: str):
    """Run `causeway profile` on a script of this text."""

    def run(text: str, *options: str, args: tuple[str, ...] = ()):
        (tmp_path / "train.py").write_text(text.replace("DEVICE", name))
        (tmp_path / "helper.py").write_text("")
        words = [*options, str(tmp_path / "train.py")]
        if args:
            words += ["--", *args]
        return subprocess.run(
            [sys.executable, "-m", "causeway", "profile", *words],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


def test_a_script_is_summed_up_and_traced(command, tmp_path: Path) -> None:
    options = [
        *("--trace", str(tmp_path / "trace.json")),
        *("--json", str(tmp_path / "sums.json")),
        *("--html", str(tmp_path / "page.html")),
        *("--steps", "2:5"),
    ]
    done = command(TRAIN, *options, args=("--lr", "0.1"))
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
    # The same sums from the file alone, also where the script is not.
    again = subprocess.run(
        [sys.executable, "-m", "causeway", "profile", str(tmp_path / "trace.json")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert again.returncode == 0, again.stderr
    assert again.stderr == done.stderr


@pytest.mark.parametrize(
    ("text", "status", "words"),
    [
        ("import sys; sys.exit(7)", 7, ""),
        ("import sys; sys.exit('too bad')", 1, "too bad"),
        ("raise SystemExit", 0, ""),
        ("def f():\n    raise KeyError('lost')\nf()", 1, "KeyError: 'lost'"),
        ("x = = 1", 1, "SyntaxError"),
    ],
)
def test_the_scripts_end_is_the_commands(command, text: str, status: int, words: str) -> None:
    done = command("import torch\ntorch.ones(2, device='DEVICE').add(1)\n" + text)
    assert done.returncode == status, done.stderr
    assert words in done.stderr
    assert "profile/run.py" not in done.stderr
    assert "internal" not in done.stderr


def test_what_is_left_for_later_finds_the_script(command) -> None:
    text = """
import atexit, pickle, sys, torch
class Own: pass
torch.ones(2, device="DEVICE").add(1)
assert isinstance(pickle.loads(pickle.dumps(Own())), Own)
atexit.register(lambda: print("at exit", sys.modules["__main__"].Own is Own))
"""
    done = command(text)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "at exit True\n"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--steps", "3:1"), "holds no step"),
        (("--steps", "few"), "neither a number"),
        (("--steps", "2:5"), "no optimizer took a step"),
        (("--trace", "no/such/folder/trace.json"), "No such file"),
    ],
)
def test_what_cannot_be_done_is_said(command, options: tuple[str, ...], words: str) -> None:
    done = command("import torch\ntorch.ones(2, device='DEVICE').add(1)", *options)
    assert done.returncode == 2
    assert done.stderr.startswith("causeway profile: ")
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_a_missing_script_and_a_damaged_trace_are_said(tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_text("{")
    for path, words in (("none.py", "cannot be read"), ("trace.json", "no trace")):
        done = subprocess.run(
            [sys.executable, "-m", "causeway", "profile", str(tmp_path / path)],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 2
        assert words in done.stderr
        assert "Traceback" not in done.stderr
