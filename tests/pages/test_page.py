"""A page is one file, shows everything as text, and sorts and searches in a real browser."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from causeway import atomic
from causeway.pages.page import (
    Badge,
    Bar,
    Bars,
    Block,
    Code,
    Column,
    Diff,
    Figure,
    Figures,
    Link,
    Listing,
    Number,
    Page,
    Part,
    Pre,
    Section,
    Share,
    Table,
    Text,
    Verdict,
)  # fmt: skip

EVIL = "</script></style><script>window.evil = 1</script><img src=x onerror='window.evil = 2'>\"'&"

BEFORE = """import torch

def main():
    x = torch.randn(2, 3, device="cuda")
    model = Net().cuda()
    y = model(x)
    return y.sum()
"""
AFTER = """import torch

def main():
    device = torch.accelerator.current_accelerator()
    x = torch.randn(2, 3, device=device)
    model = Net().to(device)
    y = model(x)
    return y.sum()
"""

OPERATORS = [
    ("aten::addmm.out", "native", 128, 0.412),
    ("aten::mul.out", "derived", 1024, 0.2),
    ("aten::erfinv", "host", 2, 0.301),
    ("aten::gelu", "decomposed", 24, 0.05),
    ("aten::_softmax.out", "native", 9, 0.0002),
    ("aten::convolution", "native", 64, None),
    ("aten::nms", "missing", 1, 0.01),
]


def sample(words: str = "Coverage of train.py") -> Page:
    """Every block there is."""
    rungs = [
        Part("native", 912, "native"),
        Part("derived", 120, "derived"),
        Part("decomposed", 31, "decomposed"),
        Part("host", 4, "host"),
    ]
    rows = [
        [Code(name, href=Listing.href("train.py", 4)), Badge(rung, rung, hint="why"),
         calls, Number(time, "" if time is None else f"{time} ms"),
         Share((time or 0) / 2, tone="host"),
         ["float32", Badge("float64", "bad")]]
        for name, rung, calls, time in OPERATORS
    ]  # fmt: skip
    blocks: list[Block] = [
        Verdict("Runs on the chip, with 2 operators on the host", "warn", "3 % of the time"),
        Figures([
            Figure("97.9 %", "of calls on the chip", "good"),
            Figure("2", "operators missing", "bad", "aten::nms, aten::erfinv"),
            Figure("412", "calls in a step"),
            Figure("1.2 GiB", "moved"),
        ]),
        Bars([Bar("calls", rungs), Bar("time", rungs[::-1]), Bar("nothing", [])]),
        Section("Operators", [
            Table([Column("operator", wide=True), Column("rung", "who serves it"), "calls", "time",
                   Column("share"), "dtypes"], rows, "Operators by rung"),
        ], note="7"),
        Section("Changes", [Diff(BEFORE, AFTER, ("train.py", "train.py on sim"))], foldable=True),
        Section("Sources", [
            Listing("train.py", BEFORE, {4: ("host", "aten::erfinv: host"), 6: ("bad", "float64")}),
        ], foldable=True, open=False),
        Section("More", [
            Text(["See", Link("the docs", "https://a.org/x"), Link("bad", "javascript:evil()")]),
            Pre("  as it is\n    indented"),
            Table(["empty"], []),
        ]),
    ]  # fmt: skip
    return Page(words, blocks, "vendor sim", [("torch", "2.13")], {"a": "</script>"}, "Causeway")


class Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def elements(html: str) -> list[tuple[str, dict[str, str | None]]]:
    parser = Elements()
    parser.feed(html)
    return parser.found


def hostile() -> Page:
    tones: Any = "host"
    return Page(EVIL, [
        Verdict(EVIL, "bad", EVIL),
        Figures([Figure(EVIL, EVIL, "bad", EVIL)]),
        Bars([Bar(EVIL, [Part(EVIL, 1, tones, EVIL)])]),
        Section(EVIL, [
            Table([Column(EVIL, EVIL), *[EVIL] * 5],
                  [[Code(EVIL, EVIL), Link(EVIL, EVIL), Badge(EVIL, tones, hint=EVIL), EVIL,
                    Number(1, EVIL), Share(0.5, EVIL)]] * 6, EVIL),
            Diff(EVIL, EVIL + "x", (EVIL, EVIL)),
            Listing(EVIL, EVIL + "\n" + EVIL, {1: ("bad", EVIL)}),
            Text([EVIL, Link(EVIL, "javascript:window.evil=3")]), Pre(EVIL),
        ], foldable=True, note=EVIL, anchor=EVIL),
    ], EVIL, [(EVIL, EVIL)], data={EVIL: [EVIL]}, footer=EVIL)  # fmt: skip


def test_nothing_that_is_shown_becomes_markup() -> None:
    harmless, harmful = sample().to_html(), hostile().to_html()
    assert {tag for tag, _ in elements(harmful)} <= {tag for tag, _ in elements(harmless)}
    assert sum(tag == "script" for tag, _ in elements(harmful)) == 2
    assert not any("onerror" in attrs for _, attrs in elements(harmful))


def test_a_page_without_escaping_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    from causeway.pages import page

    environment = page._environment.__wrapped__()
    environment.autoescape = False
    monkeypatch.setattr(page, "_environment", lambda: environment)
    assert any("onerror" in attrs for _, attrs in elements(hostile().to_html()))


def test_a_page_loads_nothing() -> None:
    text = sample().to_html()
    assert not re.search(r"url\(|@import", text)
    for tag, attrs in elements(text):
        assert tag not in ("link", "img", "iframe", "object", "embed", "base")
        assert "src" not in attrs


SCRIPTS = ["javascript:a()", " JaVa\tscript:a()", "data:text/html,x", "vbscript:a"]


@pytest.mark.parametrize("target", SCRIPTS)
def test_links_that_could_run_something_are_text(target: str) -> None:
    page = Page("t", [Text(Link("here", target)), Text(Code("there", target))]).to_html()
    assert not [attrs for tag, attrs in elements(page) if tag == "a"]


@pytest.mark.parametrize("target", ["https://a.b/c?d=e&f#g", "#L1-2", "a/b.py", "file:///a/b.py"])
def test_links_to_known_schemes_are_links(target: str) -> None:
    page = Page("t", [Text(Link("here", target))]).to_html()
    assert [attrs["href"] for tag, attrs in elements(page) if tag == "a"] == [target]


def test_a_row_of_another_length_is_an_error() -> None:
    with pytest.raises(ValueError, match="2 cells in a table of 1"):
        Table(["a"], [[1, 2]])


def test_a_diff_pairs_lines_and_marks_what_differs() -> None:
    rows = Diff(BEFORE, AFTER).rows
    assert [row["kind"] for row in rows if row["kind"] != "same"] == ["added", "change", "change"]
    text = "\n".join(
        "".join(t for t, _ in r["right"]["pieces"]) for r in rows if r["kind"] != "gap"
    )
    assert text == AFTER.rstrip("\n")
    marked = [
        t for r in rows if r["kind"] == "change" for t, differs in r["left"]["pieces"] if differs
    ]
    assert "cuda" in "".join(marked)
    assert "import" not in "".join(marked)


def test_a_diff_of_equal_texts_has_no_rows() -> None:
    assert Diff(BEFORE, BEFORE).rows == []


def test_far_lines_of_a_listing_are_left_out() -> None:
    source = "\n".join(str(n) for n in range(1, 101))
    lines = Listing("x", source, {50: ("host", "here"), 52: ("bad", "there")}, context=1).lines
    assert [line["number"] for line in lines] == [0, 49, 50, 51, 52, 53]


def test_a_file_is_written_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "page.html"
    target.write_text("old")

    def replace(*names: object) -> None:
        raise OSError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr("os.replace", replace)
        with pytest.raises(OSError, match="full"):
            atomic.write(target, "new")
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        atomic.write(tmp_path / "no" / "page.html", "new")


# --- in a browser ---------------------------------------------------------------------------------


def column(driver: Any, index: int) -> list[str]:
    return driver.execute_script(
        "return [...document.querySelector('.table table').tBodies[0].rows]"
        ".filter(r => !r.hidden).map(r => r.cells[arguments[0]].textContent.trim())",
        index,
    )


def test_tables_sort_and_search(open_page: Any, tmp_path: Path) -> None:
    target = tmp_path / "page.html"
    sample().write(target)
    driver = open_page(target)
    headers = driver.find_elements("css selector", ".table th button")

    headers[2].click()  # numbers: the largest first
    assert column(driver, 2) == ["1\u2009024", "128", "64", "24", "9", "2", "1"]
    headers[2].click()
    assert column(driver, 2) == ["1", "2", "9", "24", "64", "128", "1\u2009024"]
    headers[3].click()
    assert column(driver, 3)[0] == "0.412 ms"
    assert column(driver, 3)[-1] == ""  # what has no number is last
    headers[3].click()
    assert column(driver, 3)[-1] == ""
    headers[0].click()  # words: the first first
    assert column(driver, 0) == sorted(column(driver, 0), key=str.lower)
    marks = driver.find_elements("css selector", ".table th")[:6]
    states = [mark.get_attribute("aria-sort") for mark in marks]
    assert states == ["ascending", "none", "none", "none", "none", "none"]

    search = driver.find_element("css selector", ".search input")
    driver.find_element("css selector", "body").send_keys("/")
    assert driver.switch_to.active_element == search
    search.send_keys("aten NATIVE")
    assert column(driver, 0) == ["aten::_softmax.out", "aten::addmm.out", "aten::convolution"]
    assert driver.find_element("css selector", ".count").text == "3 of 7 rows"
    headers[2].click()  # sorting holds what was found
    assert column(driver, 2) == ["128", "64", "9"]
    search.send_keys("zzz")
    assert column(driver, 0) == []
    assert driver.find_element("css selector", ".nothing").is_displayed()
    search.send_keys("\ue00c")  # Escape
    assert len(column(driver, 0)) == 7


def test_a_link_opens_the_section_it_leads_into(open_page: Any, tmp_path: Path) -> None:
    target = tmp_path / "page.html"
    sample().write(target)
    driver = open_page(target)
    line = driver.find_element("id", Listing.anchor("train.py", 4))
    assert not line.is_displayed()
    driver.find_element("css selector", ".table td a").click()
    assert line.is_displayed()


def test_dark_and_light(open_page: Any, tmp_path: Path) -> None:
    target = tmp_path / "page.html"
    sample().write(target)
    driver = open_page(target)
    colour = "return getComputedStyle(document.body).backgroundColor"
    before = driver.execute_script(colour)
    driver.find_element("id", "theme").click()
    after = driver.execute_script(colour)
    driver.find_element("id", "theme").click()
    assert before == driver.execute_script(colour) != after


def test_a_hostile_page_runs_nothing(open_page: Any, tmp_path: Path) -> None:
    target = tmp_path / "page.html"
    hostile().write(target)
    driver = open_page(target)
    assert driver.execute_script("return window.evil") is None
    assert driver.title == EVIL
    assert driver.find_element("css selector", "td code").text == EVIL
    data = driver.execute_script("return document.getElementById('data').textContent")
    assert json.loads(data) == {EVIL: [EVIL]}


def test_what_gets_in_all_the_same_does_not_run(browser: Any, tmp_path: Path) -> None:
    target = tmp_path / "page.html"
    html = sample().to_html().replace("</main>", "<script>window.evil = 1</script></main>")
    target.write_text(html)
    browser.get(target.as_uri())
    assert browser.execute_script("return window.evil") is None
