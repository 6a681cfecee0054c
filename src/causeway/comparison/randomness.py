"""Random operators on the device: do they draw what they should?

Where the host rung served a call, the CPU is given the same numbers and the results must be equal.
A vendor's kernel draws others: then the generator must have moved on, no two draws may be equal,
and over all calls of a signature the numbers must be distributed as the CPU's are on the same
inputs.
"""

from __future__ import annotations

import hashlib
from typing import Any

import torch
from torch import Tensor

from causeway import numerics
from causeway.comparison import reference as cpu
from causeway.comparison.snapshot import Snapshot, flat
from causeway.numerics import Verdict

ALPHA = 1e-9  # probability that a right operator is called wrong, in each test
FEWEST = 200  # numbers, below which distributions are not compared
MOST = 50_000  # numbers of a signature that are kept
SAME = 16  # elements, below which equal draws may be chance


class Draws:
    """What one signature of an operator drew on the device, and the CPU on the same inputs."""

    def __init__(self) -> None:
        self.here: list[Tensor] = []
        self.there: list[Tensor] = []
        self.count = 0
        self.next_test = FEWEST
        self.seen: dict[bytes, tuple[int, bytes]] = {}

    def check(
        self, name: str, taken: Snapshot, came: list[Any], before: Tensor, after: Tensor,
        sequence: int,
    ) -> Verdict:  # fmt: skip
        """The verdict of one call whose results are `came`, on the host."""
        first = next((t for t in flat(came) if isinstance(t, Tensor) and t.numel()), None)
        if first is None:
            return Verdict()
        seed = 0x9E3779B9 + sequence
        try:
            drawn = cpu.run(name, taken, generator=torch.Generator().manual_seed(seed)).values()
        except numerics.Refused as why:
            return Verdict(f"cannot be drawn on the CPU ({why})", came="numbers")
        theirs = next(t for t in flat(drawn) if isinstance(t, Tensor) and t.numel())
        if (first.dtype, first.shape) != (theirs.dtype, theirs.shape):
            return Verdict(
                "wrong form", came=f"{first.dtype}{list(first.shape)}",
                expected=f"{theirs.dtype}{list(theirs.shape)}",
            )  # fmt: skip
        again = cpu.run(name, taken, generator=torch.Generator().manual_seed(seed + 1)).values()
        other = next(t for t in flat(again) if isinstance(t, Tensor) and t.numel())
        if first.numel() >= SAME and not torch.equal(theirs, other):  # it does draw
            if torch.equal(before, after):
                return Verdict(
                    "the generator did not move on", came="the same state", expected="another"
                )
            mark = hashlib.sha256(_bytes(first)).digest()
            state = before.numpy().tobytes()
            if mark in self.seen and self.seen[mark][1] != state:
                return Verdict(
                    "the same numbers twice", came=f"those of call {self.seen[mark][0]}",
                    expected="others",
                )  # fmt: skip
            self.seen[mark] = (sequence, state)
        return self._distribution(first, theirs)

    def _distribution(self, came: Tensor, theirs: Tensor) -> Verdict:
        if self.count < MOST and came.dtype.itemsize > 0 and not came.is_complex():
            self.here.append(came.double().flatten())
            self.there.append(theirs.double().flatten())
            self.count += came.numel()
        if self.count < self.next_test:
            return Verdict(elements=came.numel())
        self.next_test = 2 * self.count
        a, b = torch.cat(self.here), torch.cat(self.there)
        wrong = numerics.differ(a, b, ALPHA)
        if wrong is None:
            return Verdict(elements=came.numel())
        return Verdict("not distributed as the CPU's", came=wrong[0], expected=wrong[1])


def _bytes(t: Tensor) -> bytes:
    return bytes(t.contiguous().flatten().view(torch.uint8).numpy().tobytes())
