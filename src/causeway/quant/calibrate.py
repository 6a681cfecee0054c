"""From the numbers that a layer meets to the range that its integers cover."""

from __future__ import annotations

import math

import torch

from causeway.errors import CausewayError

METHODS = ("minmax", "moving_average", "percentile", "entropy", "mse")
_BINS = 2048


class Range:
    """What has been seen of one tensor, batch after batch, and the range that a method makes of it.

    Args:
        method: "minmax"; "moving_average", of the batches' extremes, each new one counting a tenth;
            "percentile", that share of all numbers by their size; "entropy", the range whose
            integers have a distribution closest to the numbers' (Kullback and Leibler, as in
            TensorRT's calibration); "mse", the range with the least mean squared error.
        average: The mean of the batches' extremes ("minmax" alone).
        percentile: In percent.
        levels: Positive integers of the format: 127 or 32767.
    """

    def __init__(
        self, method: str, average: bool = False, percentile: float = 99.99, levels: int = 127
    ) -> None:
        self.method = method
        self.average = average
        self.percentile = percentile
        self.levels = levels
        self.batches = 0
        self.low = 0.0
        self.high = 0.0
        self._counts = torch.zeros(_BINS, dtype=torch.float64)  # of |x|, over 0 .. _top
        self._top = 0.0

    def see(self, x: torch.Tensor) -> None:
        """Take one batch into account.

        Raises:
            CausewayError: it has infinity or NaN.
        """
        if x.numel() == 0:
            return
        low, high = (float(v) for v in torch.aminmax(x.detach().float()))
        if not (math.isfinite(low) and math.isfinite(high)):
            raise CausewayError(
                "calibration met infinity or NaN: find where they come from with causeway.overflow"
            )
        n = self.batches
        self.batches += 1
        if n == 0:
            self.low, self.high = low, high
        elif self.method == "moving_average":
            self.low += 0.1 * (low - self.low)
            self.high += 0.1 * (high - self.high)
        elif self.average:
            self.low += (low - self.low) / (n + 1)
            self.high += (high - self.high) / (n + 1)
        else:
            self.low, self.high = min(self.low, low), max(self.high, high)
        if self.method in ("percentile", "entropy", "mse"):
            self._count(x.detach().float().abs().flatten().cpu(), max(-low, high))

    def _count(self, sizes: torch.Tensor, most: float) -> None:
        if most == 0:
            self._counts[0] += sizes.numel()
            return
        if self._top == 0:
            self._top = 2.0 ** math.frexp(most)[1]
        while self._top < most:  # twice as wide: neighbours become one
            halves = self._counts.view(-1, 2).sum(1)
            self._counts = torch.cat([halves, torch.zeros(_BINS // 2, dtype=torch.float64)])
            self._top *= 2
        bins = (sizes.double() * (_BINS / self._top)).long().clamp_(max=_BINS - 1)
        self._counts += torch.bincount(bins, minlength=_BINS).double()

    def limits(self) -> tuple[float, float]:
        """The range: (least, largest)."""
        low, high = self.low, self.high
        if self.method in ("percentile", "entropy", "mse") and self._top > 0:
            by = {"percentile": self._percentile, "entropy": self._entropy, "mse": self._mse}
            size = min(by[self.method](), max(-low, high))
            low, high = max(low, -size), min(high, size)
        return low, high

    def _percentile(self) -> float:
        share = self._counts.cumsum(0) / self._counts.sum()
        first = int(torch.searchsorted(share, self.percentile / 100))
        return (min(first, _BINS - 1) + 1) * self._top / _BINS

    def _mse(self) -> float:
        centers = (torch.arange(_BINS, dtype=torch.float64) + 0.5) * (self._top / _BINS)
        best, least = self._top, math.inf
        for i in range(_BINS // 16, _BINS + 1, _BINS // 128):
            size = i * self._top / _BINS
            step = size / self.levels
            error = (centers / step).round().clamp(max=self.levels) * step - centers
            loss = float((self._counts * error * error).sum())
            if loss < least:
                best, least = size, loss
        return best

    def _entropy(self) -> float:
        if self.levels >= _BINS:
            return self._top  # more integers than bins: nothing is gained by a smaller range
        counts = self._counts.clone()
        counts[0] = counts[1]  # zeros of ReLU would outweigh all else
        cells = min(self.levels + 1, 128)
        best, least = self._top, math.inf
        last = int(counts.nonzero().max()) + 1 if counts.any() else _BINS
        for i in range(cells, max(last, cells) + 1, 16):
            p = counts[:i].clone()
            p[-1] += counts[i:].sum()
            kept = counts[:i]
            cell = torch.arange(i) * cells // i
            sums = torch.zeros(cells, dtype=torch.float64).index_add_(0, cell, kept)
            filled = torch.zeros(cells, dtype=torch.float64).index_add_(
                0, cell, (kept > 0).double()
            )
            q = torch.where(kept > 0, sums[cell] / filled[cell].clamp(min=1), 0.0)
            if q.sum() == 0 or p.sum() == 0:
                continue
            p, q = p / p.sum(), (q / q.sum()).clamp(min=1e-12)
            loss = float(torch.where(p > 0, p * (p.clamp(min=1e-300) / q).log(), 0.0).sum())
            if loss < least:
                best, least = i * self._top / _BINS, loss
        return best
