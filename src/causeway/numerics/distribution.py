"""Whether two samples were drawn from one distribution."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def distance(a: Tensor, b: Tensor) -> float:
    """The largest distance between the distribution functions of two samples: N. V. Smirnov, 1939.

    For n numbers each it exceeds `chance_bound(n, alpha)` with probability alpha.
    """
    x, y = a.double().flatten().sort().values, b.double().flatten().sort().values
    at = torch.cat([x, y])
    below = torch.searchsorted(x, at, right=True) / x.numel()
    return float((below - torch.searchsorted(y, at, right=True) / y.numel()).abs().max())


def chance_bound(n: int, alpha: float) -> float:
    """sqrt(-ln(alpha / 2) / n), of N. V. Smirnov: see `distance`."""
    return math.sqrt(-math.log(alpha / 2) / n)


def differ(came: Tensor, reference: Tensor, alpha: float) -> tuple[str, str] | None:
    """(what came, what is expected) in words where two samples of n numbers each are not of one
    distribution. A right sample is called wrong with probability `alpha`.
    """
    found, bound = distance(came, reference), chance_bound(came.numel(), alpha)
    if found <= bound:
        return None
    means = f"means {came.double().mean():.4g} and {reference.double().mean():.4g}"
    return f"distance {found:.4f} over {came.numel()} numbers", f"at most {bound:.4f} ({means})"
