"""torch.distributed on the device: each check of collectives.py and training.py, under torchrun."""

from __future__ import annotations

import ast
from pathlib import Path

import dist_checks
import pytest


pytestmark = pytest.mark.once

HERE = Path(__file__).parent
HOST = {"CAUSEWAY_SIM_COMM": "none"}
DISCRETE = {
    "CAUSEWAY_SIM_MEMORY_MODEL": "discrete",
    "CAUSEWAY_SIM_EXECUTION": "async",
    "CAUSEWAY_COMM_CHUNK": "1",
}


def named(program: str) -> list[str]:
    """The checks of a program, read without running it."""
    tree = ast.parse((HERE / program).read_text())
    functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    tools = {"host_of", "mine", "all_of", "same", "reduced", "ops_of", "model", "batch", "here"}
    tools |= {"reference", "train", "close", "plain", "mesh", "shard", "checkpoint_folder"}
    tools |= {"steps", "plainly", "alike", "attention"}
    return [name for name in functions if name not in tools]


def results(program: str, ranks: int = 2, **settings: str) -> dict[str, str]:
    return dist_checks.launched(program, ranks=ranks, **settings)[0]


def ok(found: dict[str, str], check: str) -> None:
    assert found.get(check) == "", found.get(check, "it did not run")


@pytest.mark.parametrize("check", named("collectives.py"))
def test_collective_by_the_vendor(check: str) -> None:
    ok(results("collectives.py"), check)


@pytest.mark.long
@pytest.mark.parametrize("check", named("collectives.py"))
def test_collective_on_the_devices_own_bytes(check: str) -> None:
    ok(results("collectives.py", **HOST), check)


@pytest.mark.slow
@pytest.mark.parametrize("check", named("collectives.py"))
def test_collective_through_pinned_memory_in_chunks(check: str) -> None:
    ok(results("collectives.py", **HOST, **DISCRETE), check)


@pytest.mark.long
@pytest.mark.parametrize(
    "entries",
    [
        "all_reduce",
        "broadcast+reduce",
        "all_gather",
        "broadcast",
        "all_reduce+send+group",
    ],
)
def test_missing_collectives_are_put_together_from_others(entries: str) -> None:
    found = results("collectives.py", CAUSEWAY_SIM_COMM=entries)
    assert len(found) == len(named("collectives.py"))
    assert not "".join(found.values())


@pytest.mark.long
def test_four_ranks_on_streams_that_work_later() -> None:
    found = results("collectives.py", ranks=4, **DISCRETE)
    assert len(found) == len(named("collectives.py"))
    assert not "".join(found.values())


@pytest.mark.parametrize("check", named("training.py"))
def test_training(check: str) -> None:
    ok(results("training.py"), check)


@pytest.mark.long
@pytest.mark.parametrize("check", named("training.py"))
def test_training_through_the_host(check: str) -> None:
    ok(results("training.py", **HOST), check)


@pytest.mark.parametrize("check", named("schemes.py"))
def test_scheme_of_training(check: str) -> None:
    ok(results("schemes.py"), check)


@pytest.mark.long
@pytest.mark.parametrize("check", named("schemes.py"))
def test_scheme_of_training_through_the_host(check: str) -> None:
    ok(results("schemes.py", **HOST), check)


@pytest.mark.parametrize("example", ["ddp.py", "fsdp.py"])
def test_example_runs(example: str) -> None:
    _, process = dist_checks.launch(str(HERE.parent.parent / "examples" / example))
    assert process.returncode == 0, process.stderr[-4000:]
    assert "loss" in process.stdout
