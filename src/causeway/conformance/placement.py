"""Tensors on the device with a guard on both sides, so that what a kernel writes beside them shows.

Each storage becomes a buffer: a guard, its bytes, a guard. Views keep their layout, and tensors
that share a storage share the buffer. Guards, and outputs that nothing has written yet, hold 0xFF
bytes: NaN for every float, -1 for every signed integer; for bool, which has but two values, 0 and 1
alternately.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch import Tensor

GUARD = 256  # bytes; a multiple of every item's size and of common alignments


def poison(n: int, dtype: torch.dtype) -> Tensor:
    """`n` bytes that no kernel writes by chance."""
    if dtype == torch.bool:
        return torch.arange(n, dtype=torch.int64).remainder(2).to(torch.uint8)
    return torch.full((n,), 0xFF, dtype=torch.uint8)


@dataclass
class _Buffer:
    role: str
    there: Any
    before: Tensor  # bytes, on the CPU
    item: int
    written: list[Tensor] = field(default_factory=list)  # masks of its elements


class Placement:
    """What one call gets, on `device`."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._buffers: dict[int, _Buffer] = {}
        self._alive: list[Tensor] = []  # an address stands for a storage as long as that lives

    def put(self, t: Tensor, role: str) -> Any:
        """`t` with its layout, on the device."""
        key = t.untyped_storage()._cdata
        self._alive.append(t)
        if key not in self._buffers:
            data = torch.empty(0, dtype=torch.uint8).set_(t.untyped_storage())
            n = data.numel()
            before = poison(-(-n // 16) * 16 + 2 * GUARD, t.dtype)
            before[GUARD : GUARD + n] = data
            there = self._upload(before, t.dtype)
            self._buffers[key] = _Buffer(role, there, before, t.element_size())
        return self._view(self._buffers[key].there, t)

    def _upload(self, before: Tensor, dtype: torch.dtype) -> Any:
        return before.view(dtype).to(self.device)

    def _download(self, there: Any, size: int) -> Tensor:
        bytes: Tensor = there.cpu().view(torch.uint8)
        return bytes

    def _view(self, there: Any, t: Tensor) -> Any:
        typed = there if there.dtype == t.dtype else there.view(t.dtype)
        return typed.as_strided(t.shape, t.stride(), GUARD // t.element_size() + t.storage_offset())

    def after(self, t: Tensor) -> Tensor:
        """The bytes of the buffer that `t`, a CPU tensor that was put, is in."""
        buffer = self._buffers[t.untyped_storage()._cdata]
        return self._download(buffer.there, len(buffer.before))

    def writes(self, t: Tensor, grown: int = 0) -> None:
        """Say that the call may write the elements of `t`, a CPU tensor that was put; or so many
        from where it begins, where the call makes a larger one of it.
        """
        buffer = self._buffers[t.untyped_storage()._cdata]
        mask = torch.zeros(len(buffer.before) // buffer.item, dtype=torch.bool)
        begin = GUARD // buffer.item + t.storage_offset()
        mask.as_strided(t.shape, t.stride(), begin).fill_(True)
        mask[begin : begin + grown] = True
        buffer.written.append(mask)

    def damage(self) -> str:
        """What was written that should not have been, in words, or "". Waits for the device."""
        for buffer in self._buffers.values():
            after = self._download(buffer.there, len(buffer.before))
            changed = after != buffer.before
            if not changed.any():
                continue
            for mask in buffer.written:
                changed.view(-1, buffer.item)[mask] = False
            if changed.any():
                return self._words(buffer, changed)
        return ""

    def _words(self, buffer: _Buffer, changed: Tensor) -> str:
        at = int(changed.nonzero()[0].item()) - GUARD
        count = int(changed.sum())
        end = len(changed) - 2 * GUARD
        if at < 0:
            where = f"{-at} bytes before"
        elif at >= end:
            where = f"{at - end} bytes behind"
        elif buffer.written:
            where = f"at byte {at}, between the elements of"
        else:
            return f"{buffer.role} was changed: {count} bytes, the first is byte {at}"
        return f"wrote out of bounds: {count} bytes, the first {where} {buffer.role}"


def poisoned(shape: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """An output that nothing has written yet."""
    reach = (
        sum((n - 1) * s for n, s in zip(shape, stride, strict=True)) + 1 if 0 not in shape else 0
    )
    size = max(reach, 1) * dtype.itemsize
    return poison(size, dtype).view(dtype).as_strided(shape, stride)


@cache
def _dirt() -> list[Tensor]:
    """Poison for blocks of some sizes. Made once: it is copied before every call."""
    return [torch.full((n // 4,), -1, dtype=torch.int32) for n in (512, 4096, 65536, 1 << 20)]


def dirty_cache(device: torch.device) -> None:
    """Leave poison in the blocks of memory that the next call is likely to get."""
    for dirt in _dirt():
        blocks = [dirt.to(device) for _ in range(2)]
        del blocks
