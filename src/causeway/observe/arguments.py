"""The operator that a name means, its arguments by its schema, and the tensors among them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch._ops import OpOverload


@functools.cache
def overload(name: str) -> OpOverload:
    """The torch.ops object of "aten::add.out". Raises AttributeError where this torch has none."""
    namespace, _, rest = name.partition("::")
    base, _, variant = rest.partition(".")
    found: OpOverload = getattr(getattr(getattr(torch.ops, namespace), base), variant or "default")
    return found


def arguments(schema: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
    """All arguments in the schema's order, defaults filled in."""
    found = []
    for i, argument in enumerate(schema.arguments):
        if i < len(args):
            found.append(args[i])
        else:
            found.append(kwargs.get(argument.name, argument.default_value))
    return found


@functools.cache
def written_by(operator: Any) -> tuple[int, ...]:
    """The indices of the arguments that an operator's schema says are changed."""
    return tuple(
        i
        for i, argument in enumerate(operator._schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    )


def map_tensors(value: Any, function: Callable[[Any], Any], kind: type = torch.Tensor) -> Any:
    """`value` with each tensor, also in a list, replaced by function(tensor)."""
    if isinstance(value, kind):
        return function(value)
    if isinstance(value, (list, tuple)):
        return [map_tensors(v, function, kind) for v in value]
    return value


def tensors_in(value: Any, kind: type = torch.Tensor) -> Iterator[Any]:
    """The tensors, or TensorRecords, of arguments in their order."""
    if isinstance(value, kind):
        yield value
    elif isinstance(value, (list, tuple)):
        for v in value:
            yield from tensors_in(v, kind)
