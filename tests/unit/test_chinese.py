"""The Chinese pages are in step with the English ones, and the check that says so finds what is
planted.
"""

# ruff: noqa: RUF001 Chinese has full-width marks

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1]))

import chinese

ENGLISH = """# Start

[中文](zh/start.md)

See [faq](faq.md#a-chip), or `import torch`.

```sh
make demo
```

## A chip

- one
- [two](https://x.y)

| a | b |
| --- | --- |
| 1 | 2 |

```python
x = 1
```
"""
CHINESE = """# 开始

[English](../start.md)

见[常见问题](../faq.md#a-chip)，或 `import torch`。

```sh
make demo
```

## 芯片

- 一
- [二](https://x.y)

| 甲 | 乙 |
| --- | --- |
| 1 | 2 |

```python
x = 1
```
"""
# What is changed on the Chinese page, to what, and what is said of it.
FAULTS = [
    ("## 芯片\n", "", "heading 2 is its end"),
    ("## 芯片\n", "### 芯片\n", '"### 芯片", on docs/start.md it is "## A chip"'),
    ("## 芯片\n", "## 芯片\n\n## 又一节\n", 'heading 3 is "## 又一节"'),
    ("x = 1", "x = 2", '"## 芯片", in docs/start.md "## A chip": code block 1 is another'),
    ("x = 1\n", "x = 1 \n", "code block 1 is another"),
    ("```sh", "```bash", '"# Start": code block 1 is another'),
    ("```sh\nmake demo\n```\n", "", "0 code blocks instead of 1"),
    ("| 1 | 2 |\n", "", "1 rows instead of 2"),
    ("| 1 | 2 |", "| 1 | 3 |", "the figures are 1, 3 instead of 1, 2"),
    ("- 一\n", "", "1 items instead of 2"),
    ("https://x.y", "https://x.z", "no link to https://x.y; add it"),
    ("https://x.y", "https://x.z", "a link to https://x.z too many"),
    ("faq.md#a-chip", "faq.md", "no link to docs/faq.md#a-chip"),
    ("../faq.md#a-chip", "faq.md#another", "docs/faq.md#another"),
    ("`import torch`", "导入", "`import torch` is missing"),
    ("`import torch`", "`import torch`、`x`", "`x` is not in the English"),
    ("[English](../start.md)", "", "docs/zh/start.md: no link to docs/start.md under its title"),
    ("- 一", "- 运算符", '"运算符", say: 算子'),
    ("，", ",", "write the full-width mark"),
    ("。", ".", "write the full-width mark"),
    ("- 一", "- this is what was not translated", "is not translated"),
]


@pytest.fixture
def pair(tmp_path: Path) -> chinese.Pair:
    (tmp_path / "docs" / "zh").mkdir(parents=True)
    for path, text in (
        ("start.md", ENGLISH),
        ("zh/start.md", CHINESE),
        ("faq.md", "# F\n\n## A chip\n"),
    ):
        (tmp_path / "docs" / path).write_text(text)
    return chinese.Pair("docs/zh/start.md", tmp_path)


@pytest.mark.parametrize("page", chinese.pages())
def test_a_chinese_page_is_in_step_with_its_english_one(page: str) -> None:
    findings = chinese.Pair(page).check()
    assert not findings, "\n".join(findings)


def test_pages_in_step_pass(pair: chinese.Pair) -> None:
    assert pair.check() == []


@pytest.mark.parametrize(("right", "wrong", "said"), FAULTS)
def test_a_planted_fault_is_found(pair: chinese.Pair, right: str, wrong: str, said: str) -> None:
    assert right in CHINESE
    (pair.root / pair.page).write_text(CHINESE.replace(right, wrong, 1))
    findings = pair.check()
    assert any(said in finding for finding in findings), findings
    assert all(finding.startswith(pair.page) for finding in findings)


def test_a_link_goes_to_the_chinese_page_and_its_heading(pair: chinese.Pair) -> None:
    (pair.root / "docs" / "zh" / "faq.md").write_text("# 问\n\n## 一款 `X` 芯片？\n")
    assert any("a link to ../faq.md#a-chip, which has a Chinese page" in f for f in pair.check())
    there = "faq.md#一款-x-芯片"
    (pair.root / pair.page).write_text(CHINESE.replace("../faq.md#a-chip", there))
    assert pair.check() == []


def test_an_english_page_without_its_link_is_found(pair: chinese.Pair) -> None:
    (pair.root / pair.source).write_text(ENGLISH.replace("[中文](zh/start.md)\n", ""))
    assert (
        "docs/start.md: no link to docs/zh/start.md under its title; add [中文](zh/start.md)"
        in pair.check()
    )


def test_a_page_whose_english_one_went_is_found(pair: chinese.Pair) -> None:
    (pair.root / pair.source).unlink()
    (finding,) = pair.check()
    assert "there is no docs/start.md" in finding


def test_blocks_are_copied_from_the_english_page(pair: chinese.Pair) -> None:
    page = pair.root / pair.page
    page.write_text(CHINESE.replace("x = 1", "x = 2").replace("make demo", r"a\1"))
    assert pair.copy_blocks()
    assert page.read_text() == CHINESE
    page.write_text(CHINESE.replace("```sh\nmake demo\n```\n", ""))
    assert not pair.copy_blocks()
