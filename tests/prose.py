"""Is the English of the docs plain? Lengths of sentences, and idioms that are not the field's.

python tests/prose.py                # every page: sentences, mean and longest; then each finding
python tests/prose.py docs/tune.md   # some pages

A finding is a sentence above `LONGEST` words, a page above `MEAN` words a sentence, or a pattern of
`BANNED`. Code, links' targets and generated tables are not prose. Markdown is read by markdown-it,
so what counts as a paragraph, an item or a cell is what a reader sees. tests/unit/test_prose.py
keeps it.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parents[1]
MEAN = 20.0  # words a sentence over a page
LONGEST = 40  # words in one sentence
CODE = "`code`"  # stands for any piece of code

# What a stranger to this project stumbles over, and the field's word for it.
BANNED = {
    r"\btold\b(?! (?:apart|from|to)\b)": "reported, sent",
    r"\b(?:what|as they|as it) came\b(?! (?:back|before|from|in|out|to|with)\b)": "was returned",
    # A file may lie beside another; a number is not beside one.
    r"(?:^|[.:;] )beside\b|\bbeside (?:it|its|that|them|this)\b|\brun beside\b": "next to, with",
    r"\b(?:by|in) turns\b": "interleaved, alternately",
    r"\b(?:in|with|no|have|has|had|its|own|the|of|\w+'s) words\b(?! (?:a|per|for|of) )": (
        "error message"
    ),
    r"\bwords (?:of|for|hold) (?:its |the |an )?(?:errors?|person|people)\b": "error message",
    r"\bthat (?:is|are) none\b(?= (?:is|are|and|or)\b|[,.])": "invalid",
    r"\bmend(?:s|ed|ing)?\b": "fix",
    r"\banew\b": "again",
    r", for one\b(?=[,.;:)]|$)": "for example",
    r"\bwhole or not at all\b": "atomically",
    r"\bgone (?:over|through) again\b": "merged, repeated",
    r"\bput together of\b": "built from",
    r"\bthe [\w-]+ at hand\b": "this",
    r"\bwhat differs no more\b": "within that noise",
    r"\bas ever\b": "as before",
    r"\bserves? (?:on|whatever)\b": "handles",
    r"\bgoes by\b(?<!time goes by)": "depends on",
    r"\bhand(?:s|ed)? it over\b": "pass it",
    r"\bof the dead\b": "processes that ended",
    r"(?<!agreed )(?<!based )(?<!depend )(?<!depends )(?<!once )\bupon\b": "on",
}
_BANNED = [(re.compile(pattern, re.IGNORECASE), better) for pattern, better in BANNED.items()]
# The end of a sentence: its mark, perhaps a bracket, then a space and a capital or nothing.
_END = re.compile(
    r"(?<=[.!?])[\"')\]]*\s+(?=[\"'(\[]?(?:[A-Z`0-9]|torch|gloo|[a-z_]+\.(?:md|cpp|py)\b))|(?<=[.!?:])\s*$|\n\n"
)
_WORD = re.compile(r"[\w`][\w'`./:=*&<>-]*")
_SHORT = re.compile(r"\b(?:e\.g|i\.e|etc|vs|no|fig)\.$", re.IGNORECASE)


@dataclass(frozen=True)
class Finding:
    page: str
    line: int
    what: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.what}: {self.text}"


@dataclass(frozen=True)
class Sentence:
    line: int
    text: str
    prose: bool  # of a paragraph or an item; a cell of a table or a heading is short by nature

    @property
    def words(self) -> int:
        # A cell may list names of code, a signature say: they are no words of a sentence.
        text = self.text if self.prose else self.text.replace(CODE, "")
        return len(_WORD.findall(text))


def _plain(inline: Token) -> str:
    """The text that a reader sees; a piece of code is one word."""
    parts = []
    for child in inline.children or []:
        if child.type == "text":
            parts.append(child.content)
        elif child.type == "code_inline":
            parts.append(CODE)
        elif child.type in ("softbreak", "hardbreak"):
            parts.append(" ")
    return "".join(parts)


def sentences(text: str) -> list[Sentence]:
    """All sentences of a page, with the line of the block that they begin in."""
    found: list[Sentence] = []
    # Comments are for whoever edits; a generated table is what code says.
    text = re.sub(
        r"<!-- from .*?<!-- end -->",
        lambda block: "\n" * block[0].count("\n"),
        text,
        flags=re.DOTALL,
    )
    inside: list[str] = []
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        if token.nesting == 1:
            inside.append(token.type)
        elif token.nesting == -1:
            inside.pop()
        if token.type != "inline":
            continue
        prose = not ({"heading_open", "th_open", "td_open"} & set(inside))
        line = token.map[0] + 1 if token.map else 0
        start = 0
        content = _plain(token)
        ends = [m.start() for m in _END.finditer(content)] + [len(content)]
        for end in ends:
            piece = content[start:end].strip()
            if _SHORT.search(piece) and end < len(content):
                continue
            if piece:
                found.append(Sentence(line, piece, prose))
            start = end
    return found


def mean(page: list[Sentence]) -> float:
    """Words a sentence, of paragraphs and items."""
    lengths = [sentence.words for sentence in page if sentence.prose]
    return sum(lengths) / len(lengths) if lengths else 0.0


def check(name: str, text: str) -> list[Finding]:
    """What is not plain on a page."""
    page = sentences(text)
    found = []
    if mean(page) > MEAN:
        found.append(Finding(name, 1, f"{mean(page):.1f} words a sentence", f"at most {MEAN:.0f}"))
    for sentence in page:
        if sentence.words > LONGEST:
            found.append(
                Finding(name, sentence.line, f"{sentence.words} words in a sentence", sentence.text)
            )
        for pattern, better in _BANNED:
            if hit := pattern.search(sentence.text):
                found.append(
                    Finding(name, sentence.line, f'"{hit[0]}", say: {better}', sentence.text)
                )
    return found


def pages() -> list[Path]:
    """Everything written for people."""
    tops = ("README", "CONTRIBUTING", "AGENTS", "SECURITY", "RELEASING")
    found = [ROOT / f"{name}.md" for name in tops]
    chinese = ROOT / "docs/zh"  # read by tests/chinese.py
    found += sorted(p for p in (ROOT / "docs").rglob("*.md") if chinese not in p.parents)
    return found + sorted((ROOT / "vendors").glob("*/README.md"))


def main() -> int:
    given = [Path(name).resolve() for name in sys.argv[1:]] or pages()
    findings = []
    for path in given:
        name = str(path.relative_to(ROOT))
        page = sentences(path.read_text())
        longest = max((sentence.words for sentence in page), default=0)
        print(f"{name:40} {len(page):5} sentences, mean {mean(page):4.1f}, longest {longest:3}")
        findings += check(name, path.read_text())
    for finding in findings:
        print(finding)
    print(f"{len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
