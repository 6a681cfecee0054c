"""Hints on precision and speed: where they are given, where not, and that they change nothing."""

from __future__ import annotations

import pytest

from causeway.migrate import advice, finding, rules
from causeway.migrate.advice.table import HINTS
from causeway.migrate.files import rules as files
from causeway.migrate.finding import FileInput, Finding, Result
from causeway.migrate.settings import Settings
from causeway.migrate.systems import rules as systems

LOOP = "import torch\nfor x in loader:\n    loss = model(x)\n    loss.backward()\n"


def hints(source: str, **settings: object) -> list[Finding]:
    convert = finding.converter("a.py")
    assert convert is not None
    result = convert(FileInput("a.py", source.encode()), Settings(**settings))  # type: ignore[arg-type]
    assert result.status in ("converted", "unchanged"), result.reason
    return [f for f in result.findings if f.is_advice]


@pytest.mark.parametrize("hint", HINTS, ids=lambda h: h.rule.code)
def test_the_example_of_a_hint_is_found_and_stays(hint: advice.Hint) -> None:
    convert = finding.converter("a.py")
    assert convert is not None
    source = hint.rule.before
    assert advice.concerns(source.encode())
    result = convert(FileInput("a.py", source.encode()), Settings())
    assert result.status == "unchanged"
    assert result.before == result.after
    found = {f.rule: f for f in result.findings}
    assert hint.rule.code in found
    it = found[hint.rule.code]
    assert (it.kind, it.category, it.severity, it.after) == ("portable", hint.category, "info", "")
    assert it.tip == hint.rule.by_hand
    assert it.message
    assert it.before


@pytest.mark.parametrize(
    "source",
    [
        "x = y.double()\nz = y.item()\n",  # nothing of torch
        "import torch\nimport numpy as np\nx = np.double(3)\ny = np.unique(z)\n",
        "import torch\nfor x in y:\n    print(x.item())\n",  # no steps of training
        LOOP + "total = loss.item()\n",
        "import torch\ndef f(x):\n    return x.item()\nfor x in y:\n    f(x).backward()\n",
        LOOP + "    d.item('key')\n",
        "import torch\ntorch.accelerator.synchronize()\ntorch.cuda_like.empty_cache()\n",
        "import torch\nfor x in y:\n    def f():\n        torch.accelerator.empty_cache()\n",
        "import torch\nl = torch.utils.data.DataLoader(d, num_workers=2, pin_memory=True)\n",
        "import torch\nl = torch.utils.data.DataLoader(d, **options)\n",
        "import torch\no = torch.optim.Adam(p, fused=True)\n",
        "import torch\nx = torch.zeros(3, device=d)\ny = torch.zeros(3).to('cpu')\n",
        "import torch\nx = torch.zeros(3).to(torch.int32)\n",
        "import torch\ntorch.autograd.set_detect_anomaly(False)\n",
        "import torch\nmodel.eval()\nwith torch.no_grad():\n    model(x)\n",
        "import torch\noptimizer.zero_grad(set_to_none=True)\n",
        "import torch\ntorch.set_float32_matmul_precision('highest')\n",
        "import torch\ntorch.allclose(a, b, atol=1e-9, rtol=1e-4)\ntorch.allclose(a, b)\n",
        "import torch\nF.normalize(x, eps=1e-12)\n",  # float32
        "import torch\nx = x.half()\nF.normalize(x, eps=1e-4)\nGradScaler()\n",
        "import torch\nc = torch.nn.Conv2d(1, 1, 1)\nc.to(memory_format=torch.channels_last)\n",
        LOOP + "    y = x.to(device, non_blocking=True).to(torch.int8)\n",
        "import torch\ntorch.optim.Adam(p)  # causeway: keep\n",
    ],
)
def test_a_hint_is_not_given_where_it_would_not_help(source: str) -> None:
    assert [f.rule for f in hints(source)] == []


def test_a_name_is_followed_to_what_it_means() -> None:
    found = hints(
        "import torch.utils.data as data\nfrom torch.optim import AdamW as A\n"
        "from torch.utils.data import DataLoader\n"
        "DataLoader(d, num_workers=1, pin_memory=True, shuffle=True)\ndata.DataLoader(d)\n"
    )
    assert [(f.line, f.rule) for f in found] == [(4, "CW756"), (5, "CW754"), (5, "CW755")]


def test_hints_do_not_count_as_places_of_cuda() -> None:
    convert = finding.converter("a.py")
    assert convert is not None
    source = LOOP + "    x = x.cuda()\n    loss.item()\n"
    result = convert(FileInput("a.py", source.encode()), Settings())
    assert {f.rule for f in result.findings if f.is_advice} == {"CW751", "CW764"}
    totals = Result(".", [result], Settings()).totals()
    assert (totals["changed"], totals["portable"], totals["manual"]) == (1, 0, 0)


def test_hints_can_be_left_out() -> None:
    source = "import torch\ntorch.optim.Adam(p)\n"
    assert [f.rule for f in hints(source)] == ["CW757"]
    assert hints(source, ignore=("CW7",)) == []
    assert hints(source, select=("CW1",)) == []


def test_no_two_rules_have_one_code() -> None:
    tables = (rules.RULES, systems.RULES, files.RULES, advice.RULES)
    assert len({code for table in tables for code in table}) == sum(map(len, tables))
    for table in tables:
        assert all(code == rule.code for code, rule in table.items())
