"""TOML and INI, a line at a time: `key = value`, and the requirements of pyproject.toml.

No reader of TOML says where a value was. So a line is changed by its form, and the file is read
before and after: unless the two differ in exactly the values that were changed, nothing is.
"""

from __future__ import annotations

import re
import tomllib
from typing import Any

from causeway.migrate.files import requirements, values
from causeway.migrate.files.draft import Draft, NotReadableError, run
from causeway.migrate.finding import FileInput, FileResult
from causeway.migrate.settings import Settings

_LINE = re.compile(
    r"^[ \t]*(?P<name>[A-Za-z_][\w.-]*|\"[\w.-]+\")[ \t]*(?P<sign>[=:])[ \t]*"
    r"(?P<quote>[\"']?)(?P<value>[^\"'#;\r\n]*?)(?P=quote)[ \t]*(?=[#;\r\n]|\Z)",
    re.MULTILINE,
)
_SECTION = re.compile(r"^[ \t]*\[+([^\]\r\n]+)\]+", re.MULTILINE)
# A string in a list; requirements are known by the key that the list has.
_STRING = re.compile(r"\"([^\"\\\r\n]*)\"|'([^'\r\n]*)'")
_LISTS = re.compile(
    r"^[ \t]*(?P<key>dependencies|requires|install_requires|[\w-]+)[ \t]*=[ \t]*\[", re.MULTILINE
)
# Texts of several lines hold what only looks like pairs.
_TEXTS = re.compile(r'"""(?:\\.|[^\\])*?"""|\'\'\'.*?\'\'\'', re.DOTALL)
_DEPENDENCIES = re.compile(r"dependenc|requires|extras", re.IGNORECASE)


def convert_toml(file: FileInput, settings: Settings) -> FileResult:
    """A TOML file, pyproject.toml among them."""
    return run(file, settings, _toml)


def convert_ini(file: FileInput, settings: Settings) -> FileResult:
    """An INI file (.ini, .cfg), setup.cfg among them."""
    return run(file, settings, _ini)


def _toml(draft: Draft) -> None:
    try:
        before = tomllib.loads(draft.text)
    except tomllib.TOMLDecodeError as error:
        raise NotReadableError(f"not TOML: {error}") from None
    _pairs(draft, {"="}, quoted=True)
    _toml_requirements(draft)
    after = tomllib.loads(draft.after)
    changed = [note for note in draft.notes if note.new is not None]
    if _differences(before, after) != len(changed):
        # A line that looked like a pair was something else.
        draft.notes = [note for note in draft.notes if note.new is None]


def _ini(draft: Draft) -> None:
    _pairs(draft, {"=", ":"}, quoted=False)
    for section in _SECTION.finditer(draft.text):
        if section.group(1).strip() not in ("options", "options.extras_require"):
            continue
        following = _SECTION.search(draft.text, section.end())
        end = following.start() if following else len(draft.text)
        for found in re.finditer(r"^[ \t]+([A-Za-z][^\r\n]*)$", draft.text[:end], re.MULTILINE):
            if found.start() > section.end():
                requirements.requirement(draft, found.group(1), found.span(1))


def _pairs(draft: Draft, signs: set[str], *, quoted: bool) -> None:
    text = _TEXTS.sub(lambda t: re.sub(r"[^\n]", " ", t.group()), draft.text)
    sections = [(0, ""), *((s.start(), s.group(1)) for s in _SECTION.finditer(draft.text))]
    keys: dict[str, set[str]] = {}
    found = []
    for pair in _LINE.finditer(text):
        section = max(s for s in sections if s[0] <= pair.start())[1]
        keys.setdefault(section, set()).add(values.key(pair.group("name").strip('"')).lower())
        if pair.group("sign") in signs and (pair.group("quote") or not quoted):
            found.append((section, pair))
    for section, pair in found:
        span = pair.span("value")
        values.judge(
            draft,
            values.Named(
                pair.group("name").strip('"'), pair.group("value"), span, span,
                lightning=values.is_trainer(section.split("."), keys[section]),
            ),
        )  # fmt: skip


def _toml_requirements(draft: Draft) -> None:
    sections = [(0, ""), *((s.start(), s.group(1)) for s in _SECTION.finditer(draft.text))]
    for opening in _LISTS.finditer(draft.text):
        section = max(s for s in sections if s[0] <= opening.start())[1]
        if not (_DEPENDENCIES.search(opening.group("key")) or _DEPENDENCIES.search(section)):
            continue
        place = opening.end()
        while place < len(draft.text):
            skipped = re.compile(r"[\s,]*(?:#[^\n]*\s*[\s,]*)*").match(draft.text, place)
            place = skipped.end() if skipped else place
            string = _STRING.match(draft.text, place)
            if string is None:
                break
            group = 1 if string.group(1) is not None else 2
            requirements.requirement(draft, string.group(group), string.span(group))
            place = string.end()


def _differences(a: Any, b: Any) -> int:
    """How many leaves differ; -1 where the shapes do."""
    if isinstance(a, dict) and isinstance(b, dict):
        if a.keys() != b.keys():
            return -1
        parts = [_differences(a[key], b[key]) for key in a]
    elif isinstance(a, list) and isinstance(b, list):
        if len(a) != len(b):
            return -1
        parts = [_differences(x, y) for x, y in zip(a, b, strict=True)]
    else:
        return int(a != b)
    return -1 if -1 in parts else sum(parts)
