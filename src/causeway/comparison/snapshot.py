"""Images of tensors on the host that keep what tensors share: views of one storage stay views of
one storage.

Taking a snapshot copies on the device, in the order of its stream, and waits for nothing: a kernel
that is looked at runs when it would run without. Only the bytes between the first and the last that
the tensors reach are copied, and a little around them, so that a write next to a tensor shows.
Sparse, nested and quantized tensors are copied whole, each for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from causeway import _C

MARGIN = 64  # bytes on either side, where the storage has them; also what offsets are aligned to


class Uncopied(Exception):
    """A tensor of which no image can be made, and why."""


@dataclass
class Piece:
    """Bytes `begin` to `end` of one storage, that of `owner`."""

    owner: Tensor
    begin: int
    end: int
    image: Tensor | None = None  # uint8, on the device until it is asked for
    host: Tensor | None = None
    written: bool = False  # some tensor in it may be written by the operator

    def view(self) -> Tensor:
        """The bytes as they are now, on their device."""
        storage = self.owner.untyped_storage()
        end = min(self.end, storage.nbytes())
        empty = torch.empty(0, dtype=torch.uint8, device=self.owner.device)
        return empty.set_(storage, min(self.begin, end), (max(end - self.begin, 0),), (1,))

    def bytes(self) -> Tensor:
        """The bytes as they were, on the host. Not to be written."""
        if self.host is None:
            assert self.image is not None
            self.host = home(self.image)
        return self.host


@dataclass(frozen=True)
class Dense:
    """A strided tensor in a piece."""

    key: int
    dtype: torch.dtype
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int  # in elements of the storage
    conj: bool
    neg: bool
    write: bool


@dataclass
class Whole:
    """Any other tensor, as a copy."""

    copy: Tensor
    write: bool


class Snapshot:
    """Arguments or results as they are at this moment.

    `writes[i]`: whether the operator may write values[i]. `values`: whether numbers are of
    interest; else images hold nothing that means anything.
    """

    def __init__(
        self, values: tuple[Any, ...], writes: tuple[bool, ...] = (), *, numbers: bool = True,
        copy: bool = True,
    ) -> None:  # fmt: skip
        self.pieces: dict[int, Piece] = {}
        writes = writes or (False,) * len(values)
        self.spec = [self._spec(v, w) for v, w in zip(values, writes, strict=True)]
        for piece in self.pieces.values():
            storage = piece.owner.untyped_storage()
            if not numbers:  # a view may reach any part of the storage
                piece.begin, piece.end = 0, storage.nbytes()
                piece.host = torch.empty(piece.end, dtype=torch.uint8)
                continue
            piece.begin = max(0, piece.begin // MARGIN * MARGIN - MARGIN)
            piece.end = min(storage.nbytes(), piece.end + MARGIN)
            if copy:
                piece.image = piece.view().clone()
            else:
                piece.image = piece.view()

    def _spec(self, value: Any, write: bool) -> Any:
        if isinstance(value, Tensor):
            return self._tensor(value, write)
        if isinstance(value, (list, tuple)):
            return [self._spec(v, write) for v in value]
        return value

    def _tensor(self, t: Tensor, write: bool) -> Dense | Whole:
        if torch.nn.parameter.is_lazy(t):  # its Python class has no shape, the tensor has
            t = t.as_subclass(torch.Tensor)
        if not is_dense(t):
            if t.is_nested and not t.is_contiguous():
                raise Uncopied("torch cannot copy a nested tensor that is a view")
            return Whole(t if t._is_zerotensor() else t.detach().clone(), write)
        storage = t.untyped_storage()
        key, size, offset = storage._cdata, t.element_size(), int(t.storage_offset())
        begin = end = offset * size
        if t.numel():
            reach = (s * (n - 1) for n, s in zip(t.shape, t.stride(), strict=True))
            end = begin + (int(sum(reach)) + 1) * size
        piece = self.pieces.get(key)
        if piece is None:
            piece = self.pieces[key] = Piece(t, begin, end)
        else:
            piece.begin, piece.end = min(piece.begin, begin), max(piece.end, end)
        piece.written |= write
        return Dense(
            key, t.dtype, tuple(t.shape), t.stride(), offset, t.is_conj(), t.is_neg(),
            write,
        )  # fmt: skip

    def build(
        self, *, writable: bool = True, change: Callable[[Tensor], Tensor] | None = None
    ) -> Built:
        """The values again, on the host.

        `writable`: storages that the operator writes are copies once more. `change`: maps the
        numbers of a floating or complex tensor, for all tensors of one storage and dtype at once.
        """
        return Built(self, writable, change)

    def damage(self, came: Built | None = None) -> tuple[str, int] | None:
        """What was not to be written and was: (words, index of the value), or None."""
        for index, spec in enumerate(self.spec):
            for one in flat(spec):
                if isinstance(one, Dense) and not one.write:
                    piece = self.pieces[one.key]
                    if piece.written or piece.image is None:
                        continue
                    if not same_bits(home(piece.view()), piece.bytes()):
                        return _first_change(piece), index
        for piece in self.pieces.values():
            if piece.written and piece.image is not None and (words := self._beside(piece)):
                index = next(
                    i for i, s in enumerate(self.spec)
                    for d in flat(s) if isinstance(d, Dense) and self.pieces[d.key] is piece
                )  # fmt: skip
                return words, index
        return None

    def _beside(self, piece: Piece) -> str:
        """Whether bytes of a written storage changed that belong to no tensor that is written."""
        before, now = piece.bytes(), home(piece.view())
        if now.numel() != before.numel():
            return ""  # resized
        dense = [
            d for s in self.spec for d in flat(s)
            if isinstance(d, Dense) and self.pieces[d.key] is piece and d.write
        ]  # fmt: skip
        if any(sum(d.size) and _covers(d, piece) for d in dense):
            return ""
        changed = before != now
        for d in dense:
            # A byte of an element at a time: element k of the mask is byte k of the piece.
            width = d.dtype.itemsize
            at = d.offset * width - piece.begin
            changed.as_strided((*d.size, width), (*(s * width for s in d.stride), 1), at).fill_(
                False
            )
        if not bool(changed.any()):
            return ""
        place = int(changed.nonzero()[0]) + piece.begin
        return f"byte {place} of its storage, outside of the tensor"


class Built:
    """Values on the host, made from a snapshot."""

    def __init__(
        self, snapshot: Snapshot, writable: bool, change: Callable[[Tensor], Tensor] | None
    ) -> None:
        self._snapshot, self._writable, self._change = snapshot, writable, change
        self._bytes: dict[int, Tensor] = {}
        self._typed: dict[tuple[int, torch.dtype], Tensor] = {}
        self.origin: dict[int, int] = {}  # storage on the host -> storage that it is an image of
        self.values = tuple(self._make(s) for s in snapshot.spec)

    def start(self, key: int) -> int:
        """Where the image of a storage begins in its own storage on the host, in bytes."""
        return int(self._bytes[key].storage_offset()) if key in self._bytes else 0

    def _make(self, spec: Any) -> Any:
        if isinstance(spec, Dense):
            return self._dense(spec)
        if isinstance(spec, Whole):
            copy = spec.copy.cpu()
            if self._change is not None and (copy.is_floating_point() or copy.is_complex()):
                return copy.to(torch.complex128 if copy.is_complex() else torch.float64)
            return copy.clone() if self._writable and spec.write else copy
        if isinstance(spec, list):
            return [self._make(s) for s in spec]
        return spec

    def _dense(self, spec: Dense) -> Tensor:
        piece = self._snapshot.pieces[spec.key]
        data = self._bytes.get(spec.key)
        if data is None:
            data = piece.bytes()
            if piece.written and self._writable:
                data = data.clone()
            self._bytes[spec.key] = data
            self.origin[data.untyped_storage()._cdata] = spec.key
        width = spec.dtype.itemsize
        if self._change is None or not (spec.dtype.is_floating_point or spec.dtype.is_complex):
            empty = torch.empty(0, dtype=spec.dtype)
            start = spec.offset - piece.begin // width + data.storage_offset() // width
            t = empty.set_(data.untyped_storage(), start, spec.size, spec.stride)
        else:
            numbers = self._typed.get((spec.key, spec.dtype))
            if numbers is None:
                whole = data[: data.numel() // width * width].view(spec.dtype)
                numbers = self._typed[spec.key, spec.dtype] = self._change(whole)
                self.origin[numbers.untyped_storage()._cdata] = spec.key
            t = numbers.as_strided(spec.size, spec.stride, spec.offset - piece.begin // width)
        if spec.conj:
            t = torch._conj(t)
        return torch._neg_view(t) if spec.neg else t


def is_dense(t: Tensor) -> bool:
    return (
        t.layout == torch.strided
        and not t.is_nested
        and not t.is_quantized
        and not t._is_zerotensor()
        and t.device.type != "meta"
    )


def flat(values: Any) -> Iterator[Any]:
    """All that is in nested lists."""
    if isinstance(values, (list, tuple)):
        for value in values:
            yield from flat(value)
    else:
        yield values


def home(t: Tensor) -> Tensor:
    """A dense tensor without bits on the host: the same memory where the host can address it."""
    if t.device.type == "cpu":
        return t
    if addressable(t.device.index):
        return _C.host_alias(t)
    return t.cpu()


_addressable: dict[int, bool] = {}


def addressable(index: int) -> bool:
    found = _addressable.get(index)
    if found is None:
        found = _addressable[index] = bool(_C.device_info(index)["host_addressable"])
    return found


_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Whether two dense tensors of one dtype hold the same bits, NaN or not."""
    if a.shape != b.shape:
        return False
    if a.dtype == torch.uint8 and a.ndim == 1 and a.numel() > 64:
        # Eight bytes at a time: all but the last few, in images that begin at a multiple of eight.
        whole = a.numel() // 8 * 8
        if not (a.storage_offset() % 8 or b.storage_offset() % 8):
            if not torch.equal(a[:whole].view(torch.int64), b[:whole].view(torch.int64)):
                return False
            a, b = a[whole:], b[whole:]
    if a.dtype.is_floating_point and a.dtype.itemsize in _WORDS:
        word = _WORDS[a.dtype.itemsize]
        a, b = a.view(word), b.view(word)
    elif a.dtype == torch.complex64:
        a, b = torch.view_as_real(a).view(torch.int32), torch.view_as_real(b).view(torch.int32)
    return torch.equal(a, b)


def _covers(d: Dense, piece: Piece) -> bool:
    """Whether a dense tensor is all of the piece."""
    count = 1
    for n in d.size:
        count *= n
    return count * d.dtype.itemsize == piece.end - piece.begin


def _first_change(piece: Piece) -> str:
    before, now = piece.bytes(), home(piece.view())
    if before.numel() != now.numel():
        return "its storage has another size"
    changed = (before != now).nonzero()
    return f"{changed.shape[0]} bytes changed, the first at byte {int(changed[0]) + piece.begin}"
