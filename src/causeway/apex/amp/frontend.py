"""`amp.initialize`: the levels, the options, and their checks.

O0 is float32, O1 casts functions (autocast), O2 keeps the model in half precision with batch norms
in float32 and float32 masters in the optimizer, O3 is half precision throughout. O4 and O5 are O1
and O2 in bfloat16, which needs no scale; they are AMD's.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from causeway.apex.amp import functions
from causeway.apex.amp._amp_state import _amp_state, maybe_print
from causeway.apex.amp.models import (
    cast_model,
    device_type,
    keep_checkpoints_in_float32,
    patch_forward,
)
from causeway.apex.amp.optimizer import HALVES, process_optimizer
from causeway.apex.amp.scaler import LossScaler

FLOATS = (torch.float16, torch.bfloat16, torch.float32)


@dataclass(frozen=True)
class Level:
    """A preset of options under a name."""

    brief: str
    options: dict[str, Any]


def _level(brief: str, **options: Any) -> Level:
    return Level(brief, options)


opt_levels = {
    "O0": _level(
        "O0:  Pure FP32 training.",
        cast_model_type=torch.float32,
        loss_scale=1.0,
        master_weights=False,
    ),
    "O1": _level(
        "O1:  Casts around functions, by autocast.",
        patch_torch_functions=True,
        patch_torch_functions_type=torch.float16,
        loss_scale="dynamic",
    ),
    "O2": _level(
        "O2:  FP16 model with FP32 batch norms and FP32 master weights.",
        cast_model_type=torch.float16,
        keep_batchnorm_fp32=True,
        master_weights=True,
        loss_scale="dynamic",
    ),
    "O3": _level(
        "O3:  Pure FP16 training.",
        cast_model_type=torch.float16,
        keep_batchnorm_fp32=False,
        master_weights=False,
        loss_scale=1.0,
    ),
    "O4": _level(
        "O4:  As O1, with BFLOAT16.",
        patch_torch_functions=True,
        patch_torch_functions_type=torch.bfloat16,
        loss_scale=1.0,
    ),
    "O5": _level(
        "O5:  As O2, with BFLOAT16.",
        cast_model_type=torch.bfloat16,
        keep_batchnorm_fp32=True,
        master_weights=True,
        loss_scale=1.0,
    ),
}


@dataclass
class Properties:
    """The options in force, `amp._amp_state.opt_properties`."""

    enabled: bool = True
    opt_level: str = "O1"
    cast_model_type: torch.dtype | None = None
    patch_torch_functions: bool = False
    patch_torch_functions_type: torch.dtype | None = None
    keep_batchnorm_fp32: bool | None = None
    master_weights: bool | None = None
    loss_scale: float | str = 1.0
    combine_grad: bool = False
    combine_ddp: bool = False
    ddp_replica_count: int = 4
    devices: tuple[str, ...] = ()  # kinds of device of the models

    def options(self) -> dict[str, Any]:
        """What the printed table shows."""
        names = (
            "enabled", "opt_level", "cast_model_type", "patch_torch_functions",
            "patch_torch_functions_type", "keep_batchnorm_fp32", "master_weights", "loss_scale",
            "combine_grad", "combine_ddp",
        )  # fmt: skip
        return {name: getattr(self, name) for name in names}


def initialize(
    models: Any,
    optimizers: Any = None,
    enabled: bool = True,
    opt_level: str = "O1",
    cast_model_type: torch.dtype | None = None,
    patch_torch_functions: bool | None = None,
    keep_batchnorm_fp32: bool | str | None = None,
    master_weights: bool | None = None,
    loss_scale: float | str | None = None,
    cast_model_outputs: torch.dtype | None = None,
    num_losses: int = 1,
    verbosity: int = 1,
    min_loss_scale: float | None = None,
    max_loss_scale: float = 2.0**24,
    combine_grad: bool | None = None,
    combine_ddp: bool | None = None,
    ddp_replica_count: int = 4,
    check_combined_tensors: bool | None = None,
    user_cast_preferred: bool | None = None,
    patch_torch_functions_type: torch.dtype | None = None,
) -> Any:
    """Make `models` and `optimizers` train in mixed precision; give them back, in the same form
    (one, or a list of them; the models alone where no optimizer is given).

    They are the same objects, changed in place. `opt_level` presets the options from
    `cast_model_type` to `loss_scale`, which win over it where they are given; `None` is "as the
    level says". `loss_scale` is a number or "dynamic"; a scaler of its own is made for each of
    `num_losses`. Models go to their device before, and into parallel wrappers after.

    From this call on O1's casts hold for everything that this thread computes on the models' kind
    of device: losses outside of a model too. Backward passes in `scale_loss`, optimizer steps and
    what runs in `disable_casts()` are left out. `deactivate()` undoes all.

    `combine_grad` keeps gradients in one buffer for each dtype (see docs/amp.md); `combine_ddp`
    averages these over the processes of torch.distributed's default group at the end of
    `scale_loss`, in `ddp_replica_count` parts that overlap, in place of DistributedDataParallel.
    `check_combined_tensors` and `user_cast_preferred` have no use: a view that was lost is always
    put back, and the dtype that `half_function` and its like ask for always holds.

    Raises RuntimeError, or ValueError for an option's value, with what to do.
    """
    _amp_state.verbosity = verbosity
    if not enabled:
        _reset()
        _amp_state.opt_properties = Properties(enabled=False, opt_level=opt_level)
        return models if optimizers is None else (models, optimizers)
    properties = _properties(
        opt_level,
        cast_model_type=_dtype("cast_model_type", cast_model_type),
        patch_torch_functions=patch_torch_functions,
        patch_torch_functions_type=_dtype("patch_torch_functions_type", patch_torch_functions_type),
        keep_batchnorm_fp32=_flag("keep_batchnorm_fp32", keep_batchnorm_fp32),
        master_weights=master_weights,
        loss_scale=_scale(loss_scale),
    )
    outputs = _dtype("cast_model_outputs", cast_model_outputs)
    if num_losses < 1:
        raise ValueError(f"num_losses is {num_losses!r}: expected 1 or more")
    if min_loss_scale is not None and min_loss_scale > max_loss_scale:
        raise ValueError(
            f"min_loss_scale is {min_loss_scale!r}, above max_loss_scale, {max_loss_scale!r}: "
            "give a smaller one, or a larger max_loss_scale"
        )
    properties.combine_ddp = bool(combine_ddp)
    properties.combine_grad = bool(combine_grad) or properties.combine_ddp
    properties.ddp_replica_count = _count(ddp_replica_count)
    model_list = _several(models, nn.Module, "models")
    optimizer_list = _several(optimizers, torch.optim.Optimizer, "optimizers")
    _check(model_list, optimizer_list, properties)

    _reset()
    _amp_state.opt_properties = properties
    properties.devices = tuple(dict.fromkeys(device_type(m) for m in model_list)) or (_default(),)
    _print(properties, opt_level)
    _amp_state.loss_scalers = [
        LossScaler(
            properties.loss_scale, min_loss_scale=min_loss_scale, max_loss_scale=max_loss_scale
        )
        for _ in range(num_losses)
    ]
    for model in model_list:
        _prepare_model(model, properties, outputs)
    for optimizer in optimizer_list:
        process_optimizer(optimizer, bool(properties.master_weights), properties.combine_grad)
    if properties.combine_ddp:
        _same_everywhere(model_list, optimizer_list)
    if properties.patch_torch_functions:
        _cast_functions(properties)
        functions.activate()
    return models if optimizers is None else (models, optimizers)


def _prepare_model(model: nn.Module, properties: Properties, outputs: torch.dtype | None) -> None:
    dtype = properties.cast_model_type
    low = dtype in HALVES
    if dtype is not None and dtype.is_floating_point and (low or outputs is not None):
        cast_model(model, dtype, bool(properties.keep_batchnorm_fp32))
        patch_forward(model, dtype, outputs or torch.float32, False)
    elif outputs is not None or properties.patch_torch_functions:
        patch_forward(model, None, outputs, properties.patch_torch_functions)
    if low:
        keep_checkpoints_in_float32(model)


def _cast_functions(properties: Properties) -> None:
    """Autocast for this thread, on the models' devices, outside of any region."""
    dtype = properties.patch_torch_functions_type
    cache = torch.is_autocast_cache_enabled()
    before = [
        (d, torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in properties.devices
    ]
    # No cache where nothing would empty it: a region in each model's forward has one.
    torch.set_autocast_cache_enabled(False)
    for device in properties.devices:
        torch.set_autocast_enabled(device, True)
        torch.set_autocast_dtype(device, dtype or torch.float16)

    def undo() -> None:
        torch.set_autocast_cache_enabled(cache)
        for device, was, former in before:
            torch.set_autocast_enabled(device, was)
            torch.set_autocast_dtype(device, former)

    _amp_state.undo_casts = undo


def deactivate() -> None:
    """Undo amp.initialize: forwards, optimizers' methods, casts. Dtypes of models stay, and masters
    stay in optimizers. Causeway's own; NVIDIA's amp has no way back.
    """
    _reset()
    for undo in reversed(_amp_state.undo):
        undo()
    _amp_state.undo.clear()
    _amp_state.opt_properties = None


def _reset() -> None:
    """A second amp.initialize, for other models, keeps the first ones' changes, as NVIDIA's does;
    casts of functions are set anew.
    """
    functions.deactivate()
    if _amp_state.undo_casts is not None:
        _amp_state.undo_casts()
        _amp_state.undo_casts = None
    _amp_state.loss_scalers = []


def state_dict(destination: dict[str, Any] | None = None) -> dict[str, Any]:
    """The state of every loss scaler: {"loss_scaler0": {"loss_scale": ..., "unskipped": ...}}."""
    found: dict[str, Any] = OrderedDict() if destination is None else destination
    for i, scaler in enumerate(_amp_state.loss_scalers):
        found[f"loss_scaler{i}"] = scaler.state_dict()
    return found


def load_state_dict(state_dict: dict[str, Any]) -> None:
    """Set the loss scalers to what `state_dict()` gave, here or in NVIDIA's amp. A number of
    scalers that differs is printed, and the first ones are set; unknown keys raise RuntimeError.
    """
    unexpected = [key for key in state_dict if "loss_scaler" not in key]
    if unexpected:
        raise RuntimeError(
            "Error(s) in loading state_dict. Unexpected key(s) in state_dict: "
            + ", ".join(map(repr, unexpected))
        )
    if len(state_dict) != len(_amp_state.loss_scalers):
        maybe_print(
            f"Warning: the state has {len(state_dict)} loss scalers, amp was initialized with "
            f"{len(_amp_state.loss_scalers)}"
        )
    for scaler, state in zip(_amp_state.loss_scalers, state_dict.values(), strict=False):
        scaler.load_state_dict(state)


# --- options ------------------------------------------------------------------------------------


def _properties(opt_level: str, **given: Any) -> Properties:
    if opt_level not in opt_levels:
        letter = " (the letter O, not the digit 0)" if str(opt_level)[:1] == "0" else ""
        raise RuntimeError(
            f"opt_level is {opt_level!r}: expected one of {', '.join(opt_levels)}{letter}"
        )
    properties = Properties(opt_level=opt_level, **opt_levels[opt_level].options)
    for name, value in given.items():
        if value is not None:
            setattr(properties, name, value)
    if properties.patch_torch_functions:
        functions_type = properties.patch_torch_functions_type or torch.float16
        if functions_type not in HALVES:
            raise ValueError(
                f"patch_torch_functions_type is {functions_type}: expected torch.float16 or "
                "torch.bfloat16"
            )
        properties.patch_torch_functions_type = functions_type
        if properties.cast_model_type in HALVES:
            raise RuntimeError(
                f"{opt_level} casts around functions, and the model's weights stay in float32: "
                f"for functions in {properties.cast_model_type} give "
                f"patch_torch_functions_type={properties.cast_model_type} in place of "
                "cast_model_type; for weights in it take O2 or O3"
            )
        for name in ("keep_batchnorm_fp32", "master_weights"):
            if getattr(properties, name):
                raise RuntimeError(
                    f"{opt_level} keeps all weights, those of batch norms too, in float32: {name}"
                    "=True is for O2; leave it out"
                )
    return properties


def _dtype(name: str, value: Any) -> torch.dtype | None:
    if value is None or value is False:
        return None
    if value not in FLOATS:
        names = ", ".join(map(str, FLOATS))
        raise ValueError(f"{name} is {value!r}: expected one of {names}")
    return value  # type: ignore[no-any-return]


def _flag(name: str, value: Any) -> bool | None:
    """Command lines hand on "True" and "False" as text."""
    words = {"True": True, "False": False, True: True, False: False, None: None, "None": None}
    if value not in words:
        raise ValueError(f"{name} is {value!r}: expected True, False or None")
    return words[value]


def _scale(value: Any) -> float | str | None:
    if value is None or value == "dynamic" or value == "None":
        return None if value in (None, "None") else "dynamic"
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = 0.0
    if not 0 < number < float("inf"):
        raise ValueError(f'loss_scale is {value!r}: expected a number above 0, or "dynamic"')
    return number


def _count(value: Any) -> int:
    if type(value) is not int or value < 1:
        raise ValueError(f"ddp_replica_count is {value!r}: expected 1 or more")
    return value


def _several(value: Any, kind: type, name: str) -> list[Any]:
    if value is None:
        return []
    found = [value] if isinstance(value, kind) else value
    if isinstance(found, Iterable):
        items = list(found)
        if all(isinstance(item, kind) for item in items):
            return items
    raise TypeError(f"{name} is a {type(value).__name__}: expected {kind.__name__}, or several")


def _check(
    models: list[nn.Module], optimizers: list[torch.optim.Optimizer], properties: Properties
) -> None:
    """Refuse what would go wrong later, and silently."""
    parallel = (nn.parallel.DistributedDataParallel, nn.parallel.DataParallel)
    for model in models:
        if isinstance(model, parallel):
            raise RuntimeError(
                f"amp.initialize was given a {type(model).__name__}: give it the model itself, and "
                "wrap what it returns"
            )
        if hasattr(model.__dict__.get("forward"), "functions"):
            raise RuntimeError(
                "amp.initialize was given a model that it was given before: give it each model once"
            )
        for name, param in model.named_parameters():
            if isinstance(param, nn.parameter.UninitializedParameter):
                raise RuntimeError(f"parameter {name} has no shape yet: run the model once before")
            if param.dtype in HALVES:
                raise RuntimeError(
                    f"parameter {name} is {param.dtype}: amp.initialize casts models itself and "
                    "wants them in float32"
                )
    for optimizer in optimizers:
        if hasattr(optimizer, "_amp_stash"):
            raise RuntimeError(
                "amp.initialize was given an optimizer that it was given before: give it each "
                "optimizer once"
            )
    known = {id(p) for model in models for p in model.parameters()}
    for optimizer in optimizers:
        held = [p for group in optimizer.param_groups for p in group["params"]]
        if known and held and not any(id(p) in known for p in held):
            raise RuntimeError(
                f"the {type(optimizer).__name__} holds no parameter of the models: on devices such "
                "as this model.to(device) makes new ones, so call it before the optimizer is made"
            )
    dist = torch.distributed
    if properties.combine_ddp and not (dist.is_available() and dist.is_initialized()):
        raise RuntimeError(
            "combine_ddp=True averages gradients over processes: call "
            "torch.distributed.init_process_group() before amp.initialize"
        )


def _same_everywhere(models: list[nn.Module], optimizers: list[torch.optim.Optimizer]) -> None:
    """Give every process the first one's weights, as DistributedDataParallel does."""
    with torch.no_grad():
        for model in models:
            for tensor in (*model.parameters(), *model.buffers()):
                torch.distributed.broadcast(tensor, 0)
    for optimizer in optimizers:
        optimizer._amp_stash.take_masters()  # type: ignore[attr-defined]


def _default() -> str:
    accelerator = torch.accelerator.current_accelerator()
    return accelerator.type if accelerator is not None else "cpu"


def _print(properties: Properties, opt_level: str) -> None:
    maybe_print(f"Selected optimization level {opt_levels[opt_level].brief}", True)
    for name, value in properties.options().items():
        maybe_print(f"{name:27}: {value}", True)
