"""The examples run as they are, and exit with 0."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import warm
from causeway.vendor import sim_library

EXAMPLES = Path(__file__).parents[2] / "examples"
pytestmark = [pytest.mark.once, pytest.mark.slow]


@pytest.mark.parametrize(
    ("name", "needs"),
    [
        ("trainer.py", ("transformers", "accelerate")),
        ("lightning_digits.py", ("lightning", "torchmetrics", "sklearn")),
    ],
)
def test_an_example_runs_on_the_device(name: str, needs: tuple[str, ...], device) -> None:
    for library in needs:
        pytest.importorskip(library, reason=f"{library} is not installed")
    environment = {k: v for k, v in os.environ.items() if not k.startswith("CAUSEWAY_")}
    done = warm.run([EXAMPLES / name], env=environment | {"OMP_NUM_THREADS": "1"}, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"trained on {device}" in done.stdout


def test_the_demo_shows_who_computes_as_the_chip_offers_more(tmp_path: Path) -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    report = tmp_path / "report.json"
    environment = {k: v for k, v in os.environ.items() if not k.startswith("CAUSEWAY_")}
    given = ["--epochs", "1", "--accuracy", "0.5", "--json", report]
    done = warm.run([EXAMPLES / "ladder.py", *given], env=environment, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    served = {
        chip: {row["rung"] for row in found["rows"] if row["operator"] != "aten::copy_"}
        for chip, found in json.loads(report.read_text()).items()
    }
    assert served["six functions"] == {"host"}
    assert served["and a compiler"] == {"portable"}
    assert "portable" in served["and kernels"]
    assert served["and kernels"] & {"native", "derived"}
    assert "host" not in served["and kernels"]


def test_the_demo_on_another_vendor_takes_its_options_too(tmp_path: Path) -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    report = tmp_path / "report.json"
    environment = {k: v for k, v in os.environ.items() if not k.startswith("CAUSEWAY_")}
    environment |= {"CAUSEWAY_VENDOR": sim_library(), "CAUSEWAY_SIM_CODE": "1"}  # by its path
    given = ["--epochs", "1", "--accuracy", "1.0", "--json", report]
    done = warm.run([EXAMPLES / "ladder.py", *given], env=environment, timeout=240)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 epochs in" in done.stdout
    assert "Missed 100 % accuracy" in done.stdout
    assert 0.5 < json.loads(report.read_text())["accuracy"] < 1
