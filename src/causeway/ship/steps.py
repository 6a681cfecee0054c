"""What each step of a program writes, kept so that `cw verify` can name the first that differs.

Nothing says how much of its memory a kernel writes. So the steps run twice, with other bytes in
memory that nobody wrote: what a step's result is, is the same both times.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from causeway import _C
from causeway.ship.plan import IN_ARENA, Program, pointer_types

MOST_BYTES = 4096  # of what is kept of one result
MOST_BYTES_OF_ALL = 16 << 20
# The dtype's bit number and bytes, by the name of a kernel's type. 16 bits may be of several dtypes
# there, so they are not compared.
_TYPES = {
    "f32": (11, 4),
    "f64": (12, 8),
    "u8": (1, 1),
    "i8": (2, 1),
    "i32": (6, 4),
    "u32": (5, 4),
    "idx": (8, 8),
    "i64": (8, 8),
}


@dataclass
class Check:
    """Elements of what a step wrote: `count` of them, from each `stride`th place."""

    step: int
    argument: int  # of the step
    dtype: int
    count: int
    stride: int
    data: bytes


def references(graph: Any, program: Program, device: int) -> list[Check]:
    """The checks of a captured graph that was not replayed yet."""
    writes = _writes(program)
    room = min(MOST_BYTES, MOST_BYTES_OF_ALL // max(1, sum(map(len, writes)))) // 8 * 8
    found: dict[tuple[int, int], bytes] = {}
    checks: list[Check] = []

    def keep(step: int, argument: int, kind: str, data: bytes) -> None:
        found[step, argument] = data

    def compare(step: int, argument: int, kind: str, data: bytes) -> None:
        dtype, size = _TYPES[kind]
        first = np.frombuffer(found.pop((step, argument)), np.uint8).reshape(-1, size)
        other = np.frombuffer(data, np.uint8).reshape(-1, size)
        differs = (first != other).any(axis=1)
        count = int(differs.argmax()) if differs.any() else len(first)
        most = max(1, room // size)
        stride = -(-count // most)
        if count:
            kept: NDArray[np.uint8] = first[:count:stride]
            checks.append(Check(step, argument, dtype, len(kept), stride, kept.tobytes()))

    _run(graph, program, device, writes, 0xA5, keep)
    _run(graph, program, device, writes, 0x5A, compare)
    return checks


def _run(
    graph: Any,
    program: Program,
    device: int,
    writes: list[list[tuple[int, str]]],
    unwritten: int,
    seen: Callable[[int, int, str, bytes], None],
) -> None:
    """Run each step, and give what it wrote; memory is full of `unwritten` before its first use."""
    inputs = {number for number, _ in program.inputs}
    for i, step in enumerate(program.steps):
        for number, buffer in enumerate(program.buffers):
            if buffer.kind == IN_ARENA and buffer.first == i and number not in inputs:
                _C.write_memory(device, buffer.start, bytes([unwritten]) * buffer.bytes)
        graph.run_step(i)
        for argument, kind in writes[i]:
            number, place = step.arguments[argument]
            buffer = program.buffers[number]
            size = _TYPES[kind][1]
            bytes_ = (buffer.bytes - place) // size * size
            seen(i, argument, kind, _C.read_memory(device, buffer.start + place, bytes_))


def _writes(program: Program) -> list[list[tuple[int, str]]]:
    """Which arguments each step writes through, and the type of what is there."""
    pointers = [pointer_types(function) for function in program.functions]
    kinds: dict[Any, str] = {}
    for step in program.steps:
        if step.kind == "launch":
            for argument, (kind, _) in zip(step.arguments, pointers[step.function], strict=False):
                kinds.setdefault(argument, kind)
    writes: list[list[tuple[int, str]]] = []
    for step in program.steps:
        if step.kind == "launch":
            own = [
                (k, kind) for k, (kind, written) in enumerate(pointers[step.function]) if written
            ]
        elif step.kind == "copy" and step.arguments[0] in kinds:
            own = [(0, kinds[step.arguments[0]])]
        else:
            own = []
        writes.append([(k, kind) for k, kind in own if _is_read(program, step.arguments[k], kind)])
    return writes


def _is_read(program: Program, argument: Any, kind: str) -> bool:
    if isinstance(argument, bytes) or kind not in _TYPES:
        return False
    buffer = program.buffers[argument[0]]
    return bool(buffer.kind == IN_ARENA and buffer.bytes - argument[1] >= _TYPES[kind][1])
