"""The examples of mixed precision, as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

import warm

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


@pytest.mark.once
@pytest.mark.slow
@pytest.mark.parametrize(("example", "runs"), [("amp.py", 3), ("apex.py", 4)])
def test_an_example_reaches_its_accuracy_in_every_precision(example, runs):
    done = warm.run([EXAMPLES / example, "--epochs=3", "--accuracy=0.9"], timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("accuracy 0.9") == runs
    assert "step 20: overflow, the scale goes to 2048" in done.stdout
