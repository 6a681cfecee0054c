"""What amp.initialize makes of a model: parameters in another dtype, a forward that casts.

`model.forward` becomes an object, not a closure: copies and pickles of the model have one of their
own, bound to the copy.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from causeway.apex.amp._amp_state import _amp_state

_Norm = nn.modules.batchnorm._BatchNorm


def cast_model(model: nn.Module, dtype: torch.dtype, keep_batchnorm_fp32: bool) -> None:
    """Make the parameters and buffers of floating point `dtype`, in place: an optimizer that was
    made before still has them. Batch norms go to float32 instead where they are to be kept.
    """
    for module in model.modules():
        wanted = torch.float32 if keep_batchnorm_fp32 and isinstance(module, _Norm) else dtype
        for tensor in (*module._parameters.values(), *module._buffers.values()):
            if tensor is not None and tensor.is_floating_point() and tensor.dtype != wanted:
                tensor.data = tensor.data.to(wanted)
                if tensor.grad is not None:
                    tensor.grad = None
        if isinstance(module, nn.RNNBase):
            module.flatten_parameters()


def cast(value: Any, dtype: torch.dtype | None) -> Any:
    """`value` with all tensors of floating point in `dtype`, in whatever they are nested."""
    if dtype is None:
        return value
    if isinstance(value, Tensor):
        return value.to(dtype) if value.is_floating_point() else value
    if isinstance(value, str | bytes):
        return value
    if isinstance(value, Mapping):
        # A copy keeps the class: outputs of models are dictionaries with attributes.
        try:
            new: Any = copy.copy(value)
            for key in value:
                new[key] = cast(value[key], dtype)
        except TypeError:
            return {key: cast(item, dtype) for key, item in value.items()}
        return new
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(cast(item, dtype) for item in value))
    if isinstance(value, list | tuple):
        return type(value)(cast(item, dtype) for item in value)
    return value


class Forward:
    """A model's forward with casts around it: arguments, results, and autocast inside (O1)."""

    def __init__(
        self,
        original: Callable[..., Any],
        inputs: torch.dtype | None,
        outputs: torch.dtype | None,
        functions: bool,
    ) -> None:
        functools.update_wrapper(self, original)  # for who reads its signature
        self.original = original
        self.inputs = inputs
        self.outputs = outputs
        self.functions = functions

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        args, kwargs = cast(args, self.inputs), cast(kwargs, self.inputs)
        properties = _amp_state.opt_properties
        if self.functions and properties is not None and _amp_state.casting:
            model = getattr(self.original, "__self__", None)
            device = device_type(model) if isinstance(model, nn.Module) else properties.devices[0]
            dtype = properties.patch_torch_functions_type
            # A region of its own casts each weight once: its cache ends with it, before a step
            # changes the weights.
            with torch.autocast(device, dtype=dtype, cache_enabled=True):
                result = self.original(*args, **kwargs)
        else:
            result = self.original(*args, **kwargs)
        return cast(result, self.outputs)


def device_type(model: nn.Module) -> str:
    """The kind of device on which `model` is: that of its first parameter, or buffer."""
    for tensor in (*model.parameters(), *model.buffers()):
        return tensor.device.type
    accelerator = torch.accelerator.current_accelerator()
    return accelerator.type if accelerator is not None else "cpu"


def patch_forward(
    model: nn.Module, inputs: torch.dtype | None, outputs: torch.dtype | None, functions: bool
) -> None:
    """Put a Forward around `model.forward`."""
    former = model.__dict__.get("forward")
    forward = Forward(model.forward, inputs, outputs, functions)
    model.forward = forward

    def undo() -> None:
        if former is not None:
            model.forward = former
        elif model.__dict__.get("forward") is forward:
            del model.forward

    _amp_state.undo.append(undo)


def keep_checkpoints_in_float32(model: nn.Module) -> None:
    """Have `model.state_dict()` give float32: the masters, or else the parameters converted, and
    load_state_dict() set the masters too. A run that is resumed then goes on from the same weights.
    """
    handles: list[Any] = []
    for module in model.modules():
        if module._parameters or module._buffers:
            handles.append(module.register_state_dict_post_hook(_save))  # type: ignore[no-untyped-call]
            handles.append(module.register_load_state_dict_pre_hook(_load))  # type: ignore[no-untyped-call]

    def undo() -> None:
        for handle in handles:
            handle.remove()

    _amp_state.undo.append(undo)


# Functions of the module, so that a model with these hooks can be pickled.
def _save(module: nn.Module, state: dict[str, Any], prefix: str, metadata: Any) -> None:
    for name, tensor in (*module._parameters.items(), *module._buffers.items()):
        kept = state.get(prefix + name)
        if tensor is None or not isinstance(kept, Tensor):
            continue
        if kept.dtype in (torch.float16, torch.bfloat16):
            master = _amp_state.master_of.get(id(tensor))
            state[prefix + name] = kept.float() if master is None else master.detach()


def _load(module: nn.Module, state: dict[str, Any], prefix: str, *rest: Any) -> None:
    for name, param in module._parameters.items():
        master = _amp_state.master_of.get(id(param)) if param is not None else None
        value = state.get(prefix + name)
        if master is not None and isinstance(value, Tensor) and value.shape == master.shape:
            with torch.no_grad():
                master.copy_(value)
