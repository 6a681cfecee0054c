"""Kernels that a vendor writes in a hurry, each wrong for one dtype, layout or kind of number, are
found; the right ones of the same library pass. The library is vendors/hurried.cpp.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
# The mistake, the operator and the dtype that it shows in.
MISTAKES = {
    "broadcast_keeps_the_stride": ("add.out", "float32"),
    "lt_has_signs": ("lt.Tensor_out", "uint8"),
    "lt_has_no_signs": ("lt.Tensor_out", "int64"),
    "eq_by_double": ("eq.Tensor_out", "int64"),
    "maximum_loses_nan": ("maximum.out", "bfloat16"),
    "division_truncates": ("div.out_mode", "int32"),
    "sum_takes_dense_memory": ("sum.IntList_out", "float32"),
    "index_of_16_bits": ("neg.out", "float32"),
    "output_is_used_first": ("mul.out", "float32"),
    "int64_by_double": ("fill_.Scalar", "int64"),
    "argmax_of_ties_is_the_last": ("argmax.out", "float32"),
    "softmax_takes_no_maximum": ("_softmax.out", "float32"),
    "round_half_up": ("round.out", "float32"),
    "remainder_is_fmod": ("remainder.Tensor_out", "float32"),
    "one_scale_for_all_columns": ("_scaled_mm.out", "float8_e4m3fn"),
    "gates_in_another_order": ("causeway::lstm_step", "float32"),
    "cell_without_tanh": ("causeway::lstm_step", "float64"),
    "keeps_the_cell_before": ("causeway::lstm_layer", "float32"),
    "forgets_the_last_cell": ("causeway::lstm_layer_backward", "float32"),
    "ties_go_away_from_zero": ("causeway::quantize", "float32"),
}
# Of copy_, which every other operator needs: in a run of their own.
OF_COPY = {
    "cast_truncates": "bfloat16",
    "e5m2_saturates": "float8_e5m2",
    "fnuz_has_minus_zero": "float8_e4m3fnuz",
    "bool_is_the_low_byte": "bool",
    "complex32_is_half": "complex32",
}
STORED = [
    *[("copy_", dtype) for dtype in ("float8_e4m3fn", "float8_e5m2", "uint16", "uint64")],
    *[(name, "float8_e4m3fn") for name in ("zero_", "eq.Tensor_out", "fill_.Scalar")],
    ("cat.out", "uint16"),
    ("_scaled_mm.out", "float8_e4m3fn"),
]
# Whether a cast that is too large gives the largest number or a NaN: torch's releases differ.
SATURATES = bool(torch.tensor(1e9).to(torch.float8_e4m3fn).float().isfinite())

EXAMINE = """
import json, sys, torch
from causeway import _C
from causeway.conformance.operators import Examiner

torch.ones(1, device="hurried")
offered = _C.offered()
for name, dtype in json.loads(sys.argv[1]):
    one = {name: offered[name]}
    found = Examiner(torch.device("hurried", 0), one, [getattr(torch, dtype)]).examine(name)
    cell = found.cells[dtype]
    print(json.dumps([cell.passed, cell.failed, [f.why for f in cell.failures]]))
"""
Pair = tuple[str, str]
Examine = Callable[[Iterable[str], Iterable[Pair]], dict[Pair, tuple[int, int, list[str]]]]


@pytest.fixture(scope="module")
def examine(run_python: Callable, tmp_path_factory: pytest.TempPathFactory) -> Examine:
    """(cases passed, failed, why) of operators and dtypes of the vendor with some mistakes."""
    library = tmp_path_factory.mktemp("hurried") / "libcw_hurried.so"
    source = ROOT / "tests/conformance/vendors/hurried.cpp"
    flags = ["-std=c++17", "-O2", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror"]
    include = f"-I{ROOT / 'include'}"
    subprocess.run(["g++", *flags, include, str(source), "-o", str(library)], check=True)

    def run(mistakes: Iterable[str], pairs: Iterable[Pair]) -> dict[Pair, tuple]:
        pairs = [*dict.fromkeys(pairs)]
        names = {name: name if "::" in name else f"aten::{name}" for name, _ in pairs}
        given = json.dumps([(names[name], dtype) for name, dtype in pairs])
        done = run_python(
            EXAMINE, args=(given,), timeout=600, CAUSEWAY_VENDOR=str(library),
            HURRIED=",".join(mistakes), E4M3FN_SATURATES="1" if SATURATES else None,
            PYTHONWARNINGS="ignore",
        )  # fmt: skip
        lines = done.stdout.splitlines()
        return dict(zip(pairs, map(json.loads, lines), strict=True))

    return run


@pytest.fixture(scope="module")
def right(examine: Examine) -> dict:
    copies = [("copy_", dtype) for dtype in OF_COPY.values()]
    return examine([], [*MISTAKES.values(), *copies, *STORED])


@pytest.fixture(scope="module")
def wrong(examine: Examine) -> dict:
    return examine(MISTAKES, MISTAKES.values())


@pytest.fixture(scope="module")
def wrong_copy(examine: Examine) -> dict:
    return examine(OF_COPY, [("copy_", dtype) for dtype in OF_COPY.values()])


def test_the_right_kernels_pass(right: dict) -> None:
    assert {pair: why for pair, (_, failed, why) in right.items() if failed} == {}


@pytest.mark.parametrize("pair", STORED, ids=" ".join)
def test_dtypes_that_are_only_stored_are_asked(right: dict, pair: Pair) -> None:
    assert right[pair][0] >= 20


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_found(wrong: dict, mistake: str) -> None:
    _, failed, _ = wrong[MISTAKES[mistake]]
    assert failed


@pytest.mark.parametrize("mistake", OF_COPY)
def test_a_mistake_in_a_copy_is_found(wrong_copy: dict, mistake: str) -> None:
    _, failed, _ = wrong_copy["copy_", OF_COPY[mistake]]
    assert failed
