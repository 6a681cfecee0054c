"""What each step of a program computes and moves: `cw inspect` and `cw bench --steps` print it.

Operations are those on numbers with a point, and products of integers. A product, a convolution and
attention have two for each multiplication with its addition, as torch's flop counter has them. A
fused kernel has one for each operation of its expression and element; any other operator one for
each element of its largest tensor. What only moves, compares or selects numbers has none. Bytes are
those of the tensors that a step reads and writes, each once: what a cache saves, and what a kernel
reads twice, is not in them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from causeway import _C
from causeway.coverage import roofline
from causeway.coverage.record import describe
from causeway.numerics import rules
from causeway.ops import facts
from causeway.ship.plan import TOLD, Program


class Costs:
    """Notes the operators of a capture while it is entered: to which steps each one came."""

    def __init__(self) -> None:
        self.graph: Any = None
        self.open: list[_Call] = []
        self.calls: list[_Call] = []

    def begin(self, graph: Any) -> None:
        """The steps are of `graph` from now on."""
        self.graph, self.open, self.calls = graph, [], []

    def __enter__(self) -> Costs:
        _C.set_observers(self._began, self._ended, [*_C.operators(), *_C.own_kernels()])
        return self

    def __exit__(self, *about: object) -> None:
        _C.set_observers(None, None, [])

    def _began(self, call: Any) -> _Call:
        self.open.append(_Call(self.graph.noted()))
        return self.open[-1]

    def _ended(self, call: Any, mine: _Call) -> None:
        self.open.remove(mine)
        end = self.graph.noted()
        own = [i for i in range(mine.first, end) if i not in mine.inner]
        mine.inner.update(own)
        if own and not call.error:
            args, results = call.args(), call.results()
            mine.steps = own
            mine.bytes = _bytes_by_address(call.name, args, results)
            mine.results = {t.data_ptr() for t in _tensors(results)}
            mine.counted = _product(call.name, args, results)
            if call.rung == "decomposed" or (mine.counted is not None and mine.counts_inside):
                mine.operations = 0  # its parts have them
            elif mine.counted is not None:
                mine.operations = int(mine.counted)
            else:
                mine.operations = _one_each(call.name, args, results)
            self.calls.append(mine)
        if self.open:
            self.open[-1].inner |= mine.inner
            self.open[-1].counts_inside |= mine.counts_inside or mine.counted is not None

    def put(self, program: Program, fused: Sequence[tuple[int, int, int]]) -> None:
        """Write them into the program's steps; `fused` has (step, operations, bytes) of kernels."""
        given = {step: (operations, moved) for step, operations, moved in fused}
        by_step = {step: call for call in self.calls for step in call.steps}
        for i, step in enumerate(program.steps):
            if step.kind != "launch":
                step.moved = step.bytes * (2 if step.kind == "copy" else 1)
            elif i in given:
                step.operations, step.moved = given[i]
            else:
                call = by_step.get(i)
                for buffer, offset in _buffers(program, step):
                    address, rest = buffer.start + offset, buffer.bytes - offset
                    if call is None or address in call.bytes:
                        step.moved += rest if call is None else call.bytes[address]
                    elif buffer.first != buffer.last:  # what steps hand on; else it is a scratch
                        step.moved += rest
        for call in self.calls:
            launches = [i for i in call.steps if program.steps[i].kind == "launch"]
            if launches and call.operations:
                # Of several steps one that makes the result of what the call was given computes:
                # the product, not what packs for it or adds up its parts. Else the one that moves
                # most.
                makes = [i for i in launches if call.makes(program, program.steps[i])]
                most = max(makes or launches, key=lambda i: program.steps[i].moved)
                program.steps[most].operations = call.operations


class _Call:
    """One observed call of an operator."""

    def __init__(self, first: int) -> None:
        self.first = first
        self.inner: set[int] = set()  # steps of calls within it, and its own
        self.steps: list[int] = []
        self.bytes: dict[int, int] = {}  # of its tensors, by address
        self.results: set[int] = set()  # addresses
        self.counted: float | None = None
        self.counts_inside = False
        self.operations = 0

    def makes(self, program: Program, step: Any) -> bool:
        """Whether a launch has a result of the call's and what that was given."""
        addresses = {buffer.start + offset for buffer, offset in _buffers(program, step)}
        given = self.bytes.keys() - self.results
        return bool(addresses & self.results) and bool(addresses & given)


def _buffers(program: Program, step: Any) -> Iterator[tuple[Any, int]]:
    """What a launch has the addresses of, and how far behind its start."""
    for argument in step.arguments:
        if not isinstance(argument, bytes) and program.buffers[argument[0]].kind != TOLD:
            yield program.buffers[argument[0]], argument[1]


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            if value.layout == torch.strided and value.device.type != "cpu":
                yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


def _bytes(tensor: torch.Tensor) -> int:
    """Of its elements, those that are one in memory once."""
    sizes = [n for n, step in zip(tensor.shape, tensor.stride(), strict=True) if step]
    return math.prod(sizes) * tensor.element_size() if tensor.numel() else 0


def _bytes_by_address(name: str, args: Any, results: Any) -> dict[int, int]:
    found: dict[int, int] = {}
    for tensor in _tensors([*args, *results]):
        found[tensor.data_ptr()] = max(found.get(tensor.data_ptr(), 0), _bytes(tensor))
    made = [_bytes(t) for t in _tensors(results)]
    if facts.of(name).picks and made:  # no more is read than the result has
        for source in list(_tensors(args))[:1]:
            found[source.data_ptr()] = min(found[source.data_ptr()], max(made))
    return found


def _product(name: str, args: Any, results: Any) -> float | None:
    """Of a product, a convolution and attention; None of other operators."""
    base = rules.base_name(name)
    if base in ("dot", "vdot"):
        return 2.0 * float(args[0].numel())
    if base in ("mv", "addmv"):
        return 2.0 * float(args[0 if base == "mv" else 1].numel())
    if base in ("qlinear", "qlinear_weight"):  # in integers
        return 2.0 * float(results[0].numel()) * float(args[0].shape[-1])
    if base in ("qconv", "qconv_add"):
        transposed = args[9]
        each = args[1].numel() // max(1, args[1].shape[0])
        return 2.0 * float((args[0] if transposed else results[0]).numel() * each)
    return roofline.counted(name, tuple(map(describe, args)), tuple(map(describe, results)))


def _one_each(name: str, args: Any, results: Any) -> int:
    """One for each element of the largest tensor."""
    tensors = list(_tensors([*args, *results]))
    if rules.rule_of(name) == "exact" or facts.of(name).picks:
        return 0
    if not any(t.is_floating_point() or t.is_complex() for t in tensors):
        return 0
    return max(t.numel() for t in tensors)
