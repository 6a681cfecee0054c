"""What the pages on files and reports say is what happens."""

from __future__ import annotations

import re
from pathlib import Path

from causeway.migrate import finding
from causeway.migrate.finding import FileInput, Result
from causeway.migrate.reports import figures, machine, tables
from causeway.migrate.settings import Settings

DOCS = Path(__file__).parents[2] / "docs"


def test_the_scripts_of_the_page_on_files_are_converted_as_it_says() -> None:
    blocks = re.findall(r"```sh\n(.*?)```", (DOCS / "migrate_files.md").read_text(), re.DOTALL)
    before, portable, npu, theirs, ours = blocks
    convert = finding.converter("a.sh")
    assert convert is not None
    cases = (("portable", before, portable), ("npu", before, npu), ("portable", theirs, ours))
    for target, text, after in cases:
        result = convert(FileInput("a.sh", text.encode()), Settings(target=target))
        assert result.after == after


def test_the_page_on_reports_names_all_members_and_columns() -> None:
    page = (DOCS / "migrate_reports.md").read_text()
    convert = finding.converter("a.sh")
    assert convert is not None
    file = convert(FileInput("a.sh", b"nvidia-smi\n"), Settings())
    data = machine.to_dict(Result(".", [file], Settings()))
    members = [*data, *data["settings"], *data["totals"], *data["files"][0]]
    members += [*data["files"][0]["findings"][0], *next(iter(data["rules"].values()))]
    members += [*figures.WORDS, *finding.KINDS]
    for member in members:
        assert f"`{member}`" in page, member
    for name, (columns, _) in tables._TABLES.items():
        row = next(line for line in page.splitlines() if f"`{name}`" in line)
        assert ", ".join(columns) in row or "the same" in row
