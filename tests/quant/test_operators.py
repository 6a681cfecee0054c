"""The reference of layers in integers against another implementation, and mistakes that it finds;
the tests of the device again on chips with a compiler.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.append(str(Path(__file__).parent))

from random_layers import Layer, integers, random_layer

import causeway.quant  # noqa: F401

ROOT = Path(__file__).parents[2]
Run = Callable[..., subprocess.CompletedProcess[str]]

pytestmark = pytest.mark.once


def same(layer: Layer, fault: str = "") -> bool:
    got = layer().numpy().astype(np.float64)
    return bool(np.array_equal(got, layer.again(fault).astype(np.float64), equal_nan=True))


def test_the_reference_is_what_another_implementation_computes() -> None:
    for seed in range(500):
        assert same(random_layer(seed)), seed


def linear(**changed: object) -> Layer:
    torch.manual_seed(0)
    given: dict[str, object] = {
        "x": integers([64, 32], torch.int8),
        "weight": integers([16, 32], torch.int8),
        "scale": torch.rand(16) * 1e-3,
        "bias": torch.randn(16),
        "taps": None,
        "shift": 0,
        "geometry": [],
        "relu": False,
        "inverse": torch.tensor([1.0]),
        "zero": torch.tensor([3], dtype=torch.int32),
        "low": -128,
        "high": 127,
        "dtype": torch.int8,
    }
    return Layer(**{**given, **changed})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fault", "layer"),
    [
        ("wrong zero point", linear()),
        # Two products of int8 fit into 16 bits, of uint8 with int8 they do not.
        ("pairs saturate", linear(x=integers([64, 32], torch.uint8))),
        ("another channel's scale", linear()),
        ("no relu", linear(relu=True)),
        # Every second sum ends in a half.
        (
            "half up",
            linear(scale=torch.tensor([0.5]), bias=None, weight=integers([16, 32], torch.int8) % 2),
        ),
        (
            "taps at a border",
            linear(
                x=integers([1, 2, 6, 6], torch.int8),
                weight=integers([16, 2, 3, 3], torch.int8),
                geometry=[[1, 1], [1, 1], [1, 1], False, [0, 0], 1],
                taps=torch.randint(-5000, 5000, (16, 9)),
            ),
        ),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_a_planted_fault_is_found(fault: str, layer: Layer) -> None:
    assert same(layer)
    assert not same(layer, fault)


@pytest.mark.process
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "sim", [{}, {"MEMORY_MODEL": "discrete", "EXECUTION": "async"}], ids=["inline", "async"]
)
def test_portable_kernels(run_python: Run, sim: dict[str, str]) -> None:
    program = f"""
import pytest, sys, causeway, causeway.quant
sys.path.append('{ROOT}/tests/quant')
from random_layers import random_layer
with causeway.ledger() as ledger:
    random_layer(3)('sim')
assert any(r.rung == 'portable' and 'causeway' in r.operator for r in ledger.rows), ledger.rows
file = '{ROOT}/tests/device/test_quantized.py'
sys.exit(pytest.main(['-q', '-x', '-m', 'not long', file]))
"""
    env = {f"CAUSEWAY_SIM_{key}": value for key, value in sim.items()}
    said = run_python(program, timeout=550, new=True, CAUSEWAY_SIM_CODE="1", **env).stdout
    assert " passed" in said
