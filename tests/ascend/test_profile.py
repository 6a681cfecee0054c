"""profile.v1 of the vendor of Huawei's NPUs, on the stand-in for MSPTI: which kernel is of which
operator, copies, graphs, and what is said where MSPTI is missing or late. It shows nothing of a
chip's times.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PROGRAMS = str(HERE / "programs.py")
NOTES = "import torch; from causeway import _C; print(_C.vendor_notes())"
Run = Callable[..., subprocess.CompletedProcess[str]]

pytestmark = [pytest.mark.process, pytest.mark.once, pytest.mark.slow]


def trace(run: Run, program: str, **given: str) -> tuple[list[dict], str]:
    """(kernels and copies of the trace, what was said beside it)"""
    done = run(PROGRAMS, program, **given)
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


def of(events: list[dict], kind: str) -> list[dict]:
    return sorted((e for e in events if e["kind"] == kind), key=lambda e: e["ts"])


def test_kernels_bear_the_chips_names_and_their_operators(on_ascend: Run) -> None:
    events, said = trace(on_ascend, "profiled")
    kernels = of(events, "kernel")
    assert {e["operator"] for e in kernels if e["name"] == "aclnnMm"} == {"aten::mm"}
    assert [e["name"] for e in kernels].count("aclnnMm") == 3  # two of them of the backward thread
    assert all(e["operator"] and e["us"] > 0 for e in kernels)
    assert "events in its stead" not in said
    assert "MSPTI" not in said


def test_copies_have_times_between_those_of_kernels(on_ascend: Run) -> None:
    events, _ = trace(on_ascend, "profiled")
    copies = of(events, "gpu_memcpy")
    assert {e["name"] for e in copies} == {"Memcpy HtoD", "Memcpy DtoD", "Memcpy DtoH"}
    assert all(e["us"] > 0 for e in copies)
    everything = sorted(events, key=lambda e: e["ts"])  # one stream has all
    for one, following in itertools.pairwise(everything):
        assert one["ts"] + one["us"] <= following["ts"] + 0.002, (one, following)


def test_collectives_have_times_on_their_stream(on_ascend: Run) -> None:
    events, said = trace(on_ascend, "profiled_collectives")
    kernels = of(events, "kernel")
    collectives = [e for e in kernels if not e["name"].startswith("aclnn")]
    names = ["all_reduce", "broadcast", "all_gather_into_tensor", "batch_isend_irecv"]
    assert [e["name"] for e in collectives] == names  # both messages of the batch are one
    assert [e["launch"] for e in collectives] == [f"launch {name}" for name in names]
    assert all(e["us"] > 0 for e in collectives)
    for one, following in itertools.pairwise(collectives):
        assert one["ts"] + one["us"] <= following["ts"] + 0.002, (one, following)
    # The sum comes behind the kernel that makes what it sums.
    made = next(e for e in kernels if e["name"].startswith("aclnnAdds"))
    assert made["ts"] + made["us"] <= collectives[0]["ts"] + 0.002
    assert "MSPTI told of no kernel" not in said


def test_a_long_trace_gives_events_back(on_ascend: Run, tmp_path: Path) -> None:
    log = {"ASCEND_STAND_IN_CALLS": str(tmp_path / "calls")}
    events, _ = trace(on_ascend, "profiled_long", **log)
    assert len(of(events, "gpu_memcpy")) == 600
    called = {name: int(n) for n, name in map(str.split, (tmp_path / "calls").open())}
    assert called["aclrtRecordEvent"] > 1200
    assert called["aclrtCreateEventExWithFlag"] < 600


def test_threads_that_launch_at_one_time_keep_their_numbers(on_ascend: Run) -> None:
    """MSPTI's public source has one stack of numbers for all threads, and so has the stand-in."""
    events, _ = trace(on_ascend, "profiled_threads")
    assert Counter((e["name"], e["launch"]) for e in of(events, "kernel")) == {
        ("aclnnExp", "launch aten::exp.out"): 200,
        ("aclnnRelu", "launch aten::relu.out"): 200,
    }


def test_a_replay_of_a_graph_is_timed_as_one(on_ascend: Run) -> None:
    events, _ = trace(on_ascend, "profiled_graph")
    graphs = [e for e in of(events, "kernel") if e["name"].startswith("graph of")]
    assert len(graphs) == 3
    assert all(e["us"] > 0 for e in graphs)


def test_records_that_come_late_are_waited_for(on_ascend: Run) -> None:
    events, _ = trace(on_ascend, "profiled", ASCEND_STAND_IN_MSPTI_LATE_MS="40")
    assert [e["name"] for e in of(events, "kernel")].count("aclnnMm") == 3


def test_records_that_never_come_are_missed_aloud(on_ascend: Run) -> None:
    events, said = trace(on_ascend, "profiled", ASCEND_STAND_IN_MSPTI_LATE_MS="1000000")
    assert not of(events, "kernel")
    assert "MSPTI told of no kernel for" in said
    assert "CAUSEWAY_PROFILE_CLOCK=events" in said


@pytest.fixture
def without_mspti(stand_in: Path, tmp_path: Path) -> str:
    """A folder with all of the stand-in's libraries but this one."""
    for library in stand_in.iterdir():
        if library.name != "libmspti.so":
            (tmp_path / library.name).symlink_to(library)
    return str(tmp_path)


def test_without_the_library_events_tell_the_times_and_that_is_said(
    on_ascend: Run, without_mspti: str
) -> None:
    events, said = trace(on_ascend, "profiled", CAUSEWAY_ASCEND_LIBRARIES=without_mspti)
    assert "libmspti.so cannot be opened" in said
    assert "The trace has the times of events in its stead" in said
    assert "aten::mm.out" in {e["name"] for e in of(events, "kernel")}


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("msptiSubscribe:1=2", "msptiSubscribe: result 2, another profiler of the chip is on"),
        ("msptiActivityEnable:1=1", "msptiActivityEnable of correlations: result 1"),
        ("msptiActivityEnable:3=999", "msptiActivityEnable of kernels: result 999"),
    ],
)
def test_what_mspti_refuses_is_said_and_events_serve(
    on_ascend: Run, fault: str, words: str
) -> None:
    events, said = trace(on_ascend, "profiled", ASCEND_STAND_IN_FAULT=fault)
    assert words in said
    assert "aten::mm.out" in {e["name"] for e in of(events, "kernel")}


def test_doctor_says_where_the_times_come_from(on_ascend: Run, without_mspti: str) -> None:
    assert "torch.profiler" not in on_ascend("-c", NOTES).stdout
    missing = on_ascend("-c", NOTES, CAUSEWAY_ASCEND_LIBRARIES=without_mspti).stdout
    assert "no times of the chip's own in torch.profiler" in missing
    older = on_ascend("-c", NOTES, ASCEND_STAND_IN_SOC="Ascend310P3").stdout
    assert "CANN's MSPTI does not serve Ascend310P3" in older


@pytest.mark.long
def test_the_profiler_does_what_it_does_on_other_chips(
    ascend_library: Path, stand_in: Path
) -> None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("CAUSEWAY_", "PYTEST"))}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n0", HERE.parent / "device/test_profiler.py"],
        env=environment | {"CAUSEWAY_VENDOR": str(ascend_library),
                           "CAUSEWAY_ASCEND_LIBRARIES": str(stand_in)},
        cwd=HERE.parents[1], capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert "skipped" not in done.stdout.splitlines()[-1]
