"""A group that the program asked gloo for: torch's CPU part as it is, and the device's beside it."""

from __future__ import annotations

import dist_checks
import pytest

pytestmark = pytest.mark.once


@pytest.mark.parametrize(
    "check",
    [
        "the_cpu_has_torchs_own_gloo",
        "collectives_of_both_between_each_other",
        "objects_and_barriers",
        "groups_of_the_group",
        "a_replica_trains_as_on_the_cpu",
        "the_report_counts",
    ],
)
def test_explicit_gloo(check: str) -> None:
    checks, _ = dist_checks.launched("explicit_gloo.py")
    assert checks.get(check) == "", checks.get(check, "it did not run")


def test_the_detour_is_said_once() -> None:
    said = dist_checks.launched("explicit_gloo.py")[1]
    assert said.count("go through the host: its backend is gloo") == 1, said[-3000:]


def test_all_collectives_take_tensors_of_the_device() -> None:
    checks, _ = dist_checks.launched("collectives.py", "gloo")
    # The CPU's tensors are torch's own gloo's, whose all_to_all takes parts of one size alone.
    assert "ProcessGroupGloo::alltoall" in checks.pop("tensors_of_the_cpu_in_the_same_group")
    assert len(checks) > 20
    assert not "".join(checks.values())
