"""Copies among the devices of one process: what `torch.nn.DataParallel` asks of `torch._C`.

torch has them in builds for CUDA only, and there they look at an index and take it for CUDA's.
These have the same arguments and results, by `Tensor.to` and `torch.cat`. On one device nothing is
copied: a scatter gives views of its input, a broadcast its tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from causeway.device.lazy import device_name


def _device(index: int | None) -> torch.device:
    """The device of an index; -1 is the CPU, None the current device."""
    if index is None:
        index = torch.accelerator.current_device_index()
    return torch.device("cpu") if index < 0 else torch.device(device_name(), index)


def _on(tensor: torch.Tensor, index: int | None) -> torch.Tensor:
    return tensor.to(_device(index), non_blocking=True)


def broadcast(tensor: torch.Tensor, devices: Sequence[int]) -> list[torch.Tensor]:
    """The tensor on each device; where it is already, itself."""
    return [_on(tensor, index) for index in devices]


def broadcast_out(tensor: torch.Tensor, out: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The tensor copied into each of `out`."""
    return [to.copy_(tensor, non_blocking=True) for to in out]


def broadcast_coalesced(
    tensors: Sequence[torch.Tensor], devices: Sequence[int], buffer_size: int
) -> list[list[torch.Tensor]]:
    """All tensors on each device. `buffer_size` in bytes is for transports that gather small ones;
    here each is a copy of its own.
    """
    return [[_on(tensor, index) for tensor in tensors] for index in devices]


def scatter(
    tensor: torch.Tensor,
    devices: Sequence[int],
    chunk_sizes: Sequence[int] | None,
    dim: int,
    streams: Sequence[torch.Stream | None] | None,
) -> list[torch.Tensor]:
    """The tensor in pieces along `dim`, one on each device; at most as many as there are rows.

    With `streams` the copy to a device is queued on its stream.
    """
    if chunk_sizes is None:
        pieces = list(tensor.chunk(len(devices), dim))
    else:
        pieces = list(torch.split_with_sizes(tensor, list(chunk_sizes), dim))
        if len(pieces) != len(devices):
            raise RuntimeError(
                f"scatter: {len(pieces)} sizes of chunks for {len(devices)} devices; give one each"
            )
    found = []
    for i, (piece, index) in enumerate(zip(pieces, devices, strict=False)):
        stream = streams[i] if streams is not None and i < len(streams) else None
        queued: AbstractContextManager[Any] = nullcontext() if stream is None else stream
        with queued:
            found.append(_on(piece, index))
    return found


def scatter_out(
    tensor: torch.Tensor,
    out: Sequence[torch.Tensor],
    dim: int,
    streams: Sequence[torch.Stream | None] | None,
) -> list[torch.Tensor]:
    """The tensor in pieces along `dim`, copied into `out`, whose sizes say where it is cut."""
    pieces = torch.split_with_sizes(tensor, [to.size(dim) for to in out], dim)
    for to, piece in zip(out, pieces, strict=True):
        to.copy_(piece, non_blocking=True)
    return list(out)


def gather(tensors: Sequence[torch.Tensor], dim: int, destination: int | None) -> torch.Tensor:
    """The tensors, one after another along `dim`, on one device; -1 is the CPU."""
    # A copy to the host waits: who called may read it at once.
    wait = destination is not None and destination < 0
    here = [tensor.to(_device(destination), non_blocking=not wait) for tensor in tensors]
    return torch.cat(here, dim)


def gather_out(tensors: Sequence[torch.Tensor], out: torch.Tensor, dim: int) -> torch.Tensor:
    """The tensors, one after another along `dim`, in `out`."""
    return torch.cat([tensor.to(out.device) for tensor in tensors], dim, out=out)


# By the name in torch._C.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "_broadcast": broadcast,
    "_broadcast_coalesced": broadcast_coalesced,
    "_broadcast_out": broadcast_out,
    "_gather": gather,
    "_gather_out": gather_out,
    "_scatter": scatter,
    "_scatter_out": scatter_out,
}
