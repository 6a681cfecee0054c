"""A call made into others that a kernel may get wrong: layouts, sizes, values, numbers, aliases.

Whether a variation makes sense for an operator is for the CPU to say: what it refuses is no case.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from causeway.conformance.dtypes import numbers
from causeway.conformance.families import Family, inputs_of
from causeway.conformance.harvest import map_tensors, tensors_in
from causeway.conformance.libraries import LIBRARIES
from causeway.conformance.placement import poison
from causeway.conformance.recipes import channels_last
from causeway.numerics import base_name, rule_of
from causeway.observe.arguments import overload

Inputs = tuple[Any, ...]
HUGE = (1 << 17) + 3  # elements
MANY = 400  # equal keys

# Arguments whose numbers are places: other values would be out of range.
PLACES = {"index", "indices", "target", "offsets", "batch_sizes", "lengths", "input_lengths"}
PLACES |= {"target_lengths", "max_indices", "offset2bag", "bag_size", "crow_indices", "col_indices"}

# And those that a forward gave, of which most others never come: 1 / sqrt(variance + eps), below
# 1 / sqrt(eps) and not negative, of which some chips make the variance.
SAVED = {"save_invstd"}

# Operators that are not pointwise, but whose CPU kernel refuses shapes that do not fit.
CHECKED = {"mm", "bmm", "addmm", "baddbmm", "cat", "gather", "index_select", "convolution", "mv"}
CHECKED |= {"dot", "where"}

# Special values of which the CPU makes one thing or another: its vectors and the rest of its loop
# differ, or they are sorted anywhere, or (Welford's mean of an infinity) it goes by the place.
BY_CHANCE = {
    "elu_backward": "nan", "hardshrink_backward": "nan", "softshrink_backward": "nan",
    "hardtanh_backward": "nan", "hardswish_backward": "nan", "mode": "nan", "unique2": "nan",
    "native_group_norm": "inf", "native_group_norm_backward": "inf",
    "std_mean": "inf", "var_mean": "inf", "logit_backward": "nan -0",
    "scaled_dot_product_flash_attention_for_cpu": "nan inf",
}  # fmt: skip
# Operators whose CPU kernel ends the process where the least integer is divided by -1.
TRAPS = {"div", "lcm"}
# Operators with an input that follows from another: other values of one alone make no sense. Of
# attention's gradient the logsumexp does: exp(score - logsumexp) overflows where it is of others.
FOLLOWS = {"log_sigmoid_backward", "scaled_dot_product_flash_attention_for_cpu_backward"}
FOLLOWS |= {
    "lstm_layer_backward",
    "lstm_steps_backward",
    "gru_steps_backward",
    "rnn_steps_backward",
}


# --- layouts: the same values in other places -----------------------------------------------------


def transposed(t: Tensor) -> Tensor:
    return t.transpose(-1, -2).contiguous().transpose(-1, -2) if t.ndim >= 2 else sliced(t)


def permuted(t: Tensor) -> Tensor:
    back = list(range(t.ndim))[::-1]
    return t.permute(back).contiguous().permute(back) if t.ndim >= 2 else t


def sliced(t: Tensor) -> Tensor:
    """Every second element, of every dimension."""
    big = _poison([2 * n + 1 for n in t.shape] or [3], t.dtype)
    view = big[tuple(slice(1, None, 2) for _ in t.shape)] if t.ndim else big[1]
    return view.copy_(t)


def offset(t: Tensor) -> Tensor:
    """Dense, but not where an allocation starts."""
    return _poison([t.numel() + 3], t.dtype)[3:].view(t.shape).copy_(t)


def expanded(t: Tensor) -> Tensor:
    return t.narrow(0, 0, 1).expand_as(t) if t.ndim and t.shape[0] else t


def overlapping(t: Tensor) -> Tensor:
    """Windows that overlap: each stride is 1."""
    if t.ndim < 2 or t.numel() == 0:
        return t
    return t.flatten().clone().as_strided(t.shape, [1] * t.ndim)


def _poison(shape: list[int], dtype: torch.dtype) -> Tensor:
    n = math.prod(shape)
    return poison(max(n, 1) * dtype.itemsize, dtype).view(dtype)[:n].view(shape)


def images(t: Tensor) -> Tensor:
    """channels_last, channels_last_3d; of other ranks the like."""
    return channels_last(t) if t.ndim >= 3 else transposed(t)


def rotated(t: Tensor) -> Tensor:
    """The first dimension is the innermost in memory: no layout that has a name."""
    return t.movedim(0, -1).contiguous().movedim(-1, 0) if t.ndim >= 2 else sliced(t)


def steps(t: Tensor) -> Tensor:
    """A part of larger memory in channels_last: an offset, and steps of two in a dimension."""
    if t.ndim < 3:
        return sliced(t)
    shape = [n + 1 for n in t.shape[:-1]] + [2 * t.shape[-1] + 1]
    big = channels_last(_poison(shape, t.dtype))
    part = big[(*(slice(1, None) for _ in t.shape[:-1]), slice(1, None, 2))]
    return part.copy_(t)


def expanded_inside(t: Tensor) -> Tensor:
    """One channel for all."""
    return t.narrow(1, 0, 1).expand_as(t) if t.ndim >= 3 and t.shape[1] else t


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "transposed": transposed,
    "permuted": permuted,
    "sliced": sliced,
    "offset": offset,
    "expanded": expanded,
    "overlapping": overlapping,
}
# Of calls with four and five dimensions: every tensor, only the first (the destination of a copy),
# only the others.
FOUR: dict[str, Callable[[Tensor], Tensor]] = {
    "channels_last": images,
    "rotated": rotated,
    "steps": steps,
    "expanded inside": expanded_inside,
}
FIVE = {"channels_last": images}


# --- values ---------------------------------------------------------------------------------------


def _special(without: str) -> Callable[[Tensor, int], Tensor]:
    """NaN, both infinities and -0 among the others, at places that differ from tensor to tensor."""
    inf = float("inf")
    values = {"nan": (float("nan"),), "inf": (inf, -inf), "-0": (-0.0,), "0": (0.0,)}
    found = [value for name, few in values.items() if name not in without.split() for value in few]

    def make(t: Tensor, seed: int) -> Tensor:
        flat = t.flatten().clone()
        for k, value in enumerate(found):
            flat[(3 * k + seed) % 17 :: 17] = value
        return flat.view(t.shape)

    return make


def _subnormal(t: Tensor, seed: int) -> Tensor:
    part = torch.rand(t.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    least = torch.finfo(t.dtype).smallest_normal
    return (part * least * torch.where(t.double() < 0, -1.0, 1.0)).to(t.dtype)


def _extreme(least: bool) -> Callable[[Tensor, int], Tensor]:
    """The largest and the smallest integers of a dtype, with or without the very least, and +-1."""

    def make(t: Tensor, seed: int) -> Tensor:
        most = torch.iinfo(t.dtype).max
        low = (-1, -most, -most + 1, *([-most - 1] if least else [])) if t.dtype.is_signed else ()
        values = torch.tensor((1, 2, most, most - 1, *low), dtype=t.dtype)
        generator = torch.Generator().manual_seed(seed)
        return values[torch.randint(0, len(values), t.shape, generator=generator)]

    return make


def _random(t: Tensor, seed: int) -> Tensor:
    return numbers(*t.shape, dtype=t.dtype, seed=seed)


def _halves(t: Tensor, seed: int) -> Tensor:
    """Multiples of 1/2, half of them halfway between two integers."""
    found = torch.randint(-9, 10, t.shape, generator=torch.Generator().manual_seed(seed)) / 2
    return (found.abs() if t.dtype == torch.float8_e8m0fnu else found).to(t.dtype)


def _large(t: Tensor, seed: int) -> Tensor:
    """Numbers whose exponential overflows float32, and their opposites."""
    return (200 * numbers(*t.shape, dtype=torch.float32, seed=seed)).to(t.dtype)


def _few(t: Tensor, seed: int) -> Tensor:
    """Only three different values, so that there are many equal keys."""
    found = torch.randint(0, 3, t.shape, generator=torch.Generator().manual_seed(seed))
    return found.to(t.dtype)


# --- all ------------------------------------------------------------------------------------------


def variations(
    family: Family, inputs: Inputs, dtype: torch.dtype, *, layouts: bool = True
) -> Iterator[tuple[str, Inputs]]:
    """(name, inputs) for each variation of a call; the same whenever it is asked."""
    for name, layout in LAYOUTS.items() if layouts else ():
        yield name, map_tensors(inputs, layout)
        if name in ("transposed", "sliced") and len(list(tensors_in(inputs))) > 1:
            yield f"first {name}", _first(inputs, layout)
    yield from _sizes(family, inputs)
    yield from _values(family, inputs, dtype)
    yield from _numbers(family, inputs, dtype)


def many_dims(
    family: Family, calls: list[Inputs], dtype: torch.dtype
) -> Iterator[tuple[int, str, Inputs]]:
    """(which call, name, inputs): four and five dimensions, in the layouts of such tensors."""
    for dims, layouts in ((4, FOUR), (5, FIVE)):
        fit = ((k, _with_dims(family, given, dtype, dims)) for k, given in enumerate(calls))
        k, made = next(((k, found) for k, found in fit if found is not None), (0, None))
        if made is None:
            continue
        yield k, f"{dims}-d", made
        several = len(list(tensors_in(made))) > 1
        for name, layout in layouts.items():
            yield k, f"{dims}-d {name}", map_tensors(made, layout)
            if several:
                yield k, f"{dims}-d first {name}", _first(made, layout)
                yield k, f"{dims}-d others {name}", _others(made, layout)


def _with_dims(family: Family, inputs: Inputs, dtype: torch.dtype, dims: int) -> Inputs | None:
    """A call whose largest tensors have `dims` dimensions: as it is, or with some put behind."""
    tensors = list(tensors_in(inputs))
    most = max((t.ndim for t in tensors), default=0)
    if any(not t.numel() or t.numel() > 4096 for t in tensors) or not 2 <= most <= dims:
        return None
    if most == dims:
        return inputs if min(tensors[0].shape[1:]) > 1 else None
    backward = "_backward" in family.reference
    sure = pointwise(family) or base_name(family.reference) in CHECKED
    own_shape = any(a.name == "normalized_shape" for a in inputs_of(family.schema))
    if (len(tensors) > 1 or backward or own_shape) and not sure:
        return None  # the CPU does not check all shapes: what it computes may be nonsense
    behind = (2, 3, 2)[: dims - most]

    def lift(t: Tensor) -> Tensor:
        if t.ndim < most:
            return t.clone()
        return t.reshape(*t.shape, *[1] * len(behind)).repeat(*[1] * most, *behind)

    # A tensor of fewer dimensions would meet other ones: of pointwise calls all have the most.
    if pointwise(family) and any(0 < t.ndim < most for t in tensors):
        return None
    lifted = tuple(map_tensors(inputs, lift))
    if base_name(family.reference) in FOLLOWS:
        return lifted
    return _with_values(family, lifted, dtype, _random, 3)


def huge(family: Family, inputs: Inputs, dtype: torch.dtype) -> Iterator[tuple[str, Inputs]]:
    """Many elements, and many equal ones: once for an operator and dtype."""
    if base_name(family.reference) in FOLLOWS or family.reference in LIBRARIES:
        return  # boxes are compared with each other
    tensors = list(tensors_in(inputs))
    if not tensors or not tensors[0].ndim or not tensors[0].numel():
        return
    size = tensors[0].shape[0]
    largest = max(t.numel() for t in tensors)

    def longer(to: int) -> Inputs:
        times = -(-to // largest)

        def repeat(t: Tensor) -> Tensor:
            if t.ndim and t.shape[0] == size:
                return t.repeat([times] + [1] * (t.ndim - 1))
            return t

        return tuple(map_tensors(inputs, repeat))

    big = longer(HUGE)
    if max(t.numel() for t in tensors_in(big)) <= 4 * HUGE:
        yield "huge", _with_values(family, big, dtype, _random, _seed(inputs))
    yield "equal keys", _with_values(family, longer(MANY), dtype, _few, 1)


def _first(inputs: Inputs, layout: Callable[[Tensor], Tensor]) -> Inputs:
    done = False

    def change(t: Tensor) -> Tensor:
        nonlocal done
        if done:
            return t
        done = True
        return layout(t)

    return tuple(map_tensors(inputs, change))


def _others(inputs: Inputs, layout: Callable[[Tensor], Tensor]) -> Inputs:
    rest = iter(tensors_in(inputs))
    first = next(rest, None)
    return tuple(map_tensors(inputs, lambda t: t if t is first else layout(t)))


def _sizes(family: Family, inputs: Inputs) -> Iterator[tuple[str, Inputs]]:
    tensors = [t for t in tensors_in(inputs) if t.ndim]
    if not tensors:
        return
    checked = base_name(family.reference) in CHECKED
    shaped = len(tensors) > 1 or "_backward" in family.reference  # by another argument too
    if shaped and not pointwise(family) and not checked:
        return  # the CPU does not check all shapes: what it computes may be nonsense
    first = tensors[0].shape
    for dim, size in enumerate(first):

        def empty(t: Tensor, dim: int = dim, size: int = size) -> Tensor:
            return t.narrow(dim, 0, 0) if t.ndim > dim and t.shape[dim] == size else t

        yield f"zero-size {dim}", map_tensors(inputs, lambda t, e=empty: e(t).clone())
    if all(t.numel() for t in tensors):
        yield "zero-dim", map_tensors(inputs, lambda t: t.flatten()[0].clone() if t.numel() else t)
        yield (
            "one element",
            map_tensors(inputs, lambda t: t.flatten()[:1].reshape([1] * t.ndim).clone()),
        )
    if len(tensors) > 1 and tensors[0].shape == tensors[1].shape:
        for name, dim in (("row", 0), ("column", -1)):
            for k, what in ((0, "first"), (1, "second")):
                narrow = tensors[k].narrow(dim, 0, min(1, tensors[k].shape[dim])).clone()
                changed = map_tensors(inputs, lambda t, k=k, n=narrow: n if t is tensors[k] else t)
                yield f"{what} a {name}", changed
        scalar = tensors[1].flatten()[:1].squeeze() if tensors[1].numel() else tensors[1]
        yield (
            "second zero-dim",
            map_tensors(inputs, lambda t: scalar.clone() if t is tensors[1] else t),
        )
    alike = len(tensors) > 1 and tensors[0].shape == tensors[1].shape
    if alike and tensors[0].dtype == tensors[1].dtype:
        twice = map_tensors(inputs, lambda t: tensors[0] if t is tensors[1] else t)
        yield "same tensor twice", twice


def _with_values(
    family: Family, inputs: Inputs, dtype: torch.dtype, make: Callable[[Tensor, int], Tensor],
    seed: int,
) -> Inputs:  # fmt: skip
    """`inputs` with other values in tensors of the dtype that hold no places and were not saved."""
    changed: list[Any] = []
    for k, (argument, value) in enumerate(zip(inputs_of(family.schema), inputs, strict=True)):
        if argument.name in PLACES | SAVED:
            changed.append(value)
            continue

        def change(t: Tensor, k: int = k) -> Tensor:
            return make(t, seed + k) if t.dtype == dtype else t

        changed.append(map_tensors(value, change))
    return tuple(changed)


def _values(family: Family, inputs: Inputs, dtype: torch.dtype) -> Iterator[tuple[str, Inputs]]:
    if base_name(family.reference) in FOLLOWS:
        return
    for seed in (1, 2):
        yield f"random {seed}", _with_values(family, inputs, dtype, _random, seed)
    if dtype.is_floating_point:
        without = BY_CHANCE.get(base_name(family.reference), "")
        title = "NaN and Inf" + (f" without {without}" if without else "")
        yield title, _with_values(family, inputs, dtype, _special(without), 5)
        yield "subnormal", _with_values(family, inputs, dtype, _subnormal, 7)
        if rule_of(family.reference) in ("exact", "arithmetic"):
            yield "halves", _with_values(family, inputs, dtype, _halves, 11)
        elif rule_of(family.reference) in ("transcendental", "smooth", "statistics", "deviation"):
            yield "large", _with_values(family, inputs, dtype, _large, 13)
    elif not dtype.is_complex and dtype != torch.bool:
        make = _extreme(base_name(family.reference) not in TRAPS)
        yield "extremes", _with_values(family, inputs, dtype, make, 9)


def _numbers(family: Family, inputs: Inputs, dtype: torch.dtype) -> Iterator[tuple[str, Inputs]]:
    """Other values of alpha, beta, eps and their like."""
    for k, argument in enumerate(inputs_of(family.schema)):
        kind = str(argument.type).removeprefix("Optional[").removesuffix("]")
        if isinstance(inputs[k], (Tensor, list, tuple)):
            continue
        values: tuple[Any, ...] = ()
        if kind == "number":
            values = (2.5, -0.5, 3) if dtype.is_floating_point else (3, 2)
            if dtype.is_signed:
                values += (-2,)
        elif kind == "float":
            values = (0.25,)
        for value in values:
            if value != inputs[k]:
                yield f"{argument.name}={value}", (*inputs[:k], value, *inputs[k + 1 :])


def pointwise(family: Family) -> bool:
    return torch.Tag.pointwise in overload(family.reference).tags


def _seed(inputs: Inputs) -> int:
    """A number that depends on the shapes alone."""
    text = repr([tuple(t.shape) for t in tensors_in(inputs)])
    return int(hashlib.sha256(text.encode()).hexdigest()[:6], 16)
