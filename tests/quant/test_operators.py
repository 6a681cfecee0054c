"""The reference of layers in integers against another implementation, and mistakes that it finds;
the tests of the device again on chips with a compiler.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.append(str(Path(__file__).parent))

from random_layers import Layer, integers, random_layer, random_sum

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
    for seed in range(200):
        assert same(random_sum(seed)), seed


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


def sum_with_residual() -> Layer:
    return linear(
        x=integers([1, 2, 6, 6], torch.int8),
        weight=integers([16, 2, 1, 1], torch.int8),
        geometry=[[1, 1], [0, 0], [1, 1], False, [0, 0], 1],
        relu=True,
        residual=[
            integers([1, 16, 6, 6], torch.int8),
            torch.tensor([0.5]),
            torch.tensor([-7], dtype=torch.int32),
        ],
    )


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
        ("relu before the sum", sum_with_residual()),
        ("no zero point of the residual", sum_with_residual()),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_a_planted_fault_is_found(fault: str, layer: Layer) -> None:
    assert same(layer)
    assert not same(layer, fault)


# A product of bytes, where the assembler is to see the instruction that multiplies them.
PRODUCT = """
import sys, torch, causeway, causeway.quant
sizes = [8, 64], [int(sys.argv[2]), 64]
x, weight = (torch.full(size, -128, dtype=torch.int8).to(sys.argv[1]) for size in sizes)
rest = (None, None, 0, False, None, None, 0, 0, torch.float32)
y = torch.ops.causeway.qlinear(x, weight, torch.ones(1).to(sys.argv[1]), *rest)
assert (y.cpu() == 64 * 128 * 128).all(), y
"""


@pytest.mark.process
@pytest.mark.parametrize("vendor", ["sim", "opencl"])
@pytest.mark.parametrize(
    ("outs", "instruction", "least", "more"),
    [("8", "vpdpbusd", 16, {"avx512_vnni"}), ("16", "tdpbssd", 4, {"avx512_vnni", "amx_int8"})],
    ids=["vnni", "amx"],
)
def test_a_cpu_multiplies_bytes(
    request: pytest.FixtureRequest,
    run_python: Run,
    tmp_path: Path,
    vendor: str,
    outs: str,
    instruction: str,
    least: int,
    more: set[str],
) -> None:
    words = Path("/proc/cpuinfo").read_text().split() if platform.machine() == "x86_64" else []
    if missing := {"avx512bw", "avx512vl", *more} - set(words):
        pytest.skip(f"this CPU has no {', '.join(sorted(missing))}")
    if not shutil.which("objdump"):
        pytest.skip("needs objdump of binutils")
    if vendor == "sim":
        env = {"CAUSEWAY_SIM_CODE": "1", "CAUSEWAY_SIM_CACHE": str(tmp_path)}
    else:
        library = request.getfixturevalue("opencl_library")
        env = {"CAUSEWAY_VENDOR": str(library), "POCL_CACHE_DIR": str(tmp_path)}
    run_python(PRODUCT, args=(vendor, outs), new=True, **env)
    found = 0
    for path in list(tmp_path.rglob("*")):
        data = path.read_bytes() if path.is_file() else b""
        if (begin := data.find(b"\x7fELF")) < 0:
            continue
        library = tmp_path / "library"
        library.write_bytes(data[begin:])
        listing = subprocess.run(
            ["objdump", "-d", library], check=True, capture_output=True, text=True
        )
        found += listing.stdout.count(instruction)
    assert found >= least, f"no library that was built has {instruction}"


@pytest.mark.process
@pytest.mark.parametrize("without", ["dot_bytes", "dot_tiles"])
def test_a_cpu_without_what_multiplies_bytes(run_python: Run, without: str) -> None:
    program = f"""
import pytest, sys
file = '{ROOT}/tests/device/test_quantized.py'
sys.exit(pytest.main(['-q', '-x', '-k', 'of_the_largest_bytes and not uint8', file]))
"""
    env = {"CAUSEWAY_SIM_CODE": "1", "CAUSEWAY_SIM_WITHOUT": without}
    said = run_python(program, new=True, **env).stdout
    assert " passed" in said


@pytest.mark.process
@pytest.mark.parametrize("option", ["-UCW_DOT_TILES", "-UCW_DOT_BYTES", "-mno-avx512f"])
def test_what_was_made_for_another_cpu_is_right_here(
    run_python: Run, tmp_path: Path, option: str
) -> None:
    """As where a file was written on a CPU with VNNI or AMX, and is read on another."""
    compiler = tmp_path / "cc"
    compiler.write_text(f'#!/bin/sh\nexec cc "$@" {option}\n')
    compiler.chmod(0o755)
    program = f"""
import pytest, sys
file = '{ROOT}/tests/device/test_quantized.py'
sys.exit(pytest.main(['-q', '-x', '-k', 'products_of_the_largest or dilated', file]))
"""
    env = {"CC": str(compiler), "CAUSEWAY_SIM_CACHE": str(tmp_path / "cache")}
    said = run_python(program, new=True, CAUSEWAY_SIM_CODE="1", **env).stdout
    assert " passed" in said


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
