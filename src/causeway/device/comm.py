"""Copies and sums over several devices of this process, under torch.cuda.comm's names.

Plain torch operators, one device after the other. For speed use torch.distributed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from causeway.device.lazy import device_name
from causeway.device.selection import Device, _get_device_index
from causeway.device.streams import stream as use_stream

__all__ = [
    "broadcast",
    "broadcast_coalesced",
    "gather",
    "reduce_add",
    "reduce_add_coalesced",
    "scatter",
]


def _device(device: Device) -> torch.device:
    if isinstance(device, torch.device | str) and torch.device(device).type == "cpu":
        return torch.device("cpu")
    return torch.device(device_name(), _get_device_index(device, optional=True))


def broadcast(
    tensor: torch.Tensor,
    devices: Iterable[Device] | None = None,
    *,
    out: Sequence[torch.Tensor] | None = None,
) -> tuple[torch.Tensor, ...]:
    """Copy `tensor` to each of `devices`, or into each tensor of `out`. Give one of the two."""
    if (devices is None) == (out is None):
        raise RuntimeError(
            "Exactly one of 'devices' and 'out' must be specified, but got "
            f"devices={devices} and out={out}"
        )
    if out is not None:
        return tuple(place.copy_(tensor, non_blocking=True) for place in out)
    return tuple(tensor.to(_device(device), non_blocking=True) for device in devices or ())


def broadcast_coalesced(
    tensors: Sequence[torch.Tensor], devices: Iterable[Device], buffer_size: int = 10485760
) -> list[list[torch.Tensor]]:
    """Copy each of `tensors` to each of `devices`; a list for each device. `buffer_size` has no
    effect.
    """
    return [[tensor.to(_device(device)) for tensor in tensors] for device in devices]


def reduce_add(inputs: Sequence[torch.Tensor], destination: Device = None) -> torch.Tensor:
    """Sum tensors of one shape that lie on several devices; the result is on `destination`."""
    place = _device(destination)
    if not inputs:
        raise RuntimeError("reduce_add expects at least one tensor")
    for tensor in inputs:
        if tensor.device.type != place.type:
            raise AssertionError("reduce_add expects all inputs to be on devices of one type")
        if tensor.shape != inputs[0].shape:
            raise ValueError(
                f"input {tuple(tensor.shape)} has not the shape {tuple(inputs[0].shape)} "
                "of the first"
            )
    total = inputs[0].to(place, copy=True)
    for tensor in inputs[1:]:
        total += tensor.to(place)
    return total


def reduce_add_coalesced(
    inputs: Sequence[Sequence[torch.Tensor]],
    destination: Device = None,
    buffer_size: int = 10485760,
) -> tuple[torch.Tensor, ...]:
    """reduce_add of the first tensors of each list, of the second ones, and so on."""
    return tuple(reduce_add(tensors, destination) for tensors in zip(*inputs, strict=True))


def scatter(
    tensor: torch.Tensor,
    devices: Sequence[Device] | None = None,
    chunk_sizes: Sequence[int] | None = None,
    dim: int = 0,
    streams: Sequence[torch.Stream | None] | None = None,
    *,
    out: Sequence[torch.Tensor] | None = None,
) -> tuple[torch.Tensor, ...]:
    """Cut `tensor` along `dim`; copy a piece to each of `devices`, or into each of `out`."""
    if out is not None:
        if devices is not None or chunk_sizes is not None:
            raise RuntimeError("'devices' and 'chunk_sizes' must be None when 'out' is given")
        pieces = torch.split(tensor, [place.size(dim) for place in out], dim)
        return tuple(place.copy_(piece) for place, piece in zip(out, pieces, strict=True))
    places = [_device(device) for device in devices or ()]
    pieces = (
        tensor.tensor_split(len(places), dim)
        if chunk_sizes is None
        else torch.split(tensor, list(chunk_sizes), dim)
    )
    results = []
    for index, (place, piece) in enumerate(zip(places, pieces, strict=True)):
        with use_stream(streams[index] if streams else None):
            results.append(piece.contiguous().to(place, non_blocking=True))
    return tuple(results)


def gather(
    tensors: Sequence[torch.Tensor],
    dim: int = 0,
    destination: Device = None,
    *,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Concatenate tensors of several devices along `dim`, on `destination` or into `out`."""
    if out is not None:
        if destination is not None:
            raise RuntimeError(
                "'destination' must not be specified when 'out' is specified, but got "
                f"{destination}"
            )
        return torch.cat([tensor.to(out.device) for tensor in tensors], dim, out=out)
    place = _device(destination)
    return torch.cat([tensor.to(place) for tensor in tensors], dim)
