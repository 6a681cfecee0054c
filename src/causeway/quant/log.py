"""Which bits a training in fixed point chose, and when: what `adaptive_quantize(..., log=FILE)`
writes down, read again for `causeway quantize --log`.

The file has a line of JSON for each look at a stream. A run that goes on from a checkpoint goes on
in the file too: what it does again replaces what was there.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from causeway.errors import CausewayError

if TYPE_CHECKING:
    from causeway.pages.page import Page

WIDTHS = (8, 16, 24, 31)


@dataclass(frozen=True)
class Look:
    """One look at a stream's numbers: from `step` on they have these bits."""

    layer: str
    stream: str
    step: int
    bits: int
    shift: int


@dataclass(frozen=True)
class History:
    """The looks at one stream, and from which step on it had which bits."""

    layer: str
    stream: str
    looks: int
    shift: int  # at the last look
    bits: tuple[tuple[int, int], ...]  # (step, bits), where they changed
    steps: int  # of the whole run, as far as the file says

    def stretches(self) -> list[tuple[int, int]]:
        """(bits, steps in them), in the order of time."""
        ends = [*(step for step, _ in self.bits[1:]), self.steps]
        return [(bits, end - step) for (step, bits), end in zip(self.bits, ends, strict=True)]

    def share(self, bits: int) -> float:
        """Of the steps since the first look, 0 to 1."""
        every = sum(n for _, n in self.stretches())
        return sum(n for b, n in self.stretches() if b == bits) / max(every, 1)


def write(path: str, look: Look) -> None:
    """Add a line to the file."""
    with Path(path).open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(look)) + "\n")


def read(path: str | Path) -> list[History]:
    """A history for each stream, in the order in which they came.

    Raises:
        CausewayError: the file is not there, is empty, or has a line that is no look.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise CausewayError(f"{path} cannot be read: {error.strerror}") from None
    by_stream: dict[tuple[str, str], list[Look]] = {}
    for number, line in enumerate(lines, 1):
        try:
            look = Look(**json.loads(line))
            whole = all(type(v) is int for v in (look.step, look.bits, look.shift))
            if not whole or look.bits not in WIDTHS:
                raise ValueError
        except (TypeError, ValueError):
            raise CausewayError(
                f"{path}, line {number} is no look of adaptive_quantize(..., log=FILE): {line[:80]}"
            ) from None
        seen = by_stream.setdefault((look.layer, look.stream), [])
        while seen and seen[-1].step >= look.step:  # taken up again from before
            seen.pop()
        seen.append(look)
    if not by_stream:
        raise CausewayError(f"{path} is empty: nothing was looked at yet")
    steps = 1 + max(seen[-1].step for seen in by_stream.values())
    return [_history(seen, steps) for seen in by_stream.values()]


def _history(seen: Sequence[Look], steps: int) -> History:
    changes = [(seen[0].step, seen[0].bits)]
    for look in seen[1:]:
        if look.bits != changes[-1][1]:
            changes.append((look.step, look.bits))
    first, last = seen[0], seen[-1]
    return History(first.layer, first.stream, len(seen), last.shift, tuple(changes), steps)


def verdict(found: Sequence[History]) -> str:
    """In a sentence."""
    every = sum(n for h in found for _, n in h.stretches())
    parts = []
    for bits in WIDTHS:
        inside = sum(n for h in found for b, n in h.stretches() if b == bits)
        if inside:
            parts.append(f"{100 * inside / every:.1f} % in {bits} bits")
    looks = sum(h.looks for h in found) / max(len(found) * found[0].steps, 1)
    return (
        f"{len(found)} streams over {found[0].steps} steps: {', '.join(parts)}; looked at in "
        f"{100 * looks:.1f} % of the steps"
    )


def plain(found: Sequence[History]) -> dict[str, Any]:
    """For JSON."""
    return {"steps": found[0].steps, "streams": [asdict(h) for h in found]}


def table(found: Sequence[History]) -> tuple[list[str], list[list[str]]]:
    """Titles and rows, of text."""
    titles = ["layer", "stream", "bits", "shift", "looks", *(f"in {b}" for b in WIDTHS), "raised"]
    rows = [
        [
            *(h.layer, h.stream, str(h.bits[-1][1]), str(h.shift), str(h.looks)),
            *(f"{100 * h.share(b):.0f} %" for b in WIDTHS),
            ", ".join(f"{bits} at step {step}" for step, bits in h.bits[1:]) or "never",
        ]
        for h in found
    ]
    return titles, rows


def page(found: Sequence[History]) -> Page:
    """Bars over time, and the table."""
    from causeway.pages import page as p

    tones: dict[int, p.Tone] = {8: "good", 16: "fair", 24: "warn", 31: "bad"}
    bars = [
        p.Bar(
            f"{h.layer}, {h.stream}",
            [p.Part(f"{b} bits", n, tones[b], f"{n} steps") for b, n in h.stretches()],
        )
        for h in found
    ]
    titles, texts = table(found)
    rows: list[list[p.Cell]] = [
        [
            *(p.Code(h.layer), h.stream, p.Number(h.bits[-1][1]), p.Number(h.shift)),
            p.Number(h.looks),
            *(p.Number(h.share(b), f"{100 * h.share(b):.0f} %") for b in WIDTHS),
            text[-1],
        ]
        for h, text in zip(found, texts, strict=True)
    ]
    return p.Page(
        "Bits of a training",
        [
            p.Verdict(verdict(found)),
            p.Section("Bits over time", [p.Bars(bars)], note=f"{found[0].steps} steps"),
            p.Section("Streams", [p.Table(titles, rows)], note=str(len(found))),
        ],
        data=plain(found),
    )
