"""What is known of single operators of torch: the table of csrc/ladder/facts.cpp, read from Python.

There is one table, a row an operator and each with its reasons. What the ladder alone asks, strides
of results say, stays in C++. Rules of comparison are no facts of this kind: see causeway.numerics.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal

import torch

from causeway import _C

Reach = Literal["kernel", "whole", "offered", "own"]


@dataclass(frozen=True)
class Facts:
    """What is known of one operator beside its schema."""

    reach: Reach  # how a call gets to the ladder: csrc/ladder/facts.h says what each means
    other_name: str | None  # by which a vendor may have it too: "aten::convolution_overrideable"
    left_out: int  # the argument that the other name does not have; -1 for none
    writes: tuple[str, ...]  # arguments that change though the schema does not say so
    mixed_devices: bool  # takes CPU tensors beside device tensors
    only_writes: bool  # does not read what it writes over
    picks: bool  # by index from its first argument
    copies: bool  # copy_, or nothing but that
    plumbing: bool  # the core does it without arithmetic
    costly: bool  # its decomposition is, by far
    computed_by: str | None  # torch does it by this operator, below where a trace sees it


@cache
def of(name: str) -> Facts:
    """The facts of an operator, "aten::add_.Tensor": of its overload, else of all overloads of its
    name, else of the name that is not in place.
    """
    return Facts(**_C.facts(name))


@cache
def reasons() -> dict[str, tuple[str, ...]]:
    """Why each row is there, by its name: "add" for all overloads, "add.out", "add.default"."""
    return {name: row["why"] for name, row in _C.facts_table().items()}


@cache
def reached(by: Reach) -> frozenset[str]:
    """The operators that get to the ladder this way, "aten::copy_"."""
    rows = _C.facts_table()
    return frozenset(_full(name) for name, row in rows.items() if row["reach"] == by)


@cache
def own_names() -> dict[str, str]:
    """Operators by the other name, which foreign devices are asked for and the CPU lacks."""
    rows = _C.facts_table().items()
    return {row["other_name"]: _full(name) for name, row in rows if row["other_name"]}


def base(name: str) -> str:
    """ "convolution" of "aten::convolution.out"."""
    return name.removeprefix("aten::").partition(".")[0]


def _full(row: str) -> str:
    return f"aten::{row.removesuffix('.default')}"


def of_another_library(operator: str) -> bool:
    """Whether it is registered and is not torch's own: the core asks for such operators by their
    own names, `mylib::op` say. Those that torch can take apart it asks for where the vendor names
    them.
    """
    if operator.partition("::")[0] in ("aten", "prim", "prims"):
        return False
    if not torch._C._dispatch_has_kernel(operator):
        return False
    if operator in _C.named():
        return True
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    composites = ("CompositeImplicitAutograd", "CompositeExplicitAutograd")
    return not any(has(operator, key) for key in composites)
