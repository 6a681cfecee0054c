"""Which device a rank takes, when the program leaves it to torch."""

from __future__ import annotations

import dist_checks
import pytest

pytestmark = pytest.mark.once


@pytest.mark.parametrize("way", ["with_device_id", "without_device_id"])
def test_mesh_puts_each_rank_on_its_own_device(way: str) -> None:
    _, process = dist_checks.launch("placement.py", way)
    assert process.returncode == 0, process.stderr[-4000:]
    assert "are on one device" not in process.stderr


def test_ranks_that_share_a_device_where_there_are_more_are_told() -> None:
    _, process = dist_checks.launch("placement.py", "all_on_one")
    assert process.returncode == 0, process.stderr[-4000:]
    assert process.stderr.count("ranks 0 and 1 are on one device, though this host has 2") == 1
    assert "LOCAL_RANK" in process.stderr
