"""setup.py: Python, and the requirements in its strings."""

from __future__ import annotations

import ast
from dataclasses import replace

from causeway.migrate import finding
from causeway.migrate.files import requirements
from causeway.migrate.files.draft import Draft
from causeway.migrate.finding import FileInput, FileResult
from causeway.migrate.settings import Settings

_LISTS = {
    "install_requires",
    "setup_requires",
    "extras_require",
    "tests_require",
    "dependency_links",
}


def convert(file: FileInput, settings: Settings) -> FileResult:
    """A setup.py: its requirements first, then all of it as Python."""
    python = finding.converter("other.py")
    assert python is not None, "Python's own converter is always there"
    try:
        text = file.data.decode("utf-8")
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return python(file, settings)  # it says what is wrong
    if text.startswith("\ufeff"):
        return python(file, settings)
    draft = Draft(text, settings)
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg in _LISTS:
            for inner in ast.walk(node.value):
                _string(draft, inner)
    result = python(replace(file, data=draft.after.encode()), settings)
    if result.status not in ("converted", "unchanged"):
        return result
    if result.status == "unchanged":
        result.after = draft.after
    result.before = text
    result.status = "converted" if result.after != text else "unchanged"
    result.findings = sorted([*result.findings, *draft.findings(file.path)])
    return result


def _string(draft: Draft, node: ast.AST) -> None:
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
        return
    lines = draft.text.encode().split(b"\n")
    start = len(b"\n".join(lines[: node.lineno - 1]).decode()) + (node.lineno > 1)
    start += len(lines[node.lineno - 1][: node.col_offset].decode())
    place = draft.text.find(node.value, start, start + len(node.value) + 4)
    if place > 0:
        requirements.requirement(draft, node.value, (place, place + len(node.value)))
