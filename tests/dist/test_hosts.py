"""Ranks on two hosts, simulated by namespaces: what the vendor does not connect goes by gloo."""

from __future__ import annotations

import sys
from pathlib import Path

import dist_checks
import pytest
from hosts import NotPermitted, end, two_hosts

pytestmark = [pytest.mark.once, pytest.mark.timeout(900)]

PROGRAM = Path(__file__).with_name("across.py")


def across(folder: Path, ranks: int, **env: str) -> tuple[dict[str, str], str]:
    """Run across.py under torchrun on both hosts, `ranks` on each: its results, and all it said."""
    try:
        with two_hosts() as hosts:
            processes = []
            for k, host in enumerate(hosts):
                command = [
                    sys.executable, "-m", "torch.distributed.run", "--nnodes=2",
                    f"--nproc-per-node={ranks}", f"--node-rank={k}", "--rdzv-backend=c10d",
                    f"--rdzv-endpoint={hosts[0].address}:29555", "--rdzv-id=hosts",
                    f"--local-addr={host.address}", f"--rdzv-conf=is_host={int(k == 0)}",
                    str(PROGRAM),
                ]  # fmt: skip
                output = folder / host.name
                processes.append(host.start(command, output, {"OMP_NUM_THREADS": "1", **env}))
            try:
                statuses = [p.wait(400) for p in processes]
            finally:
                for p in processes:
                    end(p)
    except NotPermitted as why:
        pytest.skip(f"no namespaces here: {why}")
    said = "\n".join((folder / name).read_text() for name in ("alder", "birch"))
    assert statuses == [0, 0], said[-4000:]
    return dist_checks.results_in(said), said


@pytest.mark.slow
def test_ranks_on_two_hosts_train_together_through_gloo(tmp_path: Path) -> None:
    found, said = across(tmp_path, 1)
    assert not "".join(found.values())
    assert len(found) == 6
    line = "go through the host (gloo): 2 ranks on 2 hosts (alder: rank 0; birch: rank 1); rank 1:"
    assert said.count(line) == 1, "one rank says it, once"


@pytest.mark.long
def test_two_ranks_on_each_of_two_hosts_use_the_vendor_within_a_host(tmp_path: Path) -> None:
    found, _ = across(tmp_path, 2, CAUSEWAY_SIM_EXECUTION="async")
    assert not "".join(found.values())
    assert len(found) == 6
