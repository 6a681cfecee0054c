"""Weights files, which several models share: run/format.h has the layout, run/weights.c reads them.

A weights file only grows. What it lacks is written behind what is there, with a new index after it;
the header, which says where the index is, comes last. So a reader has the old index or the new one,
and what a run that was stopped left behind its end is nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import struct
import tempfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from causeway import atomic
from causeway.errors import CausewayError

VERSION = 1
_HEADER = struct.Struct("<8sII3QII16x")
_ENTRY = struct.Struct("<32sQQ")
_MAGIC = b"CWEIGHTS"
_ALIGNMENT = 256


@dataclass(frozen=True)
class Part:
    """A run of a model's weights: `bytes` from `place` on, whose SHA-256 is `digest`."""

    digest: bytes
    place: int
    bytes: int


def part(data: bytes, place: int) -> Part:
    """The part that has `data` at `place`."""
    return Part(hashlib.sha256(data).digest(), place, len(data))


def name_beside(model: Path, weights: Path) -> str:
    """How a model's file names its weights file: by the path from its folder.

    Raises:
        CausewayError: the weights file is not in that folder or below it.
    """
    name = os.path.relpath(os.path.abspath(weights), os.path.abspath(model.parent))
    parts = Path(name).parts
    if ".." in parts or os.path.isabs(name) or name == ".":
        raise CausewayError(
            f"{weights} is outside of {model.parent}, the folder of {model.name}: a model's "
            "weights file is beside it or in a folder below, so that both can be moved together"
        )
    if os.path.abspath(weights) == os.path.abspath(model):
        raise CausewayError(f"{model} cannot be the model's file and its weights file at once")
    if len(os.fsencode(name)) >= 1024 or any(c in name for c in "\\:") or not name.isprintable():
        raise CausewayError(f"{name!r} is no name that a weights file may have; take a plain one")
    return Path(name).as_posix()


def add(path: Path, blobs: Mapping[bytes, bytes]) -> int:
    """Add what `path` lacks of `blobs`, by SHA-256, and return how many bytes that were.

    All is added or nothing. A file that is not there is made. Others may read it meanwhile, and who
    adds to it waits for whoever does.

    Raises:
        CausewayError: it is no weights file, or is damaged; nothing is changed.
        OSError: it cannot be written.
    """
    _make(path)
    with open(path, "r+b") as opened:
        file = opened.fileno()
        fcntl.flock(file, fcntl.LOCK_EX)
        end, entries = _read(file, path)
        for digest, data in blobs.items():
            if digest in entries and _at(file, *entries[digest]) != data:
                place, size = entries[digest]
                raise CausewayError(
                    f"{path} is damaged: its {size} bytes at {place} do not have the SHA-256 "
                    f"{digest.hex()}; take a copy that is whole, or another name"
                )
        missing = {d: b for d, b in blobs.items() if d not in entries}
        if not missing:
            return 0
        before = os.fstat(file).st_size
        try:
            _append(file, end, entries, missing)
        except BaseException:
            with contextlib.suppress(OSError):
                os.ftruncate(file, before)
            raise
    return sum(map(len, missing.values()))


def _make(path: Path) -> None:
    """A weights file with nothing in it, unless one is there."""
    if path.exists():
        return
    atomic.check(path)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=f".{path.name}")
    try:
        with open(handle, "wb") as file:
            file.write(_header(_HEADER.size, _HEADER.size, 0, 0))
        os.chmod(temporary, 0o644)
        with contextlib.suppress(FileExistsError):  # another one made it meanwhile
            os.link(temporary, path)
    finally:
        os.unlink(temporary)


def _at(file: int, place: int, size: int) -> bytes:
    """Fewer bytes where the file ends before."""
    out = bytearray()
    while len(out) < size:
        got = os.pread(file, size - len(out), place + len(out))
        if not got:
            break
        out += got
    return bytes(out)


def _read(file: int, path: Path) -> tuple[int, dict[bytes, tuple[int, int]]]:
    """Its end, and (place, bytes) by digest."""
    raw = _at(file, 0, _HEADER.size)
    if len(raw) < _HEADER.size or raw[:8] != _MAGIC:
        raise CausewayError(f"{path} is there and is no weights file; give another name")
    _, version, _, end, index, count, index_sum, own_sum = _HEADER.unpack(raw)
    if version != VERSION:
        raise CausewayError(
            f"{path} has version {version} of a weights file, and this Causeway writes {VERSION}; "
            "give another name"
        )
    if zlib.crc32(raw[:44] + bytes(4) + raw[48:]) == own_sum:
        table = _at(file, index, count * _ENTRY.size)
        whole = os.fstat(file).st_size >= end
        if whole and len(table) == count * _ENTRY.size and zlib.crc32(table) == index_sum:
            return end, {d: (p, size) for d, p, size in _ENTRY.iter_unpack(table)}
    raise CausewayError(f"{path} is damaged or was cut; take a copy that is whole, or another name")


def _append(
    file: int, end: int, entries: dict[bytes, tuple[int, int]], missing: Mapping[bytes, bytes]
) -> None:
    for digest, data in missing.items():
        place = _round(end)
        _put(file, data, place)
        entries[digest] = place, len(data)
        end = place + len(data)
    index = _round(end)
    table = b"".join(_ENTRY.pack(d, *entries[d]) for d in sorted(entries))
    _put(file, table, index)
    os.fsync(file)
    _put(file, _header(index + len(table), index, len(entries), zlib.crc32(table)), 0)
    os.fsync(file)


def _put(file: int, data: bytes, place: int) -> None:
    view = memoryview(data)
    while view:
        done = os.pwrite(file, view, place)
        view, place = view[done:], place + done


def _header(end: int, index: int, entries: int, index_sum: int) -> bytes:
    fields = (_MAGIC, VERSION, 0, end, index, entries, index_sum)
    return _HEADER.pack(*fields, zlib.crc32(_HEADER.pack(*fields, 0)))


def _round(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT
