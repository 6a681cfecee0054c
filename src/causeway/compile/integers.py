"""Layers in integers that follow each other stay in integers: what quantizes the result of a
product becomes part of the product.

    quantize(max_pool(relu(qconv(x, dtype=float32))))  =  max_pool(qconv(x, relu, dtype=int8))
    quantize(relu(qconv(x, dtype=float32) + r))        =  qconv_add(x, r, relu, dtype=int8)

The same operations on the same numbers, so the same bits: relu and quantize keep the order of
numbers, and a pool's largest number is the largest integer. A residual is added as float32, or as
the integers that it is made of (quant/sums.py).

On CPUs images that another layer reads then have their channels beside each other, as products read
and write them, and a pool whose places nobody reads does not find them.
"""

from __future__ import annotations

import operator
from typing import Any

import torch

from causeway import _C
from causeway.compile import chip

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
        torch.ops.causeway.max_pool2d.default,
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


_INTEGERS = (torch.int8, torch.uint8, torch.int16)
_PRODUCTS = (torch.ops.causeway.qconv.default, torch.ops.causeway.qconv_add.default)


def chain(graph: Any) -> None:
    """Change `graph` in place."""
    # A vendor with products of its own, but none with residuals, keeps its products.
    offered = _C.offered()
    if "causeway::qconv" not in offered or "causeway::qconv_add" in offered:
        for node in list(graph.nodes):
            if node.target is _aten.add.Tensor:
                _add_residual(graph, node)
    for node in list(graph.nodes):
        if node.target in _PRODUCTS:
            _rectify(graph, node)
    quantize = torch.ops.causeway.quantize.default
    place = {node: i for i, node in enumerate(graph.nodes)}
    for node in list(graph.nodes):
        if node.target is quantize:
            _take_in(graph, node, place)


def lay_out(graph: Any) -> None:
    """Lay a compiled graph's images out as products of CPUs read them, in place. One that was only
    lowered (quant/pt2e.py) is not, as it lacks the values of what it is given.
    """
    product = next((node for node in graph.nodes if node.target in _PRODUCTS), None)
    device = None if product is None else product.meta["val"].device
    if device is not None and device.type == chip.device_name() and chip.is_in_turn(device):
        _leave_places_out(graph)
        _channels_last(graph)


def _is_float_product(node: Any) -> bool:
    return getattr(node, "target", None) in _PRODUCTS and node.args[-1] is torch.float32


def _add_residual(graph: Any, node: Any) -> None:
    """Make a sum part of the later of its products."""
    if len(node.args) != 2 or node.kwargs:
        return
    before = [
        a
        for a in node.args
        if _is_float_product(a)
        and a.target is torch.ops.causeway.qconv.default
        and len(a.users) == 1
        and not a.args[-6]
    ]
    if not before:
        return
    order = {n: i for i, n in enumerate(graph.nodes)}
    product = max(before, key=order.__getitem__)
    other = node.args[0] if node.args[1] is product else node.args[1]
    if not isinstance(other, torch.fx.Node) or other is product:
        return
    value, wanted = other.meta["val"], product.meta["val"]
    if value.dtype != torch.float32 or value.shape != wanted.shape:
        return
    residual = _stands_for(other) or (other, None, None)
    with graph.inserting_before(node):
        both = graph.call_function(
            torch.ops.causeway.qconv_add.default,
            (*product.args[:-6], *residual, *product.args[-6:]),
        )
    both.meta.update(product.meta)
    _note_values(both)
    node.replace_all_uses_with(both)
    _erase(graph, node)


def _stands_for(node: Any) -> tuple[Any, Any, Any] | None:
    """The integers, the scale and the zero point of which a value is what `quant.sums.numbers_of`
    makes.
    """
    convert = torch.ops.prims.convert_element_type.default
    if node.target is not _aten.mul.Tensor or len(node.args) != 2:
        return None
    numbers, scale = node.args
    zero = None
    if getattr(numbers, "target", None) is _aten.sub.Tensor and not numbers.kwargs:
        numbers, zero = numbers.args
        if getattr(zero, "target", None) is not convert:
            return None
        zero = zero.args[0]
    if getattr(numbers, "target", None) is not convert:
        return None
    integers = numbers.args[0]
    if integers.meta["val"].dtype not in _INTEGERS:
        return None
    for factor, dtype in ((scale, torch.float32), (zero, torch.int32)):
        if factor is None:
            continue
        value = factor.meta["val"] if isinstance(factor, torch.fx.Node) else None
        if value is None or value.dtype != dtype or value.numel() != 1 or value.dim() > 1:
            return None
    return integers, scale, zero


def _rectify(graph: Any, product: Any) -> None:
    """Make a relu part of its product."""
    if not _is_float_product(product) or len(product.users) != 1:
        return
    user = next(iter(product.users))
    if user.target is not _aten.relu.default:
        return
    args = list(product.args)
    args[-6] = True
    product.args = tuple(args)
    user.replace_all_uses_with(product)
    graph.erase_node(user)


def _erase(graph: Any, node: Any) -> None:
    """A node that nobody reads, and those that only it read."""
    before = node.all_input_nodes
    graph.erase_node(node)
    for given in before:
        if not given.users and given.op == "call_function":
            _erase(graph, given)


def _take_in(graph: Any, node: Any, place: dict[Any, int]) -> None:
    x, inverse, zero, _axis, low, high, dtype = node.args
    one = [v for v in (inverse, zero) if v is not None]
    if any(v.meta["val"].numel() != 1 for v in one):
        return
    between, at = [], x
    while _moves(at):
        between.append(at)
        at = at.args[0]
    own = torch.ops.causeway
    products = (own.qlinear.default, own.qconv.default, own.qconv_add.default)
    if at.target not in products or len(at.users) != 1 or at.args[-1] is not torch.float32:
        return
    # Its scale is not measured: no NaN comes out that a pool would pass on.
    factors = [at.args[2]]
    if at.target is own.qconv_add.default:
        factors.append(at.args[-8])  # of a residual; none has one of numbers that may be NaN
    if any(_is_pool(b.target) for b in between) and any(
        f is None or f.op not in ("placeholder", "get_attr") for f in factors
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


def _leave_places_out(graph: Any) -> None:
    """Pools of integers whose places nobody reads."""
    for node in list(graph.nodes):
        if node.target is not _aten.max_pool2d_with_indices.default or node.kwargs:
            continue
        if node.meta["val"][0].dtype not in _INTEGERS:
            continue
        if any(u.target is not operator.getitem or u.args[1] != 0 for u in node.users):
            continue
        given = [*node.args, *([], [0], [1], False)[len(node.args) - 2 :]]
        with graph.inserting_before(node):
            made = graph.call_function(torch.ops.causeway.max_pool2d.default, tuple(given))
        made.meta.update(node.meta)
        made.meta["val"] = _again(made)
        for user in list(node.users):
            user.replace_all_uses_with(made)
            graph.erase_node(user)
        graph.erase_node(node)


# ---- channels beside each other ------------------------------------------------------------------


# Results lie as what they are made of does.
_ANY_LAYOUT = frozenset(
    {
        *(torch.ops.causeway.quantize.default, torch.ops.prims.convert_element_type.default),
        *(_aten.relu.default, _aten.add.Tensor, _aten.sub.Tensor, _aten.mul.Tensor),
        *(_aten.mean.dim, operator.getitem),
    }
)

_READERS = frozenset({*_PRODUCTS, _aten.mean.dim})


def _is_read_as_it_lies(node: Any) -> bool:
    """Whether something reads the image, or what is made of it, without a copy in another layout.

    A product whose results leave the graph as an image would cost a copy of floats.
    """
    made, seen = [node], {node}
    while made:
        for user in made.pop().users:
            if user.target in _READERS or _is_pool(user.target):
                return True
            if user.target in _ANY_LAYOUT and user not in seen:
                seen.add(user)
                made.append(user)
    return False


def _channels_last(graph: Any) -> None:
    """Images of two dimensions that products read, and all that is made of them."""
    moved: dict[Any, Any] = {}  # with channels beside each other, of those that are kept too
    back: dict[Any, Any] = {}  # nodes that lie otherwise than before, and a copy as before
    for node in list(graph.nodes):
        given = node.args[0] if node.target in _PRODUCTS and node.meta["val"].dim() == 4 else None
        begins = given is not None and given not in back and given.meta["val"].is_contiguous()
        if begins and _is_read_as_it_lies(node):
            if given not in moved:
                with graph.inserting_before(node):
                    moved[given] = _copy(graph, given, torch.channels_last)
                back[moved[given]] = given
            node.replace_input_with(given, moved[given])
        if not any(a in back for a in node.all_input_nodes):
            continue
        follows = node.target in _PRODUCTS or _is_pool(node.target) or node.target in _ANY_LAYOUT
        if follows and _lies_by_itself(node):
            node.meta["val"] = _again(node)
            back[node] = None
            continue
        for a in node.all_input_nodes:
            if a not in back:
                continue
            if back[a] is None:
                with graph.inserting_before(node):
                    back[a] = _copy(graph, a, torch.contiguous_format)
            node.replace_input_with(a, back[a])


def _copy(graph: Any, node: Any, layout: torch.memory_format) -> Any:
    made = graph.call_function(_aten.clone.default, (node,), {"memory_format": layout})
    made.meta["val"] = _again(made)
    return made


def _lies_by_itself(node: Any) -> bool:
    """Whether its results were contiguous, so that a copy that is so has their strides."""
    value = node.meta["val"]
    values = value if isinstance(value, tuple | list) else [value]
    return all(not isinstance(v, torch.Tensor) or v.is_contiguous() for v in values)


def _again(node: Any) -> Any:
    """What a node gives, by the values of its inputs as they are now."""
    args, kwargs = _note_values(node)
    return node.target(*args, **kwargs)


def _note_values(node: Any) -> tuple[Any, Any]:
    """The values of a node's inputs. Inductor lays inputs of such operators out as these are."""

    def value(a: Any) -> Any:
        return a.meta["val"]

    args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), value)
    node.meta["eager_input_vals"] = (args, kwargs)
    return args, kwargs
