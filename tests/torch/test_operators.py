"""torch's operator database: float32 whole, and every other operator with one other dtype.

All dtypes and kinds: `make test-all`, or `python tests/torch/operators.py`.
"""

from __future__ import annotations

import operators
import pytest
import torch

SHARDS = 24
# A third of them every day; `make test-long` has the others, `make test-torch` all dtypes too.
EACH = [pytest.param(i, marks=pytest.mark.long if i % 3 else ()) for i in range(SHARDS)]
OTHERS = operators.DTYPES[1:]
COMMON = ("forward", "inplace", "out", "backward", "refusals")


@pytest.mark.parametrize("shard", EACH)
def test_float32_agrees_with_the_cpu(shard: int) -> None:
    every = operators.database()
    assert len(every) > 600
    agree(every[shard::SHARDS], ("float32",))


@pytest.mark.parametrize("shard", EACH)
def test_another_dtype_agrees_with_the_cpu(shard: int) -> None:
    every = operators.database()
    for i in range(2 * shard, len(every), 2 * SHARDS):
        op = every[i]
        declared = [d for d in OTHERS if getattr(torch, d) in op.supported_dtypes("cpu")]
        if declared:
            agree([op], (declared[i % len(declared)],), COMMON)


def agree(
    ops: list[object], dtypes: tuple[str, ...], kinds: tuple[str, ...] = operators.KINDS
) -> None:
    cells = [*operators.sweep(ops, dtypes, kinds)]
    wrong = [cell for cell in cells if cell.status == "failed"]
    words = [f"{c.kind} {c.dtype} {c.operator}: {w}" for c in wrong for w in c.words[:2]]
    assert not wrong, "\n".join(words)


@pytest.mark.parametrize(
    ("operator", "wrong"),
    [
        ("aten::add.out", "add"),
        ("aten::sum.IntList_out", "sum"),
        ("aten::mm.out", "mm"),
    ],
)
def test_the_sweep_finds_a_wrong_kernel(run_python, operator: str, wrong: str) -> None:
    """A test of the test: a kernel that is off by one must be seen."""
    done = run_python(
        "import sys; sys.path.append(sys.argv[1]); import operators\n"
        "chosen = [op for op in operators.database() if op.full_name == sys.argv[2]]\n"
        "cells = [*operators.sweep(chosen, ('float32',), ('forward', 'backward'))]\n"
        "print([cell.status for cell in cells])",
        args=(operators.__file__.rpartition("/")[0], wrong),
        CAUSEWAY_SIM_CORRUPT=operator,
        CAUSEWAY_SIM_OPS="all",
    )
    assert "'failed'" in done.stdout
