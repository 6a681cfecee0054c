"""CSV files with the columns that users of Huawei's converter know, and a Rule beside them.

    change_list.csv             what was changed
    unsupported_api.csv         what exists for CUDA only, or needs a hand
    unknown_api.csv             names of torch.cuda that no table knows
    cuda_op_list.csv            custom operators and kernels
    api_precision_advice.csv    advice, which holds on any accelerator
    api_performance_advice.csv
    findings.csv                all of the above and what was left because it is portable

A cell that a spreadsheet would take for a formula begins with an apostrophe.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable
from pathlib import Path

from causeway import atomic
from causeway.migrate.finding import Finding, Result
from causeway.migrate.reports import catalogue

CHANGES = ("File", "Start Line", "End Line", "Operation Type", "Message", "Rule")
OPERATIONS = ("File", "Start Line", "End Line", "OP", "Tips", "Rule")
ALL = ("File", "Start Line", "End Line", "Kind", "Category", "OP", "Message", "Tips", "Rule")

# Full-width forms are read as the narrow ones by spreadsheets of East Asia.
_FORMULA = tuple("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")


def _is_open(found: Finding) -> bool:
    return found.kind in ("unsupported", "manual") and not found.is_advice


_TABLES: dict[str, tuple[tuple[str, ...], Callable[[Finding], bool]]] = {
    "change_list.csv": (CHANGES, lambda f: f.kind == "changed"),
    "unsupported_api.csv": (OPERATIONS, lambda f: _is_open(f) and not catalogue.is_unknown(f)),
    "unknown_api.csv": (OPERATIONS, lambda f: _is_open(f) and catalogue.is_unknown(f)),
    "cuda_op_list.csv": (OPERATIONS, lambda f: f.category == "operator"),
    "api_precision_advice.csv": (OPERATIONS, lambda f: f.category == "precision"),
    "api_performance_advice.csv": (OPERATIONS, lambda f: f.category == "performance"),
    "findings.csv": (ALL, lambda f: True),
}


def write(result: Result, folder: Path) -> list[Path]:
    """Write all tables into a folder that exists; one without rows has its titles."""
    findings = result.findings()
    written = []
    for name, (columns, belongs) in _TABLES.items():
        atomic.write(folder / name, table(columns, filter(belongs, findings)))
        written.append(folder / name)
    return written


def table(columns: tuple[str, ...], findings: Iterable[Finding]) -> str:
    """One table as text."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(columns)
    for found in findings:
        writer.writerow([_safe(_cell(found, column)) for column in columns])
    return text.getvalue()


def operation(found: Finding) -> str:
    """INSERT, DELETE or MODIFY."""
    if not found.before:
        return "INSERT"
    return "MODIFY" if found.after else "DELETE"


def _cell(found: Finding, column: str) -> str | int:
    match column:
        case "File":
            return found.file
        case "Start Line":
            return found.line
        case "End Line":
            return found.end_line
        case "Operation Type":
            return operation(found)
        case "Message":
            return _message(found)
        case "OP":
            return found.api or _short(found.before)
        case "Tips":
            return found.tip or found.message
        case "Kind":
            return found.kind
        case "Category":
            return found.category
        case _:
            return found.rule


def _message(found: Finding) -> str:
    if found.kind != "changed":
        return found.message
    before, after = _short(found.before), _short(found.after)
    if not before:
        return f"{found.message}: {after}" if after else found.message
    return f"{found.message}: {before} -> {after}" if after else f"{found.message}: {before}"


def _short(text: str) -> str:
    """One line of at most 120 characters."""
    line = " ".join(text.split())
    return line if len(line) <= 120 else line[:119] + "…"


def _safe(cell: str | int) -> str | int:
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(_FORMULA) else cell
