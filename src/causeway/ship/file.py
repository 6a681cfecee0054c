"""Writes a program as a file: run/format.h has the layout, and include/causeway/run.h reads it."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from causeway import atomic
from causeway.ship.plan import Patch, Program, Sizes
from causeway.ship.steps import Check
from causeway.ship.weights import Part

VERSION = 5
NO_VECTOR = (1 << 64) - 1
_KINDS = {"launch": 0, "copy": 1, "fill": 2}


@dataclass
class Binaries:
    """What a compiler made of sources. `key` is for which chip and driver: three lines, of the
    vendor's name, the device's, and the driver's version.
    """

    key: str
    by_source: dict[str, bytes]


class _Strings:
    def __init__(self) -> None:
        self.bytes = bytearray(b"\0")
        self.known: dict[bytes, int] = {b"": 0}

    def add(self, text: str) -> int:
        """The place of a text, ended by a NUL."""
        raw = text.encode()
        if raw not in self.known:
            self.known[raw] = len(self.bytes)
            self.bytes += raw + b"\0"
        return self.known[raw]


def write(
    path: Path,
    program: Program,
    *,
    target: dict[str, Any],
    ports: Sequence[dict[str, Any]],
    constants: bytes,
    about: dict[str, Any],
    tellers: Sequence[str],
    checks: Sequence[Check] = (),
    parts: Sequence[Part] = (),
    elsewhere: str | None = None,
    binaries: Binaries | None = None,
) -> None:
    """Write `program`, whole or not at all.

    `target` has language, flags, arithmetic (numbers of code.v1) and vendor. A port has name, kind
    (0 input, 1 output), place (buffer, offset), dtype (bit number), shape, bytes and vector (bytes
    or None). Where a size may differ, shape and bytes are the most. `parts` are those of the
    weights, by place; `elsewhere` names the file that has them: `constants` are not written then.
    `binaries` are what a chip's compiler made of the sources.
    """
    strings = _Strings()
    pieces, texts, functions, numbers = _texts(program, strings)
    values = bytearray()
    arguments, steps = bytearray(), bytearray()
    first_arguments = []
    for step in program.steps:
        first = len(arguments) // 16
        first_arguments.append(first)
        for argument in step.arguments:
            if isinstance(argument, bytes):
                values += b"\0" * (-len(values) % 8)
                arguments += struct.pack("<IIQ", 1, len(argument), len(values))
                values += argument
            else:
                arguments += struct.pack("<IIQ", 0, *argument)
        steps += struct.pack(
            "<II3I3IIIQIIII",
            _KINDS[step.kind],
            step.function if step.kind == "launch" else 0,
            *step.grid,
            *step.group,
            first,
            len(step.arguments),
            step.bytes if step.kind != "launch" else 0,
            step.byte & 0xFF,
            strings.add(step.name),
            strings.add(step.line),
            0,
        )
    buffers = b"".join(struct.pack("<IIQQ", b.kind, 0, b.bytes, b.place) for b in program.buffers)
    vectors, port_records = bytearray(), bytearray()
    for port in ports:
        at = NO_VECTOR
        if port["vector"] is not None:
            vectors += b"\0" * (-len(vectors) % 64)
            at = len(vectors)
            vectors += port["vector"]
        shape = [*port["shape"], *[0] * (8 - len(port["shape"]))]
        port_records += struct.pack(
            "<6I3Q8q",
            strings.add(port["name"]),
            port["kind"],
            port["place"][0],
            port["dtype"],
            len(port["shape"]),
            0,
            port["place"][1],
            port["bytes"],
            at,
            *shape,
        )
    check_records = bytearray()
    for check in checks:
        vectors += b"\0" * (-len(vectors) % 8)
        number = first_arguments[check.step] + check.argument
        given = (check.step, number, check.dtype, check.count, check.stride, len(vectors))
        check_records += struct.pack("<4I2Q", *given)
        vectors += check.data
    sizes = _sizes(program.sizes, strings)
    where = struct.pack("<IIQ", strings.add(elsewhere), 0, len(constants)) if elsewhere else b""
    made = _binaries(binaries, numbers, strings)
    head = struct.pack(
        "<IIQQIIII",
        target["language"],
        target["flags"],
        target["arithmetic"],
        program.arena,
        strings.add(target["vendor"]),
        strings.add(json.dumps(about, indent=1)),
        strings.add("\n".join(tellers)),
        0,
    )
    front = (strings.bytes, head, pieces, texts, functions, buffers, values, arguments, steps)
    costs = b"".join(struct.pack("<QQ", s.operations, s.moved) for s in program.steps)
    weights = b"".join(struct.pack("<32sQQ", p.digest, p.place, p.bytes) for p in parts)
    more = (*sizes, check_records, costs, weights, where, *made)
    inside = b"" if elsewhere else constants
    atomic.write(path, b"".join(_file([*front, port_records, vectors, inside, *more])))


def raw(tensor: torch.Tensor) -> bytes:
    """A tensor's bytes as a file has them: row-major."""
    if not tensor.numel():
        return b""
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def _sizes(sizes: Sizes | None, strings: _Strings) -> tuple[bytes, bytes, bytes, bytes]:
    """The size that may differ, its profiles, what depends on it, and tables."""
    if sizes is None:
        return b"", b"", b"", b""
    patches, tables = bytearray(), bytearray()

    def add(group: Sequence[Patch]) -> tuple[int, int]:
        first = len(patches) // 48
        for p in group:
            table = len(tables) // 8 if p.table else 0
            patches.extend(
                struct.pack("<IIQqqQQ", p.what, p.of, p.place, p.base, p.slope, p.divisor, table)
            )
            tables.extend(struct.pack(f"<{len(p.table)}q", *p.table))
        return first, len(group)

    ports = add(sizes.ports)
    profiles = b"".join(
        struct.pack("<QQIIII", p.first, p.last, p.step, p.steps, *add(p.patches))
        for p in sizes.profiles
    )
    most = (sizes.least, sizes.most, sizes.example)
    size = struct.pack("<IIQQQII", strings.add(sizes.name), 0, *most, *ports)
    return size, profiles, bytes(patches), bytes(tables)


def _binaries(
    binaries: Binaries | None, numbers: dict[str, int], strings: _Strings
) -> tuple[bytes, bytes]:
    """Their records, and their bytes."""
    records, made = bytearray(), bytearray()
    for source, data in binaries.by_source.items() if binaries else ():
        assert binaries is not None
        made += b"\0" * (-len(made) % 64)
        key = strings.add(binaries.key)
        records += struct.pack("<IIQQ", numbers[source], key, len(made), len(data))
        made += data
    return bytes(records), bytes(made)


def _texts(program: Program, strings: _Strings) -> tuple[bytes, bytes, bytes, dict[str, int]]:
    """Pieces, sources and functions, and the number of each source. Sources begin alike, so their
    common lines are kept once.
    """
    numbers: dict[str, int] = {}
    pieces, texts, functions = bytearray(), bytearray(), bytearray()
    for name, source in program.functions:
        if source not in numbers:
            numbers[source] = len(numbers)
            first = len(pieces) // 8
            parts = source.split("\n\n")
            for i, part in enumerate(parts):
                text = part + ("\n\n" if i + 1 < len(parts) else "")
                pieces += struct.pack("<II", strings.add(text), len(text.encode()))
            texts += struct.pack("<II", first, len(parts))
        functions += struct.pack("<II", numbers[source], strings.add(name))
    return bytes(pieces), bytes(texts), bytes(functions), numbers


def _file(parts: Sequence[bytes | bytearray]) -> list[bytes]:
    offset = _round(64 + 32 * len(parts))
    table, out = bytearray(), []
    for kind, part in enumerate(parts, 1):
        table += struct.pack("<IIQQQ", kind, zlib.crc32(part), offset, len(part), 0)
        out += [bytes(part), b"\0" * (_round(len(part)) - len(part))]
        offset += _round(len(part))
    total = offset - (_round(len(parts[-1])) - len(parts[-1]))
    out.pop()
    header = struct.pack("<8sIIQI", b"CAUSEWAY", VERSION, len(parts), total, zlib.crc32(table))
    crc = zlib.crc32(header + b"\0" * 36)
    first = header + struct.pack("<I", crc) + b"\0" * 32 + bytes(table)
    return [first, b"\0" * (_round(len(first)) - len(first)), *out]


def _round(size: int) -> int:
    return -(-size // 64) * 64
