"""Reads a trace, and trusts nothing in it: it may be damaged, cut off, or made by an adversary.

What is wrong is a TraceError with file, line and reason. Only one thing is forgiven: the last line
of a trace whose program was killed may be torn, which `lost` says.
"""

from __future__ import annotations

import json
import os
import re
import stat
import zlib
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

import torch

from causeway.errors import TraceError
from causeway.trace import tensors, values
from causeway.trace.tensors import DTYPES, TensorRecord
from causeway.trace.trace import CALLS, COMPLETE, FORMAT, HEADER, VERSION, RecordedCall

LONGEST = 32 << 20  # bytes of a line
SMALL = 1 << 20  # bytes of a header
_SEAL = re.compile(rb',"crc":"([0-9a-f]{8})"\}\Z')
_OPERATOR = re.compile(r"[A-Za-z_]\w{0,99}::[A-Za-z_]\w{0,199}(\.[A-Za-z_]\w{0,99})?", re.ASCII)
PHASES = ("forward", "backward", "optimizer")


def _strict(text: bytes) -> Any:
    """JSON without NaN, endless digits or endless nesting. Raises ValueError."""

    def refuse(word: str) -> NoReturn:
        raise ValueError(f"{word} is no JSON")

    try:
        return json.loads(text.decode("utf-8"), parse_constant=refuse)
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 at byte {error.start}") from None
    except RecursionError:
        raise ValueError("nested without end") from None


def _regular(path: Path) -> os.stat_result:
    """Size and kind of a file in a trace. A link might lead out of it."""
    try:
        found = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        raise TraceError(f"{path}: there is no such file") from None
    if not stat.S_ISREG(found.st_mode):
        raise TraceError(f"{path}: not a regular file")
    return found


def document(path: Path, largest: int = SMALL) -> dict[str, Any]:
    """A JSON object from a file. Raises TraceError."""
    if _regular(path).st_size > largest:
        raise TraceError(f"{path}: larger than {largest} bytes")
    try:
        found = _strict(path.read_bytes())
    except ValueError as error:
        raise TraceError(f"{path}: {error}") from None
    if not isinstance(found, dict):
        raise TraceError(f"{path}: no object")
    return found


def ranks(folder: str | Path) -> dict[str, Path]:
    """The traces below a folder, by the rank that wrote them; {"": folder} where it is one."""
    folder = Path(folder)
    if (folder / HEADER).exists():
        return {"": folder}
    found = {p.name: p for p in folder.glob("rank*") if (p / HEADER).exists()}
    if not found:
        raise TraceError(f"{folder}: no trace ({HEADER} is not there)")
    return dict(sorted(found.items(), key=lambda pair: (len(pair[0]), pair[0])))


class Trace:
    """A trace on disk. `complete` is False where the program was killed; `lost` then says what."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        found = ranks(self.folder)
        if "" not in found:
            raise TraceError(f"{folder}: traces of several ranks, name one: {', '.join(found)}")
        self.about = document(self.folder / HEADER)
        if self.about.get("format") != FORMAT:
            raise TraceError(f"{self.folder / HEADER}: no trace of Causeway's")
        version = self.about.get("version")
        if version != VERSION:
            raise TraceError(
                f"{self.folder / HEADER}: version {str(version)[:20]}; this Causeway reads "
                f"version {VERSION}"
            )
        self.lost = ""
        self.schemas: dict[str, str] = {}
        self.end: dict[str, Any] = {}
        self.complete = (self.folder / COMPLETE).exists()
        if self.complete:
            self.end = document(self.folder / COMPLETE)
            for name in ("lines", "calls", "shards"):
                if type(self.end.get(name)) is not int or self.end[name] < 0:
                    raise TraceError(f"{self.folder / COMPLETE}: {name!r} is no number")
            if not isinstance(self.end.get("left_out"), dict):
                raise TraceError(f"{self.folder / COMPLETE}: 'left_out' is no object")
        self._shards: dict[int, Any] = {}

    def word(self, name: str) -> str:
        """A field of the header as a word for people."""
        found = self.about.get(name, "")
        return found[:200] if isinstance(found, str) else ""

    @cached_property
    def calls(self) -> list[RecordedCall]:
        """All calls in the order in which they began. Raises TraceError."""
        return sorted(self._read(), key=lambda call: call.sequence)

    def state(self) -> str:
        """Whether the trace is whole, for people; "" where there is nothing to say."""
        said = []
        if not self.complete:
            said.append("the program was killed: the trace goes up to then")
        if self.lost:
            said.append(self.lost)
        for what, n in self.end.get("left_out", {}).items():
            said.append(f"{str(n)[:20]} {str(what)[:20]} left out, for the budget was spent")
        if self.complete and self.end.get("ended", "in order") != "in order":
            said.append(f"the program ended with {str(self.end['ended'])[:200]}")
        return "; ".join(said)

    # --- lines ------------------------------------------------------------------------------------

    def _read(self) -> Iterator[RecordedCall]:
        path = self.folder / CALLS
        size = _regular(path).st_size
        lines = calls = at = 0
        with path.open("rb") as file:
            while line := file.readline(LONGEST):
                at += len(line)
                try:
                    found = self._one(line, lines + 1)
                except ValueError as error:
                    torn = not line.endswith(b"\n") and at == size
                    if torn and not self.complete:
                        self.lost = f"the last line, {lines + 1}, is torn and left out"
                        break
                    raise TraceError(f"{path} line {lines + 1}: {error}") from None
                lines += 1
                if found is not None:
                    calls += 1
                    yield found
        if self.complete and (lines, calls) != (self.end["lines"], self.end["calls"]):
            raise TraceError(
                f"{path}: {lines} lines and {calls} calls; {COMPLETE} says "
                f"{self.end['lines']} and {self.end['calls']}"
            )

    def _one(self, line: bytes, number: int) -> RecordedCall | None:
        if not line.endswith(b"\n"):
            raise ValueError(
                f"longer than {LONGEST} bytes" if len(line) == LONGEST else "cut off in its middle"
            )
        seal = _SEAL.search(line[:-1])
        if seal is None:
            raise ValueError("no checksum at its end")
        body = line[: seal.start()] + b"}"
        if zlib.crc32(body) != int(seal[1], 16):
            raise ValueError("the checksum is another: the line was changed")
        found = _strict(body)
        if not isinstance(found, dict) or type(found.get("line")) is not int:
            raise ValueError("no record")
        if found["line"] != number:
            raise ValueError(f"it says that it is line {found['line']}: lines are missing")
        if set(found) == {"line", "operator", "schema"}:
            name, schema = operator_name(found["operator"]), found["schema"]
            if not isinstance(schema, str) or len(schema) > SMALL:
                raise ValueError("a schema that is no text")
            self.schemas[name] = schema
            return None
        if set(found) == {"line", "call"} and isinstance(found["call"], dict):
            call = _call(found["call"])
            call.line = number
            if call.operator not in self.schemas:
                raise ValueError(f"{call.operator} has no schema on an earlier line")
            return call
        raise ValueError("a record of an unknown kind")

    # --- values -----------------------------------------------------------------------------------

    def values(self, record: TensorRecord) -> torch.Tensor:
        """The values of a tensor, dense, on the CPU. Raises TraceError, also where they are not
        those of the hash in the index.
        """
        if record.data is None:
            raise TraceError(f"{self.folder}: the values of a {record} were not kept")
        shard, _, key = record.data.partition(":")
        file = self._shard(int(shard))
        where = f"{self.folder / _shard_name(int(shard))}: tensor {key}"
        try:
            found: torch.Tensor = file.get_tensor(key)
        except Exception as error:  # of the library: it has no class of its own for a missing key
            raise TraceError(f"{where}: {str(error)[:200]}") from None
        dtype = DTYPES[record.dtype]
        if found.dtype == torch.uint8 != dtype and found.numel() == record.bytes:
            found = found.view(dtype).view(record.shape)
        if found.dtype != dtype or tuple(found.shape) != record.shape:
            raise TraceError(
                f"{where}: {found.dtype} of shape {list(found.shape)}; the index says {record}"
            )
        if record.digest is not None and tensors.digest(found.contiguous()) != record.digest:
            raise TraceError(f"{where}: other values than those that were recorded")
        return found

    def has(self, record: TensorRecord) -> bool:
        """Whether the values of a tensor are there. In a trace that was cut off some may not be."""
        if record.data is None:
            return False
        return self.complete or (self.folder / _shard_name(int(record.data.split(":")[0]))).exists()

    def _shard(self, number: int) -> Any:
        if number not in self._shards:
            from safetensors import safe_open

            path = self.folder / _shard_name(number)
            size = _regular(path).st_size
            with path.open("rb") as file:
                declared = int.from_bytes(file.read(8), "little")
            if size < 8 or declared > size - 8:
                raise TraceError(f"{path}: a header of {declared} bytes in a file of {size}")
            try:
                self._shards[number] = safe_open(str(path), framework="pt")
            except Exception as error:  # SafetensorError is not exported by all its versions
                raise TraceError(f"{path}: {str(error)[:200]}") from None
        return self._shards[number]


def _shard_name(number: int) -> str:
    return f"tensors-{number}.safetensors"


# --- calls ----------------------------------------------------------------------------------------


def operator_name(value: Any) -> str:
    """ "aten::add.out", or ValueError."""
    if not isinstance(value, str) or not _OPERATOR.fullmatch(value):
        raise ValueError(f"{str(value)[:60]!r} is no name of an operator")
    return value


def _count(found: dict[str, Any], name: str) -> int:
    value = found.get(name, 0)
    if type(value) is not int or not 0 <= value < 1 << 62:
        raise ValueError(f"{name!r} is {str(value)[:40]!r}, expected a whole number")
    return value


def _text(found: dict[str, Any], name: str) -> str:
    value = found.get(name, "")
    if not isinstance(value, str) or len(value) > 1 << 16:
        raise ValueError(f"{name!r} is no text")
    return value


def _call(found: dict[str, Any]) -> RecordedCall:
    known = {"sequence", "operator", "args", "results", "written", "rung", "phase", "module"}
    known |= {"step", "thread", "depth", "error", "stack"}
    if unknown := set(found) - known:
        raise ValueError(f"a call has the unknown field {min(unknown)[:40]!r}")
    lists: dict[str, list[Any]] = {}
    for name in ("args", "results", "written", "stack"):
        lists[name] = found.get(name, [])
        if not isinstance(lists[name], list):
            raise ValueError(f"{name!r} is no list")
    args = values.from_json(lists["args"])
    written: dict[int, Any] = {}
    for entry in lists["written"]:
        if not isinstance(entry, list) or len(entry) != 2 or type(entry[0]) is not int:
            raise ValueError("'written' has something else than an index and a value")
        if not 0 <= entry[0] < len(args):
            raise ValueError(f"argument {entry[0]} was written, of {len(args)}")
        written[entry[0]] = values.from_json(entry[1])
    if not all(isinstance(frame, str) for frame in lists["stack"]):
        raise ValueError("'stack' is no list of texts")
    phase = found.get("phase", "forward")
    if phase not in PHASES:
        raise ValueError(f"the phase is {str(phase)[:20]!r}, expected one of {', '.join(PHASES)}")
    return RecordedCall(
        _count(found, "sequence"),
        operator_name(found.get("operator")),
        args,
        values.from_json(lists["results"]),
        written,
        _text(found, "rung"),
        phase,
        _text(found, "module"),
        _count(found, "step"),
        _count(found, "thread"),
        _count(found, "depth"),
        _text(found, "error"),
        tuple(lists["stack"]),
    )
