"""Small models of transformers give the CPU's numbers on the device.

A daily slice; `python tests/libraries/models.py` runs all of them.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import causeway

pytest.importorskip("transformers", reason="transformers is not installed")

_spec = importlib.util.spec_from_file_location(
    "library_models", Path(__file__).with_name("models.py")
)
assert _spec is not None
assert _spec.loader is not None
models = sys.modules[_spec.name] = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(models)

pytestmark = pytest.mark.once


@pytest.mark.parametrize("name", models.DAILY)
def test_a_model_gives_the_numbers_of_the_cpu(name: str, device: torch.device) -> None:
    with causeway.ledger() as ledger:
        assert list(models.differences(name, device)) == []
    assert ledger.total() > 0


def test_a_changed_weight_is_found(device: torch.device) -> None:
    def change(model: Any) -> None:
        with torch.no_grad():
            model.get_parameter("classifier.bias")[0] += 0.01

    found = "\n".join(models.differences("vit", device, change))
    assert "vit: outputs" in found
    assert "vit: losses" in found
