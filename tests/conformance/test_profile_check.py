"""The check of profile.v1 passes the simulated chip, and finds each planted fault."""

from __future__ import annotations

import ctypes as C
from collections.abc import Callable
from typing import Any

import pytest

from causeway import vendor
from causeway.conformance import abi
from causeway.conformance.table import Activity, Library, TableError


@pytest.fixture
def chip() -> abi.Chip:
    return abi.Chip(Library(vendor.sim_library(), lambda key: None), [])


class Faulty:
    """The vendor's profile.v1 with a fault in what it hands out."""

    def __init__(self, table: Any, change: Callable[[list[Activity]], list[Activity]]) -> None:
        self.table, self.change = table, change
        self.kept: list[Activity] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.table, name)

    def read(self, out: Any, capacity: int, count: Any) -> int:
        if self.kept is None:
            status = self.table.read(got := (Activity * 64)(), 64, n := C.pointer(C.c_uint32()))
            assert status == 0
            self.kept = self.change([Activity.from_buffer_copy(a) for a in got[: n[0]]])
        part, self.kept = self.kept[:capacity], self.kept[capacity:]
        for i, activity in enumerate(part):
            out[i] = activity
        C.cast(count, C.POINTER(C.c_uint32))[0] = len(part)
        return 0


def late(all: list[Activity]) -> list[Activity]:
    for a in all:
        a.end_ns += 10**12
    return all


def backwards(all: list[Activity]) -> list[Activity]:
    for a in all:
        a.begin_ns, a.end_ns = a.end_ns, a.begin_ns - 1
    return all


def unnumbered(all: list[Activity]) -> list[Activity]:
    for a in all:
        a.correlation = 0
    return all


def test_the_simulated_chip_passes(chip: abi.Chip) -> None:
    abi.the_profile_says_when_work_ran(chip)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda all: all[1:], "activities 1 to 6"),
        (lambda all: [*all, all[0]], "activities 1 to 6"),
        (unnumbered, "activities 1 to 6"),
        (late, "begin <= end"),
        (backwards, "begin <= end"),
    ],
)
def test_a_planted_fault_is_found(chip: abi.Chip, change: Any, words: str) -> None:
    faulty = Faulty(chip.library.profile(), change)
    chip.library.profile = lambda: faulty  # type: ignore[method-assign]
    with pytest.raises(abi.Differs, match=words):
        abi.the_profile_says_when_work_ran(chip)


def test_a_vendor_without_it_is_not_asked(chip: abi.Chip) -> None:
    def none() -> Any:
        raise TableError(1, "not offered")

    chip.library.profile = none  # type: ignore[method-assign]
    with pytest.raises(abi.Skipped, match=r"profile\.v1"):
        abi.the_profile_says_when_work_ran(chip)
