"""The forms of an operator that a kernel serves: functional, in-place, out=.

A vendor offers one form, and the core serves the others through it where it is the out= form (the
derived rung). What belongs together is read from the schemas of the installed torch.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from causeway.observe.arguments import overload
from causeway.ops import facts

Kind = Literal["functional", "in-place", "out"]


@functools.cache
def _schemas() -> dict[str, list[Any]]:
    """Schemas by base name, "aten::add"."""
    found: dict[str, list[Any]] = {}
    for schema in torch._C._jit_get_all_schemas():
        found.setdefault(schema.name, []).append(schema)
    return found


def operator_names() -> list[str]:
    """Every operator of torch, "aten::add.out"."""
    return sorted({_name(schema) for group in _schemas().values() for schema in group})


def _name(schema: Any) -> str:
    return f"{schema.name}.{schema.overload_name}" if schema.overload_name else schema.name


def inputs_of(schema: Any) -> list[Any]:
    """The arguments that are no outputs."""
    return [argument for argument in schema.arguments if not argument.is_out]


def kind_of(schema: Any) -> Kind:
    if any(argument.is_out for argument in schema.arguments):
        return "out"
    first = schema.arguments[0].alias_info if schema.arguments else None
    return "in-place" if first is not None and first.is_write else "functional"


def _alike(a: Sequence[Any], b: Sequence[Any]) -> bool:
    # In-place forms mark their first argument; the types are alike.
    return [(x.name, str(x.type)) for x in a] == [(x.name, str(x.type)) for x in b]


@dataclass(frozen=True)
class Family:
    """An operator that a vendor offers, and the forms of it that this kernel serves."""

    offered: str
    forms: tuple[tuple[Kind, str], ...]
    reference: str  # what the CPU runs: the functional form where this kernel serves it
    harvested: frozenset[str]  # operators whose calls are cases of this one

    @property
    def random(self) -> bool:
        # Attention draws for its dropout alone, which is off unless it is asked for.
        drops = any(argument.name == "dropout_p" for argument in self.schema.arguments)
        return torch.Tag.nondeterministic_seeded in overload(self.reference).tags and not drops

    @property
    def schema(self) -> Any:
        return overload(self.reference)._schema

    @property
    def reference_kind(self) -> Kind:
        return kind_of(self.schema)


def family(offered: str, all_offered: frozenset[str]) -> Family:
    """The family of an offered operator. A form that is offered itself has a kernel of its own."""
    name = facts.own_names().get(offered, offered)
    schema = overload(name)._schema
    own = kind_of(schema)
    base = schema.name.removesuffix("_") if own == "in-place" else schema.name
    inputs = inputs_of(schema)
    found: dict[Kind, str] = {own: name}
    for other in _schemas().get(base, []) + _schemas().get(base + "_", []):
        kind = kind_of(other)
        if kind not in found and _alike(inputs_of(other), inputs):
            found[kind] = _name(other)
    forms: list[tuple[Kind, str]] = [(own, name)]
    if own == "out":
        others: tuple[Kind, ...] = ("functional", "in-place")
        forms += [(k, found[k]) for k in others if k in found and found[k] not in all_offered]
    reference = name if own == "in-place" else found.get("functional", name)
    return Family(offered, tuple(forms), reference, frozenset({offered, *found.values()}))
