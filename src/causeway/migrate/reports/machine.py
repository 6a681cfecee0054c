"""JSON for programs, SARIF for editors and code hosts.

The JSON has a version: within one, members are only added;
docs/migrate_reports.md says what each is.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import re
from pathlib import Path
from typing import Any

import causeway
from causeway import atomic
from causeway.migrate.finding import FileResult, Finding, Kind, Result
from causeway.migrate.reports import catalogue, figures
from causeway.pages import sarif

FORMAT = "causeway-migrate"
VERSION = 1

_LEVELS: dict[Kind, sarif.Level] = {
    "changed": "note",
    "portable": "none",
    "manual": "warning",
    "unsupported": "error",
}


def to_dict(result: Result) -> dict[str, Any]:
    """The whole result as plain data, without the texts of files."""
    used = sorted({found.rule for file in result.files for found in file.findings})
    return {
        "format": FORMAT,
        "version": VERSION,
        "causeway": causeway.__version__,
        "root": result.root,
        "settings": dataclasses.asdict(result.settings),
        "totals": figures.to_dict(figures.of_result(result)),
        "packages": [
            {"name": p.name, "kind": p.kind, "places": len(p.places), "tip": p.tip}
            for p in figures.packages(result.findings())
        ],
        "rules": {code: catalogue.describe(code) for code in used},
        "files": [
            {
                "path": file.path,
                "status": file.status,
                "reason": file.reason,
                "lines": file.lines,
                "changed": file.changed,
                "findings": [_finding(found) for found in sorted(file.findings)],
            }
            for file in sorted(result.files, key=lambda file: file.path)
        ],
    }


def _finding(found: Finding) -> dict[str, Any]:
    data = dataclasses.asdict(found)
    del data["file"]
    return data


def write_json(result: Result, path: str | Path) -> None:
    """Write the JSON all at once. Raises OSError where it cannot."""
    atomic.write(path, json.dumps(to_dict(result), indent=1, ensure_ascii=True) + "\n")


def to_sarif(result: Result) -> dict[str, Any]:
    """The findings as a SARIF document; files that could not be read are among them."""
    findings = result.findings()
    used = sorted({found.rule for found in findings})
    rules = [
        sarif.SarifRule(
            code,
            about["title"],
            _level(about["severity"]),
            name=about["name"],
            help=f"{about['why']}\n\nBy hand: {about['by_hand']}",
            help_markdown=catalogue.page(code),
            help_uri=result.settings.rules_url.replace("{code}", code),
        )
        for code in used
        for about in (catalogue.describe(code),)
    ]
    fixes = {file.path: _fix(file) for file in result.files if file.changed}
    results = [
        sarif.Result(
            found.rule,
            f"{found.message} ({found.tip})" if found.tip else found.message,
            found.file,
            found.line,
            found.column,
            found.end_line,
            found.end_column,
            level="note" if found.is_advice else _LEVELS[found.kind],
            text=found.before,
            # Once for a file, as changes need each other: uses their import, names their variable.
            fix=fixes.pop(found.file, None) if found.kind == "changed" else None,
        )
        for found in findings
    ]
    broken = [file for file in result.files if file.status == "unparsable"]
    if broken:
        rules.append(sarif.SarifRule("CW000", "A file that could not be read", "warning"))
        results += [sarif.Result("CW000", file.reason or "not read", file.path) for file in broken]
    return sarif.document(
        "causeway migrate", rules, results, root=result.root, version=causeway.__version__
    )


def _fix(file: FileResult) -> sarif.Fix:
    """All changes of a file, by lines."""
    before, after = _lines(file.before), _lines(file.after)
    matcher = difflib.SequenceMatcher(None, before, after)
    unended = len(before) if before and before[-1][-1] not in "\r\n" else -1
    return sarif.Fix(
        f"Convert {file.path}: all its places",
        tuple(
            sarif.Replacement(
                start + 1,
                end,
                "".join(after[new_start:new_end]),
                len(before[-1]) if end == unended > start else None,
            )
            for tag, start, end, new_start, new_end in matcher.get_opcodes()
            if tag != "equal"
        ),
    )


def _lines(text: str) -> list[str]:
    """Lines with their ends, as SARIF counts them: by \\n, \\r\\n and \\r alone."""
    return re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+", text)


def _level(severity: str) -> sarif.Level:
    return {"info": "note", "warning": "warning", "error": "error"}[severity]  # type: ignore[return-value]


def write_sarif(result: Result, path: str | Path) -> None:
    """Write the SARIF document all at once. Raises OSError where it cannot."""
    sarif.write(path, to_sarif(result))
