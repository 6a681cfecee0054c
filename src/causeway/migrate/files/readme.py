"""READMEs: command lines with an option that is named after CUDA, reported and never changed."""

from __future__ import annotations

import re

from causeway.migrate.files.draft import Draft, run
from causeway.migrate.files.shell import FLAG
from causeway.migrate.finding import FileInput, FileResult
from causeway.migrate.settings import Settings

_OPTION = re.compile(r"(?<![\w-])--[\w-]+")


def convert(file: FileInput, settings: Settings) -> FileResult:
    """A README; nothing in it is changed."""
    if not file.flags:
        return FileResult(file.path, "unchanged", "nothing that concerns CUDA")
    return run(file, settings, _convert)


def _convert(draft: Draft) -> None:
    for found in _OPTION.finditer(draft.text):
        name = found.group()
        if name in draft.flags:
            renamed = draft.settings.rename_flags
            draft.say(
                FLAG, "manual" if renamed else "portable", found.span(),
                f"{name} is renamed" if renamed else f"{name} speaks of CUDA",
                "Write the new name: a README is not changed." if renamed else "", api=name,
            )  # fmt: skip
