"""A worker that is killed costs the steps since the last checkpoint, and nothing else."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

pytestmark = [pytest.mark.once, pytest.mark.timeout(900)]

EXAMPLE = Path(__file__).parents[2] / "examples" / "elastic.py"


class Run:
    """torchrun in a process group of its own, which is ended whatever becomes of the test."""

    def __init__(self, folder: Path, *options: str, steps: int, every: int = 5) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.output = folder / f"output-{time.monotonic_ns()}"
        command = [sys.executable, "-m", "torch.distributed.run", *options]
        command += [str(EXAMPLE), "--folder", str(folder), f"--steps={steps}", f"--every={every}"]
        with self.output.open("w") as out:
            self.process = subprocess.Popen(
                command,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                start_new_session=True,
            )

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        # torchrun ends its workers at SIGTERM; they are in its session.
        for number in (signal.SIGTERM, signal.SIGKILL):
            for pid in (self.process.pid, *self.workers()):
                try:
                    os.kill(pid, number)
                except ProcessLookupError:
                    pass
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                continue

    def workers(self) -> list[int]:
        """The processes that train, and still live."""
        tasks = Path(f"/proc/{self.process.pid}/task")
        try:
            children = [f.read_text() for f in tasks.glob("*/children")]
        except OSError:
            return []
        found = []
        for pid in " ".join(children).split():
            try:
                if str(EXAMPLE).encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(int(pid))
            except OSError:
                continue
        return found

    def said(self) -> str:
        return self.output.read_text()

    def step(self) -> int:
        """Of the checkpoint, which is whole at any moment."""
        path = self.folder / "checkpoint.pt"
        if not path.exists():
            return 0
        state = torch.load(path, map_location="cpu", weights_only=True)
        assert state.keys() == {"step", "model", "optimizer"}
        return int(state["step"])

    def until_step(self, step: int, seconds: float = 300) -> None:
        end = time.monotonic() + seconds
        while self.step() < step:
            assert self.process.poll() is None, self.said()
            assert time.monotonic() < end, f"no step {step}: {self.said()}"
            time.sleep(0.02)

    def loss(self, seconds: float = 600) -> float:
        """Of the last step, once torchrun has ended well."""
        try:
            status = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            pytest.fail(f"it hangs, with {len(self.workers())} workers: {self.said()}")
        assert status == 0, self.said()
        found = re.search(r"loss (\d+\.\d+) after step", self.said())
        assert found, self.said()
        return float(found.group(1))


def standalone(ranks: int, restarts: int) -> list[str]:
    # The agent looks after its workers more often than every 5 seconds, which is torchrun's habit.
    return [
        "--standalone", f"--nproc-per-node={ranks}", f"--max-restarts={restarts}",
        "--monitor-interval=0.1",
    ]  # fmt: skip


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[int, float]:
    """The loss after so many steps, of runs in which nobody died."""
    losses = {}
    for steps in (40,):
        with Run(tmp_path_factory.mktemp("whole"), *standalone(2, 0), steps=steps) as run:
            losses[steps] = run.loss()
    return losses


@pytest.mark.slow
def test_a_killed_rank_is_started_again_and_the_loss_is_the_same(
    tmp_path: Path, undisturbed: dict[int, float]
) -> None:
    with Run(tmp_path, *standalone(2, 3), steps=40) as run:
        run.until_step(10)
        os.kill(run.workers()[-1], signal.SIGKILL)
        assert run.loss() == pytest.approx(undisturbed[40], rel=1e-5)
        assert re.search(r"goes on from step (\d+) with 2 ranks", run.said())
        assert run.step() == 40


@pytest.mark.long
def test_ten_deaths_at_random_steps_lose_no_checkpoint(tmp_path: Path) -> None:
    steps = 200
    with Run(tmp_path / "whole", *standalone(2, 0), steps=steps) as run:
        expected = run.loss()
    chosen = random.Random(int(os.environ.get("CAUSEWAY_SOAK_SEED", "0")))
    for attempt in range(10):
        with Run(tmp_path / f"run{attempt}", *standalone(2, 3), steps=steps, every=3) as run:
            run.until_step(chosen.randrange(1, steps - 20))
            time.sleep(chosen.random() * 0.2)  # anywhere in a step, and while a file is written
            before = run.step()
            workers = run.workers()
            os.kill(chosen.choice(workers), signal.SIGKILL)
            assert run.loss() == pytest.approx(expected, rel=1e-5), f"attempt {attempt}"
            went_on = re.search(r"goes on from step (\d+)", run.said())
            assert went_on and int(went_on.group(1)) >= before, f"attempt {attempt}: {before}"
            assert run.step() == steps


@pytest.mark.long
def test_training_goes_on_with_fewer_when_a_node_goes_for_good(tmp_path: Path) -> None:
    import socket

    with socket.socket() as s:
        s.bind(("localhost", 0))
        port = s.getsockname()[1]
    # The first agent holds the rendezvous, so it is the other that goes.
    rendezvous = [
        "--nnodes=1:2", "--nproc-per-node=1", "--max-restarts=3", "--monitor-interval=0.1",
        "--rdzv-backend=c10d", f"--rdzv-endpoint=localhost:{port}", "--rdzv-id=shrinks",
        "--rdzv-conf=last_call_timeout=5,keep_alive_interval=1,keep_alive_max_attempt=3",
    ]  # fmt: skip
    with Run(tmp_path / "whole", *standalone(2, 0), steps=400) as run:
        expected = run.loss()
    shared = tmp_path / "shared"
    with Run(shared, *rendezvous, steps=400) as first, Run(shared, *rendezvous, steps=400) as other:
        first.until_step(20)
        assert len(first.workers()) == len(other.workers()) == 1
        for pid in (other.process.pid, *other.workers()):
            os.kill(pid, signal.SIGKILL)
        # Half as many ranks add up in another order.
        assert first.loss() == pytest.approx(expected, rel=1e-3)
        assert re.search(r"goes on from step \d+ with 1 ranks", first.said())
        assert re.search(r"after step 400, 1 x", first.said())


def test_what_an_earlier_start_left_in_the_store_misleads_nobody() -> None:
    import threading
    from datetime import timedelta

    import torch.distributed as dist

    from causeway.dist.backend import _agree

    store, words = dist.HashStore(), []
    for _ in range(3):  # each start finds the marks of the one before it
        said: dict[int, str] = {}

        def start(rank: int, said: dict[int, str] = said) -> None:
            time.sleep(0.05 * (2 - rank))  # rank 0 comes last, the others find its old word
            said[rank] = _agree(store, rank, 3, timedelta(seconds=30))

        threads = [threading.Thread(target=start, args=(r,)) for r in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert len(set(said.values())) == 1
        assert len(said) == 3
        words.append(said[0])
    assert len(set(words)) == 3
