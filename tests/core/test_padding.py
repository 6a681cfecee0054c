"""Chips that write behind what they are given: `padding` of device_info keeps neighbours whole."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]

pytestmark = [pytest.mark.process, pytest.mark.once]

# Tensors of 512 bytes, as the core rounds: without padding the next one begins where one ends.
PROGRAM = """
import torch
host = [torch.full((128,), float(i)) for i in range(6)]
there = [t.to("sim") for t in host]
for _ in range(3):
    for t, u in zip(host, there):
        t.add_(1), u.add_(1)
print(sum(not torch.equal(t, u.cpu()) for t, u in zip(host, there)))
"""


@pytest.mark.parametrize(("padding", "broken"), [("0", False), ("32", False), ("32:0", True)])
def test_neighbours_stay_whole_where_device_info_says_what_is_overwritten(
    run_python: Run, padding: str, broken: bool
) -> None:
    sim = {"CAUSEWAY_SIM_PADDING": padding, "CAUSEWAY_SIM_OPS": "all", "CAUSEWAY_VENDOR": "sim"}
    assert (int(run_python(PROGRAM, **sim).stdout) > 0) == broken


def test_a_padding_that_cannot_be_is_refused(run_python: Run) -> None:
    sim = {"CAUSEWAY_SIM_PADDING": "0:5000", "CAUSEWAY_VENDOR": "sim"}
    said = run_python("import torch; torch.ones(3, device='sim')", status=1, **sim).stderr
    assert "padding 5000; the most is 4096" in said
