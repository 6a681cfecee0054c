"""A file of known differences is checked when it is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from causeway.conformance.known import read
from causeway.errors import ConfigError

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[known]]\nop = 'aten::add.out'\nwhy = 'so'", "needs op, variation and why"),
        (
            "[[known]]\nop = 'aten::add.out'\nvariation = 'large'\nwhy = 'so'\ndtype = 'x'",
            "no other key",
        ),
        ("[[known]]\nop = 'aten::add.out'\nvariation = 'large'\nwhy = ' '", "not empty"),
        ("[[known]]\nop = 'aten::ad'\nvariation = 'large'\nwhy = 'so'", "is no operator"),
        ("known = 3", "expected tables"),
        ("[[known]]\n[other]", "expected tables"),
        ("[[known", "TOML|Expected"),
    ],
)
def test_a_mistake_in_the_file_is_named(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "known.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=words):
        read(str(file))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        read(str(tmp_path / "none.toml"))


def test_those_of_ascend_are_read() -> None:
    assert [each.op for each in read(str(ROOT / "vendors/ascend/known.toml"))] == [
        "aten::floor_divide.out"
    ]
