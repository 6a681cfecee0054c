"""Every public function of torch.distributed on the device: functions.py, under torchrun."""

from __future__ import annotations

import dist_checks
import pytest

pytestmark = pytest.mark.once

DETAIL = {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}


@pytest.mark.parametrize(
    "env",
    [
        {},
        pytest.param({"CAUSEWAY_SIM_COMM": "none"}, marks=pytest.mark.long),
        pytest.param({"CAUSEWAY_SIM_EXECUTION": "async"}, marks=pytest.mark.long),
    ],
    ids=["vendor", "host", "later"],
)
def test_every_public_function_works_or_refuses_with_words(env: dict[str, str]) -> None:
    found, done = dist_checks.launch("functions.py", env=env)
    assert done.returncode == 0, done.stderr[-4000:]
    assert not "".join(found.values())
    assert len(found) > 50


@pytest.mark.parametrize(
    "env",
    [
        {},
        {"CAUSEWAY_SIM_EXECUTION": "async", "CAUSEWAY_SIM_GRAPHS": "1"},
        pytest.param({"CAUSEWAY_SIM_COMM": "none"}, marks=pytest.mark.long),
    ],
    ids=["vendor", "later", "host"],
)
def test_graphs_hold_collectives_or_have_them_between_them(env: dict[str, str]) -> None:
    found, done = dist_checks.launch("graphs.py", env={"CAUSEWAY_SIM_CODE": "1", **env})
    assert done.returncode == 0, done.stderr[-4000:]
    assert not "".join(found.values())
    assert len(found) == 6


def test_adaptive_fixed_point_looks_at_all_ranks() -> None:
    found, done = dist_checks.launch("adaptive.py", env={})
    assert done.returncode == 0, done.stderr[-4000:]
    assert not "".join(found.values())
    assert len(found) == 2
