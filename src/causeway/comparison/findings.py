"""What a comparison found: a row for each operator and signature, and each failure in full."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from causeway.numerics import Verdict

FIGURES = ("max_abs", "max_rel", "max_ulp", "diff1", "diff2")


@dataclass
class FindingsRow:
    """All calls of one operator with one signature. The figures are the largest of all calls."""

    operator: str
    signature: str
    calls: int = 0
    compared: int = 0
    failed: int = 0
    rungs: dict[str, int] = field(default_factory=dict)
    phases: dict[str, int] = field(default_factory=dict)
    references: dict[str, int] = field(default_factory=dict)  # same, float64, replay, ...
    not_compared: dict[str, int] = field(default_factory=dict)  # calls by reason
    max_abs: float = 0.0
    max_rel: float = 0.0
    max_ulp: float = 0.0
    diff1: float = 0.0
    diff2: float = 0.0
    cosine: float = 1.0  # the smallest
    modules: list[str] = field(default_factory=list)  # the first few

    def add(self, verdict: Verdict) -> None:
        for name in FIGURES:
            setattr(self, name, max(getattr(self, name), getattr(verdict, name)))
        self.cosine = min(self.cosine, verdict.cosine)


@dataclass(frozen=True)
class Failure:
    """One value of one call that is wrong.

    `kind`: "values" (numbers, shape, dtype or strides), "input" (an argument changed that the
    schema does not let change), "aliasing", or "random".
    """

    operator: str
    signature: str
    kind: str
    what: str  # which value: "result 0", "argument self"
    verdict: Verdict
    sequence: int
    step: int
    phase: str
    module: str
    node: str
    rung: str
    reference: str
    stack: tuple[str, ...] = ()
    repro: str = ""  # folder of the script that shows it again; why there is none in `no_repro`
    no_repro: str = ""

    def __str__(self) -> str:
        where = self.module or "no module"
        return (
            f"step {self.step}, {self.phase}, {where}: {self.operator} on rung {self.rung}, "
            f"{self.what}: {self.verdict}"
        )

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class Findings:
    """Rows and failures, as text and as JSON."""

    def __init__(self, rows: Iterable[FindingsRow], failures: Sequence[Failure]) -> None:
        self.rows = sorted(rows, key=lambda r: (-r.failed, -r.max_ulp, r.operator, r.signature))
        self.failures = failures

    def to_json(self) -> str:
        """{"version": 1, "rows": [...], "failures": [...]}; infinities and NaN are text."""
        data = {
            "version": 1,
            "rows": [asdict(r) for r in self.rows],
            "failures": [f.to_dict() for f in self.failures],
        }
        return json.dumps(plain(data), indent=1)

    def table(self, most: int | None = None) -> str:
        """Rows as text, those that failed first; at most `most` of the others."""
        header = ["operator", "signature", "rung", "calls", "compared", "wrong", "max abs",
                  "max rel", "ulp", "diff1", "diff2", "cosine", ""]  # fmt: skip
        shown = [r for r in self.rows if r.failed]
        others = [r for r in self.rows if not r.failed]
        shown += others if most is None else others[:most]
        lines = [_cells(r) for r in shown]
        text = grid([header, *lines], left=(0, 1, 2, 12))
        if len(shown) < len(self.rows):
            text += f"\n({len(self.rows) - len(shown)} more without failures)"
        return f"{text}\n{self.summary()}"

    def summary(self) -> str:
        calls = sum(r.calls for r in self.rows)
        compared = sum(r.compared for r in self.rows)
        wrong = sum(r.failed for r in self.rows)
        text = (f"{len({r.operator for r in self.rows})} operators, {calls} calls, {compared} "
                f"compared, {wrong} wrong")  # fmt: skip
        reasons: dict[str, set[str]] = {}
        for row in self.rows:
            for reason in row.not_compared:
                reasons.setdefault(reason, set()).add(row.operator.removeprefix("aten::"))
        for reason, names in sorted(reasons.items()):
            listed = ", ".join(sorted(names)[:8]) + (", ..." if len(names) > 8 else "")
            text += f"\nnot compared: {listed}: {reason}"
        return text


def _cells(row: FindingsRow) -> list[str]:
    note = "; ".join(row.not_compared) if not row.compared else ""
    return [
        row.operator.removeprefix("aten::"),
        row.signature if len(row.signature) <= 60 else row.signature[:57] + "...",
        ",".join(row.rungs),
        str(row.calls),
        str(row.compared),
        str(row.failed) if row.failed else "-",
        *(f"{getattr(row, name):.2g}" if getattr(row, name) else "-" for name in FIGURES),
        "1" if row.cosine == 1 else f"{row.cosine:.6f}",
        note if len(note) <= 60 else note[:57] + "...",
    ]


def grid(lines: Sequence[Sequence[str]], left: Sequence[int]) -> str:
    """Lines of cells as columns; those in `left` begin at the same place, the others end there."""
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    text = [
        "  ".join(
            cell.ljust(width) if i in left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
    return "\n".join([text[0], "-" * max(map(len, text)), *text[1:]])


def plain(value: Any) -> Any:
    """`value` with what JSON cannot say as text."""
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    return value


_SHORT = {"float": "f", "bfloat": "bf", "int": "i", "uint": "u", "complex": "c"}


def dtype_name(dtype: torch.dtype) -> str:
    """torch.float32 as "f32"."""
    name = str(dtype).removeprefix("torch.")
    head = name.rstrip("0123456789")
    return _SHORT[head] + name[len(head) :] if head in _SHORT and head != name else name


def describe(values: Iterable[Any]) -> str:
    """Arguments as a signature: "f32[2, 3], f32[3]*, 1.0"; * for strides that are not dense."""
    return ", ".join(_describe(v) for v in values)


def _describe(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        if torch.nn.parameter.is_lazy(value):
            return "uninitialized"
        kind = "" if value.layout == torch.strided else f" {str(value.layout)[6:]}"
        if value.is_nested:
            return f"{dtype_name(value.dtype)} nested"
        dense = "*" if value.layout == torch.strided and not value.is_contiguous() else ""
        return f"{dtype_name(value.dtype)}{list(value.shape)}{dense}{kind}"
    if isinstance(value, (list, tuple)):
        inner = [_describe(v) for v in value[:8]]
        return f"[{', '.join(inner)}{', ...' if len(value) > 8 else ''}]"
    if isinstance(value, torch.dtype):
        return dtype_name(value)
    if isinstance(value, torch.Generator):
        return "generator"
    if isinstance(value, torch.UntypedStorage):
        return "storage"
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)
