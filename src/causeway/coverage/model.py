"""What came of a run on the chip on paper: rows by operator and rung, what is missing, where."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from causeway.coverage import forms, roofline
from causeway.coverage.record import Source

RUNGS = ("native", "derived", "portable", "decomposed", "host", "error")
ON_CHIP = RUNGS[:4]
PHASES = ("forward", "backward", "optimizer")


@dataclass
class CoverageRow:
    """All calls of one operator that one rung serves."""

    operator: str
    rung: str
    reason: str = ""
    calls: int = 0
    bytes: int = 0
    flops: float = 0.0
    seconds: float = 0.0  # estimated; see roofline
    phases: Counter[str] = field(default_factory=Counter)
    dtypes: Counter[str] = field(default_factory=Counter)  # of all its tensors
    signatures: Counter[str] = field(default_factory=Counter)
    sources: Counter[Source] = field(default_factory=Counter)
    error: str = ""


@dataclass(frozen=True)
class Narrowed:
    """Tensors of a dtype that the chip lacks, made at one line with the next narrower one."""

    dtype: str
    stored: str
    source: Source
    count: int


@dataclass
class Coverage:
    """The answer. `notes` say how it was found; `failure` is the program's own error."""

    target: str
    vendor: dict[str, Any]
    offered: dict[str, list[str]]
    rows: list[CoverageRow]
    narrowed: list[Narrowed]
    machine: roofline.Machine
    dry: bool
    notes: list[str] = field(default_factory=list)
    failure: dict[str, Any] | None = None
    peak_bytes: int = 0
    versions: tuple[str, str] = ("", "")  # of Causeway and torch
    ledger: list[dict[str, Any]] = field(default_factory=list)

    @property
    def missing(self) -> list[CoverageRow]:
        """Rows that run on the host or fail, the most time first."""
        rows = [row for row in self.rows if row.rung not in ON_CHIP]
        return sorted(rows, key=lambda r: (-r.seconds, -r.calls, r.operator))

    def total(self, of: str, rungs: Iterable[str] = RUNGS) -> float:
        """The sum of calls, bytes, flops or seconds over rows of these rungs."""
        wanted = set(rungs)
        return float(sum(getattr(row, of) for row in self.rows if row.rung in wanted))

    def share(self, row: CoverageRow, of: str) -> float:
        whole = self.total(of)
        return getattr(row, of) / whole if whole else 0.0

    @property
    def on_chip(self) -> float:
        """The share of calls that the chip serves."""
        calls = self.total("calls")
        return self.total("calls", ON_CHIP) / calls if calls else 0.0

    @property
    def lacking(self) -> list[str]:
        """Dtypes that the program makes and the chip lacks."""
        return sorted({narrowed.dtype for narrowed in self.narrowed})

    @property
    def verdict(self) -> str:
        """The one sentence to read."""
        if not self.rows:
            return "no operator reached the chip"
        names = list(dict.fromkeys(row.operator for row in self.missing))
        words = f"{100 * self.on_chip:.1f} % of {int(self.total('calls'))} calls run on the chip"
        if names:
            first = ", ".join(name.removeprefix("aten::") for name in names[:4])
            more = f" and {len(names) - 4} more" if len(names) > 4 else ""
            do_not = "operator does not" if len(names) == 1 else "operators do not"
            words += f"; {len(names)} {do_not}: {first}{more}"
        if self.lacking:
            words += f"; the chip has no {', '.join(self.lacking)}"
        if self.failure:
            words += f"; the program ended with {self.failure['kind']}"
        return words

    def to_dict(self) -> dict[str, Any]:
        """As `--json` writes it."""
        return {
            "target": self.target,
            "verdict": self.verdict,
            "vendor": self.vendor,
            "dry": self.dry,
            "notes": self.notes,
            "failure": self.failure,
            "on_chip": round(self.on_chip, 6),
            "calls": int(self.total("calls")),
            "peak_bytes": self.peak_bytes,
            "machine": self.machine.words,
            "causeway": self.versions[0],
            "torch": self.versions[1],
            "operators": [self._row(row) for row in self.rows],
            "missing": [row.operator for row in self.missing],
            "narrowed": [
                {"dtype": n.dtype, "stored": n.stored, "count": n.count,
                 "file": n.source[0], "line": n.source[1]}
                for n in self.narrowed
            ],
        }  # fmt: skip

    def _row(self, row: CoverageRow) -> dict[str, Any]:
        return {
            "operator": row.operator,
            "rung": row.rung,
            "reason": row.reason,
            "calls": row.calls,
            "bytes": row.bytes,
            "flops": row.flops,
            "share_of_calls": round(self.share(row, "calls"), 6),
            "share_of_bytes": round(self.share(row, "bytes"), 6),
            "share_of_time": round(self.share(row, "seconds"), 6),
            "phases": dict(row.phases),
            "dtypes": dict(row.dtypes),
            "signatures": dict(row.signatures.most_common(20)),
            "sources": [
                {"file": file, "line": line, "function": function, "calls": calls}
                for (file, line, function), calls in row.sources.most_common()
                if file
            ],
            "error": row.error,
        }


def build(target: str, came: dict[str, Any], machine: roofline.Machine) -> Coverage:
    """The answer out of what the child wrote."""
    offered: dict[str, list[str]] = came["offered"]
    addressable = came["vendor"]["host_addressable"]
    rows: dict[tuple[str, str], CoverageRow] = {}
    for calls in came["calls"]:
        key = (calls["operator"], calls["rung"])
        row = rows.setdefault(key, CoverageRow(*key))
        count, signature, results = calls["count"], calls["signature"], calls["results"]
        size = roofline.size(signature, results)
        flops = roofline.flops(calls["operator"], signature, results)
        row.calls += count
        row.bytes += count * size
        row.flops += count * flops
        row.seconds += count * machine.seconds(calls["rung"], size, flops, addressable)
        row.phases[calls["phase"]] += count
        row.signatures[words(signature)] += count
        row.sources[_source(calls["source"])] += count
        row.error = row.error or calls["error"]
        for dtype in {dtype for dtype, _ in roofline.tensors(signature)}:
            row.dtypes[dtype] += count
    for row in rows.values():
        row.reason = row.error or forms.reason(row.operator, row.rung, row.dtypes, offered)
    ordered = sorted(rows.values(), key=lambda r: (-r.seconds, r.operator, RUNGS.index(r.rung)))
    return Coverage(
        target,
        came["vendor"],
        offered,
        ordered,
        [Narrowed(a, b, _source(source), count) for a, b, source, count in came["narrowed"]],
        machine,
        came["job"]["dry"],
        failure=came["failure"],
        peak_bytes=came["peak_bytes"],
        versions=(came["causeway"], came["torch"]),
        ledger=came["ledger"],
    )


def _source(given: list[Any]) -> Source:
    return str(given[0]), int(given[1]), str(given[2])


def words(signature: Any) -> str:
    """A signature for people: "float32[2, 3], 1, None"."""
    return ", ".join(map(_word, signature))


def _word(value: Any) -> str:
    if roofline.is_tensor(value):
        kind = "" if value[0] == "tensor" else f" {value[0].removeprefix('torch.')}"
        return f"{value[1]}{list(value[2])}{kind}"
    if isinstance(value, list | tuple):
        inner = [_word(v) for v in value]
        if len(inner) > 6:
            inner = [*inner[:3], f"... {len(inner)} in all"]
        return f"[{', '.join(inner)}]"
    return str(value)
