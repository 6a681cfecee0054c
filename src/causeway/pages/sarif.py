"""SARIF 2.1.0: findings by source line, as editors and code hosts show them.

    document = sarif.document(
        "causeway coverage",
        [Rule("CW-missing", "An operator that the chip lacks", "warning")],
        [Result("CW-missing", "aten::erfinv runs on the host", "train.py", 12)],
        root=".",
    )
    sarif.write("coverage.sarif", document)

Only what readers use: rules, results, a place each. Files below `root` are named relative to it, so
that a file made on one machine means the same on another.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, Literal
from urllib.parse import quote

from causeway import atomic

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
ROOT = "SRCROOT"  # what relative names are relative to

Level = Literal["none", "note", "warning", "error"]
_LEVELS = ("none", "note", "warning", "error")


@dataclass(frozen=True)
class SarifRule:
    """What a sort of findings is: a stable id, a sentence, and more where there is more to say."""

    id: str
    summary: str
    level: Level = "warning"
    name: str = ""  # CamelCase, for readers that show no id
    help: str = ""
    help_markdown: str = ""  # the same with its layout, for readers that show it
    help_uri: str = ""


@dataclass(frozen=True)
class Replacement:
    """Lines `first` to `last` of a file, from 1 and both with their ends, become `text`. Where
    `last` is `first` - 1, the text comes before line `first`. `open_end` is the length of line
    `last` where the file ends without an end of line there.
    """

    first: int
    last: int
    text: str
    open_end: int | None = None


@dataclass(frozen=True)
class Fix:
    """A change of the result's file, to be made as a whole."""

    description: str
    replacements: tuple[Replacement, ...]


@dataclass(frozen=True)
class Result:
    """One finding. Lines and columns count from 1; line 0 means the file as a whole."""

    rule: str
    message: str
    file: str | os.PathLike[str] = ""  # "": nowhere
    line: int = 0
    column: int = 0
    end_line: int = 0
    end_column: int = 0
    level: Level | None = None  # else the rule's
    text: str = ""  # the line's source: shown, and what the finding is known again by
    fix: Fix | None = None


def document(
    tool: str,
    rules: Sequence[SarifRule],
    results: Iterable[Result],
    *,
    root: str | os.PathLike[str] = "",
    version: str = "",
    uri: str = "",
) -> dict[str, Any]:
    """The document as data. Raises ValueError for a result of a rule that is not given, for two
    rules of one id, and for a level that there is not.
    """
    index = {rule.id: i for i, rule in enumerate(rules)}
    if len(index) != len(rules):
        raise ValueError("two rules have the same id")
    for rule in rules:
        if rule.level not in _LEVELS:
            raise ValueError(f"rule {rule.id!r} has the level {rule.level!r}; there is {_LEVELS}")
    base = Path(root).resolve() if root else None
    seen: dict[str, int] = {}
    driver: dict[str, Any] = {"name": tool, "rules": [_rule(rule) for rule in rules]}
    if version:
        driver["version"] = version
    if uri:
        driver["informationUri"] = uri
    run: dict[str, Any] = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_result(result, rules, index, base, seen) for result in results],
    }
    if base is not None:
        run["originalUriBaseIds"] = {ROOT: {"uri": base.as_uri().rstrip("/") + "/"}}
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def write(path: str | Path, document: dict[str, Any]) -> None:
    """Write the file all at once. Raises OSError where it cannot."""
    atomic.write(path, json.dumps(document, indent=1) + "\n")


def _rule(rule: SarifRule) -> dict[str, Any]:
    found: dict[str, Any] = {
        "id": rule.id,
        "shortDescription": {"text": rule.summary},
        "defaultConfiguration": {"level": rule.level},
    }
    if rule.name:
        found["name"] = rule.name
    if rule.help:
        found["help"] = {"text": rule.help}
        if rule.help_markdown:
            found["help"]["markdown"] = rule.help_markdown
    if rule.help_uri:
        found["helpUri"] = rule.help_uri
    return found


def _result(
    result: Result,
    rules: Sequence[SarifRule],
    index: dict[str, int],
    base: Path | None,
    seen: dict[str, int],
) -> dict[str, Any]:
    if result.rule not in index:
        raise ValueError(f"a result of rule {result.rule!r}, which is not among the rules")
    level = result.level or rules[index[result.rule]].level
    if level not in _LEVELS:
        raise ValueError(f"a result has the level {level!r}; there is {_LEVELS}")
    found: dict[str, Any] = {
        "ruleId": result.rule,
        "ruleIndex": index[result.rule],
        "level": level,
        "message": {"text": result.message},
    }
    if not os.fspath(result.file):
        return found
    location = _artifact(result.file, base)
    physical: dict[str, Any] = {"artifactLocation": location}
    if result.line > 0:
        physical["region"] = _region(result)
    found["locations"] = [{"physicalLocation": physical}]
    if result.fix is not None:
        found["fixes"] = [_fix(result.fix, location)]
    # The same finding after lines were added above it; the second of its like has another.
    what = "\0".join((result.rule, location["uri"], result.text.strip() or str(result.line)))
    digest = hashlib.sha256(what.encode("utf-8", "backslashreplace")).hexdigest()[:16]
    seen[digest] = seen.get(digest, 0) + 1
    found["partialFingerprints"] = {"primaryLocationLineHash": f"{digest}:{seen[digest]}"}
    return found


def _fix(fix: Fix, location: dict[str, str]) -> dict[str, Any]:
    replacements = []
    for change in fix.replacements:
        # A region ends before its end column: column 1 of the next line is the end of this one.
        region = {
            "startLine": change.first,
            "startColumn": 1,
            "endLine": change.last + 1,
            "endColumn": 1,
        }
        if change.open_end is not None:
            region["endLine"], region["endColumn"] = change.last, change.open_end + 1
        replacements.append(
            {"deletedRegion": region, "insertedContent": {"text": change.text}}
            if change.text
            else {"deletedRegion": region}
        )
    change_of_file = {"artifactLocation": location, "replacements": replacements}
    return {"description": {"text": fix.description}, "artifactChanges": [change_of_file]}


def _artifact(file: str | os.PathLike[str], base: Path | None) -> dict[str, str]:
    path = Path(os.path.abspath(file)) if base is None else Path(os.path.abspath(base / file))
    if base is not None and path.is_relative_to(base):
        return {"uri": _quoted(path.relative_to(base)), "uriBaseId": ROOT}
    return {"uri": path.as_uri()}


def _quoted(path: PurePath) -> str:
    return quote(path.as_posix(), errors="surrogateescape")


def _region(result: Result) -> dict[str, Any]:
    region: dict[str, Any] = {"startLine": result.line}
    if result.column > 0:
        region["startColumn"] = result.column
    if result.end_line > 0:
        region["endLine"] = result.end_line
    if result.end_column > 0:
        region["endColumn"] = result.end_column
    if result.text:
        region["snippet"] = {"text": result.text}
    return region
