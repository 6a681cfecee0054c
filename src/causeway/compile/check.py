"""Fused kernels against their operators, one by one: `CAUSEWAY_COMPILE=check`.

After each kernel of a compiled graph, the operators that went into it are called on the device, as
in eager mode, with what the kernel was given; what the kernel wrote is compared. The next kernel is
judged with what this one wrote, so that a mistake is found where it arises, once.

Not compared are random numbers, which a kernel draws in its own way, and buffers that stand for no
operator's result: they are counted. It takes several times as long, and the memory of all results.
"""

from __future__ import annotations

import itertools
import warnings
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree

from causeway import numerics
from causeway.compile import report

_numbers = itertools.count()
_graphs: dict[int, Graph] = {}


@dataclass
class Graph:
    """What is known of a graph since it was compiled."""

    module: torch.fx.GraphModule
    order: dict[torch.fx.Node, int]
    nodes: dict[str, torch.fx.Node] = field(default_factory=dict)  # a buffer: what it stands for


class _NotComparable(Exception):
    """An operator's result cannot be computed again."""


def keep(module: torch.fx.GraphModule) -> int:
    """Keep a graph for its checks; give its number."""
    number = next(_numbers)
    _graphs[number] = Graph(module, {node: i for i, node in enumerate(module.graph.nodes)})
    return number


def stands_for(number: int, buffer: str, node: torch.fx.Node) -> None:
    """A buffer of a graph is the result of an operator."""
    _graphs[number].nodes[buffer] = node


class Check:
    """The checks of one compiled graph; its module calls them by the graph's number."""

    def __init__(self, number: int) -> None:
        self.graph = _graphs[number]
        self.values: dict[torch.fx.Node, Any] = {}

    def begin(self, *given: Any) -> None:
        """A call of the graph begins, with these inputs."""
        self.values = {}
        placeholders = [n for n in self.graph.order if n.op == "placeholder"]
        for node, value in zip(placeholders, given, strict=True):
            self.values[node] = _kept(value)

    def after(self, kernel: str, **buffers: torch.Tensor) -> None:
        """A kernel has written these buffers."""
        found = report.state.checked.setdefault(kernel, report.Checked())
        written: dict[torch.fx.Node, Any] = {}
        known = [(self.graph.nodes[name], name) for name in buffers if name in self.graph.nodes]
        found.left += len(buffers) - len(known)
        for node, name in sorted(known, key=lambda one: self.graph.order[one[0]]):
            got = buffers[name]
            try:
                expected = self._value(node)
            except _NotComparable:
                # Of a dropout the mask is taken as it is, so that the rest can be judged.
                self.values[node] = _kept(got)
                found.left += 1
                continue
            if not isinstance(expected, torch.Tensor) or expected.shape != got.shape:
                found.left += 1
                continue
            written[node] = _kept(got)
            found.compared += 1
            if (off := difference(got, expected)) is not None:
                self._wrong(kernel, node, off)
        self.values.update(written)

    def _value(self, node: torch.fx.Node) -> Any:
        """An operator's result, from what kernels wrote and from what it needs beside that."""
        for needed in self._needed(node):
            self.values[needed] = self._computed(needed)
        return self.values[node]

    def _needed(self, node: torch.fx.Node) -> list[torch.fx.Node]:
        """The nodes that have no value yet, in the order in which they can be computed."""
        stack, wanted = [node], set[torch.fx.Node]()
        while stack:
            one = stack.pop()
            if one not in self.values and one not in wanted:
                wanted.add(one)
                stack += one.all_input_nodes
        return sorted(wanted, key=self.graph.order.__getitem__)

    def _computed(self, node: torch.fx.Node) -> Any:
        if node.op == "get_attr":
            return torch.fx.graph_module._get_attr(self.graph.module, str(node.target))
        target: Any = node.target
        if node.op != "call_function" or _is_random(target):
            raise _NotComparable
        given: Any = (node.args, node.kwargs)
        args, kwargs = torch.fx.node.map_arg(given, self.values.__getitem__)
        if target is torch.ops.aten.copy_.default:
            return args[1].to(args[0].device, args[0].dtype).expand_as(args[0]).clone()
        if isinstance(target, torch._ops.OpOverload) and target._schema.is_mutable:
            args, kwargs = pytree.tree_map(_kept, (args, kwargs))
        try:
            with torch.no_grad():
                return target(*args, **kwargs)
        except Exception as error:  # the program ran without it: counted, and it goes on
            raise _NotComparable from error

    def _wrong(self, kernel: str, node: torch.fx.Node, off: str) -> None:
        stack = (node.meta.get("stack_trace") or "").strip().splitlines()
        line = next((x.strip() for x in reversed(stack) if x.strip().startswith("File")), "")
        wrong = report.Wrong(kernel, str(node.target), off, line)
        report.state.wrong.append(wrong)
        warnings.warn(f"causeway: {wrong}", stacklevel=3)


def _is_random(target: Any) -> bool:
    if not isinstance(target, torch._ops.OpOverload):
        return False
    name = str(target)
    return torch.Tag.nondeterministic_seeded in target.tags or name.startswith(
        (
            "prims.inductor_rand",
            "prims.inductor_seed",
            "prims.inductor_lookup",
            "prims.inductor_random",
        )
    )


def _kept(value: Any) -> Any:
    """A tensor as it is now, in memory and strides of its own."""
    if not isinstance(value, torch.Tensor):
        return value
    if value.numel() == 0:
        return value.detach()
    storage = value.untyped_storage().clone()  # type: ignore[no-untyped-call]
    kept = torch.empty(0, dtype=value.dtype, device=value.device)
    return kept.set_(storage, value.storage_offset(), value.shape, value.stride())


def difference(got: torch.Tensor, expected: torch.Tensor) -> str | None:
    """How far a result is off, as text, or None where it is not."""
    if got.dtype != expected.dtype:
        return f"has dtype {got.dtype}, not {expected.dtype}"
    verdict, size = numerics.near(got.detach().cpu(), expected.detach().cpu(), "kernel")
    if verdict.good:
        return None
    words = f"{verdict.wrong} of {verdict.elements} elements differ"
    return f"{words}, the most by {verdict.max_abs:.2g} ({size:.2g} is usual)" if size else words
