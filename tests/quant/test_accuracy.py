"""What integers cost, the search for layers that need more bits, and `causeway quantize`."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from causeway.cli import app
from causeway.errors import CausewayError, ConfigError
from causeway.quant import quantize_dynamic
from causeway.quant.accuracy import Report, measure

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
) -> tuple[nn.Module, Report]:
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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["net", "--data", "nothing"], "is no FILE:FUNCTION"),
        (["net", "--data", "none"], "at least one batch"),
        (["net", "--data", "inputs", "--method", "best"], "method is one of"),
        (["net", "--data", "inputs", "--set", "iterations=3"], "Did you mean 'iteration'"),
        (["net", "--data", "inputs", "--set", "firstconv"], "KEY=JSON"),
        (["net", "--data", "inputs", "-o", "/nowhere/at/all"], "no folder"),
    ],
)
def test_what_the_command_refuses(file: Path, arguments: list[str], message: str) -> None:
    net, flag, data, *more = arguments
    code, said = run(f"{file}:{net}", flag, f"{file}:{data}", *more)
    assert code == 2
    assert message in said.replace("\n", " ")
