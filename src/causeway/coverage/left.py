"""What of a compiled program left the chip: calls that a ledger saw on the host, each with why."""

from __future__ import annotations

from collections.abc import Sequence

from causeway import _C
from causeway.compile.report import Graph, Left
from causeway.coverage import forms
from causeway.coverage.record import name_of
from causeway.ops.ledger import LedgerRow


def on_host(rows: Sequence[LedgerRow], graphs: Sequence[Graph]) -> list[Left]:
    """What a ledger has of calls on the host, each with the reason; most bytes first."""
    offered = {n: [name_of(d) for d in o["dtypes"]] for n, o in _C.offered().items()}
    called = {_base(name) for graph in graphs for name in graph.extern}
    found = [
        Left(
            row.operator,
            row.dtype,
            row.calls,
            row.bytes,
            forms.reason(row.operator, row.rung, [row.dtype] if row.dtype else [], offered),
            _base(row.operator) in called,
        )
        for row in rows
        if row.rung == "host"
    ]
    return sorted(found, key=lambda left: (-left.bytes, left.operator))


def _base(name: str) -> str:
    """An operator's name without its library and overload: aten.mm.out, aten::mm: mm."""
    return name.replace("::", ".").split(".")[1] if "." in name or "::" in name else name
