"""Batch norms folded into the layers before them, so that integers need not stop for them."""

from __future__ import annotations

import collections
import copy
from typing import Any

import torch
from torch import nn

from causeway.errors import CausewayError

_PAIRS: tuple[tuple[type[nn.Module], type[nn.Module]], ...] = (
    (nn.Conv1d, nn.BatchNorm1d),
    (nn.Conv2d, nn.BatchNorm2d),
    (nn.Conv3d, nn.BatchNorm3d),
    (nn.ConvTranspose1d, nn.BatchNorm1d),
    (nn.ConvTranspose2d, nn.BatchNorm2d),
    (nn.ConvTranspose3d, nn.BatchNorm3d),
    (nn.Linear, nn.BatchNorm1d),
)


def fold_norms(model: nn.Module, inplace: bool = False) -> nn.Module:
    """`model`, which is to be in eval mode, with each batch norm that follows a convolution or a
    linear layer folded into its weights, and Identity in its place. Where the result of a layer is
    used elsewhere too, a layer in several places, or a transposed one has groups, nothing is
    folded.

    Raises:
        CausewayError: torch.fx cannot follow the model's forward, or it is in training mode.
    """
    if model.training:
        raise CausewayError("fold_norms is for inference: model.eval() first")
    if not inplace:
        model = copy.deepcopy(model)
    graph = traced(
        model,
        "fold its norms by torch.nn.utils.fuse_conv_bn_eval where you know the pairs",
    )
    calls = collections.Counter(n.target for n in graph.nodes if n.op == "call_module")
    for node in graph.nodes:
        if node.op != "call_module" or calls[node.target] != 1 or not node.args:
            continue
        before = node.args[0]
        if not isinstance(before, torch.fx.Node) or before.op != "call_module":
            continue
        if len(before.users) != 1 or calls[before.target] != 1:
            continue
        layer, norm = model.get_submodule(str(before.target)), model.get_submodule(str(node.target))
        if not any(type(layer) is a and type(norm) is b for a, b in _PAIRS):
            continue
        if norm.training or norm.running_mean is None:
            continue
        utils: Any = nn.utils
        if isinstance(layer, nn.Linear):
            fused = utils.fuse_linear_bn_eval(layer, norm)
        elif not getattr(layer, "transposed", False):
            fused = utils.fuse_conv_bn_eval(layer, norm)
        elif layer.groups == 1:  # torch folds no groups of transposed ones
            fused = utils.fuse_conv_bn_eval(layer, norm, transpose=True)
        else:
            continue
        for name, new in ((str(before.target), fused), (str(node.target), nn.Identity())):
            parent, _, own = name.rpartition(".")
            setattr(model.get_submodule(parent), own, new.eval())
    return model


def traced(
    model: nn.Module, instead: str, leaves: tuple[type[nn.Module], ...] = ()
) -> torch.fx.Graph:
    """The graph of the model's forward, in which modules of `leaves` are calls, as those of
    torch.nn are. The error where there is none says what to do `instead`.
    """

    class Tracer(torch.fx.Tracer):
        def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
            return isinstance(m, leaves) or super().is_leaf_module(m, module_qualified_name)

    try:
        return Tracer().trace(model)
    except Exception as error:
        raise CausewayError(
            f"torch.fx cannot follow this model's forward ({error}): {instead}"
        ) from error
