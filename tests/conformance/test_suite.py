"""The suite finds each mistake that is planted, and a right chip passes."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import warm
from causeway import atomic, vendor
from causeway.conformance import suite
from causeway.conformance.report import ConformanceReport, state
from causeway.conformance.suite import Options
from causeway.conformance.workers import ask_table
from causeway.errors import CausewayError

# The mistake, the operator it is in, and how a failure of it reads.
BUGS = {
    "unstable_sort": ("aten::sort.values_stable", "result 1: wrong values"),
    "one_in_10000": ("aten::mul.out", r"wrong values: 13 of \d{6} elements"),
    "ignores_strides": ("aten::exp.out", "wrong values"),
    "out_of_bounds": ("aten::neg.out", "wrote out of bounds: .* behind output 0"),
    "ignores_alpha": ("aten::add.out", "wrong values"),
    "narrow_sum": ("aten::sum.IntList_out", r"expected 1099511627776000, came \d"),
    "missing_wait": ("aten::tanh.out", "wrong values"),
    "half_accumulation": ("aten::mm.out", r"wrong values: .* \(matmul\)"),
    "loses_nan": ("aten::relu.out", "expected nan, came 0.0"),
    "aliasing": ("aten::addcmul.out", "wrong values"),
    "mutates_input": ("aten::sigmoid.out", "input 0 was changed"),
    "stale_workspace": ("aten::bmm.out", "came nan"),
    "same_numbers": ("aten::uniform_", "two draws .* gave the same numbers"),
    "flushes_subnormals": ("aten::abs.out", "expected .*e-.*, came 0.0"),
    "channels_last_copy": ("aten::copy_", "wrong values: 1 of"),
    "channels_last_cat": ("aten::cat.out", "wrong values: 1 of"),
    "channels_last_3d": ("aten::sub.out", "wrong values: 1 of"),
    "crashes": ("aten::erf.out", "the process ended with SIGABRT.*; case"),
}
COPY = "channels_last_copy"
OPERATORS = f"^({'|'.join(re.escape(operator) for operator, _ in BUGS.values())})$"
OPTIONS = Options(op=OPERATORS, dtype="float32|float16|int64")


@pytest.fixture(scope="module")
def patch() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("CAUSEWAY_")]:
            patch.delenv(name)
        patch.setenv("CAUSEWAY_SIM_OPS", "all")
        patch.setenv("CAUSEWAY_SIM_EXECUTION", "async")
        yield patch


@pytest.fixture(scope="module")
def clean(patch: pytest.MonkeyPatch) -> ConformanceReport:
    return suite.run(OPTIONS)


@pytest.fixture(scope="module")
def buggy(patch: pytest.MonkeyPatch) -> ConformanceReport:
    with pytest.MonkeyPatch.context() as inner:
        inner.setenv("CAUSEWAY_SIM_BUG", ",".join(BUGS.keys() - {COPY}))
        return suite.run(OPTIONS)


@pytest.fixture(scope="module")
def buggy_copy(patch: pytest.MonkeyPatch) -> ConformanceReport:
    """On its own: other operators' outputs are copied into their place by `copy_`."""
    with pytest.MonkeyPatch.context() as inner:
        inner.setenv("CAUSEWAY_SIM_BUG", COPY)
        return suite.run(replace(OPTIONS, op=f"^{BUGS[COPY][0]}$"))


def operator(report: ConformanceReport, name: str) -> dict:
    return next(found for found in report.operators if found["operator"] == name)


def failures(found: dict) -> list[str]:
    texts = [f["why"] for cell in found["cells"].values() for f in cell["failures"]]
    return texts + ([found["broken"]] if found.get("broken") else [])


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_mistake_is_found(
    buggy: ConformanceReport, buggy_copy: ConformanceReport, bug: str
) -> None:
    name, words = BUGS[bug]
    found = operator(buggy_copy if bug == COPY else buggy, name)
    assert state(found) == "failed"
    assert any(re.search(words, text) for text in failures(found)), failures(found)


@pytest.mark.parametrize("bug", BUGS)
def test_a_right_kernel_passes(clean: ConformanceReport, bug: str) -> None:
    found = operator(clean, BUGS[bug][0])
    assert (state(found), failures(found)) == ("passed", [])
    served = {rung for cell in found["cells"].values() for rung in cell["rungs"]}
    assert served & {"native", "derived"}


def test_the_verdicts_say_so(clean: ConformanceReport, buggy: ConformanceReport) -> None:
    assert clean.good
    assert clean.verdict.startswith("conforms: ")
    assert not buggy.good
    assert "does not conform: 17 operators failed" in buggy.verdict


def test_mistakes_of_one_operator_leave_the_others_alone(buggy: ConformanceReport) -> None:
    relu = operator(buggy, "aten::relu.out")["cells"]
    assert relu["float32"]["failed"] < relu["float32"]["passed"]  # only NaN is lost
    assert relu["int64"]["failed"] == 0


KNOWN = """
[[known]]
op = "aten::relu.out"
variation = "NaN and Inf"
why = "the chip has no NaN"
[[known]]
op = "aten::neg.out"
variation = "as it is"
why = "another operator's mistake"
[[known]]
op = "aten::abs.out"
variation = "random 1"
why = "nothing differs"
"""


def test_what_the_vendor_documents_is_counted_apart(
    patch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "known.toml"
    file.write_text(KNOWN)
    some = replace(OPTIONS, op="^aten::(relu|neg|abs).out$", dtype="float32", known=str(file))
    with pytest.MonkeyPatch.context() as inner:
        inner.setenv("CAUSEWAY_SIM_BUG", "loses_nan,out_of_bounds")
        found = suite.run(some)
        which = ["--op", "^aten::(relu|abs).out$", "--dtype", "float32"]
        done = warm.run(["-m", "causeway", "conformance", *which, "--known", file])
    relu = operator(found, "aten::relu.out")
    (cell,) = relu["cells"].values()
    assert state(relu) == "passed"
    assert cell["known"] >= 3
    assert {f["variation"] for f in cell["differences"]} == {"NaN and Inf"}
    assert found.summary["operators_known"]["aten::abs.out"]["cases"] == 0
    assert f"{cell['known']} of these cases differ as documented, in 1 operators" in found.verdict
    assert f"{cell['known']} differ as documented" in found.to_html()
    # What is out of bounds is no value.
    assert state(operator(found, "aten::neg.out")) == "failed"
    assert done.returncode == 0, done.stdout + done.stderr
    assert "cases: aten::relu.out, NaN and Inf: the chip has no NaN" in done.stdout
    assert "no case any more: aten::abs.out" in done.stdout


def test_a_failure_can_be_run_again_alone(
    buggy: ConformanceReport, patch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cell = buggy.to_dict()["operators"][0]["cells"]["float32"]
    failure = cell["failures"][0]
    words = shlex.split(failure["repro"])
    assert words[0] == "causeway"
    variables = os.environ | {"CAUSEWAY_SIM_BUG": ",".join(BUGS)}
    done = warm.run(["-m", *words, "--json", tmp_path / "again.json"], env=variables)
    assert done.returncode == 1, done.stdout + done.stderr
    name = buggy.operators[0]["operator"]
    told = f"1 of 1 operators: {name} failed\n    float32, {failure['call']}"
    assert told in done.stderr
    again = json.loads((tmp_path / "again.json").read_text())
    (only,) = again["operators"]
    assert [f["case"] for f in only["cells"]["float32"]["failures"]] == [failure["case"]]
    assert (only["cells"]["float32"]["passed"], only["cells"]["float32"]["failed"]) == (0, 1)


def test_the_page_is_whole_and_escaped(buggy: ConformanceReport, tmp_path: Path) -> None:
    evil = ConformanceReport(
        buggy.about | {"vendor": "<script>alert(1)</script>"}, [], buggy.operators
    )
    page = evil.to_html()
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert all(name in page for name, _ in BUGS.values())
    assert not re.search(r"https?:|url\(|\ssrc=|<link", page)  # needs nothing else
    target = tmp_path / "page.html"
    target.write_text("old")
    atomic.write(target, page)
    assert target.read_text() == page
    assert list(tmp_path.iterdir()) == [target]


def test_operators_that_nothing_reached_are_not_passed(clean: ConformanceReport) -> None:
    cell = {"offered": True, "rungs": {"host": 3}, "passed": 0, "failed": 0, "failures": []}
    found = {"operator": "aten::x", "cells": {"float32": cell}, "tested": False}
    report = ConformanceReport(clean.about, [], [found])
    assert report.summary["operators_not_tested"] == ["aten::x"]
    assert report.summary["operators_passed"] == 0


def test_what_a_kernel_declined_is_not_counted_as_passed(clean: ConformanceReport) -> None:
    cell = {"offered": True, "rungs": {"native": 2, "host": 3}, "passed": 2, "failed": 0,
            "declined": 3, "failures": []}  # fmt: skip
    found = {"operator": "aten::x", "cells": {"float32": cell}, "tested": True}
    report = ConformanceReport(clean.about, [], [found])
    assert report.summary["operators_declining"] == {"aten::x": {"declined": 3, "of": 5}}
    assert "operators passed in 2 cases" in report.verdict
    assert "3 of 5 cases declined" in report.verdict
    assert report.summary["coverage"] == 0.4
    (said,) = report.to_dict()["operators"]
    assert (said["declined"], said["asked"]) == (3, 5)
    assert "declined 3 of 5" in report.to_html()


def test_the_table_alone_says_what_it_left_out(patch: pytest.MonkeyPatch) -> None:
    found = suite.run(Options(level=1, table=True))
    assert found.checks
    assert found.operators == []
    told = ["operators: --table asks for none", "levels above 1: --level 1"]
    assert found.about["not_asked"] == told


def test_the_table_alone_takes_no_operator(patch: pytest.MonkeyPatch) -> None:
    done = warm.run(["-m", "causeway", "conformance", "--table", "--op", "add"])
    assert done.returncode == 2
    assert "--table asks no operator, and --op is of operators" in done.stderr


# --- the table ------------------------------------------------------------------------------------


def table(**settings: str) -> dict[str, str]:
    with pytest.MonkeyPatch.context() as patch:
        for key, value in settings.items():
            patch.setenv(f"CAUSEWAY_SIM_{key.upper()}", value)
        checks, _ = ask_table(vendor.sim_library(), "sim", 2, ["aten::add.out", "aten::mm.out"])
    return {check.name: check.state for check in checks}


@pytest.mark.parametrize("memory_model", ["unified", "discrete"])
def test_a_right_table_passes(memory_model: str) -> None:
    states = table(execution="async", memory_model=memory_model, ops="all")
    assert set(states.values()) <= {"passed", "skipped"}
    # Without a compiler there is nothing to ask of it.
    assert {name for name, state in states.items() if state == "skipped"} == {
        "code_is_built_and_launched_in_order",
        "small_launches_are_waited_for",
        "a_binary_is_the_program",
        "limits_of_launches_are_held",
        "a_share_of_the_cores_holds",
        "what_is_noted_runs_when_it_is_launched",
    }


# A host that is held up lets a fast chip finish what it should have waited for.
SLOW = {"execution": "async", "latency_us": "1000"}


@pytest.mark.parametrize(
    ("settings", "check"),
    [
        ({"skip_wait": "stream_wait", **SLOW}, "events_order_two_streams"),
        ({"skip_wait": "mem_copy", **SLOW}, "work_on_a_stream_keeps_its_order"),
        ({"fault": "mem_alloc:*=OUT_OF_MEMORY"}, "bytes_come_back"),
        ({"fault": "mem_set:3=FAILED"}, "set_fills_its_bytes"),
        ({"fault": "op_find:5=FAILED"}, "unknown_operators_are_unsupported"),
        ({"fault": "event_sync:1=FAILED"}, "an_event_never_recorded_is_ready"),
    ],
)
def test_a_faulty_table_is_found(settings: dict[str, str], check: str) -> None:
    assert table(**settings)[check] == "failed"


def test_lower_levels_are_asked_what_they_offer() -> None:
    states = table(level="0")
    assert states["bytes_come_back"] == "passed"
    assert states["operators_are_answered_twice_alike"] == "skipped"
    assert states["events_order_two_streams"] == "skipped"
    assert "failed" not in states.values()


def test_the_template_conforms(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    library = tmp_path / "libcw_template.so"
    source = root / "vendors/template/template.c"
    command = ["cc", "-shared", "-fPIC", f"-I{root / 'include'}", str(source), "-o", str(library)]
    subprocess.run(command, check=True)
    found = suite.run(Options(library=str(library)))
    assert found.good, found.verdict
    assert found.operators == []


def test_a_name_that_torch_does_not_take_is_found(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    library, source = tmp_path / "libcw_chip.so", tmp_path / "chip.c"
    text = (root / "vendors/template/template.c").read_text()
    source.write_text(text.replace('.name = "template"', '.name = "vulkan"'))
    command = ["cc", "-shared", "-fPIC", f"-I{root / 'include'}", str(source), "-o", str(library)]
    subprocess.run(command, check=True)
    found = suite.run(Options(library=str(library), level=0))
    (check,) = [check for check in found.checks if check.state == "failed"]
    assert "device type of torch's own" in check.came


# --- mistakes of the caller -----------------------------------------------------------------------


def test_a_library_that_is_not_there_is_named() -> None:
    with pytest.raises(CausewayError, match="there is no such file"):
        suite.run(Options(library="/no/such/lib.so"))


def test_a_library_that_is_none_is_named(tmp_path: Path) -> None:
    library = tmp_path / "libcw_text.so"
    library.write_text("no library")
    with pytest.raises(CausewayError, match="cannot be asked"):
        suite.run(Options(library=str(library)))


def test_a_case_that_is_not_there_is_named(patch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CausewayError, match="--case 00000000 matches no case"):
        suite.run(Options(op="^aten::zero_$", dtype="float32", case="00000000"))


Run = Callable[..., "subprocess.CompletedProcess[str]"]

ALONE = """
import causeway, torch
from causeway import _C
from causeway.conformance.operators import Examiner

name = "aten::nonzero.out"
with causeway.ledger(), causeway.fallback("nonzero.*"):  # so that the core does not call it
    offered = {name: _C.offered()[name]}
    found = Examiner(torch.device("sim", 0), offered, [torch.float32]).examine(name)
print(found.failed, found.cells["float32"].rungs["alone"] > 0)
"""


def test_a_kernel_that_the_core_does_not_call_is_tested_alone(run_python: Run) -> None:
    assert run_python(ALONE, CAUSEWAY_SIM_OPS="all").stdout.split() == ["False", "True"]


def test_operators_that_are_not_offered_are_asked_of_the_rungs_below(
    patch: pytest.MonkeyPatch,
) -> None:
    name = "aten::cumsum.out"
    with pytest.MonkeyPatch.context() as inner:
        inner.setenv("CAUSEWAY_SIM_OPS", "none")
        report = suite.run(Options(op=f"^{name}$", dtype="float32"))
    assert (report.good, report.about["not_offered"]) == (True, [name])
    assert [*report.rungs] == ["host"]
    cases = report.rungs["host"]
    assert cases > 30
    assert report.verdict == (
        f"conforms: 1 operators passed in {cases} cases, "
        f"none of them is offered: {cases} cases by the rung host"
    )
    assert report.summary["coverage"] is None


def test_what_a_call_writes_to_beside_its_result_may_change() -> None:
    """A count of steps, which GradScaler's update writes to and does not return."""
    which = ["--portable", "--op", "^aten::_amp_update_scale_$", "--dtype", "float32"]
    with pytest.MonkeyPatch.context() as inner:
        inner.setenv("CAUSEWAY_SIM_OPS", "none")
        inner.setenv("CAUSEWAY_SIM_CODE", "1")
        done = warm.run(["-m", "causeway", "conformance", *which, "--level", "0"])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 operators passed" in done.stdout


def test_a_pattern_that_matches_nothing_is_named(patch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CausewayError, match="matches none of the operators"):
        suite.run(Options(op="no_such_operator"))
