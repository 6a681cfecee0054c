"""What is written down of a tensor, and how one is made again from that.

A `TensorRecord` has shape, layout and where the tensor lies in its storage; beside it, as asked,
statistics over the finite elements, a hash of the bytes, and the key of the values themselves.
`materialize` makes tensors of records: from the values, or, where only statistics were kept, from
numbers that are distributed so. Tensors of a call that shared memory share it again.
"""

from __future__ import annotations

import ctypes
import hashlib
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from causeway.comparison import snapshot
from causeway.errors import TraceError

DIMENSIONS = 64  # torch has no more
LARGEST = 1 << 62  # bytes, of a tensor that can be at all
DTYPES: dict[str, torch.dtype] = {
    str(value).removeprefix("torch."): value
    for value in vars(torch).values()
    if isinstance(value, torch.dtype)
}


@dataclass(frozen=True)
class TensorRecord:
    """One tensor. `storage` is the same number for tensors of a call that share memory."""

    shape: tuple[int, ...]
    dtype: str
    device: str
    stride: tuple[int, ...] | None = None  # None: not a strided tensor; `layout` says what
    offset: int = 0  # elements
    storage: int = 0
    layout: str = "strided"
    statistics: Mapping[str, float] | None = None
    digest: str | None = None  # of the values in order of the indices, whatever the strides
    data: str | None = None  # "<shard>:<key>" of the values

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.numel * DTYPES[self.dtype].itemsize

    def __str__(self) -> str:
        stride = "" if self.stride is None or dense(self) else f"/{list(self.stride)}"
        layout = "" if self.layout == "strided" else f" {self.layout}"
        return f"{self.dtype}{list(self.shape)}{stride}{layout}"

    def to_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "shape": self.shape,
            "dtype": self.dtype,
            "device": self.device,
            "stride": self.stride,
            "storage": self.storage,
        }
        if self.offset:
            found["offset"] = self.offset
        if self.layout != "strided":
            found["layout"] = self.layout
        for name in ("statistics", "digest", "data"):
            if getattr(self, name) is not None:
                found[name] = getattr(self, name)
        return found


def dense(record: TensorRecord) -> bool:
    """Whether the elements lie in memory in the order of their indices, without gaps."""
    step = 1
    for n, s in zip(reversed(record.shape), reversed(record.stride or ()), strict=True):
        if n != 1 and s != step:
            return False
        step *= n
    return True


# --- reading what a file says ---------------------------------------------------------------------


def _whole(value: Any, what: str) -> int:
    if type(value) is not int or not 0 <= value < LARGEST:
        raise ValueError(f"{what} is {str(value)[:40]!r}, expected a whole number")
    return value


def _wholes(value: Any, what: str) -> tuple[int, ...]:
    if not isinstance(value, list) or len(value) > DIMENSIONS:
        raise ValueError(f"{what} is not a list of at most {DIMENSIONS} numbers")
    return tuple(_whole(n, what) for n in value)


def _word(value: Any, what: str, longest: int = 64) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= longest or not value.isprintable():
        raise ValueError(f"{what} is no word")
    return value


def from_json(value: Any) -> TensorRecord:
    """A record from JSON. Raises ValueError with what is wrong about it."""
    if not isinstance(value, dict):
        raise ValueError("a tensor is not an object")
    known = {"shape", "dtype", "device", "stride", "storage", "offset", "layout"}
    unknown = set(value) - known - {"statistics", "digest", "data"}
    if unknown:
        raise ValueError(f"a tensor has the unknown field {min(unknown)!r}")
    shape = _wholes(value.get("shape"), "shape")
    dtype = value.get("dtype")
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise ValueError(f"this torch has no dtype {str(dtype)[:40]!r}")
    stride = value.get("stride")
    if stride is not None:
        stride = _wholes(stride, "stride")
        if len(stride) != len(shape):
            raise ValueError(f"{len(stride)} strides for {len(shape)} dimensions")
    offset = _whole(value.get("offset", 0), "offset")
    extent = math.prod(shape)
    if extent and stride is not None:
        extent += offset + sum((n - 1) * s for n, s in zip(shape, stride, strict=True))
    if extent * DTYPES[dtype].itemsize >= LARGEST:
        raise ValueError(f"a tensor of shape {list(shape)[:8]} cannot be")
    statistics = value.get("statistics")
    if statistics is not None and not (
        isinstance(statistics, dict)
        and len(statistics) <= 16
        and all(isinstance(k, str) for k in statistics)
        and all(type(v) in (int, float) and math.isfinite(v) for v in statistics.values())
    ):
        raise ValueError("statistics are not names with numbers")
    digest = value.get("digest")
    if digest is not None and not (isinstance(digest, str) and len(digest) == 2 * DIGEST):
        raise ValueError("a digest of another length")
    data = value.get("data")
    if data is not None:
        shard, _, key = _word(data, "data").partition(":")
        if not (shard.isdecimal() and key.isdecimal() and shard.isascii() and key.isascii()):
            raise ValueError(f"data is {data!r}, expected <shard>:<key>")
        if stride is None:
            raise ValueError("values of a tensor without strides")
    return TensorRecord(
        shape,
        dtype,
        _word(value.get("device") or "cpu", "device"),
        stride,
        offset,
        _whole(value.get("storage", 0), "storage"),
        _word(value.get("layout", "strided"), "layout"),
        statistics,
        digest,
        data,
    )


# --- looking at a tensor --------------------------------------------------------------------------

DIGEST = 16  # bytes
PART = 4096  # elements that are added up in float32


def describe(t: Tensor, storages: dict[int, int] | None = None) -> TensorRecord:
    """Shape and layout of `t`, no values; `storages` numbers the storages of a call."""
    dtype = str(t.dtype).removeprefix("torch.")
    plain = t.layout == torch.strided and not t.is_nested and not t.is_quantized
    if not plain:
        layout = "nested" if t.is_nested else "quantized" if t.is_quantized else str(t.layout)[6:]
        shape = () if t.is_nested else tuple(t.shape)
        return TensorRecord(shape, dtype, str(t.device), layout=layout)
    number = 0
    if storages is not None:
        try:
            number = storages.setdefault(t.untyped_storage()._cdata, len(storages))
        except (RuntimeError, NotImplementedError):  # a wrapper has none
            number = len(storages)
    offset = int(t.storage_offset())
    return TensorRecord(tuple(t.shape), dtype, str(t.device), tuple(t.stride()), offset, number)


def has_values(t: Tensor) -> bool:
    """Whether there are elements to copy: no meta or fake tensor, no wrapper of others."""
    return (
        type(t) in (Tensor, torch.nn.Parameter)
        and not t.is_meta
        and t.layout == torch.strided
        and not t.is_nested
        and not t.is_quantized
    )


def at_home(t: Tensor, *, copy: bool = True) -> Tensor:
    """`t` on the CPU, dense; with memory of its own where `copy` is asked for, else perhaps the
    very memory of `t`, not to be written.
    """
    t = t.detach().resolve_conj().resolve_neg()
    if t.device.type == torch._C._get_privateuse1_backend_name():
        here = snapshot.home(t).contiguous()
    else:
        here = t.cpu().contiguous()
    own = here.untyped_storage().data_ptr() != t.untyped_storage().data_ptr()
    return here if own or not copy else here.clone(memory_format=torch.contiguous_format)


def digest(t: Tensor) -> str:
    """A hash of the bytes of a dense CPU tensor, in hexadecimal digits."""
    size = t.numel() * t.element_size()
    bytes = (ctypes.c_char * size).from_address(t.data_ptr()) if size else b""
    return hashlib.blake2b(bytes, digest_size=DIGEST).hexdigest()


def statistics(t: Tensor) -> dict[str, float]:
    """Of a CPU tensor: smallest, largest, mean and such of the finite elements, and how many are
    not finite. For integers whether they are sorted, for places in a tensor often are.
    """
    n = t.numel()
    if n == 0:
        return {"count": 0}
    if t.dtype == torch.bool:
        return {"count": n, "true": int(t.sum())}
    if t.dtype.is_complex:
        return statistics(torch.view_as_real(t)) | {"count": n}
    if not t.dtype.is_floating_point:
        return _of_integers(t)
    found: dict[str, float] = {"count": n}
    if t.dtype.itemsize == 1:  # few operators take the 8-bit floats
        t = t.float()
    low, high = (float(v) for v in torch.aminmax(t))  # NaN, if there is one
    if not math.isfinite(low) or not math.isfinite(high):
        finite = t.isfinite()
        found |= {
            "nan": int(t.isnan().sum()),
            "inf": int((t == math.inf).sum()),
            "-inf": int((t == -math.inf).sum()),
        }
        t = t[finite]
        if t.numel() == 0:
            return found
        low, high = (float(v) for v in torch.aminmax(t))
    # In float32, as float64 would take ten times as long; torch's sums are in parts, its norms not.
    wide = torch.float64 if t.dtype == torch.float64 else torch.float32
    total = float(t.sum(dtype=wide))
    norm = _norm(t.reshape(-1), wide)
    if not math.isfinite(total) or not math.isfinite(norm) or (norm == 0.0 and low != high):
        total, norm = float(t.double().sum()), float(t.double().norm())
    mean = total / t.numel()
    square = norm * norm / t.numel() - mean * mean
    found |= {"min": low, "max": high, "mean": mean, "norm": norm}
    found["std"] = math.sqrt(max(square, 0.0)) if math.isfinite(square) else high
    return {k: v for k, v in found.items() if math.isfinite(v)}


def _norm(t: Tensor, wide: torch.dtype) -> float:
    whole = t.numel() // PART * PART
    parts = torch.linalg.vector_norm(t[:whole].view(-1, PART), dim=1, dtype=wide).double()
    rest = torch.linalg.vector_norm(t[whole:], dtype=wide).double()
    return math.hypot(float(parts.norm()), float(rest))


def _of_integers(t: Tensor) -> dict[str, float]:
    if t.dtype not in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64):
        t = t.to(torch.int64)  # the wider unsigned ones have few kernels
    low, high = torch.aminmax(t)
    found: dict[str, float] = {"count": t.numel(), "min": int(low), "max": int(high)}
    found["mean"] = float(t.sum(dtype=torch.float64)) / t.numel()
    if t.ndim == 1 and t.numel() > 1 and bool((t[1:] >= t[:-1]).all()):
        found["sorted"] = 1
    return found


# --- making tensors -------------------------------------------------------------------------------


def generate(record: TensorRecord, seed: int) -> Tensor:
    """Numbers distributed as the statistics say, dense, on the CPU; the same for the same seed.

    Without statistics floats are normal and integers 0, which is a place in any tensor.
    """
    dtype, shape = DTYPES[record.dtype], record.shape
    known = record.statistics or {}
    generator = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        share = known.get("true", record.numel / 2) / max(known.get("count", record.numel), 1)
        return torch.rand(shape, generator=generator) < share
    if dtype.is_complex:
        real = {torch.complex128: "float64", torch.complex32: "float16"}.get(dtype, "float32")
        parts = replace(record, shape=(*shape, 2), dtype=real)
        return torch.view_as_complex(generate(parts, seed))
    if not dtype.is_floating_point:
        low, high = int(known.get("min", 0)), int(known.get("max", 0))
        if not -(2**63) <= low <= high < 2**63 - 1:
            low = high = 0
        numbers = torch.randint(low, high + 1, shape, generator=generator, dtype=torch.int64)
        if known.get("sorted") and numbers.ndim == 1:
            numbers = numbers.sort().values
        return numbers.to(dtype)
    numbers = torch.randn(shape, generator=generator, dtype=torch.float64)
    numbers = numbers * known.get("std", 1.0) + known.get("mean", 0.0)
    if "min" in known and "max" in known:
        numbers = numbers.clamp(known["min"], max(known["min"], known["max"]))
    flat, at = numbers.view(-1), 0
    order = torch.randperm(flat.numel(), generator=generator) if "nan" in known else None
    for name, value in (("nan", math.nan), ("inf", math.inf), ("-inf", -math.inf)):
        count = int(known.get(name, 0))
        if count and order is not None:
            flat[order[at : at + count]] = value
            at += count
    return numbers.to(dtype)


@dataclass
class Memory:
    """Makes the tensors of one call on `device`; those that shared memory share it again.

    `values` gives the dense values of a record, on the CPU; None leaves what is there, or zeros.
    """

    device: torch.device
    values: Callable[[TensorRecord], Tensor | None]
    limit: int = 1 << 32  # bytes of one call
    _groups: dict[int, list[TensorRecord]] = field(default_factory=dict)
    _made: dict[int, tuple[Tensor, int]] = field(default_factory=dict)

    def plan(self, records: Iterable[TensorRecord]) -> None:
        """Say which tensors there will be. Raises TraceError where they are too large."""
        total = 0
        for record in records:
            if record.stride is None:
                raise TraceError(f"a {record.layout} tensor cannot be made from a trace")
            self._groups.setdefault(record.storage, []).append(record)
        for group in self._groups.values():
            total += max(_end(r) for r in group) - min(_start(r) for r in group)
        if total > self.limit:
            raise TraceError(
                f"the call's tensors take {total} bytes, more than the limit of {self.limit}"
            )

    def make(self, record: TensorRecord) -> Tensor:
        """The tensor of a record that was planned."""
        dtype = DTYPES[record.dtype]
        if record.storage not in self._made:
            group = self._groups[record.storage]
            # Not from where the storage began, but as aligned as it was.
            start = min(_start(r) for r in group) // 64 * 64
            size = max(_end(r) for r in group) - start
            self._made[record.storage] = (torch.zeros(size, dtype=torch.uint8), start)
        memory, start = self._made[record.storage]
        offset = (_start(record) - start) // dtype.itemsize
        size = memory.numel() // dtype.itemsize
        flat = memory[: size * dtype.itemsize].view(dtype)
        view = flat.as_strided(record.shape, record.stride or (), offset)
        if (values := self.values(record)) is not None:
            _fill(view, flat, values)
        if self.device.type == "cpu":
            return view
        return self._there(record, view, offset)

    def _there(self, record: TensorRecord, view: Tensor, offset: int) -> Tensor:
        key = -1 - record.storage
        memory, start = self._made[record.storage]
        if key not in self._made:
            self._made[key] = (torch.empty(memory.numel(), dtype=torch.uint8,
                                           device=self.device), start)  # fmt: skip
        there = self._made[key][0]
        there.copy_(memory)
        itemsize = view.element_size()
        flat = there[: there.numel() // itemsize * itemsize].view(view.dtype)
        return flat.as_strided(record.shape, record.stride or (), offset)


def _start(record: TensorRecord) -> int:
    return record.offset * DTYPES[record.dtype].itemsize


def _end(record: TensorRecord) -> int:
    if record.numel == 0:
        return _start(record)
    reach = sum((n - 1) * s for n, s in zip(record.shape, record.stride or (), strict=True))
    return _start(record) + (reach + 1) * DTYPES[record.dtype].itemsize


def _fill(view: Tensor, flat: Tensor, values: Tensor) -> None:
    """Write dense values, also where elements share memory."""
    if view.numel() == 0:
        return
    try:
        view.copy_(values)
    except RuntimeError:  # two elements are one: the order does not matter, they are equal
        index = torch.tensor(view.storage_offset())
        for n, s in zip(view.shape, view.stride(), strict=True):
            index = index.unsqueeze(-1) + torch.arange(n) * s
        flat[index.reshape(-1)] = values.reshape(-1)
