"""What a conversion found: the types that converters fill and reports show, and nothing else.

A place in a file that concerns CUDA is one `Finding`, whether it was changed or not; a file is one
`FileResult`; a run is one `Result`. A converter of a kind of file is a function
`(FileInput, Settings) -> FileResult`; `register` ties it to suffixes or whole names. Results travel
between processes, so all of it is plain data.
"""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Literal

from causeway.migrate.files import PATTERNS
from causeway.migrate.own import NOTHING, Own
from causeway.migrate.settings import Settings

# changed: rewritten. portable: named CUDA, and stays because it does no harm elsewhere.
# manual: a hand is needed, the tip says what to do. unsupported: exists for CUDA alone.
Kind = Literal["changed", "portable", "manual", "unsupported"]
KINDS: tuple[Kind, ...] = ("changed", "portable", "manual", "unsupported")
Severity = Literal["info", "warning", "error"]
Category = Literal["api", "operator", "precision", "performance"]
# unparsable: not in the language its name says, or not in its encoding. skipped: excluded, too
# large, a link, of no kind that is known. Both are left as they are, with `reason`.
OUR_MISTAKE = "a mistake of causeway migrate, please report it"  # begins such a reason
Status = Literal["converted", "unchanged", "unparsable", "skipped"]


@dataclass(frozen=True, order=True)
class Finding:
    """One place that concerns CUDA. Lines count from 1, columns from 1 in characters; `end_column`
    is one past the last character. Lines are those of the text before conversion.
    """

    file: str  # relative to Result.root, with slashes
    line: int
    column: int
    end_line: int
    end_column: int
    rule: str  # "CW101"
    kind: Kind
    message: str  # what was found or done, one sentence
    tip: str  # what to do or to know; never empty
    severity: Severity
    safe: bool  # False: only `--unsafe` applies it
    before: str = ""  # the source of the place
    after: str = ""  # what it became; "" where it stays
    api: str = ""  # qualified name: "torch.cuda.FloatTensor"; "" where there is none
    category: Category = "api"

    @property
    def is_advice(self) -> bool:
        """Whether it is a hint on precision or speed (CW7xx), and no place that names CUDA."""
        return self.rule.startswith("CW7")


@dataclass(frozen=True)
class FileInput:
    """A file as a converter gets it: its name relative to the root, and its bytes."""

    path: str
    data: bytes
    own: Own = NOTHING  # what the whole tree has by CUDA's names
    own_packages: frozenset[str] = frozenset()  # the packages that the tree itself is
    flags: frozenset[str] = (
        frozenset()
    )  # options of the tree that are named after CUDA: "--no-cuda"
    # By the name of each script of the tree: options whose default becomes the device's.
    options: Mapping[str, frozenset[str]] = field(default_factory=dict)
    # Modules that the tree builds for CUDA: of CUDAExtension, or compiled when they are loaded.
    extensions: frozenset[str] = frozenset()
    # The tree sets CUDA_VISIBLE_DEVICES once modules are imported: no import may ask for a device.
    chosen_late: bool = False
    for_cuda: bool = False  # the tree is for CUDA too, so what is for another system stays


@dataclass
class FileResult:
    """What became of one file. `before` and `after` are its text, newlines as they stood; both are
    "" where the file could not be decoded, and `after` is `before` where nothing changed.
    """

    path: str
    status: Status
    reason: str = ""
    before: str = ""
    after: str = ""
    encoding: str = "utf-8"
    findings: list[Finding] = field(default_factory=list)

    @property
    def changed(self) -> bool:
        """Whether the text differs."""
        return self.before != self.after

    @property
    def lines(self) -> int:
        """Lines of the text before conversion."""
        return self.before.count("\n") + (not self.before.endswith("\n") and bool(self.before))


@dataclass
class Result:
    """What became of a tree."""

    root: str
    files: list[FileResult]
    settings: Settings
    lines: int = 0  # of all files that were read, also of those with nothing to report

    def findings(self) -> list[Finding]:
        """All findings, by file and place."""
        return sorted(f for file in self.files for f in file.findings)

    def totals(self) -> dict[str, int]:
        """Counts: a key for each kind of finding, each status of files ("files_converted"), "files"
        and "lines". Hints on precision and speed do not count.
        """
        kinds = Counter(f.kind for file in self.files for f in file.findings if not f.is_advice)
        statuses = Counter(file.status for file in self.files)
        counts: dict[str, int] = {kind: kinds[kind] for kind in KINDS}
        for status in ("converted", "unchanged", "unparsable", "skipped"):
            counts[f"files_{status}"] = statuses[status]
        return counts | {"files": len(self.files), "lines": self.lines}


Converter = Callable[[FileInput, Settings], FileResult]

# A pattern is a suffix (".py") or a whole name ("requirements.txt", with `*` as in a shell);
# the value is "module:function", imported at its first use. Names go before suffixes.
CONVERTERS: dict[str, str] = {
    ".py": "causeway.migrate.python:convert",
    ".pyw": "causeway.migrate.python:convert",
    **PATTERNS,
}


def register(patterns: Iterable[str], converter: str) -> None:
    """Hand files of these patterns to `converter` ("module:function")."""
    for pattern in patterns:
        CONVERTERS[pattern] = converter


def converter_name(path: str) -> str | None:
    """The converter for a path, "module:function", or None where no kind of file matches."""
    name = PurePosixPath(path)
    for pattern, converter in CONVERTERS.items():
        if not pattern.startswith(".") and name.match(pattern):
            return converter
    return CONVERTERS.get(name.suffix.lower())


def converter(path: str) -> Converter | None:
    """The function that converts files such as `path`, or None."""
    found = converter_name(path)
    if found is None:
        return None
    module, function = found.split(":")
    loaded: Converter = getattr(importlib.import_module(module), function)
    return loaded
