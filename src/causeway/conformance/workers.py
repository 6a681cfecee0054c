"""Processes that ask: one for the table, some for the operators. What ends one of them is a failure
of what it was at, and the rest goes on in a new one.

A worker writes lines of JSON to a pipe of its own: what the library prints does not get
between them.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from causeway import device_name
from causeway.conformance import abi
from causeway.conformance.chip import Check
from causeway.errors import CausewayError

PATIENCE = 300.0  # seconds without a word until a worker counts as hanging

# A process for the table has no torch: the package's own __init__ would import it.
WITHOUT_TORCH = """
import sys, types
package = types.ModuleType("causeway")
package.__path__ = [sys.argv[1]]
sys.modules["causeway"] = package
from causeway.conformance import {module}
{module}.main()
"""


class Ended(Exception):
    """The worker ended before it was done, with the words why."""


class Worker:
    """A process that answers lines of JSON with lines of JSON."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        reading, writing = os.pipe()
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=[writing],
            env=environment | {"CAUSEWAY_CONFORMANCE_PIPE": str(writing)},
        )
        os.close(writing)
        self._lines: queue.Queue[Any] = queue.Queue()
        self._errors: list[bytes] = []
        self._threads = [
            threading.Thread(target=self._read, args=(reading,), daemon=True),
            threading.Thread(target=self._read_errors, daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def _read(self, pipe: int) -> None:
        with os.fdopen(pipe) as lines:
            for line in lines:
                self._lines.put(json.loads(line))
        self._lines.put(None)

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._errors = [*self._errors[-20:], line]

    def tell(self, what: Any) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write((json.dumps(what) + "\n").encode())
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # the next answer says why

    def answers(self) -> Iterator[dict[str, Any]]:
        """What the worker says, as it says it. Raises Ended."""
        while True:
            try:
                said = self._lines.get(timeout=PATIENCE)
            except queue.Empty:
                self.end()
                raise Ended(f"nothing happened for {PATIENCE:.0f} seconds") from None
            if said is None:
                raise Ended(self._why())
            yield said

    def _why(self) -> str:
        status = self.process.wait()
        self._threads[1].join(1)
        words = b"".join(self._errors).decode(errors="replace").strip().splitlines()
        last = f": {words[-1]}" if words else ""
        if status < 0:
            return f"the process ended with {signal.Signals(-status).name}{last}"
        return f"the process ended with status {status}{last}"

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def environment(library: str | None) -> dict[str, str]:
    """That of this process, without what changes which rung serves a call."""
    left_out = ("CAUSEWAY_POLICY", "CAUSEWAY_FALLBACK", "CAUSEWAY_LEDGER")
    found = {k: v for k, v in os.environ.items() if not k.startswith(left_out)}
    if library is not None:
        found["CAUSEWAY_VENDOR"] = library
    return found


# --- the table ------------------------------------------------------------------------------------


def ask_table(
    library: str, settings_of: str, level: int, operators: list[str]
) -> tuple[list[Check], list[str]]:
    """The checks of the levels up to `level`, and the entries that the vendor offers."""
    left = abi.plan(level)
    done: list[Check] = []
    entries: list[str] = []
    package = str(Path(__file__).parents[1])
    program = WITHOUT_TORCH.format(module="abi")
    while left:
        worker = Worker([sys.executable, "-c", program, package], environment(None))
        worker.tell({
            "library": library,
            "settings_of": settings_of,
            "checks": [asdict(check) for check in left],
            "operators": operators,
            "taken": device_name.taken(),
        })  # fmt: skip
        before = len(left)
        try:
            for said in worker.answers():
                if "broken" in said:
                    worker.end()
                    raise CausewayError(f"{library} cannot be asked: {said['broken']}")
                entries = said.get("entries", entries)
                if "ended" in said:
                    done.append(Check(**said["ended"]))
                    left.pop(0)
                    if not left:
                        break
        except Ended as why:
            if not entries and len(left) == before:
                raise CausewayError(f"{library} cannot be opened: {why}") from None
            ended = left.pop(0)
            done.append(
                Check(ended.level, ended.name, ended.asked, "failed", "an answer", str(why))
            )
        worker.end()
    return done, entries


# --- operators ------------------------------------------------------------------------------------


class Operators:
    """Workers that examine operators, `n` at a time."""

    def __init__(self, library: str | None, n: int, only: dict[str, str | None]) -> None:
        self.n = n
        self.only = only
        self.environment = environment(library)
        if n > 1:
            self.environment.setdefault("OMP_NUM_THREADS", "1")
        self._first, self.about = self._start()

    def _start(self) -> tuple[Worker, dict[str, Any]]:
        worker = Worker(
            [sys.executable, "-W", "ignore", "-m", "causeway.conformance.examine"],
            self.environment,
        )
        worker.tell(self.only)
        try:
            for said in worker.answers():
                if "broken" in said:
                    worker.end()
                    raise CausewayError(said["broken"])
                return worker, said["about"]
        except Ended as why:
            raise CausewayError(f"the device cannot be opened: {why}") from None
        raise AssertionError("answers() ends by raising")

    def examine(self, names: list[str], tell: Callable[[dict[str, Any]], None]) -> None:
        """Examine operators; `tell` gets each result, from any thread, one at a time."""
        waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
        for name in names:
            waiting.put(name)
        lock = threading.Lock()
        failures: list[BaseException] = []

        def work(worker: Worker | None) -> None:
            try:
                while True:
                    try:
                        name = waiting.get_nowait()
                    except queue.Empty:
                        return
                    worker = worker or self._start()[0]
                    result, alive = self._one(worker, name)
                    worker = worker if alive else None
                    with lock:
                        tell(result)
            except BaseException as error:
                failures.append(error)
            finally:
                if worker is not None:
                    worker.end()

        given = [self._first, *[None] * (min(self.n, len(names)) - 1)]
        threads = [threading.Thread(target=work, args=(worker,)) for worker in given]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]

    def _one(self, worker: Worker, name: str) -> tuple[dict[str, Any], bool]:
        """The result of one operator, and whether the worker lives on."""
        at = ""
        worker.tell(name)
        try:
            for said in worker.answers():
                at = said.get("case", at)
                if "result" in said:
                    return said["result"], True
        except Ended as why:
            broken = f"{why}; case {at}" if at else str(why)
            return {"operator": name, "broken": broken}, False
        raise AssertionError("answers() ends by raising")
