"""The docs site: all pages are gathered, the reference leaves no name out, checks find what is
planted.

`make site` runs Sphinx over what is gathered here. These tests need neither Sphinx nor a network.
"""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

import causeway

ROOT = Path(__file__).parents[2]
SITE = ROOT / "docs/site"


def load(name: str, folder: Path = SITE) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


reference = load("reference")
stage = load("stage")
links = load("links")
draw = load("draw", ROOT / "docs/pictures")


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    stage.Stage(folder).build()
    return folder


def test_every_page_is_listed_in_the_index(staged: Path) -> None:
    index = (staged / "index.md").read_text()
    trees = re.findall(r"^```\{toctree\}\n(.*?)^```", index, re.DOTALL | re.MULTILINE)
    listed = {line for tree in trees for line in tree.split("\n") if line and line[0] != ":"}
    pages = {page.removesuffix(".md") for page in stage.pages()} - {"docs/README"}
    rules = {
        page for page in pages if page.startswith("docs/rules/CW")
    }  # listed by docs/rules/README.md
    assert pages - rules - listed == set()
    assert set(reference.PAGES) <= listed


def test_links_lead_to_pages_of_the_site(staged: Path) -> None:
    page = (staged / "docs/vendor.md").read_text()
    assert "](../reference/abi.md)" in page
    page = (staged / "docs/architecture.md").read_text()
    assert "](../code/src/causeway/workarounds.py.md)" in page
    assert "workarounds" in (staged / "code/src/causeway/workarounds.py.md").read_text()
    assert (staged / "docs/pictures/layers.svg").exists()


def test_a_page_that_went_is_taken_away(staged: Path) -> None:
    gone = staged / "docs" / "gone.md"
    gone.write_text("# Gone\n")
    stage.Stage(staged).build()
    assert not gone.exists()


def test_a_link_to_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    site = stage.Stage(tmp_path)
    with pytest.raises(SystemExit, match=r"docs/start\.md: a link to nowhere\.md"):
        site.linked("docs/start.md", "See [this](nowhere.md).")
    assert (
        site.linked("docs/start.md", "`a` [b](https://x.y) [c](#d)")
        == "`a` [b](https://x.y) [c](#d)"
    )
    fenced = "```cpp\n[this](int x) {}\n```"
    assert site.linked("docs/start.md", fenced) == fenced


def test_the_reference_has_every_public_name(staged: Path) -> None:
    page = (staged / "reference/python.md").read_text()
    named = set(re.findall(r"^:+\{py:\w+\} (\w+)", page, re.MULTILINE))
    sections = set(re.findall(r"^## causeway\.(\w+)", page, re.MULTILINE))
    assert set(causeway.__all__) - named - sections == {"__version__", "apex"}
    assert "Open a ledger" in page
    assert "::: {py" not in page


def test_a_public_name_without_a_section_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    public = reference.public
    monkeypatch.setattr(
        reference, "public", lambda m: [*public(m), "nonsense"] if m == "causeway" else public(m)
    )
    with pytest.raises(LookupError, match="nonsense"):
        reference.python()


def test_the_reference_has_every_entry_of_the_contract(staged: Path) -> None:
    page = (staged / "reference/abi.md").read_text()
    header = (ROOT / "include/causeway/abi.h").read_text()
    entries = set(re.findall(r"\(\*(\w+)\)\(", header)) - {"cw_kernel", "cw_open_fn", "function"}
    entries.add("function")  # of code.v1; the one in stream_callback is an argument
    shown = set(re.findall(r"\{c:member\} .*?\(\*(\w+)\)\(", page))
    assert entries == shown
    macros = set(re.findall(r"^#define (CW_\w+)", header, re.MULTILINE)) - {"CW_EXPORT"}
    assert macros == set(re.findall(r"^\| `(CW_\w+)` \|", page, re.MULTILINE))
    # A comment stays with its entry.
    assert re.search(r"\(\*mem_free\).*\n\n+the core has synchronised what used it", page)


def test_a_header_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    broken = tmp_path / "broken.h"
    broken.write_text("typedef struct a { int b; ")
    with pytest.raises(ValueError, match="without an end"):
        reference.header("Broken", broken)


def test_a_dead_link_of_a_built_page_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<p id="here"><a href="b.html#there">x</a> <a href="#here">y</a> <a href="https://x.y">z</a>'
    )
    (tmp_path / "b.html").write_text('<p id="there"><a href="a.html">x</a>')
    assert links.check(tmp_path) == (3, [])
    (tmp_path / "b.html").write_text('<a href="gone.html">x</a><img src="gone.svg">')
    count, wrong = links.check(tmp_path)
    assert count == 4
    assert [line.split(": ", 1)[1] for line in wrong] == [
        "b.html#there: no such place on that page",
        "gone.html: no such file",
        "gone.svg: no such file",
    ]
    assert links.main(str(tmp_path)) == 1


@pytest.mark.parametrize("name", draw.PICTURES)
def test_a_picture_is_what_the_script_draws(name: str) -> None:
    text = (ROOT / f"docs/pictures/{name}.svg").read_text()
    assert text == draw.PICTURES[name]().svg(), "run `python docs/pictures/draw.py`"


def test_a_text_that_a_box_has_no_room_for_is_an_error() -> None:
    picture = draw.Picture("Planted", "", 100, 100)
    with pytest.raises(ValueError, match="no room for 'much too long"):
        picture.box(0, 0, 80, 40, "#fff", "much too long for this")


def test_the_docstrings_are_read_without_importing() -> None:
    module, node = reference.find("causeway", "ledger")
    assert module == "causeway.ops.ledger"
    assert isinstance(node, ast.FunctionDef)
