"""Level 3: a right comm.v1 passes, and each mistake planted in the simulated chip's is found."""

from __future__ import annotations

import os

import pytest

from causeway import vendor
from causeway.conformance import collectives
from causeway.conformance.abi import Check
from causeway.conformance.ranks import ask_ranks
from causeway.conformance.report import ConformanceReport

pytestmark = pytest.mark.once


def ask(*checks: str, ranks: int = 2, **settings: str) -> dict[str, Check]:
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("CAUSEWAY_")]:
            patch.delenv(name)
        for key, value in settings.items():
            patch.setenv(f"CAUSEWAY_SIM_{key.upper()}", value)
        found = ask_ranks(vendor.sim_library(), "sim", ranks, checks)
    return {check.name: check for check in found}


def wrong(found: dict[str, Check]) -> dict[str, Check]:
    return {name: check for name, check in found.items() if check.state != "passed"}


@pytest.mark.slow
def test_right_collectives_pass() -> None:
    found = ask()
    assert len(found) == len(collectives.CHECKS)
    assert not wrong(found)


@pytest.mark.long
@pytest.mark.parametrize("memory_model", ["unified", "discrete"])
def test_right_collectives_of_three_ranks_pass(memory_model: str) -> None:
    settings = {"execution": "async", "memory_model": memory_model, "devices": "3"}
    assert not wrong(ask(ranks=3, **settings))


@pytest.mark.parametrize(
    ("fault", "check", "words"),
    [
        ("1:corrupts:1", "broadcast_comes_from_each_root", "byte"),
        ("1:corrupts:1", "all_reduce_gives_all_ranks_the_same_bits", "element"),
        ("0:drops:1", "all_reduce_computes", "SUM of"),
        ("1:drops:1", "reduce_scatter_gives_each_rank_its_part", "SUM of"),
        ("1:dies:1", "all_gather_keeps_the_order_of_ranks", "SIGKILL"),
    ],
)
def test_a_planted_fault_is_found(fault: str, check: str, words: str) -> None:
    found = ask(check, "barrier_holds_all_until_the_last", comm_fault=fault)[check]
    assert found.state == "failed"
    assert words in f"{found.expected} {found.came}", found


def test_the_checks_after_a_rank_that_died_are_asked_all_the_same() -> None:
    both = ("all_gather_keeps_the_order_of_ranks", "comm_table_is_whole")
    found = ask(*both, comm_fault="1:dies:1")
    assert found["all_gather_keeps_the_order_of_ranks"].state == "failed"
    assert found["comm_table_is_whole"].state == "passed"


def test_what_comm_lacks_is_skipped_with_the_reason() -> None:
    checks = ("broadcast_comes_from_each_root", "all_reduce_computes")
    found = ask(*checks, comm="all_reduce")
    assert found["broadcast_comes_from_each_root"].came == "not offered: broadcast of comm.v1"
    assert found["all_reduce_computes"].state == "passed"
    none = ask(comm="none")
    assert {check.state for check in none.values()} == {"skipped"}
    assert "comm.v1" in none["all_reduce_computes"].came


def test_the_page_and_the_verdict_have_level_3() -> None:
    checks = list(ask("all_reduce_computes", comm_fault="0:drops:1").values())
    about = {
        "vendor": "sim",
        "version": "",
        "library": "x",
        "device": "",
        "offered": 0,
        "dtypes": [],
    }
    about |= {"causeway": "", "torch": "", "date": ""}
    report = ConformanceReport(about, checks)
    assert not report.good
    assert "1 checks failed" in report.verdict
    page = report.to_html()
    assert "L3" in page
    assert "all_reduce give each operation" in page
