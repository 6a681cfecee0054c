"""What a vendor's own layouts (layout.v1) must be: no larger than they say, the whole tensor, in
the order of the stream; and of no effect on what kernels compute.
"""

from __future__ import annotations

import ctypes as C
import itertools
import math
import random
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from causeway.conformance.chip import CANARY, MIB, Chip, Skipped, expect, same
from causeway.conformance.table import (
    DTYPES,
    STATUS,
    DeviceTensor,
    LayoutTable,
    TableError,
    ptr,
    u32,
    u64,
)

GUARD = 256
CONTIGUOUS = 1  # CW_NEEDS_CONTIGUOUS
SHAPES = (
    (1, 1), (5, 7), (64, 64), (33, 257), (300, 40), (16, 3, 3, 3), (32, 16, 1, 1), (6, 4, 5),
    (2, 3, 2, 3, 2), (9,),
)  # fmt: skip
# The operators whose right factor or weight chips lay out anew: outputs, then inputs.
PRODUCTS = ("mm", "addmm", "bmm", "convolution")
SIZES = ((1, 64, 64), (3, 300, 40), (70, 33, 257))  # rows, depth, columns
_FORMATS = {"float32": "f", "float64": "d", "float16": "e"}


def a_layout_holds_the_whole_tensor(chip: Chip) -> None:
    """Does each layout hold tensors of any strides, in the bytes it says, as they were?"""
    table = _table(chip)
    names = [table.name(layout) for layout in range(table.layouts)] if table.name else [None]
    expect(all(names) and len(set(names)) == len(names), "a name for each layout", names)
    held = 0
    for layout, dtype in itertools.product(range(table.layouts), _dtypes(chip)):
        for shape in SHAPES:
            for strides, start in _placed(shape):
                tensor = _Tensor(dtype, shape, strides, start)
                held += _holds(chip, table, layout, tensor)
    expect(held > 0, f"a layout for some tensor of {SHAPES}", "UNSUPPORTED for all")
    bytes_, uses = u64(), u32()
    dl = DeviceTensor(0, "float32", (64, 64), (64, 1)).dl
    status = table.packed_bytes(0, table.layouts, C.byref(dl), C.byref(bytes_), C.byref(uses))
    came = STATUS[status]
    expect(came in ("UNSUPPORTED", "INVALID"), "no layout behind the last one", came)


def a_layout_is_made_on_its_stream(chip: Chip) -> None:
    """Does a conversion read what the stream was given to write before it?"""
    chip.needs("stream_create")
    table = _table(chip)
    if not table.unpack:
        raise Skipped("not offered: unpack of layout.v1")
    for layout in range(table.layouts):
        found = next(_accepted(chip, table, layout), None)
        if found is None:
            continue
        tensor, bytes_ = found
        last = tensor.pattern()
        staged = C.create_string_buffer(last, len(last))
        sizes = (len(last), bytes_ + GUARD, len(last), MIB, MIB)
        with chip.streams(1) as (stream,), chip.memory(*sizes) as (at, form, back, a, b):
            chip.library.write(at, bytes(len(last)))
            chip.fill(back, CANARY, len(last))
            chip.wait()
            for _ in range(3):
                chip.busy(a, b, MIB, stream, 1)
            chip.library.call("mem_copy", at, 0, staged, -1, len(last), stream)
            _ask(chip, table, "pack", layout, tensor.at(at), form, stream)
            _ask(chip, table, "unpack", layout, form, tensor.at(back), stream)
            chip.wait(stream)
            expect(
                tensor.elements(chip.library.read(back, len(last))) == tensor.elements(last),
                "the bytes that the stream wrote before",
                "older ones",
            )


def kernels_compute_the_same_from_a_layout(chip: Chip) -> None:
    """Do products give the same numbers from a tensor's form, in whatever memory it lies?"""
    chip.needs("op_find")
    table = _table(chip)
    asked = 0
    for name, dtype in itertools.product(PRODUCTS, _dtypes(chip)):
        if dtype not in _FORMATS and dtype != "bfloat16":
            continue
        try:
            op = chip.library.find(f"aten::{name}.out")
        except TableError:
            continue
        if op.dtypes and not op.dtypes >> DTYPES[dtype][2] & 1:
            continue
        for size, strided in itertools.product(SIZES, (False, True)):
            if not (strided and op.needs & CONTIGUOUS):
                asked += _computes(chip, table, name, dtype, size, strided)
    expect(asked > 0, f"one of {', '.join(PRODUCTS)} that asks for a form", "none does")


CHECKS: tuple[Callable[[Chip], None], ...] = (
    a_layout_holds_the_whole_tensor,
    a_layout_is_made_on_its_stream,
    kernels_compute_the_same_from_a_layout,
)


def _table(chip: Chip) -> LayoutTable:
    table = chip.extension("layout.v1", chip.library.layouts)
    expect(bool(table.packed_bytes and table.pack), "packed_bytes and pack", "not both")
    expect(table.layouts > 0, "a layout", table.layouts)
    return table


def _dtypes(chip: Chip) -> list[str]:
    return [d for d, (_, bits, at) in DTYPES.items() if bits > 8 and chip.info.dtypes >> at & 1]


def _ask(chip: Chip, table: LayoutTable, entry: str, layout: int, *args: Any) -> None:
    if chip.library.offers("bind"):
        chip.library.call("bind", 0)
    given = [C.byref(a.dl) if isinstance(a, DeviceTensor) else a for a in args]
    status = getattr(table, entry)(0, layout, *given)
    expect(status == 0, f"OK of {entry}", f"{STATUS[status]}: {chip.library.words()}")


# --- tensors ------------------------------------------------------------------------------------


class _Tensor:
    """A tensor that begins `start` elements into its memory, without that memory."""

    def __init__(
        self, dtype: str, shape: Sequence[int], strides: Sequence[int], start: int = 0
    ) -> None:
        self.dtype, self.shape, self.strides, self.start = dtype, shape, strides, start
        self.item = DTYPES[dtype][1] // 8
        reach = sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
        self.bytes = (start + reach + 1) * self.item

    def at(self, address: int) -> DeviceTensor:
        data = address + self.start * self.item if address else 0
        return DeviceTensor(data, self.dtype, self.shape, self.strides)

    def places(self) -> Iterator[int]:
        for index in itertools.product(*map(range, self.shape)):
            at = sum(i * s for i, s in zip(index, self.strides, strict=True))
            yield (self.start + at) * self.item

    def elements(self, memory: bytes) -> list[bytes]:
        return [memory[at : at + self.item] for at in self.places()]

    def pattern(self) -> bytes:
        """Its memory full of numbers, each another one from its neighbours."""
        return _encode(self.dtype, [1 + i % 251 for i in range(self.bytes // self.item)])

    def memory(self, numbers: Sequence[float]) -> bytes:
        """Its memory with these elements, in the order of its indices."""
        memory = bytearray(b"\x7e" * self.bytes)  # a large number lies between
        encoded = _encode(self.dtype, numbers)
        for i, at in enumerate(self.places()):
            memory[at : at + self.item] = encoded[i * self.item : (i + 1) * self.item]
        return bytes(memory)

    def words(self) -> str:
        return f"{self.dtype} {tuple(self.shape)} with strides {tuple(self.strides)}"


def _encode(dtype: str, numbers: Sequence[float]) -> bytes:
    if dtype == "bfloat16":
        return b"".join(struct.pack("<f", n)[2:] for n in numbers)
    if dtype in _FORMATS:
        return struct.pack(f"<{len(numbers)}{_FORMATS[dtype]}", *numbers)
    size = DTYPES[dtype][1] // 8
    return b"".join(int(n).to_bytes(size, "little") for n in numbers)


def _placed(shape: Sequence[int]) -> Iterator[tuple[tuple[int, ...], int]]:
    """Strides and a start: dense, the other way round, and a part of something larger."""

    def strides(order: Sequence[int], gap: int) -> tuple[int, ...]:
        found, step = [0] * len(shape), 1
        for i, at in enumerate(order):
            found[at] = step
            step *= shape[at] + (gap if i == 0 else 0)
        return tuple(found)

    last_first = range(len(shape) - 1, -1, -1)
    yield strides(last_first, 0), 0
    yield strides(range(len(shape)), 0), 0
    yield strides(last_first, 5), 3


# --- asking -------------------------------------------------------------------------------------


def _bytes_of(chip: Chip, table: LayoutTable, layout: int, tensor: DeviceTensor) -> int | None:
    """What the form takes; None: there is none. The tensor's data is not there."""
    bytes_, uses = u64(), u32(1)
    status = table.packed_bytes(0, layout, C.byref(tensor.dl), C.byref(bytes_), C.byref(uses))
    if STATUS[status] == "UNSUPPORTED":
        return None
    expect(status == 0, "OK of packed_bytes", f"{STATUS[status]}: {chip.library.words()}")
    expect(bytes_.value > 0, "bytes of a form", 0)
    expect(uses.value > 0, "a number of uses", 0)
    return bytes_.value


def _accepted(chip: Chip, table: LayoutTable, layout: int) -> Iterator[tuple[_Tensor, int]]:
    for dtype, shape in itertools.product(_dtypes(chip), SHAPES):
        tensor = _Tensor(dtype, shape, next(_placed(shape))[0])
        bytes_ = _bytes_of(chip, table, layout, tensor.at(0))
        if bytes_ is not None and math.prod(shape) > 1:
            yield tensor, bytes_


def _holds(chip: Chip, table: LayoutTable, layout: int, tensor: _Tensor) -> bool:
    bytes_ = _bytes_of(chip, table, layout, tensor.at(0))
    if bytes_ is None:
        return False
    what = f"layout {layout} of {tensor.words()}"
    given = tensor.pattern()
    size = len(given)
    room = bytes_ + chip.info.padding + GUARD
    with chip.memory(size, room, size) as (at, form, back):
        chip.library.write(at, given)
        chip.fill(form, CANARY, room)
        chip.wait()
        _ask(chip, table, "pack", layout, tensor.at(at), form, None)
        chip.wait()
        end = bytes_ + chip.info.padding  # which the chip may write to behind any tensor
        behind = chip.library.read(form + end, GUARD)
        same(behind, bytes([CANARY]) * GUARD, f"what lies behind {end} bytes of {what}")
        same(chip.library.read(at, size), given, f"the tensor after its conversion to {what}")
        if table.unpack:
            chip.library.write(back, bytes(size))
            _ask(chip, table, "unpack", layout, form, tensor.at(back), None)
            chip.wait()
            found = chip.library.read(back, size)
            expected = bytearray(size)
            for place in tensor.places():
                expected[place : place + tensor.item] = given[place : place + tensor.item]
            same(found, bytes(expected), f"the way back from {what}")
    return True


def _computes(
    chip: Chip, table: LayoutTable, name: str, dtype: str, size: tuple[int, int, int], strided: bool
) -> int:
    """Compare the operator's numbers with forms and without; how often it asked for one."""
    m, k, n = size
    draw = random.Random(f"{name}{dtype}{size}")
    of_operators: dict[str, tuple[tuple[int, ...], ...]] = {
        "mm": ((m, n), (m, k), (k, n)),
        "addmm": ((m, n), (n,), (m, k), (k, n)),
        "bmm": ((2, m, n), (2, m, k), (2, k, n)),
        "convolution": ((2, 8, 4, 4), (2, 16, 6, 6), (8, 16, 3, 3)),
    }
    shapes = of_operators[name]
    more = {
        "addmm": (1.0, 1.0),
        "convolution": (None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1),
    }.get(name, ())
    layouts = [next(_placed(shape))[0] for shape in shapes]
    if strided:  # the factor that is laid out is a transposed one
        layouts[-1] = (*layouts[-1][:-2], 1, shapes[-1][-2])
    tensors = [_Tensor(dtype, s, p) for s, p in zip(shapes, layouts, strict=True)]
    with chip.memory(*(t.bytes for t in tensors)) as addresses:
        for tensor, at in zip(tensors, addresses, strict=True):
            # Whole numbers whose sums every dtype holds: any order of adding gives the same.
            count = math.prod(tensor.shape)
            chip.library.write(at, tensor.memory([draw.randint(-1, 1) for _ in range(count)]))
        args = [t.at(a) for t, a in zip(tensors, addresses, strict=True)]

        def result() -> bytes:
            chip.fill(addresses[0], CANARY, tensors[0].bytes)
            chip.wait()
            try:
                chip.library.run(f"aten::{name}.out", *args, *more)
            except TableError as error:
                if error.status == "UNSUPPORTED":
                    return b""
                raise
            chip.wait()
            return chip.library.read(addresses[0], tensors[0].bytes)

        plain = result()
        if not plain:
            return 0
        with _forms(chip, table) as forms:
            words = f"{name} of {dtype} {shapes} from a form"
            same(result(), plain, words)
            for address, bytes_ in forms:
                chip.fill(address, CANARY, bytes_)
            chip.library.sync()
            if forms:
                same(result(), plain, words + " in other memory")
            return len(forms)


@contextmanager
def _forms(chip: Chip, table: LayoutTable) -> Iterator[list[tuple[int, int]]]:
    """Kernels that ask for a form are given one, each time in memory of its own."""
    made: list[tuple[int, int]] = []
    wrong: list[Exception] = []

    def packed(tensor: Any, layout: int, stream: int | None, out: Any) -> int:
        try:
            bytes_, uses = u64(), u32()
            status = table.packed_bytes(0, layout, tensor, C.byref(bytes_), C.byref(uses))
            if status:
                return int(status)
            address = chip.library.get("mem_alloc", ptr, 0, bytes_.value + GUARD)
            made.append((address, bytes_.value + GUARD))
            status = table.pack(0, layout, tensor, address, stream)
            expect(status == 0, "OK of pack", f"{STATUS[status]}: {chip.library.words()}")
            out[0] = address
            return 0
        except Exception as error:
            wrong.append(error)  # no exception passes through C
            return STATUS.index("FAILED")

    chip.library.packed = packed
    try:
        yield made
        if wrong:
            raise wrong[0]
    finally:
        chip.library.packed = None
        chip.library.sync()
        for address, _ in made:
            chip.library.free(address)
