"""Is the English of the docs plain? Sentence lengths per page, and words of our own for common things.

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

# What a stranger to this project stumbles over, and the field's word for it.
BANNED = {
    r"\btold\b": "reported, sent",
    r"\bcame\b": "was returned, arrived",
    r"\bbeside\b": "next to, and also",
    r"\bby turns\b": "interleaved",
    r"\bin turns\b": "alternately",
    r"\b(?:with|no|have|has|had|its|own|the|in|of|vendor's|compiler's|error's) words\b(?! (?:a|per|that|for) )": (
        "error message"
    ),
    r"\bwords (?:of|for|hold|of) (?:errors?|a person|people)\b": "error message",
    r"\bthat (?:is|are) none\b": "invalid",
    r"\bmend(?:s|ed|ing)?\b": "fix",
    r"\banew\b": "again",
    r"\bsomebody\b": "someone",
    r"\bfor one\b": "for example",
    r"\bwhole or not at all\b": "atomically",
    r"\bgone (?:over|through) again\b": "merged, repeated",
    r"\bput (?:out|together) of\b": "built from",
    r"\bat hand\b": "available",
    r"\bwhat differs no more\b": "within that noise",
    r"\bas ever\b": "as before",
    r"\bserves? (?:on|whatever)\b": "handles",
    r"\bgoes by\b": "depends on",
    r"\bhand(?:s|ed)? it over\b": "pass it",
    r"\bthe dead\b": "processes that ended",
    r"\bupon\b": "on",
}
_BANNED = [(re.compile(pattern, re.IGNORECASE), better) for pattern, better in BANNED.items()]
# The end of a sentence: its mark, perhaps a bracket, then a space and a capital or nothing.
_END = re.compile(r"(?<=[.!?])[\"')\]]*\s+(?=[\"'(\[]?[A-Z`0-9])|(?<=[.!?:])\s*$|\n\n")
_WORD = re.compile(r"[\w`][\w'’`./:=*&<>-]*")
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
        return len(_WORD.findall(self.text))


def _plain(inline: Token) -> str:
    """The text that a reader sees; a piece of code is one word."""
    parts = []
    for child in inline.children or []:
        if child.type == "text":
            parts.append(child.content)
        elif child.type == "code_inline":
            parts.append("`code`")
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
        found.append(
            Finding(name, 1, f"{mean(page):.1f} words a sentence", f"at most {MEAN:.0f}")
        )
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
    found += sorted((ROOT / "docs").rglob("*.md"))
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
