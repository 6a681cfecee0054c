"""Graphs that torchao's PT2E flow has quantized: `lower` puts their products into integers.

Such a graph computes in floating point between `quantize` and `dequantize`. A linear layer or a
convolution whose input and weight are dequantized becomes `causeway::qlinear` or `causeway::qconv`,
with the relu and the quantization that follow it. Where a graph measures an input's range as it
comes, its scale and zero point stay tensors, and nothing waits for them. What is left dequantizes
and computes in floating point, as it stands.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import torch

import causeway._C  # noqa: F401  registers torch.ops.causeway
from causeway.compile.integers import chain
from causeway.errors import CausewayError

_aten = torch.ops.aten
_CONVOLUTIONS: dict[Any, tuple[int, bool]] = {
    _aten.conv1d.default: (1, False),
    _aten.conv2d.default: (2, False),
    _aten.conv3d.default: (3, False),
    _aten.conv_transpose1d.default: (1, True),
    _aten.conv_transpose2d.input: (2, True),
    _aten.conv_transpose3d.input: (3, True),
}


@dataclass(frozen=True)
class Lowered:
    """What `lower` found in a graph."""

    products: int  # in integers now
    left: tuple[str, ...]  # names of products with a dequantized weight that stay as they were


@dataclass(frozen=True)
class _Integers:
    """What a dequantize node makes floating point."""

    node: Any
    scale: torch.Tensor  # float64, [1] or [channels]; empty where it is `measured`
    zero: torch.Tensor  # int64
    axis: int
    most: int  # no number is farther from 0
    measured: tuple[Any, Any] | None = None  # the nodes of the scale and the zero point, [1]


def lower(model: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """`model` with its quantized products in integers, in place; `lowered(model)` says how many.

    Args:
        model: What `convert_pt2e` of torchao returns, on any device. Inputs are quantized to 8 or
            16 bits by one scale, weights to int8 or int16 by one or a scale for each output.

    Raises:
        CausewayError: it is no graph, or has nothing that is quantized.
    """
    if not isinstance(model, torch.fx.GraphModule):
        raise CausewayError(
            f"expected the graph that convert_pt2e returns, but got {type(model).__name__}"
        )
    nodes = list(model.graph.nodes)
    if not any(_kind(n) for n in nodes):
        raise CausewayError(
            "the graph has nothing that is quantized: calibrate it and call convert_pt2e first"
        )
    made, left = 0, []
    for node in nodes:
        if node.target is not _aten.linear.default and node.target not in _CONVOLUTIONS:
            continue
        if _kind(node.args[1]) is None:
            continue
        if _product(model, node):
            made += 1
        else:
            left.append(node.name)
    for node in nodes:
        if _kind(node) == "quantize_per_tensor":
            _quantize(model, node)
    chain(model.graph)
    model.graph.eliminate_dead_code()
    model.delete_all_unused_submodules()
    model.recompile()
    model.meta["causeway"] = Lowered(made, tuple(left))
    return model


def lowered(model: torch.fx.GraphModule) -> Lowered:
    """What `lower` found in `model`."""
    found = model.meta.get("causeway")
    if not isinstance(found, Lowered):
        raise CausewayError("this graph was not lowered: call causeway.quant.lower first")
    return found


def _kind(node: Any) -> str | None:
    """ "dequantize_per_tensor" or its like, of an operator of that library."""
    if not isinstance(node, torch.fx.Node) or not isinstance(node.target, torch._ops.OpOverload):
        return None
    library, _, name = node.target._schema.name.partition("::")
    return name if library == "quantized_decomposed" else None


def _constant(model: torch.fx.GraphModule, value: Any) -> torch.Tensor | None:
    """The number or tensor that stands in the graph; None where it is computed."""
    if isinstance(value, int | float):
        return torch.tensor([value], dtype=torch.float64)
    if isinstance(value, torch.fx.Node) and value.op == "get_attr":
        at: Any = model
        for part in str(value.target).split("."):
            at = getattr(at, part)
        return at.detach() if isinstance(at, torch.Tensor) else None
    return None


def _dequantized(model: torch.fx.GraphModule, node: Any) -> _Integers | None:
    if _kind(node) not in ("dequantize_per_tensor", "dequantize_per_channel"):
        return None
    per_channel = _kind(node) == "dequantize_per_channel"
    if node.kwargs.get("out_dtype") not in (None, torch.float32):
        return None
    scale = _constant(model, node.args[1])
    zero = _constant(model, node.args[2])
    bounds = node.args[4:6] if per_channel else node.args[3:5]
    if not all(isinstance(n, int) for n in bounds):
        return None
    most = max(map(abs, bounds))
    if _is_measured(node):
        none = torch.empty(0)
        return _Integers(node.args[0], none, none, 0, most, (node.args[1], node.args[2]))
    if scale is None or (zero is None and node.args[2] is not None):
        return None
    if zero is None:
        zero = torch.zeros(1)
    axis = int(node.args[3]) if per_channel else 0
    return _Integers(
        node.args[0], scale.double().flatten().cpu(), zero.long().flatten().cpu(), axis, most
    )


def _is_measured(node: Any) -> bool:
    """Whether its scale and zero point are of the range of what comes, by `choose_qparams`."""
    one, other = node.args[1:3]
    return (
        node.target._overloadname == "tensor"
        and isinstance(one, torch.fx.Node)
        and isinstance(other, torch.fx.Node)
        and one.target is other.target is operator.getitem
        and one.args[0] is other.args[0]
        and str(_kind(one.args[0])).startswith("choose_qparams")
    )


def _keep(model: torch.fx.GraphModule, node: Any, name: str, value: torch.Tensor) -> Any:
    """A constant of `node`'s, at the head of the graph: what comes before `node` may take it in."""
    own = f"_{node.name}_{name}"
    model.register_buffer(own, value)
    with model.graph.inserting_before(next(iter(model.graph.nodes))):
        made = model.graph.get_attr(own)
    made.meta["val"] = value
    return made


def _product(model: torch.fx.GraphModule, node: Any) -> bool:
    x, w = _dequantized(model, node.args[0]), _dequantized(model, node.args[1])
    if x is None or w is None or w.measured or bool(w.zero.any()):
        return False
    if not x.measured and x.scale.numel() != 1:
        return False
    weight = _constant(model, w.node)
    if weight is None or weight.dtype not in (torch.int8, torch.int16):
        return False
    form = _CONVOLUTIONS.get(node.target)
    arguments = _arguments(node)
    transposed = form is not None and form[1]
    groups = arguments["groups"] if form else 1
    outs = weight.shape[1] * groups if transposed else weight.shape[0]
    by_channel = w.scale.numel() > 1
    if by_channel and (w.axis != (1 if transposed else 0) or (transposed and groups > 1)):
        return False
    bias = arguments["bias"]
    if bias is not None and not _is_float(model, bias):
        return False
    if form and isinstance(arguments["padding"], str):
        return False
    device, graph = weight.device, model.graph
    with graph.inserting_before(node):
        zero, taps = 0 if x.measured else int(x.zero), None
        if x.measured:
            own = _keep(model, node, "scale", w.scale.float().to(device))
            multiplier = _call(
                graph, _aten.mul.Tensor, _cast(graph, x.measured[0], torch.float32), own
            )
            sums = _taps(weight, 1, transposed, groups, outs, x.most, x.most)
            zeros = _cast(graph, x.measured[1], sums.dtype)
            taps = _call(graph, _aten.mul.Tensor, _keep(model, node, "taps", sums), zeros)
        else:
            multiplier = _keep(model, node, "scale", (x.scale * w.scale).float().to(device))
        if zero:
            sums = _taps(weight, zero, transposed, groups, outs, x.most)
            taps = _keep(model, node, "taps", sums)
        after = (False, None, None, 0, 0, torch.float32)
        begin = (x.node, w.node, multiplier, bias, taps, 0)
        if form is None:
            made = graph.call_function(torch.ops.causeway.qlinear.default, (*begin, *after))
        else:
            geometry = _geometry(arguments, *form)
            made = graph.call_function(
                torch.ops.causeway.qconv.default, (*begin, *geometry, *after)
            )
    made.meta.update(node.meta)
    node.replace_all_uses_with(made)
    graph.erase_node(node)
    return True


def _call(graph: torch.fx.Graph, target: Any, *args: Any) -> torch.fx.Node:
    return graph.call_function(target, args)


def _cast(graph: torch.fx.Graph, node: Any, dtype: torch.dtype) -> torch.fx.Node:
    return _call(graph, _aten.to.dtype, node, dtype)


def _arguments(node: Any) -> dict[str, Any]:
    """All of them by name, with defaults."""
    found = {}
    for i, argument in enumerate(node.target._schema.arguments):
        given = node.args[i] if i < len(node.args) else argument.default_value
        found[argument.name] = node.kwargs.get(argument.name, given)
    return found


def _is_float(model: torch.fx.GraphModule, bias: Any) -> bool:
    value = _constant(model, bias)
    return value is not None and value.dtype == torch.float32


def _geometry(arguments: dict[str, Any], dims: int, transposed: bool) -> tuple[Any, ...]:
    def each(name: str, otherwise: int) -> list[int]:
        value = arguments.get(name)
        value = [otherwise] if value is None else [value] if isinstance(value, int) else value
        return list(value) * dims if len(value) == 1 else list(value)

    steps = (each("stride", 1), each("padding", 0), each("dilation", 1))
    return (*steps, transposed, each("output_padding", 0), arguments["groups"])


def _taps(
    weight: torch.Tensor,
    zero: int,
    transposed: bool,
    groups: int,
    outs: int,
    size: int,
    times: int = 1,
) -> torch.Tensor:
    """What the input's zero point adds to each sum, by tap. No input is farther from 0 than
    `size`, and nothing by which this is multiplied later than `times`.
    """
    wide = weight.detach().cpu().long()
    if wide.dim() == 2:
        by_tap, most = wide.sum(1, keepdim=True), wide.abs().sum(1)
    else:
        if transposed:
            channels = wide.shape[0] // groups
            wide = wide.view(groups, channels, -1, *wide.shape[2:]).transpose(1, 2)
            wide = wide.reshape(outs, channels, *wide.shape[3:])
        by_tap, most = wide.flatten(2).sum(1), wide.flatten(1).abs().sum(1)
    taps = by_tap * zero
    # int32 where no sum goes beyond it.
    fits = int((most * size).max() + taps.abs().sum(1).max() * times) < 2**31
    return (taps.int() if fits and weight.dtype == torch.int8 else taps).to(weight.device)


def _quantize(model: torch.fx.GraphModule, node: Any) -> None:
    x, scale, zero, low, high, dtype = (*node.args, *node.kwargs.values())[:6]
    value = x.meta.get("val") if isinstance(x, torch.fx.Node) else None
    measured = _is_measured(node)
    if dtype not in (torch.int8, torch.uint8, torch.int16) or not (
        measured or isinstance(scale, float)
    ):
        return
    if isinstance(value, torch.Tensor) and not value.is_floating_point():
        return
    graph = model.graph
    device = next(model.buffers(), next(model.parameters(), torch.empty(0))).device
    with graph.inserting_before(node):
        inverse: Any
        zeros: Any
        if measured:
            inverse = _cast(graph, _call(graph, _aten.reciprocal.default, scale), torch.float32)
            zeros = _cast(graph, zero, torch.int32)
            inverse.meta["val"], zeros.meta["val"] = torch.empty(1), torch.empty(1).int()
        else:
            inverse = _keep(model, node, "inverse", torch.tensor([1.0 / scale], device=device))
            of_zero = torch.tensor([zero], dtype=torch.int32, device=device)
            zeros = _keep(model, node, "zero", of_zero) if zero else None
        args = (x, inverse, zeros, 0, low, high, dtype)
        made = _call(graph, torch.ops.causeway.quantize.default, *args)
    made.meta.update(node.meta)
    node.replace_all_uses_with(made)
    graph.erase_node(node)
