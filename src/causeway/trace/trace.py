"""The trace: a folder that holds the calls of a program, so that another machine can run, compare
and test them.

    trace.json           which program, torch, device; what was kept. Written first
    calls.jsonl          a line for each operator at its first call, and one for each call
    tensors-0.safetensors  values, as far as they were asked for; others follow when one is full
    complete.json        how many lines and what was left out. Written last: where it is missing,
                         the program was killed, and what is there up to then is good

A line ends with a checksum of itself and carries its number, so that a torn, changed or missing one
is seen. Nothing is pickled. `Writer` writes, `Trace` in `reader` reads.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import sys
import threading
import zlib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

import causeway
from causeway import atomic
from causeway.errors import TraceError
from causeway.trace import values
from causeway.trace.tensors import TensorRecord

FORMAT, VERSION = "causeway-trace", 1
HEADER, CALLS, COMPLETE = "trace.json", "calls.jsonl", "complete.json"
SHARD = 64 << 20  # bytes of values until a file is written
EARLY = 4 << 20  # of calls that are still only in memory, were the program killed


@dataclass
class RecordedCall:
    """One call of an operator. Tensors are TensorRecords, as they were before the call in `args`,
    after it in `results` and `written`, which has the arguments that the operator changed.
    """

    sequence: int
    operator: str
    args: list[Any]
    results: list[Any] = field(default_factory=list)
    written: dict[int, Any] = field(default_factory=dict)
    rung: str = ""
    phase: str = "forward"
    module: str = ""
    step: int = 0
    thread: int = 0
    depth: int = 0
    error: str = ""
    stack: tuple[str, ...] = ()
    line: int = 0  # of the file, where it was read from one

    def __str__(self) -> str:
        return f"{self.operator}({', '.join(map(values.show, self.args))})"

    @property
    def place(self) -> str:
        """Where in the program, for people."""
        parts = [f"step {self.step}", self.phase, self.module]
        return ", ".join(part for part in parts if part)

    def to_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "sequence": self.sequence,
            "operator": self.operator,
            "args": values.to_json(self.args),
            "results": values.to_json(self.results),
        }
        if self.written:
            found["written"] = [[i, values.to_json(v)] for i, v in self.written.items()]
        for name in ("rung", "phase", "module", "step", "thread", "depth", "error"):
            if getattr(self, name):
                found[name] = getattr(self, name)
        if self.stack:
            found["stack"] = list(self.stack)
        return found


def program() -> dict[str, Any]:
    """What a trace says about where it was made."""
    from causeway.state import state

    return {
        "causeway": causeway.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "vendor": state.vendor,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "program": [str(arg) for arg in sys.argv],
    }


def seal(body: dict[str, Any]) -> bytes:
    """A line of the index, with its checksum."""
    text = json.dumps(body, separators=(",", ":"), allow_nan=False).encode()
    return text[:-1] + b',"crc":"%08x"}\n' % zlib.crc32(text)


class Writer:
    """Writes one trace. Thread-safe; a forked process writes nothing.

    `budget` is in bytes, for the whole folder: values stop being kept first, then calls, and
    `left_out` counts both.
    """

    def __init__(self, folder: str | Path, about: dict[str, Any], budget: int = 1 << 30) -> None:
        self.folder = Path(folder)
        if self.folder.is_file() or (self.folder.is_dir() and any(self.folder.iterdir())):
            raise TraceError(f"{self.folder} exists already: name another folder, or remove it")
        self.folder.mkdir(parents=True, exist_ok=True)
        self.budget = budget
        self.calls = 0
        self.bytes = 0
        self.left_out: Counter[str] = Counter()
        self.closed = False
        self._process = os.getpid()
        self._lock = threading.RLock()
        self._lines = 0
        self._operators: set[str] = set()
        self._keys: dict[tuple[str, str, tuple[int, ...]], str] = {}
        self._shard: dict[str, torch.Tensor] = {}
        self._shard_bytes = 0
        self._shards = 0
        header = {"format": FORMAT, "version": VERSION} | program() | about
        atomic.write(self.folder / HEADER, json.dumps(header, indent=1).encode())
        self._file = os.open(self.folder / CALLS, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    @property
    def mine(self) -> bool:
        """Whether this process is the one that writes."""
        return not self.closed and os.getpid() == self._process

    def keep(self, record: TensorRecord, dense: torch.Tensor) -> str | None:
        """Keep the values of a tensor, on the CPU and dense; their key, or None beyond the budget.

        Equal values are kept once: `record.digest` says which are.
        """
        assert record.digest is not None
        with self._lock:
            key = (record.digest, record.dtype, record.shape)
            if key in self._keys:
                return self._keys[key]
            size = dense.numel() * dense.element_size()
            # What is left is for the calls themselves.
            if self.bytes + self._shard_bytes + size > 0.9 * self.budget:
                self.left_out["values"] += 1
                return None
            name = str(len(self._keys))
            self._keys[key] = f"{self._shards}:{name}"
            self._shard[name] = dense
            self._shard_bytes += size
            return self._keys[key]

    def write(self, call: RecordedCall, schema: str) -> None:
        """Write a call."""
        with self._lock:
            if not self.mine:
                return
            if call.operator not in self._operators:
                self._operators.add(call.operator)
                self._line({"operator": call.operator, "schema": schema})
            if self._line({"call": call.to_json()}):
                self.calls += 1
            else:
                self.left_out["calls"] += 1
            if self._shard_bytes >= (SHARD if self._shards else EARLY):
                self.flush()

    def _line(self, body: dict[str, Any]) -> bool:
        line = seal({"line": self._lines + 1} | body)
        if self.bytes + len(line) > self.budget or self.left_out["calls"]:
            return False
        self._lines += 1
        self.bytes += len(line)
        # At once, past any buffer of this process: what is killed next leaves whole lines.
        view = memoryview(line)
        while view:
            view = view[os.write(self._file, view) :]
        return True

    def flush(self) -> None:
        """Write the values that are only in memory yet."""
        with self._lock:
            if not self._shard:
                return
            from safetensors.torch import save

            content = save({name: _storable(t) for name, t in self._shard.items()})
            atomic.write(self.folder / f"tensors-{self._shards}.safetensors", content)
            self.bytes += len(content)
            self._shards += 1
            self._shard, self._shard_bytes = {}, 0

    def close(self, ended: str = "in order") -> None:
        """Mark the trace as complete. `ended` says how the program did."""
        with self._lock:
            if not self.mine:
                return
            self.flush()
            os.close(self._file)
            self.closed = True
            body = {
                "lines": self._lines,
                "calls": self.calls,
                "shards": self._shards,
                "left_out": dict(self.left_out),
                "ended": ended,
            }
            atomic.write(self.folder / COMPLETE, json.dumps(body, indent=1).encode())


def _storable(t: torch.Tensor) -> torch.Tensor:
    """`t`, or its bytes where safetensors has no such dtype."""
    from safetensors.torch import _TYPES

    known = t.dtype in _TYPES.values()
    return t if known else t.reshape(-1).view(torch.uint8)
