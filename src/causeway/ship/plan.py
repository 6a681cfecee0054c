"""A captured graph as a program: buffers, constants, steps, and a plan of its memory.

The graph has addresses of this process. Here each becomes a place in a buffer: of the arena that a
session has, of the weights, or of the two words in which kernels tell errors. Blocks that the
capture was given live from their first step to their last, and are laid out anew, so that the arena
is as small as first-fit by size makes it.
"""

from __future__ import annotations

import bisect
import functools
import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from causeway import _C
from causeway.errors import CausewayError

ALIGNMENT = 256  # of each buffer
IN_ARENA, CONSTANT, TOLD = range(3)
# What a patch is of.
GRID, BYTES, PLACE, WORD, HALF_WORD, DIMENSION, OPERATIONS, MOVED = range(8)


@dataclass
class Buffer:
    """A run of bytes: of the arena, of the weights, or what kernels tell."""

    kind: int
    start: int  # the address in this process
    bytes: int
    given: int = 0  # the step before which the capture was given it
    first: int | None = None  # the first step that uses it, and the last
    last: int = 0
    place: int = 0
    content: int = 0  # a sum of what weights have at all sizes

    @property
    def end(self) -> int:
        return self.start + self.bytes


@dataclass
class Step:
    """A launch, a copy or a fill. Arguments: (buffer, place in it), or a value's bytes."""

    kind: str
    name: str
    function: int
    grid: Sequence[int]
    group: Sequence[int]
    arguments: list[tuple[int, int] | bytes]
    bytes: int
    byte: int
    line: str = ""  # of the model's source
    operations: int = 0  # what it computes, and the bytes that it reads and writes
    moved: int = 0


@dataclass
class Patch:
    """A number of the program that depends on the size: floor((base + slope * size) / divisor), or
    where `divisor` is 0, the entry of `table` for the size, counted from the profile's first.
    """

    what: int  # GRID, …
    of: int  # step, argument or port
    place: int  # which part of it
    base: int = 0
    slope: int = 0
    divisor: int = 1
    table: Sequence[int] = ()


@dataclass
class Profile:
    """What sizes `first` to `last` run: steps of the program, with numbers of their own."""

    first: int
    last: int
    step: int
    steps: int
    patches: list[Patch]


@dataclass
class Sizes:
    """A size that may differ from run to run, and what depends on it."""

    name: str
    least: int
    most: int
    example: int  # of the test vectors
    ports: list[Patch]
    profiles: list[Profile]


@dataclass
class Program:
    """What a file holds, but for the texts of its kernels."""

    buffers: list[Buffer]
    steps: list[Step]
    inputs: list[tuple[int, int]]  # buffer, and place in it
    outputs: list[tuple[int, int]]
    functions: list[tuple[str, str]]  # name, source
    arena: int = 0  # bytes, once it is laid out
    constants: int = 0  # bytes of the weights, once they are put
    sizes: Sizes | None = None

    def weights(self) -> list[Buffer]:
        """The buffers of weights that have bytes."""
        return [b for b in self.buffers if b.kind == CONSTANT and b.bytes]

    def put_weights(self, data: Sequence[bytes]) -> bytes:
        """Give each buffer of weights its place, and return the weights. `data` are the bytes of
        `weights()`, in their order: buffers of equal bytes have one place.
        """
        whole = bytearray()
        places: dict[bytes, int] = {}
        for buffer, mine in zip(self.weights(), data, strict=True):
            digest = hashlib.sha256(mine).digest()
            if digest not in places:
                places[digest] = len(whole)
                whole += mine + bytes(_round(len(mine)) - len(mine))
            buffer.place = places[digest]
        self.constants = len(whole)
        return bytes(whole)

    def lay_out(self) -> None:
        """Give each buffer of the arena its place."""
        laid: list[Buffer] = []
        used = [b for b in self.buffers if b.kind == IN_ARENA and b.first is not None and b.bytes]
        for buffer in sorted(used, key=lambda b: (-b.bytes, b.first)):
            place = 0
            for other in laid:  # by place
                if other.first > buffer.last or other.last < buffer.first:  # type: ignore[operator]
                    continue
                if place + _round(buffer.bytes) <= other.place:
                    break
                place = max(place, other.place + _round(other.bytes))
            buffer.place = place
            bisect.insort(laid, buffer, key=lambda b: b.place)
        self.arena = max((b.place + _round(b.bytes) for b in laid), default=0)


def of_graph(
    graph: Any,
    device: int,
    inputs: Sequence[torch.Tensor],
    outputs: Sequence[torch.Tensor],
    line: Callable[[int], str],
) -> Program:
    """The program of a captured graph that reads `inputs` and wrote `outputs`, not yet laid out.
    `line` is the source line of a step.

    Raises:
        CausewayError: something in it that a file cannot hold; the message says what.
    """
    if graph.random():
        raise CausewayError(
            "the model draws random numbers, which a file does not hold yet; call model.eval()"
        )
    found = _Buffers(graph, device, inputs)
    steps: list[Step] = []
    functions: dict[int, tuple[int, tuple[str, str]]] = {}
    for number, step in enumerate(graph.steps()):
        kind, name, function, grid, group, arguments, size, byte = step
        if not kind:
            raise CausewayError(
                f"{name} (step {number}) is a call of the vendor's own kernel or a copy of the "
                "host's, which a file does not hold yet"
            )
        places = [a if isinstance(a, bytes) else found.place(a, number) for a in arguments]
        if kind == "launch":
            if function not in functions:
                functions[function] = (len(functions), _C.source_of(function))
                if not functions[function][1][0]:
                    raise CausewayError(f"the source of {name}'s kernel was not kept")
            function, source = functions[function]
            types = value_types(source)
            places = [_without_rest(p, types) if isinstance(p, bytes) else p for p in places]
        steps.append(Step(kind, name, function, grid, group, places, size, byte, line(number)))
    read = [found.place(t.data_ptr(), 0) if t.numel() else found.nothing() for t in inputs]
    end = len(steps)
    written = [found.place(t.data_ptr(), end) if t.numel() else found.nothing() for t in outputs]
    for index, _ in read:
        # A run may be repeated, and the next one's inputs be given before outputs are taken.
        found.buffers[index].first, found.buffers[index].last = 0, end
    return Program(
        found.buffers, steps, read, written, [source for _, source in functions.values()]
    )


_BYTES = {"8": 1, "16": 2, "32": 4, "64": 8}


@functools.cache
def value_types(source: tuple[str, str]) -> list[str]:
    """The types of a kernel's values, in the order of their places of 8 bytes."""
    name, text = source
    record = "Values" if name == "kernel_main" else f"{name}_values"
    found = re.search(r"typedef struct \{\n((?:  SLOT .*\n)*)\} " + re.escape(record) + ";", text)
    return re.findall(r"SLOT (?:union \{ )?(\w+) ", found[1]) if found else []


@functools.cache
def pointer_types(source: tuple[str, str]) -> list[tuple[str, bool]]:
    """(type, whether it is written) of each address that a kernel is given; none: not known."""
    name, text = source
    at = text.find(f"void {name}(")
    head = text[at : text.find("\n\n", at)] if at >= 0 else ""
    by_number = re.findall(r"= \*\((const )?(\w+)\* const\*\)args_\[\d+\]", head)
    by_parts = re.findall(r"= \(GLOBAL (const )?(\w+)\*\)\(\w+_base", head)
    in_list = re.findall(r"GLOBAL (const )?(\w+)\* \w+[,)]", head.partition("{")[0])
    return [(kind, not const) for const, kind in by_number or by_parts or in_list]


def _without_rest(value: bytes, types: Sequence[str]) -> bytes:
    """A value with zeros where a place of 8 bytes holds less: what is there is of no use."""
    if len(value) != 8 * len(types):
        return value
    out = bytearray(value)
    for i, kind in enumerate(types):
        size = _BYTES.get(kind.lstrip("uif"), 8)
        out[8 * i + size : 8 * i + 8] = bytes(8 - size)
    return bytes(out)


class _Buffers:
    """Finds the buffer of an address: the newest block that the capture was given there."""

    def __init__(self, graph: Any, device: int, inputs: Sequence[torch.Tensor]) -> None:
        self.device = device
        self.told = _C.told_at(device)
        self.buffers: list[Buffer] = []
        self.blocks: list[tuple[int, int]] = []  # (start, number), sorted: of inputs and weights
        self.by_start: dict[int, int] = {}
        for tensor in inputs:
            if tensor.numel():
                self._block(tensor.data_ptr(), IN_ARENA)
        self.own: list[int] = []
        for start, size, step in graph.memory():
            self.own.append(len(self.buffers))
            self.buffers.append(Buffer(IN_ARENA, start, size, step))

    def _block(self, address: int, kind: int) -> int:
        start, size = _C.block_of(self.device, address)
        if not start:
            raise CausewayError(
                f"a kernel reads memory at {address:#x} that is no tensor's any more: keep all "
                "inputs and weights until the file is written"
            )
        if start not in self.by_start:
            self.by_start[start] = len(self.buffers)
            bisect.insort(self.blocks, (start, len(self.buffers)))
            self.buffers.append(Buffer(kind, start, size))
        return self.by_start[start]

    def _find(self, address: int, step: int) -> int:
        if self.told and self.told <= address < self.told + 16:
            if self.told not in self.by_start:
                self.by_start[self.told] = len(self.buffers)
                self.buffers.append(Buffer(TOLD, self.told, 16))
            return self.by_start[self.told]
        newest = -1
        for number in self.own:
            buffer = self.buffers[number]
            if buffer.given <= step and buffer.start <= address < max(buffer.end, buffer.start + 1):
                newest = number
        if newest >= 0:
            return newest
        at = bisect.bisect(self.blocks, (address, 1 << 62)) - 1
        if at >= 0 and address < self.buffers[self.blocks[at][1]].end:
            return self.blocks[at][1]
        return self._block(address, CONSTANT)

    def place(self, address: int, step: int) -> tuple[int, int]:
        """(buffer, place in it) of an address that step `step` uses."""
        if not address:
            return self.nothing()
        number = self._find(address, step)
        buffer = self.buffers[number]
        buffer.first = step if buffer.first is None else min(buffer.first, step)
        buffer.last = max(buffer.last, step)
        return number, address - buffer.start

    def nothing(self) -> tuple[int, int]:
        """A buffer without bytes, for tensors without elements."""
        if 0 not in self.by_start:
            self.by_start[0] = len(self.buffers)
            self.buffers.append(Buffer(IN_ARENA, 0, 0, first=0))
        return self.by_start[0], 0


def _round(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
