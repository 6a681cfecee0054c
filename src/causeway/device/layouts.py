"""Tensors that the chip keeps in a layout of its own beside the plain ones: what a vendor offers by
the extension layout.v1. Programs need none of this: it is for those who ask what happened.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from causeway import _C
from causeway.device.lazy import _lazy_init, device_name
from causeway.device.selection import Device, _get_device_index
from causeway.errors import VendorError


def layout_stats(device: Device = None) -> dict[str, int]:
    """What is kept in the chip's own layouts on `device`, and what happened so far.

    `kept` forms of `bytes` in all are there now (memory_allocated counts them too). `converted` is
    how many were made, `used` how often a kernel was given one again. Of those that went, `written`
    had a tensor that was written to, and `freed` made room or were switched off. `handed_out`
    tensors have no form as a pointer to write to them was given away: see `allow_layouts`. All are
    0 where the vendor has no layouts.
    """
    _lazy_init()
    return _C.layout_stats(_get_device_index(device, optional=True))


def allow_layouts(of: torch.Tensor | torch.nn.Module) -> None:
    """Say that nobody writes to `of`, or to a module's parameters and buffers, by a pointer.

    data_ptr(), DLPack and shared memory give pointers away, and a later write by one would not be
    seen, so such tensors are not kept in the chip's layout. This takes that back: a write by such a
    pointer would go unnoticed from here on. Writes by operators are seen as ever. Raises
    VendorError where the vendor has no layouts, and ValueError for memory that is not torch's own,
    or that a graph writes to.
    """
    _lazy_init()
    if not _C.layout_names():
        raise VendorError(f"the library of {device_name()} keeps no layouts: it has no layout.v1")
    for name, tensor in _tensors(of):
        if not _C.allow_layouts(tensor):
            raise ValueError(
                f"allow_layouts: {name or 'the tensor'} is not in memory that this process alone "
                f"has of {device_name()}, or a graph writes to it; copy it first: tensor.clone()"
            )


@contextmanager
def only_compared(of: torch.nn.Module) -> Iterator[None]:
    """While code runs that takes pointers to compare them alone: tensors that were kept in the
    chip's layout may be again afterwards.
    """
    kept = [tensor for _, tensor in _tensors(of) if _C.keeps_layouts(tensor)]
    try:
        yield
    finally:
        for tensor in kept:
            _C.allow_layouts(tensor)


def _tensors(of: torch.Tensor | torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(of, torch.Tensor):
        yield "", of
    else:
        yield from of.named_parameters()
        yield from of.named_buffers()
