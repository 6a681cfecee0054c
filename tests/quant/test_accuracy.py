"""What integers cost, the search for layers that need more bits, and `causeway quantize`."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from causeway.cli import app
from causeway.errors import CausewayError, ConfigError
from causeway.quant import equalize, fold_norms, quantize_dynamic
from causeway.quant.accuracy import AccuracyReport, measure

pytestmark = pytest.mark.once

FILE = """
import torch
from torch import nn

def net():
    torch.manual_seed(0)
    convolutions = [nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU()]
    return nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(128, 10))

class Divided(nn.Module):
    def forward(self, x):
        return torch.cat([x[:, :1] / 1000, x[:, 1:]], 1)

def uneven():  # one channel outweighs all others in the scale of its weights
    found = net()
    with torch.no_grad():
        found[5].weight[0] *= 1000
        found[5].bias[0] *= 1000
    return found.append(Divided())

class Attends(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.q, self.k = nn.LayerNorm(16), nn.Linear(16, 16), nn.Linear(16, 16)
        self.head = nn.Linear(16, 10)

    def forward(self, x):
        y = self.norm(x)
        return self.head(torch.tanh(self.q(y) * self.k(y)) + x)

def outliers():  # inputs of q and k have two channels a hundred times as large as the others
    torch.manual_seed(0)
    found = Attends()
    with torch.no_grad():
        found.norm.weight[[3, 7]] *= 100
        for layer in (found.q, found.k):
            layer.weight[:, [3, 7]] *= 0.01
    return found

class Branches(Attends):
    def forward(self, x):
        return super().forward(x if x.sum() > -1e9 else -x)

def branches():  # the same where torch.fx cannot follow
    found = Branches()
    found.load_state_dict(outliers().state_dict())
    return found

def tokens():
    torch.manual_seed(1)
    return [torch.randn(50, 16) for _ in range(4)]

def unlike():  # channels that one layer has too large and the next too small, with norms between
    torch.manual_seed(0)
    size = torch.logspace(-2, 2, 8)[torch.randperm(8)]
    first, norm, last = nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.Linear(288, 10)
    with torch.no_grad():
        norm.weight.copy_(size)
        last.weight /= size.repeat_interleave(36)
    return nn.Sequential(first, norm, nn.ReLU(), nn.Flatten(), last)

def inputs():
    torch.manual_seed(1)
    return [torch.randn(50, 1, 8, 8) for _ in range(4)]

def labeled():
    labels = net().eval()
    with torch.no_grad():
        return [(x, labels(x).argmax(1)) for x in inputs()]

def none():
    return []
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "models.py"
    path.write_text(FILE)
    return path


def names(file: Path) -> dict[str, object]:
    found: dict[str, object] = {}
    exec(file.read_text(), found)
    return found


def measured(
    file: Path, net: str, data: str = "inputs", **more: object
) -> tuple[nn.Module, AccuracyReport]:
    found = names(file)
    return measure(found[net](), found[data](), **more)  # type: ignore[operator, arg-type]


def test_each_layer_has_its_noise(file: Path) -> None:
    integers, report = measured(file, "net")
    assert [row.name for row in report.layers] == ["0", "2", "5"]
    assert report.metric == "agreement"
    assert report.before == 100
    assert report.after > 95
    for row in report.layers:
        assert 25 < row.noise < 60
        assert row.cosine > 0.998
        assert row.worst_noise <= row.noise + 0.01
        assert row.alone >= report.layers[-1].noise - 1
    assert integers[0].phase == "quantized"
    _, sixteen = measured(file, "net", dtype="int16")
    assert min(row.noise for row in sixteen.layers) > 70


def test_a_layer_spoilt_by_one_channel_is_found_and_raised(file: Path) -> None:
    _, eight = measured(file, "uneven")
    alone = {row.name: row.alone for row in eight.layers}
    assert min(alone, key=alone.__getitem__) == "5"
    assert eight.lost > 5
    _, by_channel = measured(file, "uneven", spec={"per_channel": True})
    assert by_channel.lost < eight.lost
    net, report = measured(file, "uneven", lose=4.0)
    assert report.lost <= 4.0
    assert report.raised == {"5": "int16"}
    assert {row.name: row.dtype for row in report.layers} == {
        "0": "int8",
        "2": "int8",
        "5": "int16",
    }
    assert net[5].weight.dtype == torch.int16


def test_with_labels_the_metric_is_accuracy(file: Path) -> None:
    _, report = measured(file, "net", "labeled")
    assert (report.metric, report.before) == ("accuracy", 100.0)


def test_wholes_are_measured_and_raised_too() -> None:
    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.cells = nn.Embedding(30, 8), nn.LSTM(8, 12)
            self.dropout, self.head = nn.Dropout(0.9), nn.Linear(12, 30)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.head(self.dropout(self.cells(self.table(ids))[0]))

    torch.manual_seed(0)
    net, batches = Words().train(), [torch.randint(0, 30, (9, 20)) for _ in range(3)]
    with torch.no_grad():
        net.table.weight[0] *= 3000  # the cells' inputs have one scale
    integers, report = measure(net, batches, lose=1.0)
    assert [row.name for row in report.layers] == ["table", "cells", "head"]
    assert report.before == 100, "dropout is off"
    assert report.raised["cells"] == "int16"
    assert report.lost <= 1.0
    assert integers.cells.weight_ih_l0.dtype == torch.int16
    assert {row.name: row.dtype for row in report.layers}["cells"] == "int16"


def test_no_data_is_an_error(file: Path) -> None:
    with pytest.raises(CausewayError, match="at least one batch"):
        measured(file, "net", "none")
    with pytest.raises(ConfigError, match="0 or more points"):
        measured(file, "net", lose=math.nan)
    with pytest.raises(CausewayError, match="no layer that is quantized"):
        measure(nn.ReLU(), [torch.ones(2, 2)])


def run(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["quantize", *map(str, arguments)])
    return done.exit_code, done.output


def first_json(said: str) -> Any:
    return json.JSONDecoder().raw_decode(said)[0]


def test_the_command(file: Path, tmp_path: Path) -> None:
    state, html = tmp_path / "integers.pth", tmp_path / "report.html"
    code, said = run(f"{file}:net", "--data", f"{file}:labeled", "-o", state, "--html", html)
    assert code == 0, said
    assert "accuracy: 100.00 % before" in said
    assert "alone dB" in html.read_text()
    net = quantize_dynamic(names(file)["net"]())  # type: ignore[operator]
    net.load_state_dict(torch.load(state, weights_only=True))
    assert net[0].weight_scale.numel() == 8
    code, said = run(
        f"{file}:uneven", "--data", f"{file}:inputs", "--per-tensor", "--lose", "4", "--json"
    )
    found = json.loads(said)
    assert code == 0
    assert found["lost"] <= 4
    assert found["raised"] == {"5": "int16"}


def test_the_command_corrects_biases(file: Path, tmp_path: Path) -> None:
    plain, corrected = tmp_path / "plain.pth", tmp_path / "corrected.pth"
    given = (f"{file}:uneven", "--data", f"{file}:inputs", "--per-tensor")
    assert run(*given, "-o", plain)[0] == 0
    assert run(*given, "-o", corrected, "--correct-bias")[0] == 0
    before, after = (torch.load(p, weights_only=True) for p in (plain, corrected))
    assert all(torch.equal(before[k], after[k]) for k in before if not k.endswith("bias"))
    assert any(not torch.equal(before[k], after[k]) for k in before if k.endswith("bias"))


PREPARED = [
    ("outliers", "tokens", ("q", "k"), ("--smooth", "0.5"), "smoothed 0.5"),
    ("unlike", "inputs", ("4",), ("--fold-norms", "--equalize"), "equalized"),
    ("uneven", "inputs", (), ("--correct-bias",), "biases corrected"),
]


@pytest.mark.parametrize(("net", "data", "better", "options", "step"), PREPARED)
def test_the_command_says_what_each_layer_has_of_a_step(
    file: Path, tmp_path: Path, net: str, data: str, better: Any, options: Any, step: str
) -> None:
    state = tmp_path / "integers.pth"
    fold = options[:1] if options[0] == "--fold-norms" else ()
    given = (f"{file}:{net}", "--data", f"{file}:{data}", "--per-tensor", "--json")
    bare, found = (first_json(run(*given, *o)[1]) for o in (fold, (*options, "-o", state)))
    assert found["steps"] == [step]
    assert found["plain"] == bare["after"]
    assert found["after"] >= bare["after"]
    without = {row["name"]: row["noise"] for row in bare["layers"]}
    for row in found["layers"]:
        assert row["plain"] == pytest.approx(without[row["name"]])
        if row["name"] in better:
            assert row["noise"] > row["plain"] + 10, row
    assert {row["plain"] for row in bare["layers"]} == {None}
    model = names(file)[net]().eval()  # type: ignore[operator]
    q = quantize_dynamic(fold_norms(model) if fold else model)
    q.load_state_dict(torch.load(state, weights_only=True))
    batches = names(file)[data]()  # type: ignore[operator]
    with torch.no_grad():
        same = [(q(x).argmax(-1) == model(x).argmax(-1)).float().mean() for x in batches]
    assert 100 * float(sum(same)) / len(same) == pytest.approx(found["after"])


def test_the_table_and_the_page_have_both_noises(file: Path, tmp_path: Path) -> None:
    html = tmp_path / "report.html"
    given = (f"{file}:outliers", "--data", f"{file}:tokens", "--smooth", 0.5, "--html", html)
    code, said = run(*given)
    assert code == 0, said
    for text in (said, html.read_text()):
        assert "without dB" in text
        assert "(smoothed 0.5; " in text


def test_noise_of_a_scaled_channel_is_in_the_units_of_the_model(file: Path) -> None:
    found: dict[str, Any] = names(file)
    net, data = fold_norms(found["unlike"]().eval()), found["inputs"]()
    with torch.no_grad():
        net[0].weight[:4, :, 1:] = 0  # half of the channels round otherwise
    _, report = measure(net, data, {"per_channel": True}, equal=True)
    row = report.layers[0]  # one scale for each of its channels: their integers are the same
    assert row.noise == pytest.approx(row.plain, abs=0.05)
    _, scaled = measure(equalize(net, batches=data), data, {"per_channel": True})
    assert abs(scaled.layers[0].noise - row.noise) > 0.5, "the test would see nothing"


def test_pairs_are_named_where_torch_fx_cannot_follow(file: Path) -> None:
    given = (f"{file}:branches", "--data", f"{file}:tokens", "--per-tensor", "--smooth", 0.5)
    code, said = run(*given)
    assert code == 2
    assert "cannot follow" in said
    code, said = run(*given, "--pair", "norm=q,k", "--json")
    assert code == 0, said
    row = json.loads(said)["layers"][0]
    assert row["noise"] > row["plain"] + 10
    code, said = run(*given, "--pair", "norm=q")
    assert code == 2
    assert "the model computes something else" in said.replace("\n", " ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["net", "--data", "nothing"], "is no FILE:FUNCTION"),
        (["net", "--data", "none"], "at least one batch"),
        (["net", "--data", "inputs", "--method", "best"], "method is one of"),
        (["net", "--data", "inputs", "--set", "iterations=3"], "Did you mean 'iteration'"),
        (["net", "--data", "inputs", "--set", "firstconv"], "KEY=JSON"),
        (["net", "--data", "inputs", "--smooth", "1.5"], "from 0 to 1"),
        (["net", "--data", "inputs", "--smooth", "1", "--pair", "0"], "FIRST=NEXT"),
        (["net", "--data", "inputs", "--pair", "0=2"], "one of the two"),
        (["unlike", "--data", "inputs", "--equalize"], "fold batch norms first"),
        (["net", "--data", "inputs", "--equalize", "--pair", "0=5"], "cannot be equalized"),
        (["net", "--data", "inputs", "-o", "/dev/null/at/all"], "no folder"),
    ],
)
def test_what_the_command_refuses(file: Path, arguments: list[str], message: str) -> None:
    net, flag, data, *more = arguments
    code, said = run(f"{file}:{net}", flag, f"{file}:{data}", *more)
    assert code == 2
    assert message in said.replace("\n", " ")
