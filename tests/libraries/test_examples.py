"""The examples of libraries run as they are, and exit with 0."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import warm

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
