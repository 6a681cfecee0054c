"""Models in half precision with float32 batch norms, and lists of masters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from causeway.apex.amp.models import cast, cast_model
from causeway.apex.contrib.clip_grad import clip_grad_norm_ as clip_grad_norm

__all__ = [
    "BN_convert_float", "FP16Model", "clip_grad_norm", "convert_module", "convert_network",
    "master_params_to_model_params", "model_grads_to_master_grads", "network_to_half",
    "prep_param_lists", "to_python_float", "tofp16",
]  # fmt: skip


class tofp16(nn.Module):
    """Casts its input to float16."""

    def forward(self, input: Tensor) -> Tensor:
        return input.half()


def BN_convert_float(module: nn.Module) -> nn.Module:
    """Put the batch norms of `module` into float32."""
    for each in module.modules():
        if isinstance(each, nn.modules.batchnorm._BatchNorm) and each.affine:
            convert_module(each, torch.float32)
    return module


def convert_module(module: nn.Module, dtype: torch.dtype) -> None:
    """Put the parameters and buffers of floating point of `module` itself into `dtype`."""
    for tensor in (*module._parameters.values(), *module._buffers.values()):
        if tensor is not None and tensor.is_floating_point():
            tensor.data = tensor.data.to(dtype)


def convert_network(network: nn.Module, dtype: torch.dtype) -> nn.Module:
    """Put `network` into `dtype`, its batch norms into float32."""
    cast_model(network, dtype, True)
    return network


def network_to_half(network: nn.Module) -> nn.Module:
    """`network` in float16, batch norms in float32, behind a cast of its input."""
    return nn.Sequential(tofp16(), convert_network(network, torch.float16))


class FP16Model(nn.Module):
    """`network` in float16, batch norms in float32, with a cast of its inputs."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = convert_network(network, torch.float16)

    def forward(self, *inputs: Any) -> Any:
        return self.network(*cast(inputs, torch.float16))


def prep_param_lists(
    model: nn.Module, flat_master: bool = False
) -> tuple[list[Tensor], list[Tensor]]:
    """(the trainable parameters of `model`, their float32 masters); with `flat_master` one flat
    master, for which all must have one dtype.
    """
    params: list[Tensor] = [p for p in model.parameters() if p.requires_grad]
    if flat_master:
        if len({p.dtype for p in params}) > 1:
            raise RuntimeError("flat_master=True needs parameters of one dtype: leave it out")
        flat = nn.Parameter(torch.cat([p.detach().reshape(-1) for p in params]).float())
        flat.grad = torch.zeros_like(flat)
        return params, [flat]
    return params, [nn.Parameter(p.detach().to(torch.float32, copy=True)) for p in params]


def model_grads_to_master_grads(
    model_params: Sequence[Tensor], master_params: Sequence[Tensor], flat_master: bool = False
) -> None:
    """Copy gradients from the model to the masters."""
    if flat_master:
        flat = [torch.zeros_like(p) if p.grad is None else p.grad for p in model_params]
        grad = torch.cat([g.reshape(-1) for g in flat])
        master_params[0].grad = grad.to(master_params[0].dtype)
        return
    for model, master in zip(model_params, master_params, strict=True):
        master.grad = None if model.grad is None else model.grad.to(master.dtype, copy=True)


@torch.no_grad()
def master_params_to_model_params(
    model_params: Sequence[Tensor], master_params: Sequence[Tensor], flat_master: bool = False
) -> None:
    """Copy the masters to the model, rounded to its dtype."""
    if flat_master:
        parts = torch.split(master_params[0], [p.numel() for p in model_params])
        for p, part in zip(model_params, parts, strict=True):
            p.copy_(part.view(p.shape))
        return
    torch._foreach_copy_(list(model_params), list(master_params))


def to_python_float(t: Any) -> float:
    """The number in a tensor of one element."""
    return float(t.item() if hasattr(t, "item") else t[0])
