"""The ledger: which rung served each operator, how often, with which dtypes, copying how much, in
what time of the host, and waiting how long for the device.

On a chip that works in the background an operator that needs a result waits for all that was put on
the stream before. That time is not its own, so it stands apart: `waited`, beside `worked`.

The core counts calls by operator and rung always; dtypes, bytes and seconds only while a ledger is
open, since they cost time. A ledger is the difference of two readings, so ledgers nest, and one
ledger sees the calls of all threads.
"""

from __future__ import annotations

import atexit
import json
import sys
import threading
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Literal

from causeway import config

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

RUNGS = ("native", "derived", "portable", "decomposed", "host")
NARROWED = "narrowed"  # no rung: tensors of a dtype that the chip lacks, made with a narrower one
COLUMNS = (*RUNGS, NARROWED)
Reading = dict[tuple[str, str, str], tuple[int, int, float, float]]


@dataclass(frozen=True)
class LedgerRow:
    """Calls of one operator with one dtype that one rung served."""

    operator: str
    rung: str
    dtype: str  # of the first tensor; "" where there was none
    calls: int
    bytes: int  # copied between host and device for these calls
    worked: float  # seconds of the host, from a call's start to its return, without waits
    waited: float = 0.0  # seconds in these calls that the host waited for the device

    @property
    def seconds(self) -> float:
        """Of the host, from a call's start to its return: worked and waited."""
        return self.worked + self.waited


class Ledger:
    """What happened between its start and its end, or until now."""

    def __init__(self) -> None:
        self._before: Reading = {}
        self._after: Reading | None = None
        self._forms_before = self._forms_after = (0, 0)

    def __enter__(self) -> Ledger:
        self._before, self._after = _read(), None
        self._forms_before = _read_layouts()
        _open(+1)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._after = _read()
        self._forms_after = _read_layouts()
        _open(-1)

    @property
    def rows(self) -> list[LedgerRow]:
        """By operator, then from the highest rung down."""
        after = _read() if self._after is None else self._after
        found = []
        for key, (calls, size, worked, waited) in after.items():
            old = self._before.get(key, (0, 0, 0.0, 0.0))
            if calls > old[0]:
                times = worked - old[2], waited - old[3]
                found.append(LedgerRow(*key, calls - old[0], size - old[1], *times))
        return sorted(found, key=lambda row: (row.operator, COLUMNS.index(row.rung), row.dtype))

    @property
    def layouts(self) -> dict[str, int]:
        """How many tensors were `converted` to the chip's own layout, and how often such a form was
        `used` again (layout.v1).
        """
        after = _read_layouts() if self._after is None else self._forms_after
        converted, used = (b - a for a, b in zip(self._forms_before, after, strict=True))
        return {"converted": converted, "used": used}

    def total(
        self,
        of: Literal["calls", "bytes", "worked", "waited", "seconds"] = "calls",
        *,
        rung: str | None = None,
        operator: str | None = None,
    ) -> int | float:
        """The sum over all rows, or over those of a rung or an operator ("aten::add.out" or
        "add.out").
        """
        if rung is not None and rung not in COLUMNS:
            raise ValueError(f"there is no rung {rung!r}; the rungs are {', '.join(COLUMNS)}")
        names = (operator, f"aten::{operator}")
        rows = [
            r
            for r in self.rows
            if rung in (None, r.rung) and (operator is None or r.operator in names)
        ]
        return int(_sum(rows, of)) if of in ("calls", "bytes") else _sum(rows, of)

    def to_json(self) -> str:
        """{"rows": [{operator, rung, dtype, calls, bytes, worked, waited}], "layouts": {converted,
        used}}, times in seconds
        """
        rows = [asdict(row) for row in self.rows]
        return json.dumps({"rows": rows, "layouts": self.layouts}, indent=1)

    def table(self) -> Table:
        """For people: `print` gives plain text, rich a table with lines and colours."""
        return Table(self.rows, self.layouts)


def ledger() -> Ledger:
    """Open a ledger: `with causeway.ledger() as l: ...; print(l.table())`."""
    return Ledger()


class Table:
    """A line per operator: calls by rung, dtypes, bytes copied, milliseconds that the host worked
    and that it waited for the device; first what it worked longest at.
    """

    def __init__(self, rows: Iterable[LedgerRow], layouts: dict[str, int] | None = None) -> None:
        rows = list(rows)
        self.note = _about_layouts(layouts) if layouts else ""
        self.rungs = [rung for rung in COLUMNS if any(row.rung == rung for row in rows)]
        self.header = ["operator", *self.rungs, "dtypes", "copied", "ms", "waited"]
        groups: dict[str, list[LedgerRow]] = {}
        for row in rows:
            groups.setdefault(row.operator, []).append(row)
        ordered = sorted(groups, key=lambda name: (-_sum(groups[name], "worked"), name))
        self.lines = [self._line(name.removeprefix("aten::"), groups[name]) for name in ordered]
        self.sum = self._line(f"{len(groups)} operator{'s' * (len(groups) != 1)}", rows)
        self.sum[-4] = ""

    def _line(self, title: str, rows: list[LedgerRow]) -> list[str]:
        calls = [sum(row.calls for row in rows if row.rung == rung) for rung in self.rungs]
        dtypes = sorted({row.dtype for row in rows} - {""})
        return [
            title,
            *(str(n) if n else "-" for n in calls),
            ", ".join(dtypes),
            size(int(_sum(rows, "bytes"))),
            f"{1000 * _sum(rows, 'worked'):.1f}",
            f"{1000 * _sum(rows, 'waited'):.1f}",
        ]

    def _right(self, column: int) -> bool:
        return column not in (0, len(self.rungs) + 1)

    def __str__(self) -> str:
        if not self.lines:
            return "no operator was called"
        lines = [self.header, *self.lines, self.sum]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.header))]
        text = [
            "  ".join(
                cell.rjust(width) if self._right(i) else cell.ljust(width)
                for i, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in lines
        ]
        rule = "-" * max(map(len, text))
        note = [self.note] if self.note else []
        return "\n".join([text[0], rule, *text[1:-1], rule, text[-1], *note])

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich import box
        from rich.table import Table as RichTable

        if not self.lines:
            yield str(self)
            return
        widths = [
            max(map(len, cells)) for cells in zip(self.header, *self.lines, self.sum, strict=True)
        ]
        names = (name for line in self.lines for name in line[-4].split(", "))
        widths[-4] = max(len("dtypes"), *(len(name) + 1 for name in names))  # one below the other
        # The first column alone gives way where the terminal is narrow.
        room = options.max_width - sum(widths[1:]) - 2 * len(widths)
        widths[0] = max(12, min(widths[0], room))
        table = RichTable(
            box=box.SIMPLE_HEAD, show_footer=True, pad_edge=False, padding=(0, 1, 0, 0)
        )
        for i, (title, footer) in enumerate(zip(self.header, self.sum, strict=True)):
            table.add_column(
                title,
                footer,
                justify="right" if self._right(i) else "left",
                style={"native": "green", "host": "yellow"}.get(title),
                width=widths[i],
                no_wrap=title != "dtypes",
            )
        for line in self.lines:
            table.add_row(*line)
        yield table
        if self.note:
            yield self.note


def _about_layouts(layouts: dict[str, int]) -> str:
    converted, used = layouts["converted"], layouts["used"]
    if not converted and not used:
        return ""
    tensors = f"{converted} tensor{'s' * (converted != 1)} converted to the chip's own layout"
    return f"{tensors} (layout.v1), used {used} time{'s' * (used != 1)} more"


def size(n: int) -> str:
    """Bytes for people: 1536 is "1.5 KiB"."""
    if n < 1024:
        return f"{n} B" if n else "-"
    power = min((n.bit_length() - 1) // 10, 4)
    return f"{n / 1024**power:.1f} {'KMGT'[power - 1]}iB"


def _sum(rows: Iterable[LedgerRow], of: str) -> float:
    return float(sum(getattr(row, of) for row in rows))


_lock = threading.Lock()
_opened = 0


def _open(change: int) -> None:
    """The core counts everything while at least one ledger is open."""
    from causeway import _C

    global _opened
    with _lock:
        _opened += change
        _C.ledger_enable(_opened > 0)


def _read() -> Reading:
    from causeway import _C

    reading: Reading = {}
    for operator, rung, name, calls, size, worked, waited in _C.ledger_read():
        key = operator, rung, _DTYPES.get(name, name.lower())
        old = reading.get(key, (0, 0, 0.0, 0.0))
        reading[key] = (calls + old[0], size + old[1], worked + old[2], waited + old[3])
    return reading


def _read_layouts() -> tuple[int, int]:
    from causeway import _C

    return _C.layouts_used()


# C++ has names of its own for some dtypes; the others differ in capitals only.
_DTYPES = {
    "Byte": "uint8",
    "Char": "int8",
    "Short": "int16",
    "Int": "int32",
    "Long": "int64",
    "Half": "float16",
    "Float": "float32",
    "Double": "float64",
    "ComplexHalf": "complex32",
    "ComplexFloat": "complex64",
    "ComplexDouble": "complex128",
    "Undefined": "",
}


_of_process: Ledger | None = None


def start() -> None:
    """Open the ledger of the whole process where the setting says so."""
    config.listen(["ledger"], _push)
    if config.given("ledger"):
        _push()


def _push() -> None:
    global _of_process
    on = config.get("ledger")
    if on and _of_process is None:
        _of_process = Ledger().__enter__()
        atexit.register(_summary)
    elif not on and _of_process is not None:
        _of_process.__exit__(None, None, None)
        atexit.unregister(_summary)
        _of_process = None


def _summary() -> None:
    if _of_process is not None:
        print(f"\ncauseway: operators by rung\n{_of_process.table()}", file=sys.stderr)
