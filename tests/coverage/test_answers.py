"""What `causeway coverage` and `causeway explain` say, write and refuse."""

from __future__ import annotations

import csv
import gzip
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from causeway import cli
from causeway.coverage import forms, paper, roofline, trace
from causeway.errors import CausewayError, ConfigError

Run = Callable[..., subprocess.CompletedProcess[str]]
Command = Callable[..., Any]

NAME = "<script>window.evil=1<.py"  # a slash would be a folder
SCRIPT = """\
import torch
from torch import nn

device = torch.accelerator.current_accelerator()
model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 8)).to(device)
optimizer = torch.optim.AdamW(model.parameters())
x = torch.randn(512, 64).to(device)
scale = torch.ones(3, dtype=torch.float64, device=device)  # </script><script>window.evil=2</script>
y = torch.special.erfcx(model(x))
y.mean().backward()
optimizer.step()
print("the program's own words")
"""
FLOAT64, ERFCX = 8, 9  # lines
SETTINGS = {"sim_ops": "all", "sim_memory_model": "discrete", "sim_personality": "no-fp64"}


class Answer:
    """One run that writes everything."""

    def __init__(self, folder: Path, run: Run) -> None:
        self.folder = folder
        self.script = folder / NAME
        self.script.write_text(SCRIPT)
        files = {kind: folder / f"out.{kind}" for kind in ("html", "json", "csv", "sarif")}
        options = [part for kind, path in files.items() for part in (f"--{kind}", str(path))]
        arguments = ("coverage", str(self.script), *options, "--strict")
        done = run(*arguments, status=1, cwd=folder, **SETTINGS)
        self.stdout, self.stderr = done.stdout, done.stderr
        self.page = files["html"]
        self.json = json.loads(files["json"].read_text())
        self.rows = list(csv.DictReader(files["csv"].open()))
        self.sarif = json.loads(files["sarif"].read_text())

    def row(self, operator: str) -> dict[str, Any]:
        return next(row for row in self.json["operators"] if row["operator"] == operator)


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory, causeway_command: Run) -> Answer:
    return Answer(tmp_path_factory.mktemp("answer"), causeway_command)


def test_nothing_is_computed_and_every_phase_is_there(answer: Answer) -> None:
    assert answer.json["dry"]
    assert answer.json["failure"] is None
    phases = {phase for row in answer.json["operators"] for phase in row["phases"]}
    assert phases == {"forward", "backward", "optimizer"}
    assert "the program's own words" in answer.stderr
    assert "the program's own words" not in answer.stdout


def test_what_is_missing_is_named_with_its_line_and_reason(answer: Answer) -> None:
    row = answer.row("aten::special_erfcx")
    assert row["rung"] == "host"
    assert "the vendor does not offer aten::special_erfcx.out" in row["reason"]
    assert [(s["file"], s["line"]) for s in row["sources"]] == [(str(answer.script), ERFCX)]
    assert "aten::special_erfcx" in answer.json["missing"]
    assert "special_erfcx" in answer.stdout


def test_a_backward_operator_belongs_to_the_line_of_its_forward(answer: Answer) -> None:
    row = next(
        r for r in answer.json["operators"] if r["operator"].startswith("aten::gelu_backward")
    )
    assert {s["line"] for s in row["sources"]} == {ERFCX}
    assert row["phases"] == {"backward": 1}


def test_a_dtype_that_the_chip_lacks_is_named_with_its_line(answer: Answer) -> None:
    (narrowed,) = [n for n in answer.json["narrowed"] if n["line"] == FLOAT64]
    assert (narrowed["dtype"], narrowed["stored"], narrowed["count"]) == ("float64", "float32", 1)
    assert "the chip has no float64" in answer.json["verdict"]


def test_shares_add_up(answer: Answer) -> None:
    for share in ("share_of_calls", "share_of_bytes", "share_of_time"):
        assert sum(row[share] for row in answer.json["operators"]) == pytest.approx(1, abs=1e-3)
    mm = answer.row("aten::addmm")
    assert mm["flops"] == 2 * 512 * (64 * 256 + 256 * 8)


def test_the_table_has_a_line_for_each_operator_and_rung(answer: Answer) -> None:
    keys = [(row["operator"], row["rung"]) for row in answer.json["operators"]]
    assert [(row["operator"], row["rung"]) for row in answer.rows] == keys
    assert len(set(keys)) == len(keys)


def test_sarif_points_at_the_lines(answer: Answer) -> None:
    found = {
        (r["ruleId"], r["locations"][0]["physicalLocation"]["region"]["startLine"])
        for r in answer.sarif["runs"][0]["results"]
    }
    assert ("CW-dtype", FLOAT64) in found
    assert ("CW-host", ERFCX) in found
    first = answer.sarif["runs"][0]["results"][0]["locations"][0]["physicalLocation"]
    assert first["artifactLocation"]["uriBaseId"] == "SRCROOT"


# --- other targets --------------------------------------------------------------------------------

FUNCTIONS = """\
import torch
from torch import nn

def step(device):
    x = torch.ones(300, 300, device=device)
    if (x @ x).sum().item() > 0:  # known only when it is computed
        torch.erfinv(x)

def model():
    return nn.Linear(8, 4), torch.randn(2, 8)

def breaks(device):
    torch.ones(2, device=device) + torch.ones(3, device=device)

def nothing():
    return 3
"""


@pytest.fixture(scope="module")
def functions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("functions") / "mine.py"
    path.write_text(FUNCTIONS)
    return path


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Command:
    """`causeway ARGUMENTS` in this process, which starts the chip's alone."""

    def run(*arguments: str, status: int = 0, cwd: Path | None = None) -> Any:
        for name in [name for name in os.environ if name.startswith("CAUSEWAY_")]:
            monkeypatch.delenv(name)
        for name, value in SETTINGS.items():
            monkeypatch.setenv(f"CAUSEWAY_{name.upper()}", value)
        if cwd is not None:
            monkeypatch.chdir(cwd)
        done = CliRunner().invoke(cli.app, arguments)
        assert done.exit_code == status, done.output
        return done

    return run


def asked(run: Command, target: str, folder: Path, *options: str) -> dict[str, Any]:
    out = folder / "answer.json"
    run("coverage", target, "--json", str(out), *options, cwd=folder)
    found: dict[str, Any] = json.loads(out.read_text())
    return found


def test_a_step_that_needs_its_numbers_is_run_and_says_so(
    functions: Path, command: Command
) -> None:
    found = asked(command, f"{functions}:step", functions.parent)
    assert not found["dry"]
    assert "asks for a number" in found["notes"][0]
    assert "aten::erfinv" in [row["operator"].removesuffix(".out") for row in found["operators"]]
    dry = asked(command, f"{functions}:step", functions.parent, "--dry")
    assert dry["dry"]
    assert "was not seen" in dry["notes"][0]


@pytest.mark.slow
def test_a_function_that_returns_a_model_gets_a_step_of_training(
    functions: Path, command: Command
) -> None:
    found = asked(command, "mine:model", functions.parent, "--optimizer", "sgd")
    phases = {phase for row in found["operators"] for phase in row["phases"]}
    assert phases == {"forward", "backward", "optimizer"}


def test_an_error_of_the_program_is_told_with_its_line(functions: Path, command: Command) -> None:
    found = asked(command, f"{functions}:breaks", functions.parent)
    assert found["failure"]["line"] == 13
    assert "must match" in found["failure"]["message"]


def test_a_program_that_uses_no_chip_gets_one(tmp_path: Path, command: Command) -> None:
    (tmp_path / "plain.py").write_text("import torch\nprint((torch.ones(3) + 1).shape)\n")
    found = asked(command, "plain.py", tmp_path)
    assert "aten::add" in str(found["operators"])
    assert any("set_default_device" in note for note in found["notes"])


def test_a_program_for_cuda_is_redirected(tmp_path: Path, command: Command) -> None:
    (tmp_path / "train.py").write_text(
        "import torch\n"
        "order = torch.utils.data.RandomSampler(range(3))  # draws on the host\n"
        "x = torch.ones(3).cuda()\n"
        "print((x * float(next(iter(order)))).shape)\n"
    )
    found = asked(command, "train.py", tmp_path)
    assert found["failure"] is None
    assert "aten::mul" in str(found["operators"])
    assert any("CUDA's calls redirected" in note for note in found["notes"])


BIG = """\
import torch

device = torch.accelerator.current_accelerator()
with device:
    model = torch.nn.Sequential(*(torch.nn.Linear(16384, 16384) for _ in range(4)))
    model(torch.randn(4096, 16384)).sum().backward()
    torch.optim.AdamW(model.parameters()).step()
# The peak of this program's own memory: getrusage's is at least its parent's at the start.
(peak,) = (line for line in open("/proc/self/status") if line.startswith("VmHWM:"))
open("used", "w").write(str(int(peak.split()[1]) * 1024))
"""


def test_a_model_that_fits_nowhere_takes_no_memory_and_no_math(
    tmp_path: Path, command: Command
) -> None:
    (tmp_path / "big.py").write_text(BIG)
    found = asked(command, "big.py", tmp_path)
    assert found["dry"]
    assert found["peak_bytes"] > 16 << 30  # weights, gradients and two moments of 4 GiB each
    assert int((tmp_path / "used").read_text()) < found["peak_bytes"] / 16
    assert sum(row["flops"] for row in found["operators"]) > 2 * 3 * 4 * 4096 * 16384**2 * 0.9


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["gone.py"], "there is no file"),
        (["gone.json"], "there is no file"),
        (["x.py:f", "--vendor", "nvidia"], "there is no file 'x.py'"),
        (["torch:nn", "--vendor", "nvidia"], "no such vendor is installed"),
        (["torch:nn", "--dry", "--run"], "exclude each other"),
        (["torch:nn", "--optimizer", "lion"], "there is adamw"),
        (["torch:nn", "--support", "gone.json"], "cannot be read"),
    ],
)
def test_what_cannot_be_asked_is_refused(
    arguments: list[str], words: str, command: Command, tmp_path: Path
) -> None:
    done = command("coverage", *arguments, status=2, cwd=tmp_path)
    assert words in done.stderr


# --- reports of vendors ---------------------------------------------------------------------------


def published(**changes: Any) -> dict[str, Any]:
    about = {
        "vendor": "chip", "version": "1", "device": "Chip 0",
        "chip": {
            "memory": 1 << 30, "host_addressable": False, "dtypes": ["float32", "int64", "bool"],
        },
        "offers": {
            "aten::add.out": {"needs": 0, "dtypes": ["float32"]},
            "aten::mul.out": {"needs": 0, "dtypes": ["float32"]},
            "aten::copy_": {"needs": 0, "dtypes": ["float32"]},
        },
    }  # fmt: skip
    cells = {"float32": {"declined": 3}}
    return {"about": about | changes, "operators": [{"operator": "aten::add.out", "cells": cells}]}


def test_a_report_stands_for_the_chip(tmp_path: Path, command: Command) -> None:
    (tmp_path / "chip.json").write_text(json.dumps(published()))
    (tmp_path / "m.py").write_text(
        "import torch\nd = torch.device('chip')\nx = torch.ones(4, device=d)\n"
        "x + x\nx.addcmul(x, x)\ntorch.ones(4, device=d, dtype=torch.int64) + 1\nx.exp()\n"
    )
    found = asked(command, "m.py", tmp_path, "--support", "chip.json")
    rungs = {(row["operator"], row["rung"]) for row in found["operators"]}
    assert ("aten::add.Tensor", "derived") in rungs
    assert ("aten::add.Tensor", "host") in rungs  # int64
    assert ("aten::addcmul", "decomposed") in rungs
    assert ("aten::exp", "host") in rungs
    assert any("declined some calls" in note for note in found["notes"])


def test_a_chip_with_a_compiler_has_the_portable_kernels_on_paper(
    tmp_path: Path, command: Command, run_python: Run
) -> None:
    report = published()
    report["about"]["chip"]["compiler"] = True
    (tmp_path / "chip.json").write_text(json.dumps(report))
    (tmp_path / "m.py").write_text(
        "import torch\nx = torch.ones(4, device='chip')\nx + x\nx.exp()\n(x * 1j).exp()\n"
    )
    found = asked(command, "m.py", tmp_path, "--support", "chip.json")
    rungs = {(row["operator"], row["rung"]) for row in found["operators"]}
    assert ("aten::add.Tensor", "derived") in rungs  # the vendor's kernel still wins
    assert ("aten::exp", "portable") in rungs
    assert any("rung portable" in note for note in found["notes"])
    program = """
import torch, causeway
x = torch.rand(8, 8)
y, keep = x.to("chip"), torch.rand(8) > 0.5
with causeway.ledger() as ledger:
    assert (y @ y.t()).softmax(1).cpu().allclose((x @ x.t()).softmax(1))
    assert y[keep.to("chip")].cpu().equal(x[keep])
    torch.nn.functional.dropout(y, 0.5).sum().item()
rungs = {row.operator: row.rung for row in ledger.rows}
three = {rungs[f"aten::{name}"] for name in ("mm", "_softmax", "native_dropout")}
assert three == {"portable"}, rungs
"""
    run_python(program, CAUSEWAY_VENDOR=str(tmp_path / "chip.json"))


def test_lists_that_are_given_for_results_are_those_of_the_call(
    tmp_path: Path, command: Command, run_python: Run
) -> None:
    report = published()
    for name in ("_foreach_add.List_out", "_foreach_mul.Scalar_out"):
        report["about"]["offers"][f"aten::{name}"] = {"needs": 0, "dtypes": ["float32"]}
    (tmp_path / "chip.json").write_text(json.dumps(report))
    program = """
import torch
x, y = ([torch.arange(float(n)).to("chip") for n in sizes] for sizes in ((2, 3), (2, 3)))
torch._foreach_add_(x, y, alpha=2)
made = torch._foreach_mul(x, 3)
assert [t.tolist() for t in made] == [[0, 9], [0, 9, 18]], made
"""
    (tmp_path / "m.py").write_text(program)
    run_python(program, CAUSEWAY_VENDOR=str(tmp_path / "chip.json"))
    found = asked(command, "m.py", tmp_path, "--support", "chip.json")
    rungs = {row["operator"]: row["rung"] for row in found["operators"]}
    assert rungs["aten::_foreach_add_.List"] == rungs["aten::_foreach_mul.Scalar"] == "derived"
    # What came of numbers that are not known is not known either.
    (tmp_path / "n.py").write_text(
        "import torch\nx = [torch.zeros(3000, 3000, device='chip')]\n"
        "if torch._foreach_add(x, x)[0][0, 0].item() > 1:\n    pass\n"
    )
    done = command("coverage", "n.py", "--support", "chip.json", cwd=tmp_path)
    assert "depends on what is computed" in done.stdout


def test_any_program_runs_on_a_report_with_right_numbers(tmp_path: Path, run_python: Run) -> None:
    (tmp_path / "chip.json").write_text(json.dumps(published()))
    program = """
import torch
x = torch.arange(6.).reshape(2, 3)
y = x.to("chip")
assert (y + y * y).cpu().equal(x + x * x)
assert (y @ y.t()).exp().cpu().allclose((x @ x.t()).exp())
"""
    run_python(program, CAUSEWAY_VENDOR=str(tmp_path / "chip.json"))


@pytest.mark.parametrize(
    ("report", "words"),
    [
        ("", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[1]", "it is a list"),
        ("{}", "no conformance report"),
        ({"about": {"vendor": "x"}, "operators": []}, "older Causeway"),
        (published(vendor="../x"), "torch needs lower-case"),
        (published(vendor=7), "expected a str"),
        (published(offers={"aten::add.out": {"needs": 99, "dtypes": []}}), "mean nothing"),
        (published(offers={"aten::add.out": {"needs": 0, "dtypes": ["Tensor"]}}), "no dtype"),
        (published(offers={"aten::add.out": 3}), "no object"),
        (published(chip={"memory": "much"}), "expected a int"),
        (
            published(chip={**published()["about"]["chip"], "compiler": "yes"}),
            "'compiler' is 'yes'; expected a bool",
        ),
    ],
)
def test_a_damaged_report_is_refused_with_its_reason(
    report: Any, words: str, tmp_path: Path
) -> None:
    path = tmp_path / "report.json"
    path.write_text(report if isinstance(report, str) else json.dumps(report))
    with pytest.raises(ConfigError, match=words):
        paper.read(path)


# --- traces ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made by torch's profiler, with no chip."""
    path = tmp_path_factory.mktemp("trace") / "trace.json"
    layers = [nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 5)]
    model = nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with torch.profiler.profile(record_shapes=True) as profiled:
        loss = nn.functional.cross_entropy(model(torch.randn(2, 3, 8, 8)), torch.tensor([1, 2]))
        loss.backward()
        optimizer.step()
    profiled.export_chrome_trace(str(path))
    return path


def test_a_trace_is_followed_to_what_the_chip_would_call(
    profile: Path, command: Command, tmp_path: Path
) -> None:
    found = asked(command, str(profile), tmp_path)
    rows = {row["operator"]: row for row in found["operators"]}
    for name in ("aten::convolution", "aten::convolution_backward", "aten::addmm"):
        assert name in rows, sorted(rows)
    assert rows["aten::addmm"]["phases"] == {"forward": 1}
    assert rows["aten::convolution_backward"]["phases"] == {"backward": 1}
    assert "float32[2, 3, 8, 8]" in str(rows["aten::convolution"]["signatures"])
    zipped = tmp_path / "trace.json.gz"
    zipped.write_bytes(gzip.compress(profile.read_bytes()))
    assert len(trace.read(zipped)) == len(trace.read(profile))


def event(**changes: Any) -> dict[str, Any]:
    args = {"Input Dims": [[2], [2]], "Input type": ["float", "float"], **changes.pop("args", {})}
    made = {"ph": "X", "cat": "cpu_op", "name": "aten::mul", "ts": 1, "dur": 1, "args": args}
    return made | changes


@pytest.mark.slow
def test_cudas_own_operators_are_followed_or_named(tmp_path: Path, command: Command) -> None:
    heads, stats = [2, 4, 8, 16], [2, 4, 8]
    attention = {
        "Input Dims": [heads, heads, heads, heads, [], heads, stats, [], [], [], [], [], []],
        "Input type": ["c10::Half"] * 4 + [""] + ["c10::Half", "float"] + ["long int"] * 2
        + ["Scalar", "GenericList", "Scalar", ""],
    }  # fmt: skip
    name = "aten::_scaled_dot_product_efficient_attention_backward"
    rnn = event(name="aten::_cudnn_rnn_backward", ts=9)
    events = [event(name=name, args=attention), rnn]
    (tmp_path / "trace.json").write_text(json.dumps({"traceEvents": events}))
    found = asked(command, "trace.json", tmp_path)
    operators = [row["operator"] for row in found["operators"]]
    assert operators == ["aten::_scaled_dot_product_flash_attention_for_cpu_backward"]
    assert any("aten::_cudnn_rnn_backward (it is CUDA's own" in note for note in found["notes"])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ({"traceEvents": 3}, "no list"),
        ({"traceEvents": [{"ph": "M"}, 3, None]}, "no operators"),
        ({"traceEvents": [event(name=7)]}, "damaged"),
        ({"traceEvents": [event(ts="soon")]}, "damaged"),
        ({"traceEvents": [event(ts=float("nan"))]}, "damaged"),
        ({"traceEvents": [event(args={"Input Dims": [[-1], [2]]})]}, "a size of aten::mul"),
        ({"traceEvents": [event(args={"Input Dims": [[1 << 60], [2]]})]}, "a size of aten::mul"),
        ({"traceEvents": [event(args={"Input Dims": 3})]}, "no lists alike"),
        ({"traceEvents": [event(args={"Input type": [], "Input Dims": []})]}, "record_shapes"),
    ],
)
def test_a_damaged_trace_is_refused_with_its_reason(
    content: Any, words: str, tmp_path: Path
) -> None:
    path = tmp_path / "trace.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(CausewayError, match=words):
        trace.read(path)


def test_a_trace_that_is_cut_off_is_refused(profile: Path, tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(profile.read_bytes())[:500])
    with pytest.raises(CausewayError, match="cannot be read"):
        trace.read(path)


# --- explain --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_explain_says_rung_reason_forms_and_tree(command: Command) -> None:
    done = command("explain", "gelu", "--dtype", "float32", "--dtype", "float64")
    text = done.stdout
    assert "aten::gelu(Tensor self" in text
    assert "float64  refused     the chip has no float64" in text
    assert "aten::gelu.out" in text
    assert "torch's decomposition:" in text
    assert "aten::erf" in text
    arguments = ("explain", "aten::special_erfcx", "--json", "--dtype", "float32")
    found = json.loads(command(*arguments).stdout)
    assert [(r["dtype"], r["rung"]) for r in found["rungs"]] == [("float32", "host")]


def test_the_reason_knows_every_name_that_a_vendor_is_asked_by() -> None:
    offered = {"aten::convolution_backward_overrideable": ["float32"], "aten::add.out": ["float32"]}
    declined = forms.reason("aten::convolution_backward", "host", ["float32"], offered)
    assert "offers aten::convolution_backward_overrideable, not for this call" in declined
    assert "not for int64" in forms.reason("aten::add.Tensor", "host", ["int64"], offered)
    assert (
        forms.reason("aten::add_.Tensor", "derived", ["float32"], offered)
        == "served by the vendor's aten::add.out"
    )
    assert "no kernel of a vendor" in forms.reason("aten::view", "host", ["float32"], offered)


def test_operators_of_other_libraries_are_asked_for_by_their_own_names() -> None:
    assert forms.forms("causeway::qlinear") == ("causeway::qlinear",)
    declined = forms.reason("causeway::qlinear", "host", ["int8"], {})
    assert declined == "the vendor does not offer causeway::qlinear"
    assert forms.forms("causeway::that_is_not_there") == ()


def test_explain_knows_the_nearest_name(command: Command) -> None:
    done = command("explain", "aten::gellu", status=2)
    assert "did you mean aten::gelu" in done.stderr


# --- in a browser ---------------------------------------------------------------------------------


def test_the_page_shows_what_is_missing_and_escapes_all(answer: Answer, browser: Any) -> None:
    browser.get(answer.page.as_uri())
    assert browser.execute_script("return window.evil") is None
    assert NAME in browser.title
    first = browser.find_element("css selector", ".table td code").text
    assert first == answer.json["missing"][0]
    search = browser.find_elements("css selector", ".search input")[-1]
    search.send_keys("gelu_backward")
    shown = browser.execute_script(
        "return [...document.querySelectorAll('tbody tr:not([hidden]) td:first-child code')]"
        ".map(c => c.textContent)"
    )
    assert any("gelu_backward" in name for name in shown)
    link = browser.find_element("css selector", "td a code")
    link.click()
    line = browser.find_element("css selector", "tr:target")
    assert line.is_displayed()
    assert line.text


def test_flops_are_torchs_where_it_counts_them() -> None:
    tensor = ["tensor", "float32", [64, 32]]
    other, product = ["tensor", "float32", [32, 16]], ["tensor", "float32", [64, 16]]
    assert roofline.flops("aten::mm", [tensor, other], [product]) == 2 * 64 * 32 * 16
    assert roofline.flops("aten::exp.out", [tensor, tensor], [tensor]) == 64 * 32
