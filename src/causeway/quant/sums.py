"""What residual blocks add up, in the integers of the layer that takes the sum.

Between two layers of a quantized model that follow each other numbers are integers once compiled,
but what is added to something else is float32: the sum, the ReLU, and what comes before the first
block. `integer_sums` rounds such a value once, to the integers of the layer that takes it, whose
range calibration knows; the layer takes these integers, and what else adds the value takes what
they stand for. That is in the model's own forward, so the CPU, the device, torch.compile and a file
have the same numbers.
"""

from __future__ import annotations

import copy
import operator

import torch
from torch import nn

import causeway._C  # noqa: F401  registers torch.ops.causeway
from causeway.errors import CausewayError
from causeway.quant.fold import traced
from causeway.quant.layers import QuantizedLayer

_ADDS = frozenset({operator.add, operator.iadd, torch.add, "add", "add_"})


def numbers_of(
    integers: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor | None
) -> torch.Tensor:
    """What integers stand for, in float32."""
    numbers = integers.float()
    return (numbers if zero is None else numbers - zero.float()) * scale


def integer_sums(model: nn.Module) -> torch.fx.GraphModule:
    """`model`, in integers, with its sums in integers too, as a torch.fx.GraphModule with the
    model's own layers and names. Its numbers are within rounding of what they were; `model` itself
    stays as it is.

    Taken are values that a quantized layer of known range takes and that are added to something,
    or that several layers of one range take. Layers have float32 results then.

    Raises:
        CausewayError: torch.fx cannot follow the model's forward, it still calibrates or waits for
            its integers, or it has no layer in integers.
    """
    layers = [(n, m) for n, m in model.named_modules() if isinstance(m, QuantizedLayer)]
    if not layers:
        raise CausewayError(
            f"{type(model).__name__} has no layer in integers: quantize_dynamic(model, ...) and "
            "convert(model) come before integer_sums"
        )
    for name, layer in layers:
        if layer.phase in ("calibrating", "empty"):
            raise CausewayError(
                f"{name!r} has no integers yet: convert(model) or load_state_dict comes before "
                "integer_sums"
            )
    model = copy.deepcopy(model)
    graph = traced(model, "its sums stay in floating point", leaves=(QuantizedLayer,))
    _drop_identities(model, graph)
    calls: dict[str, int] = {}
    for node in graph.nodes:
        if node.op == "call_module":
            calls[node.target] = calls.get(node.target, 0) + 1
    for node in list(graph.nodes):
        if node.op != "output":
            _round(model, graph, node, calls)
    graph.lint()
    return torch.fx.GraphModule(model, graph).train(model.training)


def _drop_identities(model: nn.Module, graph: torch.fx.Graph) -> None:
    for node in list(graph.nodes):
        if node.op == "call_module" and type(model.get_submodule(node.target)) is nn.Identity:
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)


def _round(
    model: nn.Module, graph: torch.fx.Graph, node: torch.fx.Node, calls: dict[str, int]
) -> None:
    takers = [user for user in node.users if _takes(model, user, node, calls)]
    if not takers:
        return
    first = _layer(model, takers[0])
    takers = [user for user in takers if _same_integers(first, _layer(model, user))]
    adds = [user for user in node.users if _adds(user)]
    if not adds and len(takers) == 1:
        return
    name = str(takers[0].target)
    with graph.inserting_after(node):
        integers = graph.call_function(
            torch.ops.causeway.quantize.default,
            (node, None, None, 0, first.low, first.levels, first.weight.dtype),
        )
    with graph.inserting_before(integers):
        inverse = graph.get_attr(f"{name}.inverse")
        zero = None if first.zero is None else graph.get_attr(f"{name}.zero")
    integers.update_arg(1, inverse)
    integers.update_arg(2, zero)
    for user in takers:
        user.replace_input_with(node, integers)
        _layer(model, user).given_integers = True
    if adds:
        with graph.inserting_after(integers):
            numbers = graph.call_function(numbers_of, (integers, None, zero))
        with graph.inserting_before(numbers):
            numbers.update_arg(1, graph.get_attr(f"{name}.input_scale"))
        for user in adds:
            user.replace_input_with(node, numbers)


def _layer(model: nn.Module, node: torch.fx.Node) -> QuantizedLayer:
    layer = model.get_submodule(str(node.target))
    assert isinstance(layer, QuantizedLayer)
    return layer


def _takes(
    model: nn.Module, user: torch.fx.Node, node: torch.fx.Node, calls: dict[str, int]
) -> bool:
    """Whether it is a layer that takes integers in the node's place."""
    if user.op != "call_module" or user.args != (node,) or user.kwargs:
        return False
    layer = model.get_submodule(str(user.target))
    return (
        isinstance(layer, QuantizedLayer)
        and layer.phase == "quantized"
        and layer.inverse is not None
        and not layer.first
        and not getattr(layer, "apart", False)  # what it is padded with is no integer yet
        and calls[str(user.target)] == 1
    )


def _adds(user: torch.fx.Node) -> bool:
    return user.target in _ADDS and user.op in ("call_function", "call_method") and not user.kwargs


def _same_integers(a: QuantizedLayer, b: QuantizedLayer) -> bool:
    if (a.zero is None) != (b.zero is None) or a.weight.dtype != b.weight.dtype:
        return False
    same = a.zero is None or torch.equal(a.zero, b.zero)
    return same and a.levels == b.levels and torch.equal(a.inverse, b.inverse)
