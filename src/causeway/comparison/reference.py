"""What the CPU makes of a call: with the same dtypes, in float64, and with the same random numbers.

Everything runs on images of the arguments (`snapshot`), so the reference can neither harm the
program nor be harmed by it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from causeway import _C, numerics
from causeway.comparison.snapshot import Built, Snapshot, flat
from causeway.numerics import Refused
from causeway.numerics.bounds import Change
from causeway.observe.arguments import overload, tensors_in
from causeway.ops import facts

_default_generator = threading.Lock()


@dataclass
class Outcome:
    """What came of a call: its results, then the arguments that it writes and does not return."""

    results: list[Any]
    written: list[Any]
    built: Built

    def values(self) -> list[Any]:
        return [*self.results, *self.written]


@dataclass(frozen=True)
class Shape:
    """What the schema says, digested once for each operator."""

    op: OpOverload
    writes: tuple[bool, ...]  # by argument
    unreturned: tuple[int, ...]  # arguments that are written and not returned
    view: bool  # results alias an argument and nothing is written: no number is made
    random: bool
    generator: int  # index of the generator argument, -1 for none

    @property
    def mutates(self) -> bool:
        return any(self.writes)


_shapes: dict[str, Shape] = {}


def shape_of(name: str) -> Shape:
    found = _shapes.get(name)
    if found is None:
        found = _shapes[name] = _digest(overload(name), facts.of(name).writes)
    return found


def _digest(op: OpOverload, also: tuple[str, ...]) -> Shape:
    schema = op._schema
    info = [a.alias_info for a in schema.arguments]
    writes = tuple(
        (i is not None and bool(i.is_write)) or a.name in also
        for i, a in zip(info, schema.arguments, strict=True)
    )
    returned: set[str] = set()
    aliases = False
    for ret in schema.returns:
        if ret.alias_info is not None:
            aliases = True
            returned |= set(ret.alias_info.before_set) | set(ret.alias_info.after_set)
    unreturned = tuple(
        k for k, i in enumerate(info)
        if writes[k] and not (
            i is not None and (set(i.before_set) | set(i.after_set)) & returned)
    )  # fmt: skip
    generator = next((k for k, a in enumerate(schema.arguments) if "Generator" in str(a.type)), -1)
    random = torch.Tag.nondeterministic_seeded in op.tags
    return Shape(op, writes, unreturned, aliases and not any(writes), random, generator)


def run(
    name: str, taken: Snapshot, *, change: Change | None = None, like: list[Any] | None = None,
    generator: torch.Generator | None = None,
) -> Outcome:  # fmt: skip
    """Run operator `name` on the CPU on images of its arguments.

    With `change` in float64: it maps tensors and numbers by the argument's name, and `like` are the
    results in the program's dtypes. `generator`: the CPU's generator to draw from. Raises Refused.
    """
    shape = shape_of(name)
    target = overload(own) if (own := facts.own_names().get(name)) else shape.op
    built = taken.build(writable=True, change=None if change is None else numerics.widen)
    values = list(built.values)
    schema = target._schema.arguments
    if change is not None:
        values = _changed(schema, values, change, like or [])
    for k, argument in enumerate(schema):
        values[k] = _for_host(values[k], argument, change is not None)
    if shape.generator >= 0:
        values[shape.generator] = generator
    args, kwargs = _split(schema, values)
    try:
        with _drawing(generator if shape.random and shape.generator < 0 else None):
            result = _call(name, target, args, kwargs)
    except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError) as error:
        raise Refused(_first_line(error)) from None
    single = len(target._schema.returns) == 1
    results = [result] if single else list(result) if result is not None else []
    return Outcome(results, [values[k] for k in shape.unreturned], built)


def _changed(schema: Any, values: list[Any], change: Change, like: list[Any]) -> list[Any]:
    """Arguments in float64 after `change`; integers too where an operator makes floats of them."""
    tensors = [t for v in values for t in tensors_in(v)]
    floats = any(t.is_floating_point() or t.is_complex() for t in tensors)
    whole = not floats and any(isinstance(t, Tensor) and t.is_floating_point() for t in flat(like))

    def changed(argument: Any, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [changed(argument, v) for v in value]
        if isinstance(value, Tensor):
            if whole and value.dtype != torch.bool and not value.is_quantized:
                value = numerics.widen_integers(value, flat(like))
            elif not (value.is_floating_point() or value.is_complex()):
                return value
            return change(argument.name, value)
        if isinstance(value, (float, int)) and not isinstance(value, bool):
            return change(argument.name, value) if str(argument.type) in _NUMBERS else value
        return value

    return [changed(a, v) for a, v in zip(schema, values, strict=True)]


def _call(name: str, target: OpOverload, args: list[Any], kwargs: dict[str, Any]) -> Any:
    if name == "aten::_copy_from":  # the CPU has it for other devices only
        return args[1].copy_(args[0])
    if name == "aten::_copy_from_and_resize":
        return args[1].resize_(args[0].shape).copy_(args[0])
    return target(*args, **kwargs)


def _for_host(value: Any, argument: Any, wide: bool) -> Any:
    if isinstance(value, torch.device):
        return torch.device("cpu")
    if argument.name == "pin_memory" and value:
        return None
    if isinstance(value, torch.Generator):
        return None
    if wide and isinstance(value, torch.dtype):
        if value.is_complex:
            return torch.complex128
        return torch.float64 if value.is_floating_point else value
    return value


_NUMBERS = {"number", "float", "Optional[number]", "Optional[float]"}


def _split(schema: Any, values: list[Any]) -> tuple[list[Any], dict[str, Any]]:
    args, kwargs = [], {}
    for argument, value in zip(schema, values, strict=True):
        if argument.kwarg_only:
            kwargs[argument.name] = value
        else:
            args.append(value)
    return args, kwargs


@contextmanager
def _drawing(generator: torch.Generator | None) -> Iterator[None]:
    """The CPU's default generator as `generator` is, until the end."""
    if generator is None:
        yield
        return
    with _default_generator:
        former = torch.default_generator.get_state()
        torch.default_generator.set_state(generator.get_state())
        try:
            yield
        finally:
            torch.default_generator.set_state(former)


def _first_line(error: BaseException) -> str:
    text = str(error).strip().split("\n")[0]
    if isinstance(error, NotImplementedError) and ("Could not run" in text or "not impl" in text):
        return "it has no kernel; the operators that this one calls are compared by themselves"
    return f"{type(error).__name__}: {text[:200]}"


# --- float64 --------------------------------------------------------------------------------------


def exact(name: str, taken: Snapshot, like: list[Any]) -> list[Any] | None:
    """The outcome in float64, or None where the CPU has none of the same shapes."""
    return _wide(name, taken, like, numerics.unchanged)


def _wide(name: str, taken: Snapshot, like: list[Any], change: Change) -> list[Any] | None:
    try:
        values = run(name, taken, change=change, like=like).values()
    except Refused:
        return None
    shapes = [[t.shape for t in flat(v) if isinstance(t, Tensor)] for v in (values, like)]
    return values if shapes[0] == shapes[1] else None


def magnitude(name: str, taken: Snapshot, like: list[Any], best: list[Any]) -> list[Any] | None:
    """For each result the size of the terms that it is made of: see numerics.magnitude."""
    schema = shape_of(name).op._schema.arguments
    given = zip(schema, taken.build(writable=False).values, strict=True)

    def evaluate(other: str, change: Change) -> list[Any] | None:
        values = _wide(other, taken, like, change)
        return None if values is None else list(flat(values))

    arguments = {a.name: v for a, v in given if not a.is_out}
    return numerics.magnitude(name, arguments, list(flat(best)), evaluate)


def meta(name: str, taken: Snapshot) -> list[Any]:
    """What torch's meta functions make of the call, flattened; [] where they do not take it."""
    values = [_on_meta(v) for v in taken.build(writable=False).values]
    target = shape_of(name).op
    schema = target._schema.arguments
    values = [torch.device("meta") if isinstance(v, torch.device) else v for v in values]
    values = [None if isinstance(v, torch.Generator) else v for v in values]
    args, kwargs = _split(schema, values)
    try:
        result = target(*args, **kwargs)
    except Exception:  # meta functions in Python raise whatever they like
        return []
    return list(flat([result]))


def _on_meta(value: Any) -> Any:
    if isinstance(value, Tensor):
        if value.layout != torch.strided or value.is_nested or value.is_quantized:
            return value
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
    if isinstance(value, (list, tuple)):
        return [_on_meta(v) for v in value]
    return value


def terms(name: str, taken: Snapshot, results: list[Any]) -> int:
    """How many terms an element of the result is made of, at most."""
    built = taken.build(writable=False)
    return numerics.terms(
        facts.own_names().get(name, name), list(tensors_in(built.values)), list(tensors_in(results))
    )


# --- random numbers -------------------------------------------------------------------------------


def generator_of(name: str, args: tuple[Any, ...], device: int) -> torch.Generator:
    """The device's generator that a call draws from."""
    shape = shape_of(name)
    if shape.generator >= 0 and isinstance(args[shape.generator], torch.Generator):
        given: torch.Generator = args[shape.generator]
        return given
    return _C.default_generator(device)


def host_generator(state: Tensor) -> torch.Generator:
    """A generator of the CPU that gives the numbers which the host rung gives in `state`."""
    seed, offset = state.view(torch.int64).tolist()
    return _C.host_generator(seed, offset)
