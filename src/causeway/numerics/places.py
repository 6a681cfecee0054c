"""Operators that say where a value stands: of equal values any place is right, but no other."""

from __future__ import annotations

from torch import Tensor


class Misplaced(Exception):
    """Places that cannot be right, whatever stands there; the message says why."""


def standing(x: Tensor, places: Tensor, dim: int) -> Tensor:
    """What stands at `places` along dimension `dim` of `x`, in the shape of `places`.

    `places` has as many dimensions as `x`, or one fewer: without `dim`. Raises Misplaced for a
    place that is not in the dimension, and where one is named twice.
    """
    if x.dim() == 0:
        if bool((places != 0).any()):
            raise Misplaced("places that are not in a dimension of 1")
        return x.expand_as(places)
    kept = places.dim() == x.dim()
    at = places if kept else places.unsqueeze(dim)
    if at.numel() and not bool(((at >= 0) & (at < x.shape[dim])).all()):
        raise Misplaced(f"places that are not in a dimension of {x.shape[dim]}")
    ordered = at.sort(dim).values
    if bool((ordered.diff(dim=dim) == 0).any()):
        raise Misplaced("a place twice")
    found = x.gather(dim, at)
    return found if kept else found.squeeze(dim)
