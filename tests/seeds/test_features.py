"""Each feature that the documents name is as docs/seeds.md says: what works does, and its tests and
pages exist.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))

import features

pytestmark = [pytest.mark.process, pytest.mark.once, pytest.mark.slow, pytest.mark.timeout(900)]
ROWS = features.features()


@pytest.fixture(scope="module")
def failed() -> dict[str, str]:
    """What failed of all that is run, at once: processes are shared."""
    return features.run([row for row in ROWS if not row.test])


@pytest.mark.long  # `make docs` runs the same, and writes the page
def test_what_a_document_names_works_as_the_page_says(failed):
    assert not failed, "\n\n".join(f"{name}\n{reason}" for name, reason in failed.items())


def test_the_page_has_the_table_of_what_was_found():
    # Failures have a test of their own, above.
    text = features.PAGE.read_text(encoding="utf-8")
    assert features.BLOCK.search(text)
    assert text == features.page({}), "run `python tests/seeds/features.py`"


def test_a_test_that_is_named_exists():
    wrong = {row.key: features.missing_test(row.test) for row in ROWS if row.test}
    assert {name: reason for name, reason in wrong.items() if reason} == {}


def test_no_feature_is_there_twice():
    names = [row.key for row in ROWS]
    assert len(names) == len(set(names))


def anchors(page: Path) -> set[str]:
    """The headings of a page, as GitHub makes links of them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    found = re.findall(r"^#+ (.*)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}


def test_each_link_leads_to_a_heading():
    wrong = []
    for row in ROWS:
        name, _, anchor = row.docs.partition("#")
        page = features.PAGE.parent / name
        if not page.is_file() or (anchor and anchor not in anchors(page)):
            wrong.append(f"{row.key}: {row.docs}")
    assert wrong == []


def test_a_wrong_check_is_found(tmp_path):
    # Each kind, and a process that ends: what comes after it fails too.
    def row(name: str, **entry: str) -> features.Feature:
        return features.Feature("planted", name, "README.md", **entry)

    rows = [
        row("right", check="assert torch.ones(2, device=device).sum().item() == 2"),
        row("wrong", check="assert torch.ones(2, device=device).sum().item() == 3"),
        row("ends", check="os._exit(3)"),
        row("late", check="pass"),
        row("program", program="raise SystemExit(4)"),
        row("command", command="echo one", prints="two"),
        row("test", test="tests/seeds/test_features.py::test_that_is_not_there"),
    ]
    found = features.run(rows)
    assert found.keys() == {row.key for row in rows} - {"planted: right"}
    assert "AssertionError" in found["planted: wrong"]
    assert "exit status 4" in found["planted: program"]
    assert "**fails**" in features.shown(rows[1], found)
    assert features.shown(rows[0], found) == "works"
