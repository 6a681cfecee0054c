"""Are the Chinese pages in step with the English ones?

python tests/chinese.py             # every pair of pages, then each finding
python tests/chinese.py --blocks    # code blocks are copied from the English pages first

A page of docs/zh/ is the page of that name in docs/, README.zh.md is README.md. A pair has the same
headings, code blocks, items of lists and rows of tables, and in each section the same links,
figures in tables and names in code. A link goes to the Chinese page where there is one.
tests/unit/test_chinese.py keeps it.
"""

from __future__ import annotations

import posixpath
import re
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parents[1]
BLOCKS = "run `python tests/chinese.py --blocks`"
# One word for one thing: what these pages do not say, and what they say.
GLOSSARY = {
    "运算符": "算子",
    "操作符": "算子",
    "算符": "算子",
    "核函数": "内核",
    "核心函数": "内核",
    "后备": "回退",
    "退回": "回退",
    "装置": "设备",
    "串流": "流",
    "派发": "分发",
    "自动求导": "自动微分",
    "混精度": "混合精度",
    "缺省": "默认",
    "供应商": "厂商",
}
_HAN = r"[\u4e00-\u9fff]"
_HALF = re.compile(rf"{_HAN}[,;:?!(]|[,;?!)]{_HAN}|[`\u4e00-\u9fff]\.(?:\s|$)|`[,;:](?:\s|$)")
_ENGLISH = re.compile(r"[A-Za-z]{2,}(?: [A-Za-z]{2,}){4,}")
_FENCE = re.compile(r"^(`{3,}|~{3,})[^\n]*\n.*?^\1[ ]*$", re.DOTALL | re.MULTILINE)


@dataclass
class Section:
    """A heading and what follows it up to the next."""

    level: int
    title: str
    line: int
    blocks: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    links: list[str] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    figures: list[str] = field(default_factory=list)
    prose: list[tuple[int, str]] = field(default_factory=list)

    def __str__(self) -> str:
        return f'"{"#" * self.level} {self.title}"' if self.level else "what precedes the title"


def sections(text: str) -> list[Section]:
    found = [Section(0, "", 1)]
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    line = 1
    for token, after in zip(tokens, [*tokens[1:], None], strict=True):
        line = token.map[0] + 1 if token.map else line
        if token.type == "heading_open" and after:
            found.append(Section(int(token.tag[1]), after.content, line))
        section = found[-1]
        if token.type in ("fence", "code_block"):
            section.blocks.append(f"{token.info}\n{token.content}")
        elif token.type in ("tr_open", "list_item_open"):
            section.counts["rows" if token.type == "tr_open" else "items"] += 1
        elif token.type == "inline":
            _inline(token, section, line)
    return found


def _inline(token: Token, section: Section, line: int) -> None:
    words = []
    for child in token.children or []:
        if child.type == "code_inline":
            section.names.add(child.content)
        elif child.type in ("link_open", "image"):
            target = child.attrs.get("href") or child.attrs.get("src")
            section.links.append(unquote(str(target)))
        words.append(child.content if child.type == "text" else "`" if child.content else " ")
    if re.fullmatch(r"[\d.,%x ]+", token.content):  # a cell of a table
        section.figures.append(token.content)
    section.prose.append((line, "".join(words)))


def english(page: str) -> str:
    """The page that `page` is the Chinese of; any other is itself."""
    if page == "README.zh.md":
        return "README.md"
    return re.sub(r"^docs/zh/", "docs/", page)


def slug(title: str) -> str:
    """The anchor that a heading has on a host of code, and on the site."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


class Pair:
    """A Chinese page and its English one."""

    def __init__(self, page: str, root: Path = ROOT) -> None:
        self.root = root
        self.page = page
        self.source = english(page)

    def target(self, page: str, link: str) -> str:
        """Where a link of `page` leads, as the English pages have it."""
        if re.match(r"[a-z]+:", link):
            return link
        path, _, anchor = link.partition("#")
        place = posixpath.normpath(posixpath.join(posixpath.dirname(page), path)) if path else page
        there = english(place)
        if anchor and there != place and (self.root / place).exists():
            here, original = self.read(place), self.read(there)
            anchors = {
                slug(a.title): slug(b.title)
                for a, b in zip(here, original, strict=False)
                if a.level
            }
            anchor = anchors.get(anchor, f"{anchor} (no heading of {place})")
        return f"{there}#{anchor}" if anchor else there

    def strays(self, link: str) -> bool:
        """Whether a link goes to another page's English one though there is a Chinese one."""
        path = posixpath.normpath(
            posixpath.join(posixpath.dirname(self.page), link.partition("#")[0])
        )
        chinese = {english(p): p for p in pages(self.root)}.get(path)
        return chinese not in (None, self.page)

    def read(self, page: str) -> list[Section]:
        return sections((self.root / page).read_text())

    def check(self) -> list[str]:
        """What is not in step, a line each: page, line, section, what to do."""
        if not (self.root / self.source).exists():
            return [f"{self.page}: there is no {self.source}; remove the page or rename it with it"]
        chinese, original = self.read(self.page), self.read(self.source)
        levels = [s.level for s in chinese], [s.level for s in original]
        findings = [*self._pointers(chinese, original), *self._language(chinese)]
        if levels[0] != levels[1]:
            both = zip([*levels[0], 0], [*levels[1], 0], strict=False)
            at = next(i for i, (a, b) in enumerate(both) if a != b)
            has, wants = (str(s[at]) if at < len(s) else "its end" for s in (chinese, original))
            return [
                *findings,
                f"{self.page}: heading {at} is {has}, on {self.source} it is {wants}; "
                "translate the section that was added, or remove the one that went",
            ]
        for mine, theirs in zip(chinese, original, strict=True):
            place = f"{self.page}:{mine.line}: {mine}, in {self.source} {theirs}"
            findings += [f"{place}: {what}" for what in self._section(mine, theirs)]
        return findings

    def _section(self, mine: Section, theirs: Section) -> list[str]:
        found = []
        if len(mine.blocks) != len(theirs.blocks):
            found.append(
                f"{len(mine.blocks)} code blocks instead of {len(theirs.blocks)}; add or remove"
            )
        for n, (a, b) in enumerate(zip(mine.blocks, theirs.blocks, strict=False), 1):
            if a != b:
                found.append(f"code block {n} is another; {BLOCKS}")
        for what in ("rows", "items"):
            if mine.counts[what] != theirs.counts[what]:
                found.append(
                    f"{mine.counts[what]} {what} instead of {theirs.counts[what]}; "
                    "translate what is new"
                )
        if mine.figures != theirs.figures:
            wants = ", ".join(theirs.figures)
            found.append(f"the figures are {', '.join(mine.figures)} instead of {wants}")
        found += [
            f"a link to {link}, which has a Chinese page"
            for link in mine.links
            if self.strays(link)
        ]
        has = Counter(self.target(self.page, link) for link in mine.links)
        wants = Counter(self.target(self.source, link) for link in theirs.links)
        found += [f"no link to {link}; add it" for link in wants - has]
        found += [f"a link to {link} too many; remove it" for link in has - wants]
        found += [
            f"`{name}` is missing; translate what is new"
            for name in sorted(theirs.names - mine.names)
        ]
        found += [
            f"`{name}` is not in the English; remove it"
            for name in sorted(mine.names - theirs.names)
        ]
        return found

    def _pointers(self, chinese: list[Section], original: list[Section]) -> list[str]:
        """Under its title each page leads to the other."""
        found = []
        ways = (
            (self.page, self.source, chinese, "English"),
            (self.source, self.page, original, "中文"),
        )
        for here, there, page, label in ways:
            link = posixpath.relpath(there, posixpath.dirname(here) or ".")
            if not any(link in section.links for section in page[:2]):
                found.append(f"{here}: no link to {there} under its title; add [{label}]({link})")
        return found

    def _language(self, chinese: list[Section]) -> list[str]:
        found = []
        for line, text in (item for section in chinese for item in section.prose):
            place = f"{self.page}:{line}"
            for word, better in GLOSSARY.items():
                if word in text:
                    found.append(f'{place}: "{word}", say: {better}')
            if hit := _HALF.search(text):
                found.append(f'{place}: "{hit[0]}", write the full-width mark')
            if hit := _ENGLISH.search(text):
                found.append(f'{place}: "{hit[0]}" is not translated')
        return found

    def copy_blocks(self) -> bool:
        """Give the Chinese page the code blocks of the English one, in order."""
        text = (self.root / self.page).read_text()
        blocks = [m[0] for m in _FENCE.finditer((self.root / self.source).read_text())]
        if len(blocks) != len(_FENCE.findall(text)):
            return False
        (self.root / self.page).write_text(_FENCE.sub(lambda _: blocks.pop(0), text))
        return True


def pages(root: Path = ROOT) -> list[str]:
    found = [root / "README.zh.md", *sorted((root / "docs/zh").rglob("*.md"))]
    return [path.relative_to(root).as_posix() for path in found]


def main() -> int:
    findings = []
    for page in pages():
        pair = Pair(page)
        if "--blocks" in sys.argv[1:] and not pair.copy_blocks():
            findings.append(
                f"{page}: not as many code blocks as {pair.source}; add or remove first"
            )
        here = pair.check()
        print(f"{page:30} {pair.source:30} {len(here)} findings")
        findings += here
    print("\n".join(findings))
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
