"""The comparison's exceptions: each is well-formed, has a reason, and names operators of torch."""

from __future__ import annotations

import re
import tomllib
from importlib import resources

import pytest
import torch

from causeway.numerics import tolerances
from causeway.ops import ladder


def test_every_entry_has_a_reason_and_names_an_operator() -> None:
    names = torch._C._dispatch_get_all_op_names()
    spelled = {s for name in names for s in ladder.spellings(name)}
    for pattern, tolerance in tolerances.entries():
        assert tolerance.reason
        for part in re.split(r"\|", pattern.pattern):
            if "{" in part or "(" in part:
                continue
            assert any(map(re.compile(part).fullmatch, spelled)), part


def test_an_entry_without_a_reason_or_with_an_unknown_key_is_refused() -> None:
    with pytest.raises(ValueError, match="reason"):
        tolerances._entry({"match": "add", "values": False})
    with pytest.raises(ValueError, match="vaules"):
        tolerances._entry({"match": "add", "vaules": False, "reason": "because"})
    with pytest.raises(ValueError, match="rule"):
        tolerances._entry({"match": "add", "rule": "lax", "reason": "because"})


def test_the_file_says_what_each_key_means() -> None:
    text = resources.files("causeway.numerics").joinpath("tolerances.toml").read_text("utf-8")
    used = {key for entry in tomllib.loads(text)["operator"] for key in entry}
    comment = text.split("[[operator]]")[0]
    assert all(key in comment for key in used), used


def test_operators_without_an_entry_have_the_defaults() -> None:
    assert tolerances.of("aten::add.Tensor") == tolerances.Tolerance()
    assert not tolerances.of("aten::empty.memory_format").values
