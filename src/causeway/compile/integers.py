"""Layers in integers that follow each other stay in integers: what quantizes the result of a
product becomes part of the product.

    quantize(max_pool(relu(qconv(x, dtype=float32))))  =  max_pool(qconv(x, relu, dtype=int8))

The same operations on the same numbers, so the same bits: relu and quantize keep the order of
numbers, and a pool's largest number is the largest integer.
"""

from __future__ import annotations

import operator
from typing import Any

import torch

_aten = torch.ops.aten
# What moves numbers and does not change them.
_MOVES = frozenset(
    {
        *(_aten.view.default, _aten._unsafe_view.default, _aten.reshape.default),
        *(_aten.permute.default, _aten.transpose.int, _aten.squeeze.dim, _aten.squeeze.dims),
        *(_aten.unsqueeze.default, _aten.expand.default, _aten.t.default),
        _aten.flatten.using_ints,
    }
)
_POOLS = frozenset(
    {
        *(_aten.max_pool2d_with_indices.default, _aten.max_pool3d_with_indices.default),
        *(_aten.max_pool2d.default, _aten.max_pool3d.default),
    }
)
# Inductor's own form of a pool, which is there once it is imported, and has other names from
# release to release.
_OWN_POOLS = (
    "prims::_low_memory_max_pool_with_offsets",
    "prims::_low_memory_max_pool2d_with_offsets",
)


def _is_pool(target: Any) -> bool:
    own = isinstance(target, torch._ops.OpOverload) and target._schema.name in _OWN_POOLS
    return own or target in _POOLS


def chain(graph: Any) -> None:
    """Change `graph` in place."""
    quantize = torch.ops.causeway.quantize.default
    place = {node: i for i, node in enumerate(graph.nodes)}
    for node in list(graph.nodes):
        if node.target is quantize:
            _take_in(graph, node, place)


def _take_in(graph: Any, node: Any, place: dict[Any, int]) -> None:
    x, inverse, zero, _axis, low, high, dtype = node.args
    one = [v for v in (inverse, zero) if v is not None]
    if any(v.meta["val"].numel() != 1 for v in one):
        return
    between, at = [], x
    while _moves(at):
        between.append(at)
        at = at.args[0]
    products = (torch.ops.causeway.qlinear.default, torch.ops.causeway.qconv.default)
    if at.target not in products or len(at.users) != 1 or at.args[-1] is not torch.float32:
        return
    # Its scale is not measured: no NaN comes out that a pool would pass on.
    if any(_is_pool(b.target) for b in between) and at.args[2].op not in (
        "placeholder",
        "get_attr",
    ):
        return
    if any(place[v] > place[at] for v in one):
        return
    args = list(at.args)
    relu = any(b.target is _aten.relu.default for b in between)
    args[-6] = args[-6] or relu
    args[-5:] = [inverse, zero, low, high, dtype]
    at.args = tuple(args)
    at.meta["val"] = at.meta["val"].to(dtype)
    for step in reversed(between):
        if step.target is _aten.relu.default:
            step.replace_all_uses_with(step.args[0])
            graph.erase_node(step)
            continue
        value = step.meta["val"]
        if isinstance(value, tuple):
            step.meta["val"] = (value[0].to(dtype), *value[1:])
        else:
            step.meta["val"] = value.to(dtype)
    node.replace_all_uses_with(node.args[0])
    graph.erase_node(node)


def _moves(node: Any) -> bool:
    if node.op != "call_function" or len(node.users) != 1:
        return False
    if node.target is operator.getitem:
        return bool(node.args[1] == 0 and _is_pool(node.args[0].target))
    return bool(node.target in _MOVES or _is_pool(node.target) or node.target is _aten.relu.default)
