"""Configurations in JSON: strings by their keys, changed in place."""

from __future__ import annotations

import re

from causeway.migrate.files import json_places, values
from causeway.migrate.files.draft import Draft, NotReadableError, run
from causeway.migrate.files.variables import judge_variable
from causeway.migrate.finding import FileInput, FileResult
from causeway.migrate.settings import Settings
from causeway.migrate.systems import words

_WORTH = re.compile(rf"cuda|nccl|gpu|nvidia|MULTI_|{words().pattern.decode()}", re.IGNORECASE)
# Beyond this it is data, not a configuration.
_LARGEST = 1 << 20


def convert(file: FileInput, settings: Settings) -> FileResult:
    """A JSON file. One with comments is no JSON and is left, as is one larger than 1 MiB."""
    if len(file.data) > _LARGEST:
        return FileResult(file.path, "skipped", "larger than 1 MiB: data, not a configuration")
    return run(file, settings, _convert)


def _convert(draft: Draft) -> None:
    if not _WORTH.search(draft.text):
        return
    try:
        tree = json_places.read(draft.text)
    except NotReadableError:
        # Settings of editors are JSON with comments; data is JSON by the line.
        if re.search(r"^\s*//|\}\s*\n\s*\{", draft.text, re.MULTILINE):
            return
        raise
    trainers: dict[int, bool] = {}  # asked of each object once: data has thousands of keys
    for path, node, inside in tree.strings():
        name = path[-1] if path else ""
        around = (node.start, node.end)
        value = node.value if isinstance(node.value, str) else str(node.value)
        inner = (node.start + 1, node.end - 1) if isinstance(node.value, str) else around
        exact = draft.text[slice(*inner)] == value
        if (of_trainer := trainers.get(id(inside))) is None:
            keys = frozenset(str(key.value).lower() for key, _ in inside.members or ())
            of_trainer = trainers[id(inside)] = values.is_trainer(path[:-1], keys)
        values.judge(
            draft,
            values.Named(
                name, value, inner if exact else None, around,
                lightning=of_trainer,
                null="null",
            ),
        )  # fmt: skip
    _variables(draft, tree)


def _variables(draft: Draft, node: json_places.Node) -> None:
    """Keys that are environment variables."""
    for key, value in node.members or ():
        if key.value.isupper() and draft.text[key.start + 1 : key.end - 1] == key.value:
            judge_variable(draft, key.value, (key.start + 1, key.end - 1), use=False)
        _variables(draft, value)
    for item in node.items or ():
        _variables(draft, item)
