"""What a conversion did, for each reader: a terminal, a page, an editor, a spreadsheet, a program.

`write` puts all of them into a folder; `figures` are the numbers that all of them show, so that
none says other ones. Every file is written all at once, and shows what it quotes as text.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from causeway.migrate.finding import Result
    from causeway.pages.page import Section

JSON, HTML, SARIF = "migrate.json", "migrate.html", "migrate.sarif"


def write(result: Result, folder: str | Path, more: Sequence[Section] = ()) -> list[Path]:
    """Write every report into `folder`, which is made where it is missing; gives their paths.

    `more` are sections that the page has first: what verification found. Raises OSError where a
    file cannot be written; those before it are whole.
    """
    from causeway.migrate.reports import machine, page, tables

    root = Path(folder)
    root.mkdir(parents=True, exist_ok=True)
    machine.write_json(result, root / JSON)
    machine.write_sarif(result, root / SARIF)
    page.write(result, root / HTML, more)
    return [root / JSON, root / SARIF, root / HTML, *tables.write(result, root)]


def show(result: Result, console: Console) -> None:
    """Print the tables of a conversion for people."""
    from causeway.migrate.reports import terminal

    terminal.show(result, console)
