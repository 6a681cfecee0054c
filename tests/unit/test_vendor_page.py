"""docs/vendor.md counts the vendors' lines as they are in the tree."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/vendor.md").read_text()
VENDORS = ("opencl", "cuda")

pytestmark = pytest.mark.once


def lines(vendor: str, stems: set[str]) -> tuple[int, set[Path]]:
    """The lines of a vendor's files with these names, and the files."""
    files = {f for f in (ROOT / "vendors" / vendor / "src").iterdir() if f.stem in stems}
    return sum(len(f.read_text().splitlines()) for f in files), files


def test_the_lines_of_each_level_are_those_of_the_tree() -> None:
    rows = re.findall(r"^\| (.+?) \| ((?:`\w+`(?:, )?)+) \| (\d+) \| (\d+) \|$", PAGE, re.MULTILINE)
    assert len(rows) >= 6
    told = [(part, int(a), int(b)) for part, _, a, b in rows]
    stems = [set(re.findall(r"`(\w+)`", names)) for _, names, _, _ in rows]
    true = [
        (part, *(lines(vendor, names)[0] for vendor in VENDORS))
        for (part, _, _), names in zip(told, stems, strict=True)
    ]
    assert told == true
    for vendor in VENDORS:  # each file counts once
        counted = [f for names in stems for f in lines(vendor, names)[1]]
        assert sorted(counted) == sorted((ROOT / "vendors" / vendor / "src").iterdir())
    sums = re.search(r"^\| all \| \| (\d+) \| (\d+) \|$", PAGE, re.MULTILINE)
    assert sums is not None
    assert [int(n) for n in sums.groups()] == [sum(row[1 + k] for row in true) for k in (0, 1)]


def test_every_command_of_the_page_is_one() -> None:
    from causeway.cli import app

    known = {c.name or c.callback.__name__ for c in app.registered_commands if c.callback}
    used = set(re.findall(r"^causeway (\w+)", PAGE, re.MULTILINE))
    assert {"doctor", "conformance", "profile"} <= used
    assert used <= known
