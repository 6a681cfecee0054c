"""A program that computes the CPU's numbers passes, and one that does not is told where."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch

from causeway.errors import CausewayError
from causeway.verify import observe
from causeway.verify.page import page
from causeway.verify.report import Script, VerificationReport, compare_series
from causeway.verify.runner import Options, verify

PROGRAM = """
import sys, torch, torch.nn as nn
assert sys.argv[1:] == ["--lr", "0.1"]
host = torch.randn(8, 4)                      # the host draws first
model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 1)).cuda()
generator = torch.Generator(device="cuda").manual_seed(7)
optimizer = torch.optim.SGD(model.parameters(), lr=float(sys.argv[2]))
for step in range(100):
    x = host.cuda() + torch.randn(8, 4, device="cuda")     # and so does the device
    x = x + torch.rand(8, 4, device="cuda", generator=generator)
    y = model(x)
    PLANT
    loss = (y ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    assert step < 2, "it should have been stopped"
"""
FAULT = """
    if torch._C.TensorBase.device.__get__(y).type != "cpu" and step == 1:
        y = y * 1.05
"""


def test_the_same_numbers_pass_and_a_planted_fault_is_found(tmp_path: Path) -> None:
    right, wrong = tmp_path / "right.py", tmp_path / "wrong.py"
    right.write_text(PROGRAM.replace("    PLANT\n", ""))
    wrong.write_text(PROGRAM.replace("    PLANT\n", FAULT))
    options = Options(steps=2, way="transfer", operators=False, tolerance=1e-5)
    report = verify([str(right), str(wrong)], ["--lr", "0.1"], options)
    good, bad = report.scripts
    assert good.good, good.verdict()
    assert good.steps == (2, 2)
    assert [s.compared > 0 for s in good.series] == [True] * 4
    assert any(f["rung"] == "host" for f in good.fallbacks)
    assert any(p["api"] == "torch.randn" for p in good.places)
    assert bad.runs
    assert bad.same is False
    assert bad.verdict().startswith("losses: number 2")
    assert not report.good


def test_a_script_that_is_not_there_is_refused() -> None:
    with pytest.raises(CausewayError, match="nowhere"):
        verify(["/nowhere.py"], [], Options(way="transfer"))


def test_a_module_is_verified_as_python_m_would_run_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "verified_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "net.py").write_text(
        "import torch\n\n\ndef make():\n    return torch.nn.Linear(4, 2).cuda()\n"
    )
    (package / "train.py").write_text(
        "import os, sys, torch\nfrom .net import make\n\n"
        "assert __name__ == '__main__' and __package__ == 'verified_package'\n"
        "assert sys.argv[1:] == ['--lr', '0.1'] and os.path.exists('here.txt')\n"
        "model = make()\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for _ in range(9):\n    optimizer.zero_grad()\n"
        "    model(torch.ones(3, 4).cuda()).square().mean().backward()\n    optimizer.step()\n"
    )
    (tmp_path / "here.txt").write_text("")
    monkeypatch.chdir(tmp_path)
    options = Options(steps=2, way="migrated", operators=False, module=True)
    (script,) = verify(["verified_package.train"], ["--lr", "0.1"], options).scripts
    assert script.good, script.verdict()
    assert script.converted
    assert script.steps == (2, 2)
    with pytest.raises(CausewayError, match=r"no module 'verified_package\.nowhere'"):
        verify(["verified_package.nowhere"], [], options)


@pytest.mark.parametrize(
    ("cpu", "device", "same"),
    [
        ([1.0], [1.0005], True),
        ([1.0], [1.002], False),
        ([1000.0], [1000.5], True),
        ([math.nan], [math.nan], True),
        ([math.nan], [1.0], False),
        ([1.0], [math.nan], False),
        (["inf"], ["inf"], True),
        (["inf"], ["-inf"], False),
        ([1.0, 2.0], [1.0], False),
        ([[1.0, 2.0]], [[1.0]], False),
    ],
)
def test_numbers_are_the_same_within_the_tolerance(
    cpu: list[float], device: list[float], same: bool
) -> None:
    assert compare_series("losses", cpu, device, 1e-3).same is same


def script(**values: object) -> Script:
    fields: dict[str, object] = {
        "script": "<b>.py", "way": "transfer", "converted": None, "reference_error": "",
        "error": "", "steps": (1, 1),
    }  # fmt: skip
    return Script(**{**fields, **values})  # type: ignore[arg-type]


def test_nothing_to_compare_does_not_pass() -> None:
    found = script(series=[compare_series("losses", [], [], 1e-3)])
    assert found.same is None
    assert not found.good
    assert "nothing to compare" in found.verdict()


def test_an_error_is_said_with_the_line_of_the_script() -> None:
    text = (
        'Traceback (most recent call last):\n  File "/tmp/copy/train.py", line 7, in <module>\n'
        '    net(x)\n  File "/torch/nn/module.py", line 9, in call\nValueError: no\n'
    )
    script = Script("src/train.py", "migrated", True, "", text, (0, 0))
    assert script.verdict() == (
        "it does not run on the device: src/train.py:7 (converted): ValueError: no"
    )
    script = Script("src/train.py", "transfer", None, "", "ValueError: no", (0, 0))
    assert script.verdict() == "it does not run on the device: ValueError: no"


def test_a_wrong_operator_does_not_pass() -> None:
    series = [compare_series("losses", [1.0], [1.0], 1e-3)]
    assert script(series=series).good
    assert not script(series=series, operators={"rows": [], "failures": [{}]}).good
    assert not script(series=series, error="it fell").good


def test_the_page_has_what_the_report_has_and_escapes_it() -> None:
    series = [compare_series("losses", [1.0], [2.0], 1e-3)]
    about = {"device": "sim", "causeway": "0", "torch": "2", "steps": 1, "tolerance": 1e-3}
    report = VerificationReport([script(series=series, losses=[(1.0, 2.0)])], about)
    html = page(report).to_html()
    assert "number 1 is 1 on the CPU and 2 on the device" in html
    assert "<b>.py" not in html
    assert json.loads(report.to_json())["scripts"][0]["same"] is False


def test_attention_stays_on_the_device(device: torch.device) -> None:
    q = torch.randn(1, 2, 4, 8, device=device, requires_grad=True)
    with observe.OneStream(device.type):
        y = torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)
        y.sum().backward()
    assert y.device.type == device.type
    assert q.grad is not None


def test_random_operators_of_the_device_draw_from_the_host(device: torch.device) -> None:
    torch.manual_seed(3)
    host = [torch.rand(3), torch.nn.functional.dropout(torch.ones(8), 0.5), torch.randperm(9)]
    torch.manual_seed(3)
    with observe.OneStream(device.type):
        here = [
            torch.rand(3, device=device),
            torch.nn.functional.dropout(torch.ones(8, device=device), 0.5),
            torch.randperm(9, device=device),
        ]
    for a, b in zip(host, here, strict=True):
        assert b.device.type == device.type
        assert torch.equal(a, b.cpu())


OWN_UPDATE = """
import torch
w = torch.ones(3, device="cuda", requires_grad=True)
for step in range(100):
    loss = (w * w).sum()
    loss.backward()
    with torch.no_grad():
        w -= 0.1 * w.grad
        w.grad = None
    assert step < 2, "it should have been stopped"
"""
ACCUMULATES = """
import torch
w = torch.nn.Parameter(torch.ones(3, device="cuda"))
optimizer = torch.optim.SGD([w], lr=0.1)
for step in range(100):
    for part in range(4):
        (w * w).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    assert step < 2, "it should have been stopped"
"""
NO_STEP = """
import torch
model = torch.nn.Linear(2, 2).cuda()
model(torch.ones(1, 2, device="cuda"))
"""


def test_steps_are_counted_without_an_optimizer_too(tmp_path: Path) -> None:
    for name, text in (("own", OWN_UPDATE), ("accumulates", ACCUMULATES), ("none", NO_STEP)):
        (tmp_path / f"{name}.py").write_text(text)
    options = Options(steps=2, way="transfer", operators=False)
    scripts = [str(tmp_path / f"{name}.py") for name in ("own", "accumulates", "none")]
    own, accumulates, none = verify(scripts, [], options).scripts
    assert (own.verdict(), own.steps) == ("same numbers in 2 steps", (2, 2))
    assert (accumulates.verdict(), accumulates.steps) == ("same numbers in 2 steps", (2, 2))
    assert none.steps == (0, 0)
    assert none.verdict().startswith("no step was made")
    assert [s.worst for s in own.series if not s.compared] == [0.0] * 3
    assert [s["worst"] for s in own.to_dict()["series"]][1:] == [None] * 3
