"""Many checks in one launch of torchrun: processes are dear. A program calls `run`; `launch` starts
it and gives what became of each check.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
MARK = "result of a check: "
Launched = tuple[dict[str, str], subprocess.CompletedProcess[str]]


def launch(
    program: str, *args: str, ranks: int = 2, env: dict[str, str] | None = None, restarts: int = 0
) -> Launched:
    """Run tests/dist/`program` under torchrun. What each check said ("" is well), and the process."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += [f"--nproc-per-node={ranks}", f"--max-restarts={restarts}"]
    done = subprocess.run(
        [*command, str(HERE / program), *args],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", **(env or {})},
    )
    return results_in(done.stdout), done


@functools.cache  # also of one that failed, which would fail again for each of its checks
def _launched(
    program: str, args: tuple[str, ...], settings: tuple[tuple[str, str], ...], ranks: int
) -> Launched:
    return launch(program, *args, ranks=ranks, env=dict(settings))


def launched(program: str, *args: str, ranks: int = 2, **settings: str) -> tuple[dict[str, str], str]:
    """As `launch`, once for all who ask, with environment variables as `settings`: what each check
    said, and the error stream.
    """
    found, process = _launched(program, args, tuple(sorted(settings.items())), ranks)
    assert process.returncode == 0, f"{found}\n{process.stderr[-4000:]}"
    return found, process.stderr


def results_in(output: str) -> dict[str, str]:
    """What each check said, of all ranks whose output this is."""
    results: dict[str, str] = {}
    for line in output.splitlines():
        if MARK in line:
            found = json.loads(line.split(MARK, 1)[1])
            results[found["check"]] = results.get(found["check"], "") + found["error"]
    return results


def run(
    checks: Sequence[Callable[[], None]], backend: str | None = None, device_id: Any = None
) -> None:
    """Each check in each process, and what it raised in the output."""
    import torch
    import torch.distributed as dist

    rank = int(os.environ["RANK"])
    torch.accelerator.set_device_index(rank % torch.accelerator.device_count())
    dist.init_process_group(backend, timeout=timedelta(seconds=60), device_id=device_id)
    for check in checks:
        error = ""
        try:
            check()
        except Exception:
            error = f"rank {rank}: {traceback.format_exc()}\n"
        line = MARK + json.dumps({"check": check.__name__, "error": error}) + "\n"
        os.write(1, line.encode())  # whole, however many write
    dist.destroy_process_group()
