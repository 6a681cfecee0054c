"""The vendor of Huawei's NPUs on the stand-in for CANN's libraries. It shows that calls fit the
public signatures and that results are the CPU's where operators are what their documentation says.
It shows nothing of a chip.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PROGRAMS = str(HERE / "programs.py")
CAUSEWAY = "import sys; from causeway.cli import app; app(sys.argv[1:])"
Run = Callable[..., subprocess.CompletedProcess[str]]

pytestmark = [pytest.mark.process, pytest.mark.once, pytest.mark.slow]


@pytest.mark.parametrize("name", ["digits", "gpt", "lstm"])
def test_a_network_trains_to_the_cpus_losses(on_ascend: Run, name: str) -> None:
    said = json.loads(on_ascend(PROGRAMS, name).stdout.splitlines()[-1])
    assert said["ascend"] == pytest.approx(said["cpu"], rel=1e-4)
    assert said["native"] + said["derived"] > 50


def test_a_number_on_either_side_is_the_cpus(on_ascend: Run) -> None:
    assert on_ascend(PROGRAMS, "numbers").stdout.endswith("equal\n")


@pytest.mark.parametrize("chip", ["Ascend910B1", "Ascend950PR_9599"])
def test_the_saved_values_of_a_batch_norm_are_torchs_on_each_chip(
    on_ascend: Run, chip: str
) -> None:
    said = json.loads(
        on_ascend(PROGRAMS, "batch_norm", ASCEND_STAND_IN_SOC=chip).stdout.splitlines()[-1]
    )
    assert said["rungs"] == ["derived", "native"]  # by the form with out=, and by itself


def test_the_digits_come_from_the_chips_operators_alone(on_ascend: Run) -> None:
    said = json.loads(on_ascend(PROGRAMS, "digits").stdout.splitlines()[-1])
    assert said["host"] == 0


def test_without_operators_the_host_computes(on_ascend: Run) -> None:
    said = json.loads(
        on_ascend(PROGRAMS, "digits", CAUSEWAY_ASCEND_OPS="0").stdout.splitlines()[-1]
    )
    assert said["ascend"] == pytest.approx(said["cpu"], rel=1e-4)
    assert said["host"] > 50
    assert said["derived"] == 0


def test_the_table_conforms(on_ascend: Run) -> None:
    done = on_ascend("-c", CAUSEWAY, "conformance", "--table")
    assert "\nconforms: " in done.stdout


def test_doctor_says_which_libraries_and_how_many_operators(on_ascend: Run, stand_in: Path) -> None:
    said = on_ascend("-c", "import torch; from causeway import _C; print(_C.vendor_notes())").stdout
    assert f"{stand_in}/libascendcl.so" in said
    assert "chip Ascend" in said
    assert "operators of the table are in CANN's libraries" in said
