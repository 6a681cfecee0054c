"""The answer for machines: JSON, CSV, SARIF; and lines for people."""

from __future__ import annotations

import csv
import io
import json
import linecache
from pathlib import Path
from typing import TYPE_CHECKING

from causeway import atomic
from causeway.coverage.model import Coverage, CoverageRow
from causeway.pages import sarif

if TYPE_CHECKING:
    from rich.console import Console

RULES = [
    sarif.SarifRule(
        "CW-host", "An operator that runs on the host", "warning", "OperatorOnHost",
        "The chip's vendor does not serve this call, so it runs on the CPU and its data may have "
        "to be copied there and back. `causeway explain OPERATOR` says what the vendor would have "
        "to offer.",
    ),
    sarif.SarifRule(
        "CW-dtype", "A dtype that the chip lacks", "error", "DtypeNotOnChip",
        "A tensor of this dtype is refused on the chip. Choose another dtype, or have it stored as "
        "the next narrower one with CAUSEWAY_DTYPES=narrow.",
    ),
    sarif.SarifRule(
        "CW-failed", "The program ended here", "error", "ProgramFailed",
        "What comes after this line was not seen.",
    ),
]  # fmt: skip


def write_json(coverage: Coverage, path: str) -> None:
    atomic.write(path, json.dumps(coverage.to_dict(), indent=1) + "\n")


def write_csv(coverage: Coverage, path: str) -> None:
    """A line for each operator and rung."""
    out = io.StringIO()
    lines = csv.writer(out, lineterminator="\n")
    lines.writerow(
        ["operator", "rung", "calls", "forward", "backward", "optimizer", "bytes", "flops",
         "share_of_calls", "share_of_bytes", "share_of_time", "dtypes", "reason", "sources"]
    )  # fmt: skip
    for row in coverage.rows:
        places = [f"{file}:{line}" for (file, line, _), _ in row.sources.most_common() if file]
        shares = [f"{coverage.share(row, of):.6f}" for of in ("calls", "bytes", "seconds")]
        lines.writerow(
            [
                row.operator, row.rung, row.calls,
                *(row.phases[phase] for phase in ("forward", "backward", "optimizer")),
                row.bytes, int(row.flops), *shares,
                " ".join(row.dtypes), row.reason, " ".join(places),
            ]
        )  # fmt: skip
    atomic.write(path, out.getvalue())


def write_sarif(coverage: Coverage, path: str) -> None:
    """What the chip lacks, by line of source. Files are relative to the current folder."""
    results = []
    for row in coverage.missing:
        rule = "CW-host" if row.rung == "host" else "CW-failed"
        for (file, line, _), calls in row.sources.most_common():
            words = f"{row.operator} ({calls} calls here): {row.reason}"
            results.append(_result(rule, words, file, line))
    for n in coverage.narrowed:
        words = f"{n.count} tensors of {n.dtype}, which {coverage.vendor['device']} lacks"
        results.append(_result("CW-dtype", words, n.source[0], n.source[1]))
    if coverage.failure:
        failure = coverage.failure
        results.append(
            _result(
                "CW-failed", failure["message"], failure.get("file", ""), failure.get("line", 0)
            )
        )
    document = sarif.document(
        "causeway coverage", RULES, results, root=Path.cwd(), version=coverage.versions[0]
    )
    sarif.write(path, document)


def _result(rule: str, words: str, file: str, line: int) -> sarif.Result:
    text = linecache.getline(file, line).strip() if file else ""
    return sarif.Result(rule, words, file, line, text=text)


def show(coverage: Coverage, console: Console, most: int = 15) -> None:
    """What is missing, the rungs, the verdict."""
    from rich.markup import escape

    from causeway.ops.ledger import size

    def line(text: str, style: str = "") -> None:
        console.print(escape(text), style=style, highlight=False, soft_wrap=True)

    for note in coverage.notes:
        line(note, "dim")
    if coverage.failure:
        failure = coverage.failure
        where = f" ({failure['file']}:{failure['line']})" if failure.get("file") else ""
        line(f"the program ended: {failure['message']}{where}", "bold red")
    missing = coverage.missing
    for row in missing[:most]:
        first = next((s for s, _ in row.sources.most_common() if s[0]), None)
        where = f", {first[0]}:{first[1]}" if first else ""
        shares = (
            f"{_percent(coverage, row, 'bytes')} of bytes, {_percent(coverage, row, 'seconds')}"
        )
        line(row.operator, "bold yellow" if row.rung == "host" else "bold red")
        line(f"    {row.calls} calls, {shares} of time{where}\n    {row.reason}")
    if len(missing) > most:
        line(f"and {len(missing) - most} more (--html or --json has all)")
    for n in coverage.narrowed[:most]:
        line(
            f"{n.dtype} is not on the chip: {n.count} tensors at {n.source[0]}:{n.source[1]}", "red"
        )
    rungs = {row.rung: coverage.total("calls", [row.rung]) for row in coverage.rows}
    counts = ", ".join(f"{int(calls)} {rung}" for rung, calls in rungs.items())
    if counts:
        line(f"calls: {counts}; {size(coverage.peak_bytes)} of device memory at most")
    good = bool(coverage.rows) and not (missing or coverage.narrowed or coverage.failure)
    bad = coverage.failure is not None or not coverage.rows
    line(coverage.verdict, "bold green" if good else "bold red" if bad else "bold yellow")


def _percent(coverage: Coverage, row: CoverageRow, of: str) -> str:
    return f"{100 * coverage.share(row, of):.1f} %"
