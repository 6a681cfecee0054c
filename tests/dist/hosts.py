"""Two hosts on one machine: each with a network, a name, shared memory and processes of its own.

A host is a shell that holds namespaces; programs are put into it by nsenter. The two are joined by
a pair of virtual network interfaces. Needs root, `ip` and `unshare`.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


class NotPermitted(Exception):
    """This machine makes no namespaces, with the words why."""


@dataclass(frozen=True)
class Host:
    name: str
    address: str
    holder: int  # the process whose namespaces it is

    def start(self, command: list[str], output: Path, env: dict[str, str]) -> subprocess.Popen[bytes]:
        """A program on this host; end it with `end`."""
        inside = ["nsenter", f"--target={self.holder}", "--net", "--uts", "--ipc", "--mount"]
        with output.open("wb") as out:
            return subprocess.Popen(
                [*inside, f"--wd={Path.cwd()}", *command],
                stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                env={**os.environ, **env}, start_new_session=True,
            )  # fmt: skip


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    if done.returncode != 0:
        raise NotPermitted(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")


@contextmanager
def two_hosts() -> Iterator[list[Host]]:
    """Two hosts that reach each other by 10.213.7.1 and .2, for as long as this lasts.

    Raises NotPermitted where this machine does not let us.
    """
    missing = [tool for tool in ("ip", "unshare", "nsenter") if not shutil.which(tool)]
    if missing or os.geteuid() != 0:
        raise NotPermitted(f"needs root and {', '.join(missing) or 'no more'}")
    holders: list[subprocess.Popen[str]] = []
    hosts: list[Host] = []
    try:
        for k, name in enumerate(("alder", "birch")):
            # A /dev/shm of its own, as another machine has; the name; and then it waits.
            script = (
                f"mount -t tmpfs none /dev/shm && hostname {name} && ip link set lo up "
                "&& echo ready && exec sleep 1800"
            )
            holder = subprocess.Popen(
                ["unshare", "--net", "--uts", "--ipc", "--mount", "sh", "-c", script],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
            )  # fmt: skip
            holders.append(holder)
            assert holder.stdout is not None
            assert holder.stderr is not None
            if holder.stdout.readline().strip() != "ready":
                raise NotPermitted(f"unshare: {holder.stderr.read().strip()}")
            hosts.append(Host(name, f"10.213.7.{k + 1}", holder.pid))
        a, b = f"cwa{holders[0].pid}", f"cwb{holders[1].pid}"
        _run("ip", "link", "add", a, "type", "veth", "peer", "name", b)
        for link, host in ((a, hosts[0]), (b, hosts[1])):
            inside = ("nsenter", f"--target={host.holder}", "--net", "ip")
            _run("ip", "link", "set", link, "netns", str(host.holder))
            _run(*inside, "addr", "add", f"{host.address}/24", "dev", link)
            _run(*inside, "link", "set", link, "up")
        yield hosts
    finally:
        for holder in holders:  # with the last of its processes a namespace is gone, its link too
            holder.kill()
            holder.communicate()


def end(process: subprocess.Popen[bytes]) -> None:
    """End a program and what it started, whatever state it is in."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in [*_family(process.pid), process.pid]:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            continue


def _family(pid: int) -> list[int]:
    found = []
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            for child in file.read_text().split():
                found += [*_family(int(child)), int(child)]
        except OSError:
            continue
    return found
