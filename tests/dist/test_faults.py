"""What goes wrong between processes ends with an error that names it, in time, on every way."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.once

PROGRAM = Path(__file__).with_name("faults.py")
HOST = {"CAUSEWAY_SIM_COMM": "none"}
PINNED = {
    **HOST,
    "CAUSEWAY_SIM_MEMORY_MODEL": "discrete",
    "CAUSEWAY_SIM_EXECUTION": "async",
}
LATER = {"CAUSEWAY_SIM_EXECUTION": "async", "CAUSEWAY_COMM_BLOCKING": "1"}
LONG = functools.partial(pytest.param, marks=pytest.mark.long)


def pair(what: str, folder: Path, env: dict[str, str]) -> tuple[str, str]:
    """What each of two ranks printed."""
    ranks = [
        subprocess.Popen(
            [sys.executable, str(PROGRAM), what, str(rank), str(folder)],
            env={**os.environ, "OMP_NUM_THREADS": "1", **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    outputs = [process.communicate(timeout=240) for process in ranks]
    assert outputs[0][0], outputs[0][1]
    return outputs[0][0], outputs[1][0]


@pytest.mark.parametrize(
    "env",
    [HOST, LONG(PINNED), LONG({}), LONG(LATER)],
    ids=["host", "pinned", "vendor", "vendor-async"],
)
def test_late_rank_is_named_when_the_timeout_fires(tmp_path: Path, env: dict[str, str]) -> None:
    words, _ = pair("late", tmp_path, env)
    assert "caught DistBackendError: all_reduce of 1000 Float (number 2) in group" in words
    assert "timed out after 6000 ms" in words
    assert "not there: rank 1" in words
    assert "an earlier collective of this process group went wrong" in words


@pytest.mark.parametrize("env", [HOST, LONG({})], ids=["host", "vendor"])
def test_rank_that_ended_is_named_before_the_timeout(tmp_path: Path, env: dict[str, str]) -> None:
    words, _ = pair("ends", tmp_path, {**env, "FAULT_TIMEOUT": "600"})
    assert "caught DistBackendError" in words and "rank 1" in words


def test_rank_that_dies_in_a_collective_is_named(tmp_path: Path) -> None:
    env = {"CAUSEWAY_SIM_COMM_FAULT": "1:dies:2", "FAULT_TIMEOUT": "600"}
    words, _ = pair("planted", tmp_path, env)
    assert "rank 1 (process" in words and "has ended" in words


def test_corrupted_chunk_is_caught_in_debug_mode(tmp_path: Path) -> None:
    env = {"CAUSEWAY_SIM_COMM_FAULT": "1:corrupts:2"}
    words, _ = pair("planted", tmp_path, env)
    assert "nothing was wrong" in words, "without the debug mode nobody looks"
    (tmp_path / "store").unlink(missing_ok=True)
    words, _ = pair("planted", tmp_path, {**env, "CAUSEWAY_COMM_DEBUG": "1"})
    assert "what rank 1 gave was changed on its way" in words


def test_ranks_that_do_different_things_are_told(tmp_path: Path) -> None:
    words, others = pair("other", tmp_path, {})
    assert "is in broadcast" in words or "is in all_reduce" in others


@pytest.mark.parametrize("env", [HOST, LONG({})], ids=["host", "vendor"])
def test_abort_ends_what_is_under_way(tmp_path: Path, env: dict[str, str]) -> None:
    words, _ = pair("abort", tmp_path, {**env, "FAULT_TIMEOUT": "600"})
    assert "caught DistBackendError" in words and "abort" in words


@pytest.mark.parametrize("route", [{}, HOST], ids=["vendor", "host"])
def test_a_group_that_is_destroyed_has_done_what_it_was_given(
    tmp_path: Path, route: dict[str, str]
) -> None:
    behind = {"CAUSEWAY_SIM_EXECUTION": "async", "CAUSEWAY_SIM_LATENCY_US": "3000"}
    for words in pair("destroy", tmp_path, {**route, **behind}):
        assert "the sum is 1.0" in words
