"""Dockerfiles: reported, not rewritten, for an image is built for one kind of host."""

from __future__ import annotations

import re

from causeway.migrate.files import shell, values
from causeway.migrate.files.draft import Draft, NotReadableError, run
from causeway.migrate.files.variables import judge_variable
from causeway.migrate.finding import FileInput, FileResult
from causeway.migrate.settings import Settings

_FROM = re.compile(r"^[ \t]*FROM\s+(?:--\S+\s+)*(\S+)", re.MULTILINE | re.IGNORECASE)
_DEFAULT = re.compile(r"^[ \t]*ARG\s+\w+=(\S+)", re.MULTILINE | re.IGNORECASE)
_ENV = re.compile(r"^[ \t]*(?:ENV|ARG)\s+((?:[^\\\n]|\\\n|\\.)*)", re.MULTILINE | re.IGNORECASE)
_RUN = re.compile(
    r"^[ \t]*RUN[ \t]+((?:--\S+[ \t]+)*)((?:[^\\\n]|\\\r?\n(?:[ \t]*#[^\n]*\n)*|\\.)*)",
    re.MULTILINE | re.IGNORECASE,
)


def convert(file: FileInput, settings: Settings) -> FileResult:
    """A Dockerfile. Never changed."""
    return run(file, settings, _convert)


def _convert(draft: Draft) -> None:
    for found in (*_FROM.finditer(draft.text), *_DEFAULT.finditer(draft.text)):
        if values.is_cuda_image(found.group(1)):
            draft.say(values.IMAGE, "manual", found.span(1), f"{found.group(1)} holds CUDA",
                      api=found.group(1))  # fmt: skip
    for found in _ENV.finditer(draft.text):
        for name in re.finditer(r"(?:^|(?<=\s))([A-Za-z_]\w*)(?==|\s)", found.group(1)):
            span = (found.start(1) + name.start(1), found.start(1) + name.end(1))
            judge_variable(draft, name.group(1), span, use=False)
    for found in _RUN.finditer(draft.text):
        try:
            shell.convert_part(draft, *found.span(2))
        except NotReadableError:
            continue  # a heredoc of BuildKit's, or a form that only its own parser reads
    # A Dockerfile is reported only.
    draft.notes = [
        note if note.new is None else type(note)(
            note.rule, "manual", note.start, note.end, note.message,
            f"{note.tip} Write {note.new!r} here.".strip(), None, note.api,
        )
        for note in draft.notes
    ]  # fmt: skip
