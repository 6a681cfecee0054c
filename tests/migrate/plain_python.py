"""A converter of Python that does one thing, so that what is around it can be tested by itself."""

from __future__ import annotations

import re

from causeway.migrate.finding import FileInput, FileResult, Finding
from causeway.migrate.settings import Settings

OLD, NEW = "torch.cuda.synchronize", "torch.accelerator.synchronize"


def convert(file: FileInput, settings: Settings) -> FileResult:
    """Rename one function; where that was needed, put an import at the top."""
    text = file.data.decode()
    after = text.replace(OLD, NEW)
    findings = []
    for found in re.finditer(re.escape(OLD), text):
        line = text.count("\n", 0, found.start()) + 1
        column = found.start() - text.rfind("\n", 0, found.start())
        findings.append(
            Finding(file.path, line, column, line, column + len(OLD), "CW101", "changed", "renamed",
                    "nothing to do", "info", True, OLD, NEW, OLD)
        )  # fmt: skip
    if findings and "import added" not in text and "# wants an import" in text:
        after = f"import added\n{after}"
    status = "converted" if after != text else "unchanged"
    return FileResult(file.path, status, "", text, after, findings=findings)


def lose_marks(file: FileInput, settings: Settings) -> FileResult:
    """A converter that drops lines, as none should."""
    text = file.data.decode()
    after = "\n".join(line for line in text.split("\n") if "__causeway" not in line)
    return FileResult(file.path, "converted", "", text, after)
