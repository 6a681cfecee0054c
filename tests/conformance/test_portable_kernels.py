"""`causeway conformance --portable` finds mistakes of a compiler, and right kernels pass."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from causeway.conformance import suite
from causeway.conformance.report import ConformanceReport, state
from causeway.conformance.suite import Options
from causeway.errors import CausewayError

# The mistake; the operator and dtype that show it; what the compiler makes of the source, by sed.
MISTAKES = {
    "the last of many is left out": (
        "aten::mul.out", "float32",
        r"s/define LAST(n) \(.*\)$/define LAST(n) (\1 - ((n) > 1000))/",
    ),
    "NaN is lost": ("aten::maximum.out", "float32", r"s/((a) > (b) || (a) != (a))/((a) > (b))/"),
    "half is cut off, not rounded": (
        "aten::exp.out", "float16", r"s/0x38000000u + 0xfffu/0x38000000u/",
    ),
    "the end of a row is one short": (
        "aten::mm.out", "float32",
        r"s/k1 = c1 - k0 < DEPTH ? c1 /k1 = c1 - k0 < DEPTH ? c1 - (K>4) /",
    ),
    "columns beyond the edge are written": (
        "aten::bmm.out", "float32", r"s/wide = N - n0 < WIDE ? N - n0 : WIDE/wide = WIDE/",
    ),
}  # fmt: skip
OPTIONS = Options(
    op=f"^({'|'.join(re.escape(name) for name, _, _ in MISTAKES.values())})$",
    dtype="float32|float16",
    portable=True,
)

pytestmark = [pytest.mark.once, pytest.mark.slow]


@pytest.fixture(scope="module")
def sim() -> Iterator[pytest.MonkeyPatch]:
    """The simulated chip with a compiler and without kernels of its own."""
    if not shutil.which("cc"):
        pytest.skip("there is no C compiler")
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("CAUSEWAY_")]:
            patch.delenv(name)
        patch.setenv("CAUSEWAY_SIM_CODE", "1")
        patch.setenv("CAUSEWAY_SIM_OPS", "none")
        yield patch


def compiler(folder: Path) -> Path:
    """A compiler that makes all the mistakes, and a file of the name of each that it made."""
    fake = folder / "cc"
    edits = "".join(
        f'sed \'{edit}\' "$f" > "$f.new"; cmp -s "$f" "$f.new" || touch \'{folder / name}\'\n'
        'mv "$f.new" "$f"\n'
        for name, (_, _, edit) in MISTAKES.items()
    )
    fake.write_text(
        f"#!/bin/sh\nfor f; do case $f in *.c)\n{edits};; esac; done\n"
        f'exec {shutil.which("cc")} "$@"\n'
    )
    fake.chmod(0o755)
    return fake


def cells(report: ConformanceReport) -> dict[tuple[str, str], dict]:
    return {(o["operator"], d): c for o in report.operators for d, c in o["cells"].items()}


@pytest.mark.long
def test_right_kernels_pass(sim: pytest.MonkeyPatch) -> None:
    report = suite.run(OPTIONS)
    assert report.good, report.verdict
    assert {state(o) for o in report.operators} == {"passed"}
    found = cells(report)
    for operator, dtype, _ in MISTAKES.values():
        assert found[operator, dtype]["rungs"].get("portable"), (operator, dtype)
    assert "--portable" in report.repro("aten::mm.out", "float32", "0")


def test_each_mistake_of_a_compiler_is_found(sim: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CC", str(compiler(tmp_path)))
        patch.setenv("CAUSEWAY_SIM_CACHE", str(tmp_path / "wrong"))
        found = cells(suite.run(OPTIONS))
    assert [name for name in MISTAKES if not (tmp_path / name).exists()] == []
    missed = [name for name, (op, dtype, _) in MISTAKES.items() if not found[op, dtype]["failed"]]
    assert missed == []


def test_a_chip_without_a_compiler_is_told(sim: pytest.MonkeyPatch) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CAUSEWAY_SIM_CODE", "0")
        with pytest.raises(CausewayError, match="no portable kernel to examine"):
            suite.run(OPTIONS)


def test_operators_can_be_left_out(sim: pytest.MonkeyPatch) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CAUSEWAY_PORTABLE_EXCEPT", "mm, bmm, mul, exp")
        report = suite.run(Options(op=OPTIONS.op, dtype="bool", portable=True))
    assert report.good, report.verdict
    assert [o["operator"] for o in report.operators] == ["aten::maximum.out"]


def test_a_call_for_a_dtype_that_the_chip_lacks_is_declined(sim: pytest.MonkeyPatch) -> None:
    """It is refused by name, in every form: that is what such a chip promises."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CAUSEWAY_SIM_DTYPES", "float32,float16,int64,int32,int16,int8,uint8,bool")
        found = suite.run(
            Options(op=r"^aten::(copy_|_foreach_norm\.Scalar_out)$", dtype="float32", portable=True)
        )
    assert found.good, found.verdict
    assert len(found.operators) == 2
    for operator in found.operators:
        cell = operator["cells"]["float32"]
        assert min(cell["passed"], cell["declined"]) > 0, operator["operator"]
