"""What a case's results are compared with: the CPU's, and the same operator in float64.

Where the CPU's own kernel is wrong, or one of several answers, is data here: memory that overlaps,
inputs that it reads as if they were dense, places among equal values, running statistics.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from causeway import numerics
from causeway.conformance import variations
from causeway.conformance.families import Family, Kind, inputs_of, kind_of
from causeway.conformance.harvest import arguments_for, describe, map_tensors, tensors_in
from causeway.numerics import Refused
from causeway.numerics.bounds import Change
from causeway.observe.arguments import overload
from causeway.ops import facts

Inputs = tuple[Any, ...]
LARGEST = 1 << 21  # elements of the results of a large case
# Operators whose CPU kernel reads an input as if it were dense, and so what lies between.
DENSE = {"adaptive_max_pool3d_backward", "int_mm", "scaled_dot_product_flash_attention_for_cpu"}
# Operators whose CPU kernel has a number of float32 in float64 too (1/6, torch 2.13): what is exact
# is torch's decomposition.
ROUGH = {"hardsigmoid_backward"}
# Operators that find values along a dimension and say where, anywhere that they stand.
ANYWHERE = {"mode", "median", "nanmedian", "kthvalue", "topk"}


@dataclass(frozen=True)
class Case:
    """One call in one form. `source` and `variation` say how it came to be."""

    family: Family
    dtype: torch.dtype
    kind: Kind
    form: str
    source: str
    variation: str
    inputs: Inputs
    out: str = (
        "plain"  # of outputs that are given: plain, sliced, transposed, channels last, the input
    )
    tolerance: tuple[float, float] | None = None  # rtol and atol in place of the operator's rule

    @property
    def id(self) -> str:
        text = f"{self.family.offered}|{self.form}|{self.dtype}|{self.source}|{self.variation}"
        return hashlib.sha256(f"{text}|{self.out}".encode()).hexdigest()[:8]

    @property
    def title(self) -> str:
        out = "" if self.kind != "out" else f", out={self.out}"
        return f"{self.form}({describe(self.inputs)}{out})"


class Wrong(Exception):
    """The device's answer is wrong, in words."""


class WrongValues(Wrong):
    """It has the right form, and other values."""


def copies(inputs: Inputs) -> Inputs:
    """Copies with the same layout, shared where the originals share."""
    done: dict[int, Tensor] = {}

    def copy(t: Tensor) -> Tensor:
        storage = t.untyped_storage()
        if storage._cdata not in done:
            bytes = torch.empty(0, dtype=torch.uint8).set_(storage)
            done[storage._cdata] = bytes.clone()
        own = done[storage._cdata].view(t.dtype)
        return own.as_strided(t.shape, t.stride(), t.storage_offset())

    return tuple(map_tensors(inputs, copy))


def call(name: str, inputs: Inputs, outs: list[Tensor] | None = None) -> list[Tensor]:
    """Call an operator; its results as a list: of one that returns nothing, what it changed."""
    args, kwargs = arguments_for(name, inputs)
    target = overload(name)
    if outs is not None:
        names = [a.name for a in target._schema.arguments if a.is_out]
        kwargs |= dict(zip(names, outs, strict=True))
    result = _callable(target, inputs)(*args, **kwargs)
    if not target._schema.returns:
        return list(written(name, inputs))
    results = result if isinstance(result, (list, tuple)) else [result]
    # An output_mask switches some off.
    return [*(t for t in results if t is not None), *beside(name, inputs)]


def _callable(target: Any, inputs: Inputs) -> Callable[..., Any]:
    """The operator; for the CPU, where it has no kernel for it, torch's decomposition."""
    from torch._decomp import decomposition_table

    elsewhere = any(not t.is_cpu for t in tensors_in(inputs))
    if elsewhere or torch._C._dispatch_has_computed_kernel_for_dispatch_key(target.name(), "CPU"):
        return target  # type: ignore[no-any-return]
    return decomposition_table.get(target, target)  # type: ignore[no-any-return]


def written(name: str, inputs: Inputs) -> Iterator[Tensor]:
    """The inputs that an operator changes, every tensor of a list."""
    for argument, value in zip(overload(name)._schema.arguments, inputs, strict=False):
        if argument.alias_info is not None and argument.alias_info.is_write:
            yield from tensors_in(value)


def beside(name: str, inputs: Inputs) -> Iterator[Tensor]:
    """What an operator changes beside its results: batch norm's running statistics."""
    schema = overload(name)._schema
    if kind_of(schema) == "in-place":
        return
    silent = facts.of(name).writes
    for argument, value in zip(inputs_of(schema), inputs, strict=True):
        told = argument.alias_info is not None and argument.alias_info.is_write
        if told or argument.name in silent:
            yield from tensors_in(value)


def on_cpu(case: Case) -> list[Tensor]:
    """The CPU's results. Raises Refused where it takes no such call."""
    reference = case.form if case.kind == "in-place" else case.family.reference
    if any(overlaps(t) for t in beside(reference, case.inputs)):
        raise Refused("undefined where two elements are one")
    if case.variation in ("huge", "equal keys") and _elements(case) > LARGEST:
        raise Refused("too large a result")
    dense = numerics.base_name(case.family.reference) in DENSE
    inputs = copies(map_tensors(case.inputs, Tensor.contiguous) if dense else case.inputs)
    try:
        if kind_of(overload(reference)._schema) == "out":
            empty = [torch.empty(0, dtype=case.dtype) for _ in overload(reference)._schema.returns]
            return call(reference, inputs, empty)
        results = call(reference, inputs)
        if case.kind == "in-place" or not any(overlaps(t) for t in tensors_in(case.inputs)):
            return results
        # The CPU's own kernels are wrong of some: median of an expanded tensor.
        values = call(reference, map_tensors(case.inputs, _dense))
        return [_like(value, result) for value, result in zip(values, results, strict=True)]
    except (RuntimeError, IndexError, ValueError, TypeError) as error:
        raise Refused(str(error)) from error


def _dense(t: Tensor) -> Tensor:
    return t.clone(memory_format=torch.contiguous_format)


def _like(values: Tensor, layout: Tensor) -> Tensor:
    """`values` with the strides of `layout`."""
    if values.shape != layout.shape or values.stride() == layout.stride() or overlaps(layout):
        return values
    return torch.empty_strided(layout.shape, layout.stride(), dtype=values.dtype).copy_(values)


def _places(case: Case) -> set[int]:
    """The ids of the tensors that hold places. A loss's target of floats holds none."""
    return {
        id(t)
        for argument, value in zip(inputs_of(case.family.schema), case.inputs, strict=True)
        if argument.name in variations.PLACES
        for t in tensors_in(value)
        if not t.is_floating_point()
    }


def _elements(case: Case) -> int:
    """How many the results have, or all inputs at once; 0 where torch cannot tell."""
    try:
        results = call(case.family.reference, map_tensors(case.inputs, _as_meta))
        return sum(t.numel() for t in results)
    except Exception:  # a meta function in Python asserts; or the result depends on the data
        return _broadcast(case)


def _broadcast(case: Case) -> int:
    try:
        shapes = [t.shape for t in tensors_in(case.inputs)]
        return math.prod(torch.broadcast_shapes(*shapes))  # type: ignore[no-untyped-call]
    except RuntimeError:
        return 0


def on_meta(case: Case) -> list[Tensor]:
    """What torch.compile expects of the functional form: dtypes and layouts of its results."""
    try:
        return call(case.family.reference, map_tensors(case.inputs, _as_meta))
    except Exception:  # a meta function in Python asserts
        return []


def _as_meta(t: Tensor) -> Tensor:
    return torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="meta")


def _wide(case: Case, results: list[Tensor], change: Change = numerics.unchanged) -> Inputs:
    """The inputs in float64 after `change`, numbers too. Integers stay where floats are beside."""
    whole = not any(t.is_floating_point() for t in tensors_in(case.inputs))
    places = _places(case)
    wide: list[Any] = []
    for argument, value in zip(inputs_of(case.family.schema), case.inputs, strict=True):

        def widen(t: Tensor, name: str = argument.name) -> Tensor:
            if id(t) in places:
                return t.contiguous()
            if t.is_floating_point() or t.is_complex():
                changed: Tensor = change(name, numerics.widen(t).contiguous())
            elif whole and t.dtype != torch.bool:
                changed = change(name, numerics.widen_integers(t, results).contiguous())
            else:
                return t
            return changed

        if isinstance(value, torch.dtype) and value.is_floating_point:
            wide.append(torch.float64)
        elif str(argument.type) in ("number", "float", "Optional[number]") and value is not None:
            wide.append(change(argument.name, value))
        else:
            wide.append(map_tensors(value, widen))
    return tuple(wide)


def in_float64(case: Case, name: str, inputs: Inputs, like: list[Tensor]) -> list[Tensor] | None:
    """Results of the operator in float64, or None where it has none of the same shapes."""
    try:
        if kind_of(overload(name)._schema) == "out":
            any_complex = any(t.is_complex() for t in tensors_in(inputs))
            wide = torch.complex128 if any_complex else torch.float64
            results = call(name, copies(inputs), [t.new_empty(0, dtype=wide) for t in like])
        elif numerics.base_name(name) == "scaled_mm":
            results = [_scaled_product(*inputs)]
        elif numerics.base_name(name) in ROUGH:
            from torch._decomp import decomposition_table

            results = [decomposition_table[overload(name)](*inputs)]
        else:
            results = call(name, copies(inputs))
    except (RuntimeError, IndexError, ValueError, TypeError):
        return None
    # Dense inputs: the reference does not depend on how the CPU's kernels read strides.
    return results if [t.shape for t in results] == [t.shape for t in like] else None


def _scaled_product(
    a: Tensor, b: Tensor, of_rows: Tensor, of_columns: Tensor, bias: Tensor | None, *_: Any
) -> Tensor:
    """_scaled_mm, which takes no float64."""
    product = (a * of_rows) @ (b * of_columns)
    return product if bias is None else product + bias


@dataclass
class Reference:
    """The CPU's results, those in float64, and what tolerances need. What the operator changes
    beside its results is behind them.
    """

    results: list[Tensor]
    rule: str
    exact: list[Tensor] | None = None
    magnitude: list[Tensor | None] | None = None
    terms: int = 1
    meta: list[Tensor] = field(default_factory=list)  # dtypes and layouts as right as the CPU's
    anywhere: Callable[[Tensor], Tensor] | None = (
        None  # for result 1: what stands there, as result 0
    )
    written: Tensor | None = None  # of result 1: where the CPU writes something
    tolerance: tuple[float, float] | None = None  # rtol and atol in place of all that

    def wanted(self) -> list[Tensor]:
        """Results of the dtypes that a kernel is asked for."""
        return [t.to(self.dtype(k)) for k, t in enumerate(self.results)]

    def dtype(self, k: int) -> torch.dtype:
        """The dtype of result `k`: torch's own where the CPU's is another (layer_norm's mean)."""
        return (self.meta if len(self.meta) == len(self.results) else self.results)[k].dtype


def _count_of_outs(case: Case) -> int:
    return len(overload(case.form)._schema.returns) + len(list(beside(case.form, case.inputs)))


class References:
    """References of cases one after another: forms that give their results anew and have the same
    inputs share one.
    """

    def __init__(self) -> None:
        self._case: Case | None = None
        self._shared: Reference | None = None

    def of(self, case: Case) -> Reference:
        """The reference of a case. Raises Refused."""
        if case.kind == "in-place":
            return reference_of(case)
        if self._case is None or self._shared is None or not _same_call(self._case, case):
            self._case = self._shared = None  # should the next be refused
            self._shared = reference_of(case)
            self._case = case
        else:
            _check_outputs(case, self._shared)
        return self._shared


def _same_call(a: Case, b: Case) -> bool:
    return a.inputs is b.inputs and a.family is b.family and a.dtype == b.dtype


def reference_of(case: Case) -> Reference:
    """What the CPU says to a case, alone. Raises Refused."""
    results = on_cpu(case)
    rule = numerics.rule_of(case.family.offered)
    found = Reference(results, rule, tolerance=case.tolerance)
    _check_outputs(case, found)
    if case.kind != "in-place" and case.family.reference_kind == "functional":
        found.meta = on_meta(case)
    found.anywhere = _what_stands(case, results)
    found.written = _written(case, results)
    name = case.family.reference
    stand_in = numerics.MAGNITUDE.get(numerics.base_name(name))
    # Of complex results only sums of products: the CPU makes them of three real products, which
    # is further off.
    known = any(t.is_floating_point() or (t.is_complex() and stand_in is not None) for t in results)
    if rule == "exact" or not known:
        return found
    found.exact = in_float64(case, name, _wide(case, results), results)
    found.terms = numerics.terms(name, list(tensors_in(case.inputs)), results)
    if found.exact is not None and numerics.base_name(name) == "scaled_mm":
        # Of a result that 8 bits cannot hold CPUs with AMX make a NaN and others the largest
        # number, which is what a cast does (torch 2.13).
        for k, (result, exact) in enumerate(zip(results, found.exact, strict=True)):
            results[k] = exact.to(result.dtype) if result.dtype.itemsize == 1 else result
    if found.exact is not None:

        def evaluate(operator: str, change: Change) -> list[Tensor] | None:
            return in_float64(case, operator, _wide(case, results, change), results)

        given = zip(inputs_of(case.family.schema), case.inputs, strict=True)
        arguments = {argument.name: value for argument, value in given}
        found.magnitude = numerics.magnitude(name, arguments, found.exact, evaluate)
    return found


def _check_outputs(case: Case, found: Reference) -> None:
    """Raise Refused where the outputs of the case cannot hold the results."""
    if case.kind != "out":
        return
    if case.out == "input":
        first, result = next(tensors_in(case.inputs)), found.results[0]
        if (first.dtype, first.shape) != (result.dtype, result.shape) or overlaps(first):
            raise Refused("the input cannot hold the result")
    if len(found.results) != _count_of_outs(case):
        raise Refused("an output is switched off")


def _what_stands(case: Case, results: list[Tensor]) -> Callable[[Tensor], Tensor] | None:
    """For operators that find values along a dimension: what stands at the places of result 1."""
    names = [argument.name for argument in inputs_of(case.family.schema)]
    base = numerics.base_name(case.family.reference)
    if base not in ANYWHERE or "dim" not in names or len(results) != 2:
        return None
    x, dim = next(tensors_in(case.inputs)), case.inputs[names.index("dim")]

    def look(places: Tensor) -> Tensor:
        try:
            return numerics.standing(x, places, dim)
        except numerics.Misplaced as why:
            raise Wrong(f"result 1 has {why}") from None

    return look


def _written(case: Case, results: list[Tensor]) -> Tensor | None:
    """Where result 1 says something: CTC's alphas end with a sample's own lengths."""
    if numerics.base_name(case.family.reference) != "ctc_loss":
        return None
    mask = torch.zeros(results[1].shape, dtype=torch.bool)
    for sample, frames, labels in zip(mask, *map(list, case.inputs[2:4]), strict=True):
        sample[:frames, : 2 * labels + 1] = True
    return mask


def judge(
    results: list[Tensor], reference: Reference, *, strides: bool, flushes: bool = False
) -> float:
    """The largest error, as a share of what is allowed. Raises Wrong. `flushes`: as the chip that
    gave the results says (`causeway.code.flushes`); they may be on the CPU by now.
    """
    largest = 0.0
    if len(results) != len(reference.results):
        raise Wrong(f"{len(results)} results, expected {len(reference.results)}")
    for k, (came, should) in enumerate(zip(results, reference.results, strict=True)):
        meta = reference.meta[k] if k < len(reference.meta) else should
        if should.numel() == 0 and came.shape == meta.shape != should.shape:
            continue  # the CPU leaves it out: batch norm's statistics in evaluation
        laid_out = not strides or came.stride() == meta.stride()
        alike = laid_out and (came.shape, came.dtype) == (should.shape, should.dtype)
        if k == 1 and reference.anywhere and alike:
            came, should = reference.anywhere(came.cpu()), reference.results[0]  # noqa: PLW2901
        if came.dtype != should.dtype and came.dtype == meta.dtype:
            should = should.to(meta.dtype)  # noqa: PLW2901
        here = _home(came) if strides else came.cpu()
        exact = reference.exact[k] if reference.exact else None
        magnitude = reference.magnitude[k] if reference.magnitude else None
        if k == 1 and reference.written is not None and alike:
            here, should = here[reference.written], should[reference.written]  # noqa: PLW2901
            exact, magnitude = (
                t if t is None else t[reference.written] for t in (exact, magnitude)
            )
        verdict = numerics.compare(
            here,
            should,
            rule=reference.rule,
            exact=exact,
            terms=reference.terms,
            magnitude=magnitude,
            strides=not laid_out,
            tolerance=reference.tolerance,
            flushes=flushes,
        )
        if not verdict.good:
            kind = Wrong if verdict.first is None else WrongValues
            raise kind(f"result {k}: {verdict}" if len(results) > 1 else str(verdict))
        largest = max(largest, verdict.worst)
    return largest


def _home(t: Tensor) -> Tensor:
    """On the CPU with the strides that it has on the device."""
    here = t.cpu()
    if here.stride() == t.stride() or t.numel() == 0:
        return here
    try:
        return torch.empty_strided(t.shape, t.stride(), dtype=t.dtype).copy_(here)
    except RuntimeError:  # overlapping: an in-place result on such memory
        return here


def overlaps(t: Tensor) -> bool:
    """Whether two elements of `t` are the same memory."""
    reach = 0
    for stride, size in sorted((s, n) for n, s in zip(t.shape, t.stride(), strict=True) if n > 1):
        if stride <= reach:
            return True
        reach += stride * (size - 1)
    return False
