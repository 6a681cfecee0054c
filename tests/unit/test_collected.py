"""`make test` finds every test there is.

pytest passes by folders of some names; by itself also "dist" and "build".
"""

from __future__ import annotations

import fnmatch
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
FOLDERS = sorted({str(path.parent.relative_to(TESTS)) for path in TESTS.rglob("*/test_*.py")})


def test_no_folder_of_tests_is_passed_by(request: pytest.FixtureRequest) -> None:
    patterns = request.config.getini("norecursedirs")
    passed_by = [
        folder
        for folder in FOLDERS
        if any(fnmatch.fnmatch(part, pattern) for part in folder.split("/") for pattern in patterns)
    ]
    assert "dist" in FOLDERS
    assert passed_by == []


def test_each_folder_of_tests_is_in_their_readme() -> None:
    rows = re.findall(r"^\| ([^|]*) \|", (TESTS / "README.md").read_text(), re.M)
    named = {name.strip().rstrip("/") for row in rows for name in row.split(",")}
    assert {folder.split("/")[0] for folder in FOLDERS} - named == set()
