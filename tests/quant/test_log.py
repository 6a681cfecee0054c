"""What a training in fixed point writes down of its bits, and `causeway quantize --log`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from causeway.cli import app
from causeway.errors import CausewayError, ConfigError
from causeway.quant import adaptive_quantize, bits_of
from causeway.quant import log as log_

pytestmark = pytest.mark.once


def steps(net: nn.Module, count: int, first: int = 0) -> None:
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for i in range(first, first + count):
        x = torch.randn(16, 8, generator=torch.Generator().manual_seed(i))
        x[0, 0] = 3000.0 if i > 4 else 1.0  # one number for which 8 bits have no room
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()


def made(path: Path) -> nn.Module:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 4))
    return adaptive_quantize(net, steps_per_epoch=200, log=path)


def test_the_file_says_what_the_layers_say(tmp_path: Path) -> None:
    path = tmp_path / "bits.jsonl"
    net = made(path)
    steps(net, 30)
    found = {(h.layer, h.stream): h for h in log_.read(path)}
    own = {(b.layer, b.stream): b for b in bits_of(net)}
    assert found.keys() == own.keys()
    assert len(found) == 6
    for key, b in own.items():
        history = found[key]
        assert (history.bits[-1][1], history.shift, history.looks) == (b.bits, b.shift, b.looks)
    # Counted in another way: by the layers, step for step. After its last look the file ends.
    assert sum(h.bits[-1][1] > 8 for h in found.values()) >= 1, "bits were raised"
    for key, b in own.items():
        raised = [step for step, bits in found[key].bits if bits > 8]
        if raised:
            assert b.steps[0] == raised[0]


def test_a_run_that_goes_on_replaces_what_it_does_again(tmp_path: Path) -> None:
    whole, path = tmp_path / "whole.jsonl", tmp_path / "bits.jsonl"
    net = made(whole)
    steps(net, 12)
    first = made(path)
    steps(first, 8)
    torch.save(first.state_dict(), tmp_path / "net.pth")
    steps(first, 2, 8)  # lost
    again = made(path)
    again.load_state_dict(torch.load(tmp_path / "net.pth", weights_only=True))
    steps(again, 4, 8)
    assert log_.read(path) == log_.read(whole)


def looks(path: Path, *rows: tuple[str, str, int, int, int]) -> Path:
    for row in rows:
        log_.write(str(path), log_.Look(*row))
    return path


def test_stretches_and_shares(tmp_path: Path) -> None:
    path = looks(
        tmp_path / "bits.jsonl",
        *(("a", "input", 0, 8, -7), ("a", "input", 4, 16, -9), ("a", "input", 9, 16, -8)),
        ("a", "weight", 0, 8, -5),
    )
    a, weight = log_.read(path)
    assert (a.stretches(), a.looks, a.shift) == ([(8, 4), (16, 6)], 3, -8)
    assert (a.share(8), a.share(16), a.share(24)) == (0.4, 0.6, 0.0)
    assert weight.stretches() == [(8, 10)]


def run(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["quantize", *map(str, arguments)])
    return done.exit_code, done.output


def test_the_command_shows_a_table_and_a_picture(tmp_path: Path) -> None:
    path = looks(
        tmp_path / "bits.jsonl",
        *(("conv<1>", "gradient", 0, 8, -7), ("conv<1>", "gradient", 5, 16, -9)),
        *(("conv<1>", "input", 0, 8, -7), ("conv<1>", "input", 9, 24, -7)),
    )
    html = tmp_path / "bits.html"
    code, said = run("--log", path, "--html", html)
    assert code == 0, said
    assert "16 at step 5" in said
    assert "2 streams over 10 steps: 70.0 % in 8 bits, 25.0 % in 16 bits, 5.0 % in 24" in said
    page = html.read_text()
    assert "<svg" in page
    assert "16 bits: 5 steps (50" in page
    assert "conv&lt;1&gt;, gradient" in page
    code, said = run("--log", path, "--json")
    assert json.loads(said)["streams"][0]["bits"] == [[0, 8], [5, 16]]


def test_what_is_no_log_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bits.jsonl"
    path.write_text("")
    with pytest.raises(CausewayError, match="is empty"):
        log_.read(path)
    for line in ("{", '{"layer": "a"}', '{"layer":"a","stream":"b","step":0,"bits":9,"shift":0}'):
        path.write_text(line + "\n")
        with pytest.raises(CausewayError, match="line 1 is no look"):
            log_.read(path)
    assert run("--log", tmp_path / "none")[0] == 2
    assert run("--log", path, "--data", "x:y")[0] == 2
    assert run()[0] == 2
    with pytest.raises(ConfigError, match="no such folder"):
        made(tmp_path / "nowhere" / "bits.jsonl")
