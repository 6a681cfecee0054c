"""The English of every page is plain, and the check that says so finds what is planted."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1]))

import prose

# Each pattern of `prose.BANNED` finds its sentence.
MISUSED = [
    "The error is told by the next wait.",
    "What was asked, what came.",
    "Set the variable beside it.",
    "Beside another device the CPU build is right.",
    "Copies run beside the device's work.",
    "Pages are read by turns.",
    "Pages are read in turns.",
    "It fails with its words.",
    "It gives the words of its errors.",
    "A class that is none is refused.",
    "The bug is mended.",
    "Kernels are chosen anew.",
    "Some are derived: gather, for one.",
    "A file appears whole or not at all.",
    "The best of parts are gone over again.",
    "A message put together of parts.",
    "It asks for the group at hand.",
    "What differs no more is left out.",
    "It loads as ever.",
    "The kernel serves whatever a compiler builds.",
    "The choice goes by names.",
    "Make one and hand it over.",
    "The addresses of the dead are kept.",
    "It stands upon torch.",
]
RIGHT = [
    "The two cannot be told apart.",
    "The result came back in float64.",
    "A file beside the library says which.",
    "Both ranks agreed upon an order.",
    "The core is built for one release.",
    "Sentences have words of all kinds.",
    "Time goes by.",
    "Help is at hand.",
    "The dead code is removed.",
    "An index of 64 bits, that is none too large. The kernel takes turns with the host.",
]


@pytest.mark.parametrize("path", prose.pages(), ids=lambda path: str(path.relative_to(prose.ROOT)))
def test_a_page_is_plain(path: Path) -> None:
    findings = prose.check(str(path.relative_to(prose.ROOT)), path.read_text())
    assert not findings, "\n".join(map(str, findings))


@pytest.mark.parametrize("text", MISUSED)
def test_an_idiom_of_our_own_is_found(text: str) -> None:
    assert prose.check("page", text), text


def test_each_pattern_is_tried() -> None:
    found = {finding.what for text in MISUSED for finding in prose.check("page", text)}
    untried = [
        better for better in prose.BANNED.values() if not any(better in what for what in found)
    ]
    assert not untried


@pytest.mark.parametrize("text", RIGHT)
def test_the_same_word_in_its_right_use_passes(text: str) -> None:
    assert not prose.check("page", text)


def test_a_long_sentence_is_found_with_its_line() -> None:
    sentence = " ".join(["word"] * (prose.LONGEST + 1)) + "."
    (finding, *_) = [
        f for f in prose.check("page", f"# A\n\nShort.\n\n{sentence}\n") if f.line == 5
    ]
    assert f"{prose.LONGEST + 1} words" in finding.what
    assert "41 words" in str(prose.check("page", f"| a |\n| --- |\n| {sentence} |\n")[0])


def test_a_page_of_middling_sentences_is_found() -> None:
    page = (" ".join(["Word", *["word"] * (int(prose.MEAN) + 4)]) + ". ") * 3
    (finding,) = prose.check("page", page)
    assert "25.0 words a sentence" in finding.what


def test_code_and_generated_tables_are_no_prose() -> None:
    block = "```text\nanew anew, told by turns\n```\n"
    generated = "<!-- from results.json -->\nanew\n<!-- end -->\n"
    cell = "| a |\n| --- |\n| " + ", ".join(f"x `n{i}`" for i in range(30)) + " |\n"
    assert not prose.check("page", block + generated + "\n" + cell)


def test_a_sentence_ends_before_a_name_in_small_letters() -> None:
    assert len(prose.sentences("It ends. torch goes on. softmax.md too, e.g. A here.")) == 3
