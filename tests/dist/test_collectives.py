"""torch.distributed on the device: each check of collectives.py and training.py, under torchrun."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import dist_checks
import pytest

pytestmark = pytest.mark.once

HERE = Path(__file__).parent
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
    return [name for name in functions if name not in tools]


@functools.cache
def results(program: str, *settings: tuple[str, str], ranks: int = 2) -> dict[str, str]:
    found, process = dist_checks.launch(program, ranks=ranks, env=dict(settings))
    assert process.returncode == 0, f"{found}\n{process.stderr[-4000:]}"
    return found


def ok(found: dict[str, str], check: str) -> None:
    assert found.get(check) == "", found.get(check, "it did not run")


@pytest.mark.parametrize("check", named("collectives.py"))
def test_collective(check: str) -> None:
    ok(results("collectives.py"), check)


@pytest.mark.parametrize("check", named("collectives.py"))
def test_collective_through_pinned_memory_in_chunks(check: str) -> None:
    ok(results("collectives.py", *DISCRETE.items()), check)


@pytest.mark.parametrize("check", named("training.py"))
def test_training(check: str) -> None:
    ok(results("training.py"), check)
